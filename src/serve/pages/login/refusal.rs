//! The reason for which a sign-in is refused.

use axum::http::StatusCode;

use crate::serve::access::{AccessError, TokenError};

/// Shown with the form.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn too_many(retry_after: u64) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            reason: format!("too many sign-ins from your address, try again in {retry_after}s"),
            retry_after: Some(retry_after),
        }
    }
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            reason: error.to_string(),
            retry_after: None,
        }
    }
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let (status, retry_after) = match error {
            AccessError::Unauthenticated => (StatusCode::UNAUTHORIZED, None),
            AccessError::Forbidden { .. } | AccessError::ForeignHost => (StatusCode::FORBIDDEN, None),
            AccessError::Misdirected => (StatusCode::MISDIRECTED_REQUEST, None),
            AccessError::TooMany { retry_after } => (StatusCode::TOO_MANY_REQUESTS, Some(retry_after)),
            AccessError::Unavailable { retry_after } => (StatusCode::SERVICE_UNAVAILABLE, Some(retry_after)),
        };
        let reason = match error {
            AccessError::Unauthenticated => {
                "the API server does not accept this token; it may have expired, so create another one".to_owned()
            }
            other => other.to_string(),
        };
        Self {
            status,
            reason,
            retry_after,
        }
    }
}
