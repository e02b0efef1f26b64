pub mod authentication;
pub mod prerequisites;
mod setup;
pub mod webhooks;

pub use setup::{SharedParts, setup};
