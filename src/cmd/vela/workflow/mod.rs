//! Commands for the workflow of an Application.

mod context;
pub mod logs;
pub mod operations;
pub mod rollback;
