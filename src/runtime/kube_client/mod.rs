mod call;
mod connect;
mod credentials;
mod decoded_size;
mod large_responses;
pub mod metrics;
mod outage;
mod pauses;
mod remote;
mod request_limits;
pub mod response_size;
pub mod response_timeout;
pub mod review;
mod time_limit;
mod trace;
pub mod write_fence;

pub use call::{ApiError, DEADLINE, call, call_within};
pub use connect::{
    ConnectError, ConnectOptions, api_server_endpoint, api_server_of_pod, connect, connect_transport,
    connect_without_credentials,
};
pub use credentials::{bearer_token, connect_silently};
pub use large_responses::RemotePermits;
pub use outage::is_api_server_unreachable;
pub use remote::{RemoteOptions, connect_remote};
pub use request_limits::{RequestLimits, RequestTimeouts};
