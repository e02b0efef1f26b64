//! Why something could not be fetched, told so that a user knows what to do, and so that a reconcile knows whether to try again.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;

/// Why something could not be fetched. No message holds a URL's user information or query, nor any of the body.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The declared URL is none that can be fetched.
    #[error("the URL can't be used ({why}); correct spec.url")]
    InvalidUrl {
        /// What is wrong with it.
        why: String,
    },
    /// The name can't be resolved.
    #[error("the host {host} can't be resolved; check the name in spec.url and the cluster's DNS")]
    Dns {
        /// The host.
        host: String,
    },
    /// No connection.
    #[error("no connection to {host} ({why}); check that the server runs and that the network lets it through")]
    Connect {
        /// The host.
        host: String,
        /// What the system said.
        why: String,
    },
    /// The certificate is not trusted.
    #[error("the certificate of {host} is not trusted ({why}); let the server have one of a known authority")]
    Certificate {
        /// The host.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// The TLS handshake failed in another way.
    #[error("the TLS handshake with {host} was broken off ({why})")]
    Tls {
        /// The host.
        host: String,
        /// What happened.
        why: String,
    },
    /// Too slow as a whole.
    #[error("the download was not complete after {} s; see whether the server is overloaded, or raise --fetch-timeout", .after.as_secs())]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// Nothing came for too long.
    #[error("the download stalled: nothing came for {} s after {seen} bytes; see whether the server is overloaded", .after.as_secs())]
    Stalled {
        /// How long was waited.
        after: Duration,
        /// How many bytes had come.
        seen: u64,
    },
    /// The body ended too soon.
    #[error("the download was cut short after {seen} bytes ({why})")]
    CutShort {
        /// How many bytes had come.
        seen: u64,
        /// What happened.
        why: String,
    },
    /// The body is too large.
    #[error(
        "the index is too large: {seen} bytes or more, and the limit is {limit}; raise --index-max-bytes if that is meant"
    )]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
        /// What was seen or announced, in bytes.
        seen: u64,
    },
    /// Redirected too often, in a circle, or to something that is not fetched.
    #[error(
        "the server redirects without end or to where nothing is fetched ({why}); set spec.url to where the index really is"
    )]
    Redirect {
        /// What happened.
        why: String,
    },
    /// The server does not let us in.
    #[error("the server answered {status}: it wants credentials, or others than it got")]
    Denied {
        /// 401 or 403.
        status: StatusCode,
    },
    /// There is nothing at this address.
    #[error("the server answered {status}: there is no index.yaml below this URL; check spec.url")]
    NotFound {
        /// 404 or 410.
        status: StatusCode,
    },
    /// The server asks to be left alone.
    #[error("the server answered {status} and asks to be left alone{}", .retry_after.map_or_else(String::new, |time| format!(" for {} s", time.as_secs())))]
    LeaveAlone {
        /// 429 or 503.
        status: StatusCode,
        /// How long.
        retry_after: Option<Duration>,
    },
    /// The host has asked to be left alone a while ago.
    #[error("{host} has asked to be left alone; {} s are left", .left.as_secs() + 1)]
    OnHold {
        /// The host and port.
        host: String,
        /// How long it is still left alone.
        left: Duration,
    },
    /// The server is in trouble.
    #[error("the server answered {status}: it is in trouble, which may pass")]
    Server {
        /// 5xx.
        status: StatusCode,
    },
    /// Another status.
    #[error("the server answered {status}, where 200 was expected; check spec.url")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The file can't be read.
    #[error("the file {path} can't be read: {source}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The body could not be kept.
    #[error(
        "the download could not be kept in a temporary file ({source}); make room there, or name another folder with --spool-dir"
    )]
    Spool {
        /// What the system said.
        source: io::Error,
    },
    /// The client could not be made.
    #[error("no HTTP client could be made: {why}")]
    Client {
        /// What is wrong.
        why: String,
    },
    /// Something else between us and the server.
    #[error("the request to {host} failed ({why})")]
    Other {
        /// The host.
        host: String,
        /// What happened.
        why: String,
    },
}

