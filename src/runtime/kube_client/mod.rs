mod call;
mod connect;
pub mod metrics;
pub mod response_size;
pub mod response_timeout;

pub use call::{ApiError, DEADLINE, call};
pub use connect::{ConnectError, ConnectOptions, connect};
