//! The functions that templates of workflow steps call and that reach outside of the process.
//!
//! ```text
//!  call {provider, function, params} ─► http: Secrets, permit, rate limit ─► guarded client ─► {body, header, statusCode}
//!                                     ├► config: Secrets with the label of configs
//!                                     └► objects: what to read, list, delete or patch; the caller does it
//! ```
//!
//! Parameters come from tenants. Messages name fields, hosts and Secrets, never their values.

pub mod config;
pub mod http;
pub mod objects;
mod params;
pub mod secrets;

use serde_json::Value;

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The value of `$returns`.
    Returned(Value),
    /// Nothing was done; the same call may succeed later.
    Waiting(String),
    Failed {
        message: String,
    },
}

impl Answer {
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
        }
    }
}

/// A call fails with a message.
impl From<Result<Value, String>> for Answer {
    fn from(result: Result<Value, String>) -> Self {
        match result {
            Ok(value) => Self::Returned(value),
            Err(message) => Self::Failed { message },
        }
    }
}
