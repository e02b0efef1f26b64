//! Sends one message, and decides what its response means.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use ring::hmac;

use super::message::Body;
use super::sink::{Sink, SinkError};
use crate::http::{Access, Exchange, FetchError, FetchLimits, Fetcher, ResponseHead};
use crate::text::hex;

const TIMEOUT: Duration = Duration::from_secs(10);
/// The header that Flux's receivers of type `generic-hmac` verify.
const SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// Label of metrics.
    pub reason: &'static str,
    /// Names the host only.
    pub message: String,
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A later try may succeed.
    Transient,
    /// The sink rejects this message; others may be accepted.
    Rejected,
    /// The sink wants no further messages.
    Gone,
}

impl Failure {
    fn transient(reason: &'static str, message: String) -> Self {
        Self {
            kind: FailureKind::Transient,
            reason,
            message,
            retry_after: None,
        }
    }
}

impl From<&SinkError> for Failure {
    fn from(error: &SinkError) -> Self {
        Self::transient(error.reason(), error.to_string())
    }
}

/// Sends a message. The host is shared with syncs, by fair shares of the namespaces.
pub async fn send(fetcher: &Fetcher, sink: &Sink, namespace: &str, body: Body) -> Result<(), Failure> {
    let host = sink.host();
    let limits = FetchLimits {
        total: TIMEOUT,
        connect: TIMEOUT,
        ..FetchLimits::default()
    };
    let access = Access {
        namespace: namespace.to_owned(),
        ..Access::default()
    };
    let sent = async {
        let exchange = exchange(sink, body)?;
        fetcher.with(access)?.notify(&exchange, &limits).await
    };
    match sent.await {
        Ok(head) => check(head, &host),
        Err(error) => {
            let mut failure = Failure::transient(error.reason(), error.message_without_path(&host));
            failure.retry_after = error.retry_after();
            Err(failure)
        }
    }
}

fn exchange(sink: &Sink, body: Body) -> Result<Exchange, FetchError> {
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, body.content_type)]);
    if let Some(key) = &sink.key {
        headers.insert(
            SIGNATURE,
            signature(key, &body.bytes).ok_or(FetchError::InvalidCredentials)?,
        );
    }
    Ok(Exchange {
        method: Method::POST,
        url: sink.url.clone(),
        headers,
        credentials: HeaderMap::new(),
        body: body.bytes,
    })
}

fn signature(key: &[u8], body: &[u8]) -> Option<HeaderValue> {
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body);
    HeaderValue::try_from(format!("sha256={}", hex(signature.as_ref()))).ok()
}

fn check(head: ResponseHead, host: &str) -> Result<(), Failure> {
    let status = head.status;
    let is_later = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .contains(&status);
    let (kind, reason, advice) = match status.as_u16() {
        200..300 => return Ok(()),
        300..400 => (
            FailureKind::Transient,
            "Redirected",
            "redirects are not followed, set the key url to the final URL",
        ),
        410 => (FailureKind::Gone, "Gone", "the sink wants no more news"),
        400..500 if !is_later => (
            FailureKind::Rejected,
            "Rejected",
            "check the keys url, format and token",
        ),
        _ => (FailureKind::Transient, "Unavailable", "retrying"),
    };
    Err(Failure {
        kind,
        reason,
        message: format!("{host} returned {status}; {advice}"),
        retry_after: head.retry_after,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// As `printf BODY | openssl dgst -sha256 -hmac KEY` prints it.
    #[test]
    fn a_signature_is_the_hmac_of_the_body() {
        let signature = signature(b"key", b"The quick brown fox jumps over the lazy dog").unwrap();
        let expected = "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8";
        assert_eq!(signature.to_str().unwrap(), expected);
    }

    #[rstest]
    #[case(200, None)]
    #[case(204, None)]
    #[case(302, Some(FailureKind::Transient))]
    #[case(400, Some(FailureKind::Rejected))]
    #[case(404, Some(FailureKind::Rejected))]
    #[case(408, Some(FailureKind::Transient))]
    #[case(410, Some(FailureKind::Gone))]
    #[case(425, Some(FailureKind::Transient))]
    #[case(429, Some(FailureKind::Transient))]
    #[case(500, Some(FailureKind::Transient))]
    #[case(503, Some(FailureKind::Transient))]
    fn a_status_decides_whether_a_later_try_may_succeed(#[case] status: u16, #[case] expected: Option<FailureKind>) {
        let head = ResponseHead {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
        };
        assert_eq!(check(head, "example.com").err().map(|failure| failure.kind), expected);
    }
}
