mod context;
pub mod logs;
pub mod operations;
pub mod rollback;
