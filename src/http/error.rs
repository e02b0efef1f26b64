//! Fetch errors: messages, condition reasons, and classification of reqwest errors.

use std::error::Error;
use std::io;
use std::time::Duration;

use ::url::Url;
use reqwest::StatusCode;

use super::Validators;
use super::address::{AddressNotAllowed, HostResolveError};
use super::url::host_and_port;
use crate::budget::Full;
use crate::text::{printable, public_url, truncate};

/// A failed fetch. Messages never contain credentials, query strings or response bodies.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("invalid URL: {0}; fix it in the repository's spec")]
    InvalidUrl(String),
    #[error("connections to {host} ({address}) are not allowed: {why}")]
    AddressRefused {
        host: String,
        address: String,
        why: &'static str,
    },
    #[error("{proxy} is not a valid proxy URL: {problem}; use http://user:password@host:port or host:port")]
    InvalidProxy { proxy: String, problem: String },
    #[error(
        "the customCA secret is not a valid PEM certificate: it {0}; store text that begins with -----BEGIN CERTIFICATE-----"
    )]
    InvalidCa(String),
    #[error(
        "the credentials contain characters not allowed in an HTTP header, such as a line break; fix them in the secret"
    )]
    InvalidCredentials,
    #[error("failed to resolve host name {host}: {detail}; check the URL and the cluster's DNS")]
    Dns { host: String, detail: String },
    #[error(
        "failed to connect to {host}: {detail}; check that it is up and that no network policy or proxy blocks the connection"
    )]
    Connect { host: String, detail: String },
    #[error(
        "the certificate of {host} is not trusted: {detail}; check the host name, or set customCA for a private certificate authority"
    )]
    Untrusted { host: String, detail: String },
    #[error("TLS handshake with {host} failed: {detail}; check that the port serves HTTPS")]
    Handshake { host: String, detail: String },
    #[error("{host} closed the connection without a response: {detail}")]
    ConnectionLost { host: String, detail: String },
    #[error("downloading {url} timed out after {}s; see --fetch-timeout", limit.as_secs_f64())]
    Timeout { url: String, limit: Duration },
    #[error("downloading {url} stalled: less than 1 KiB/s for {}s after {bytes} bytes; see --stall-timeout", limit.as_secs_f64())]
    Stalled { url: String, limit: Duration, bytes: u64 },
    #[error(
        "downloading {0} was aborted: it was the slowest one while no sync worker was free for other namespaces; \
         retrying among slow repositories"
    )]
    Aborted(String),
    #[error("{url} returned {status}; {}", advice(*.status))]
    Status {
        url: String,
        status: StatusCode,
        retry_after: Option<Duration>,
        challenges: Vec<String>,
    },
    #[error("{host} returned {status} with Retry-After, retrying in {}s", remaining.as_secs())]
    BackingOff {
        host: String,
        status: StatusCode,
        remaining: Duration,
    },
    #[error(
        "{name} exceeds the limit of {limit} bytes (size is at least {actual} bytes); raise the limit if this is expected"
    )]
    TooLarge {
        name: String,
        /// Applies before and after decompression.
        limit: u64,
        actual: u64,
        /// Identify the same body later without a download.
        validators: Validators,
    },
    #[error("{url} was redirected more than {limit} times; use the final URL")]
    TooManyRedirects { url: String, limit: usize },
    #[error("invalid redirect from {url}: {problem}; use the final URL")]
    BadRedirect { url: String, problem: String },
    #[error("the body of {url} is truncated or corrupt after {bytes} bytes: {detail}")]
    Interrupted { url: String, bytes: u64, detail: String },
    #[error(
        "{url} returned the unsupported content encoding {encoding}; configure its server to send identity or gzip"
    )]
    Encoding { url: String, encoding: String },
    #[error("{0} does not exist; check the path, which is relative to the manifest's directory")]
    FileNotFound(String),
    #[error("failed to read {path}: {detail}; check that it is a regular file with read permission")]
    FileUnreadable { path: String, detail: String },
    #[error("failed to write the download to a temporary file: {0}; check the spool directory and its free disk space")]
    Spool(#[source] io::Error),
    #[error("the download was aborted, since all temporary files together are too large: {0}; raise --spool-limit")]
    SpoolFull(Full),
    #[error("failed to build the HTTP client: {0}")]
    Client(String),
}

