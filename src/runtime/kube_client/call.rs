use std::error::Error as _;
use std::time::Duration;

use crate::text::{printable, truncate};

pub const DEADLINE: Duration = Duration::from_secs(30);

const MAX_MESSAGE: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: Option<u16>,
    /// The server's message or the chain of causes, as one printable line.
    pub message: String,
    is_transport: bool,
    is_already_exists: bool,
}

impl ApiError {
    #[must_use]
    pub fn not_found(message: &str) -> Self {
        Self {
            code: Some(404),
            message: message.to_owned(),
            is_transport: false,
            is_already_exists: false,
        }
    }

    /// No response of the API server; the same call may succeed later.
    #[must_use]
    pub fn unavailable(message: String) -> Self {
        Self {
            code: None,
            message,
            is_transport: true,
            is_already_exists: false,
        }
    }

    #[must_use]
    pub fn bad_request(message: String) -> Self {
        Self {
            code: Some(400),
            message,
            is_transport: false,
            is_already_exists: false,
        }
    }

    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code == Some(409)
    }

    /// The name is taken. Conflicts may have other reasons, such as two concurrent updates of a quota.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.is_already_exists
    }

    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code == Some(403)
    }

    /// Returns true if the same call may succeed later without a change by a user.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.code
            .map_or(self.is_transport, |code| matches!(code, 409 | 429 | 500..))
    }
}

impl From<&kube::Error> for ApiError {
    fn from(error: &kube::Error) -> Self {
        let (code, text) = match error {
            // The Display form of a Status repeats it as a Rust struct.
            kube::Error::Api(status) => (Some(status.code), status.message.clone()),
            error => (None, chain(error)),
        };
        Self {
            code,
            message: truncate(&printable(&text), MAX_MESSAGE),
            is_transport: matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)),
            is_already_exists: matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists"),
        }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        Self::from(&error)
    }
}

/// Joins an error and its causes: "client error (Connect)" alone does not say that the connection was refused.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Awaits a request for at most [`DEADLINE`]: a half-open connection would block its worker forever.
pub async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, ApiError> {
    call_within(DEADLINE, request).await?.map_err(ApiError::from)
}

/// Same with another deadline. Returns the error of the request, which tells more than [`ApiError`].
pub async fn call_within<T, E>(
    deadline: Duration,
    request: impl Future<Output = Result<T, E>>,
) -> Result<Result<T, E>, ApiError> {
    let no_response = |_| ApiError::unavailable(format!("no response within {}s", deadline.as_secs()));
    tokio::time::timeout(deadline, request).await.map_err(no_response)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn status(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        }))
    }

    #[rstest]
    #[case(404, false)]
    #[case(403, false)]
    #[case(422, false)]
    #[case(409, true)]
    #[case(429, true)]
    #[case(503, true)]
    fn a_refusal_is_permanent_and_overload_is_retryable(#[case] code: u16, #[case] is_retryable: bool) {
        let error = ApiError::from(status(code, "no"));
        assert_eq!((error.code, error.is_retryable()), (Some(code), is_retryable));
    }

    #[test]
    fn a_message_is_one_short_printable_line() {
        let error = ApiError::from(status(500, &format!("a\nb{}", "x".repeat(2 * MAX_MESSAGE))));
        assert!(error.message.starts_with("a bx") && error.message.len() <= MAX_MESSAGE);
    }

    #[test]
    fn causes_follow_after_colons() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = ApiError::from(kube::Error::Service(Box::new(refused)));
        assert!(error.message.ends_with(": connection refused"), "{error}");
        assert!(error.is_retryable());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_response_ends_at_the_deadline() {
        let error = call(std::future::pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (None, "no response within 30s"));
        assert!(error.is_retryable());
    }
}
