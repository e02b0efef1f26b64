mod call;
mod connect;
pub mod metrics;
mod outage;
mod pauses;
mod request_limits;
pub mod response_size;
pub mod response_timeout;
pub mod review;
mod trace;
pub mod write_fence;

pub use call::{ApiError, DEADLINE, call, call_within};
pub use connect::{ConnectError, ConnectOptions, api_server_endpoint, api_server_of_pod, connect, connect_remote};
pub use outage::is_api_server_unreachable;
pub use request_limits::{RequestLimits, RequestTimeouts};