impl FetchError {
    #[must_use]
    pub const fn validators(&self) -> Option<&Validators> {
        match self {
            Self::TooLarge { validators, .. } => Some(validators),
            _ => None,
        }
    }

    pub(super) fn with_validators(mut self, of_body: &Validators) -> Self {
        if let Self::TooLarge { validators, .. } = &mut self {
            validators.clone_from(of_body);
        }
        self
    }

    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidUrl(_) => "InvalidURL",
            Self::AddressRefused { .. } => "AddressRefused",
            Self::InvalidProxy { .. } => "InvalidProxy",
            Self::InvalidCa(_) => "InvalidCA",
            Self::InvalidCredentials => "InvalidCredentials",
            Self::Dns { .. } => "DNSFailure",
            Self::Connect { .. } => "ConnectFailed",
            Self::Untrusted { .. } => "CertificateNotTrusted",
            Self::Handshake { .. } => "TLSFailure",
            Self::ConnectionLost { .. } => "ConnectionLost",
            Self::Timeout { .. } => "Timeout",
            Self::Stalled { .. } => "DownloadStalled",
            Self::Aborted(_) => "DownloadAborted",
            Self::Status { status, .. } | Self::BackingOff { status, .. } => status_reason(*status),
            Self::TooLarge { .. } => "TooLarge",
            Self::TooManyRedirects { .. } => "TooManyRedirects",
            Self::BadRedirect { .. } => "InvalidRedirect",
            Self::Interrupted { .. } => "ConnectionInterrupted",
            Self::Encoding { .. } => "UnexpectedEncoding",
            Self::FileNotFound(_) => "FileNotFound",
            Self::FileUnreadable { .. } => "FileUnreadable",
            Self::Spool(_) => "SpoolFailed",
            Self::SpoolFull(_) => "SpoolFull",
            Self::Client(_) => "ClientFailed",
        }
    }

    /// Returns true if a retry with backoff may succeed. Other errors wait for the next scheduled sync or a change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Handshake { .. }
            | Self::ConnectionLost { .. }
            | Self::Timeout { .. }
            | Self::Stalled { .. }
            | Self::Aborted(_)
            | Self::BackingOff { .. }
            | Self::Interrupted { .. }
            | Self::Spool(_)
            | Self::SpoolFull(_) => true,
            Self::Status { status, .. } => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::InvalidUrl(_)
            | Self::AddressRefused { .. }
            | Self::InvalidProxy { .. }
            | Self::InvalidCa(_)
            | Self::InvalidCredentials
            | Self::Encoding { .. }
            | Self::Untrusted { .. }
            | Self::TooLarge { .. }
            | Self::TooManyRedirects { .. }
            | Self::BadRedirect { .. }
            | Self::FileNotFound(_)
            | Self::FileUnreadable { .. }
            | Self::Client(_) => false,
        }
    }

    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::BackingOff { remaining, .. } => Some(*remaining),
            _ => None,
        }
    }

    /// Returns the message for a request to `host`, without advice. Path and query may be secrets, as in webhooks.
    #[must_use]
    pub fn message_without_path(&self, host: &str) -> String {
        match self {
            Self::AddressRefused { .. }
            | Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Handshake { .. }
            | Self::ConnectionLost { .. }
            | Self::BackingOff { .. }
            | Self::Client(_) => self.to_string(),
            Self::Untrusted { host, detail } => format!("the certificate of {host} is not trusted: {detail}"),
            Self::InvalidCredentials => format!("the user information of the URL of {host} is not valid"),
            Self::Timeout { limit, .. } => format!("no complete response from {host} within {}s", limit.as_secs_f64()),
            Self::TooLarge { limit, .. } => format!("the response of {host} is larger than {limit} bytes"),
            Self::TooManyRedirects { limit, .. } => format!("{host} redirects more than {limit} times"),
            Self::BadRedirect { problem, .. } => format!("invalid redirect from {host}: {problem}"),
            Self::Interrupted { bytes, detail, .. } => {
                format!("the response of {host} ended after {bytes} bytes: {detail}")
            }
            _ => format!("the request to {host} failed: {}", self.reason()),
        }
    }
}