impl FetchError {
    /// The reason in `CamelCase`, for conditions, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidUrl { .. } => "InvalidURL",
            Self::Dns { .. } => "DNSFailure",
            Self::Connect { .. } => "ConnectFailed",
            Self::Certificate { .. } => "CertificateNotTrusted",
            Self::Tls { .. } => "TLSFailure",
            Self::Timeout { .. } => "Timeout",
            Self::Stalled { .. } => "DownloadStalled",
            Self::CutShort { .. } => "BodyCutShort",
            Self::TooLarge { .. } => "TooLarge",
            Self::Redirect { .. } => "TooManyRedirects",
            Self::Denied { status } if *status == StatusCode::UNAUTHORIZED => "Unauthorized",
            Self::Denied { .. } => "Forbidden",
            Self::NotFound { .. } => "NotFound",
            Self::LeaveAlone { .. } | Self::OnHold { .. } => "TooManyRequests",
            Self::Server { .. } => "ServerError",
            Self::Status { .. } => "UnexpectedStatus",
            Self::File { .. } => "FileUnreadable",
            Self::Spool { .. } => "SpoolFailed",
            Self::Client { .. } => "ClientFailed",
            Self::Other { .. } => "RequestFailed",
        }
    }

    /// Whether it may pass by itself, so that another try soon makes sense.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Timeout { .. }
            | Self::Stalled { .. }
            | Self::CutShort { .. }
            | Self::LeaveAlone { .. }
            | Self::OnHold { .. }
            | Self::Server { .. }
            | Self::Spool { .. }
            | Self::Other { .. } => true,
            Self::InvalidUrl { .. }
            | Self::Certificate { .. }
            | Self::TooLarge { .. }
            | Self::Redirect { .. }
            | Self::Denied { .. }
            | Self::NotFound { .. }
            | Self::Status { .. }
            | Self::File { .. }
            | Self::Client { .. } => false,
        }
    }

    /// How long the server asks to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LeaveAlone { retry_after, .. } => *retry_after,
            Self::OnHold { left, .. } => Some(*left),
            _ => None,
        }
    }

    /// Sorts what the HTTP client says about a request to `host` of whose body `seen` bytes had come.
    pub(super) fn sort(error: &reqwest::Error, host: &str, seen: u64, total: Duration) -> Self {
        let host = host.to_owned();
        if error.is_builder() {
            return Self::InvalidUrl { why: innermost(error) };
        }
        if error.is_redirect() {
            return Self::Redirect { why: innermost(error) };
        }
        if let Some(error) = tls_error(error) {
            let why = error.to_string();
            return match error {
                rustls::Error::InvalidCertificate(_) => Self::Certificate { host, why },
                _ => Self::Tls { host, why },
            };
        }
        if error.is_connect() {
            // The resolver's errors have no type of their own that could be asked for.
            let is_dns = chain(error).any(|error| error.to_string().starts_with("dns error"));
            return match is_dns {
                true => Self::Dns { host },
                false => Self::Connect {
                    host,
                    why: innermost(error),
                },
            };
        }
        if error.is_timeout() {
            return Self::Timeout { after: total };
        }
        if error.is_body() || error.is_decode() {
            return Self::CutShort {
                seen,
                why: innermost(error),
            };
        }
        Self::Other {
            host,
            why: innermost(error),
        }
    }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The innermost cause, which says most; the outer ones repeat the URL, which may hold secrets.
fn innermost(error: &reqwest::Error) -> String {
    let text = chain(error)
        .skip(1)
        .last()
        .map_or_else(|| "no cause given".to_owned(), ToString::to_string);
    crate::text::truncate(&crate::text::printable(&text), 200)
}

/// What TLS says, wherever in the chain it hides: an I/O error does not name its content as its source.
fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    chain(error).find_map(|error| {
        error.downcast_ref::<rustls::Error>().or_else(|| {
            error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref)
                .and_then(|inner| inner.downcast_ref())
        })
    })
}