fn status_reason(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 | 410 => "NotFound",
        407 => "ProxyAuthenticationRequired",
        429 => "TooManyRequests",
        500.. => "ServerError",
        _ => "UnexpectedStatus",
    }
}

fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "set valid credentials in spec.auth",
        403 => "check the credentials and the URL",
        404 | 410 => "check the repository's URL: index.yaml must be directly below it",
        407 => "set the credentials in the proxy's URL",
        429 => "too many requests, retrying later",
        500.. => "server error, retrying",
        _ => "expected 200, check the repository's URL",
    }
}

/// Classifies a failed request. reqwest exposes few error types, so this walks the chain of causes.
pub(super) fn classify(error: &reqwest::Error, url: &Url, proxy: Option<&Url>) -> FetchError {
    let host = match proxy {
        None => host_and_port(url),
        Some(proxy) => format!("{} through the proxy {}", host_and_port(url), host_and_port(proxy)),
    };
    for cause in causes(error) {
        if let Some(refused) = cause.downcast_ref::<AddressNotAllowed>() {
            return FetchError::AddressRefused {
                host: refused.name.clone(),
                address: refused.address.to_string(),
                why: refused.why,
            };
        }
        if let Some(failed) = cause.downcast_ref::<HostResolveError>() {
            return FetchError::Dns {
                host: failed.name.clone(),
                detail: display(&failed.source),
            };
        }
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            let detail = display(tls);
            return match tls {
                rustls::Error::InvalidCertificate(_) => FetchError::Untrusted { host, detail },
                _ => FetchError::Handshake { host, detail },
            };
        }
        // hyper-util does not export the type of this error.
        if let Some(proxy) = proxy
            && cause.to_string().contains("proxy authorization required")
        {
            return FetchError::Status {
                url: public_url(proxy),
                status: StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                retry_after: None,
                challenges: Vec::new(),
            };
        }
        let disconnects = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
        let is_handshake = error.is_connect() && url.scheme() == "https";
        if let Some(system) = cause.downcast_ref::<io::Error>()
            && is_handshake
            && disconnects.contains(&system.kind())
        {
            return FetchError::Handshake {
                host,
                detail: display(system),
            };
        }
    }
    let detail = root_cause(error);
    if error.is_connect() {
        FetchError::Connect { host, detail }
    } else {
        FetchError::ConnectionLost { host, detail }
    }
}

/// Returns the root cause. The outermost message contains the URL with its secrets.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    causes(error).last().map_or_else(|| "unknown cause".to_owned(), display)
}

/// Returns the chain of causes without reqwest's own error.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            // `source()` of an I/O error skips the error that it wraps.
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => cause.source(),
        }
    })
}

fn display(error: &(impl std::fmt::Display + ?Sized)) -> String {
    const MAX_BYTES: usize = 200;
    truncate(&printable(&error.to_string()), MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_path_name_the_host_only() {
        let (url, host) = ("https://example.com/secret?token=secret".to_owned(), "example.com");
        let errors = [
            FetchError::Timeout {
                url: url.clone(),
                limit: Duration::from_secs(5),
            },
            FetchError::Status {
                url: url.clone(),
                status: StatusCode::NOT_FOUND,
                retry_after: None,
                challenges: Vec::new(),
            },
            FetchError::TooManyRedirects {
                url: url.clone(),
                limit: 5,
            },
            FetchError::TooLarge {
                name: url.clone(),
                limit: 1,
                actual: 2,
                validators: Validators::default(),
            },
            FetchError::BadRedirect {
                url: url.clone(),
                problem: "missing Location header".to_owned(),
            },
            FetchError::Interrupted {
                url: url.clone(),
                bytes: 0,
                detail: "connection reset".to_owned(),
            },
            FetchError::InvalidUrl(url.clone()),
            FetchError::Encoding {
                url,
                encoding: "br".to_owned(),
            },
        ];
        for error in errors {
            let message = error.message_without_path(host);
            assert!(message.contains(host) && !message.contains("secret"), "{message}");
        }
    }
}
