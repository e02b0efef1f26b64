//! Why something could not be fetched, in words that say what to do, and whether trying again soon may help.

use std::io;
use std::time::Duration;

use reqwest::StatusCode;

use super::Validators;

/// Why a fetch failed. URLs and hosts in it are fit to be shown; nothing of an answer's body ever is in it.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The text is no URL that can be fetched.
    #[error("the URL can't be used: {0}; correct it in the repository's spec")]
    InvalidUrl(String),
    /// The host has only addresses that may not be reached, or its name tells that it has.
    #[error("{host} may not be asked, since its address is {address}: {why}; use a URL of another host")]
    AddressRefused {
        /// Name or address, as the URL has it.
        host: String,
        /// The address, or the name where that decides.
        address: String,
        /// What speaks against it.
        why: &'static str,
    },
    /// A proxy's URL is none.
    #[error("{proxy} can't be used: {problem}; it has to be like http://user:password@host:port, or only host:port")]
    InvalidProxy {
        /// For what, and whose.
        proxy: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The certificate authorities of a repository can't be read.
    #[error(
        "the value of the customCA secret is no PEM certificate: it {0}; put the authority's certificate there as text that begins with -----BEGIN CERTIFICATE-----"
    )]
    InvalidCa(String),
    /// The credentials can't be put into a header.
    #[error(
        "the credentials can't be sent, since they hold what no header may, such as a line break; correct them in their secret"
    )]
    InvalidCredentials,
    /// The host's name has no address.
    #[error("the host name {host} could not be resolved ({detail}); check the URL and the cluster's DNS")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver says.
        detail: String,
    },
    /// No connection came about.
    #[error(
        "{host} could not be reached ({detail}); check that it is up and that no network policy or proxy is in between"
    )]
    Connect {
        /// Host and port.
        host: String,
        /// What the system says.
        detail: String,
    },
    /// The server's certificate is not trusted, or is not for this host.
    #[error(
        "the certificate of {host} is not trusted ({detail}); check that the URL names the right host, and add its certificate authority if it is a private one"
    )]
    Untrusted {
        /// Host and port.
        host: String,
        /// What is wrong with it.
        detail: String,
    },
    /// TLS failed for another reason than the certificate.
    #[error(
        "the TLS handshake with {host} was broken off ({detail}); check that the port speaks HTTPS; it is tried again"
    )]
    Handshake {
        /// Host and port.
        host: String,
        /// What TLS says.
        detail: String,
    },
    /// The connection ended before an answer came.
    #[error("{host} closed the connection without an answer ({detail}); it is tried again")]
    ConnectionLost {
        /// Host and port.
        host: String,
        /// What HTTP says.
        detail: String,
    },
    /// All of it together took too long.
    #[error("{url} was not complete after {} s; its server is too slow, or the time limit has to be raised", limit.as_secs_f64())]
    Timeout {
        /// What was fetched.
        url: String,
        /// The limit.
        limit: Duration,
    },
    /// Nothing came for too long.
    #[error("{url} stalled: nothing came for {} s after {bytes} bytes; it is tried again", limit.as_secs_f64())]
    Stalled {
        /// What was fetched.
        url: String,
        /// The limit.
        limit: Duration,
        /// What had come by then.
        bytes: u64,
    },
    /// An answer that is not 200.
    #[error("{url} answered {status}; {}", advice(*.status))]
    Status {
        /// What was fetched.
        url: String,
        /// The answer.
        status: StatusCode,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
        /// With 401, the values of `WWW-Authenticate`, which say what credentials are wanted.
        challenges: Vec<String>,
    },
    /// The host has asked to be left alone, so it was not asked at all.
    #[error("{host} has answered {status} and wants to be left alone; it is tried again when that time is over")]
    OnHold {
        /// Host and port.
        host: String,
        /// What it has answered.
        status: StatusCode,
        /// For how long.
        remaining: Duration,
    },
    /// It is larger than allowed.
    #[error(
        "{what} is larger than the limit of {limit} bytes ({seen} bytes seen); raise the limit if that is as it should be"
    )]
    TooLarge {
        /// What was fetched.
        what: String,
        /// The limit, which holds before and after decompression.
        limit: u64,
        /// Bytes announced or received.
        seen: u64,
        /// What the server said of it, by which it is known again without a download.
        validators: Validators,
    },
    /// One redirect led to the next.
    #[error(
        "{url} was redirected more than {limit} times; its server's redirects lead in a circle or too far: use the final URL"
    )]
    TooManyRedirects {
        /// Where it began.
        url: String,
        /// The limit.
        limit: usize,
    },
    /// A redirect that can't be followed.
    #[error("{url} redirects to nowhere: {problem}; use the final URL")]
    BadRedirect {
        /// What redirects.
        url: String,
        /// What is wrong with where to.
        problem: String,
    },
    /// The body ended too early, or its compression is broken.
    #[error("the body of {url} was cut short or damaged after {bytes} bytes ({detail}); it is tried again")]
    CutShort {
        /// What was fetched.
        url: String,
        /// What had come by then.
        bytes: u64,
        /// What HTTP says.
        detail: String,
    },
    /// The body is encoded in a way that was not asked for.
    #[error(
        "{url} answered with the content encoding {encoding}, which was not asked for; let its server send it as it is, or with gzip where that is asked for"
    )]
    Encoding {
        /// What was fetched.
        url: String,
        /// The header's value.
        encoding: String,
    },
    /// There is no such file.
    #[error("{0} does not exist; check the path, which counts from the manifest's folder")]
    FileNotFound(String),
    /// The file can't be read.
    #[error("{path} can't be read ({detail}); check that it is a file and may be read")]
    FileUnreadable {
        /// Which.
        path: String,
        /// Why.
        detail: String,
    },
    /// The temporary file failed.
    #[error(
        "the download could not be kept in a temporary file ({0}); check the spool directory and the space on its disk"
    )]
    Spool(#[source] io::Error),
    /// The client could not be made.
    #[error("the HTTP client could not be set up ({0})")]
    Client(String),
}

impl FetchError {
    /// What the server said of a body that was refused before it was whole.
    #[must_use]
    pub const fn validators(&self) -> Option<&Validators> {
        match self {
            Self::TooLarge { validators, .. } => Some(validators),
            _ => None,
        }
    }

    /// The same, with what the server said of the body where that is kept.
    pub(super) fn of_body_with(mut self, said: &Validators) -> Self {
        if let Self::TooLarge { validators, .. } = &mut self {
            validators.clone_from(said);
        }
        self
    }

    /// The reason for a status condition.
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
            Self::Status { status, .. } | Self::OnHold { status, .. } => status_reason(*status),
            Self::TooLarge { .. } => "TooLarge",
            Self::TooManyRedirects { .. } => "TooManyRedirects",
            Self::BadRedirect { .. } => "InvalidRedirect",
            Self::CutShort { .. } => "ConnectionInterrupted",
            Self::Encoding { .. } => "UnexpectedEncoding",
            Self::FileNotFound(_) => "FileNotFound",
            Self::FileUnreadable { .. } => "FileUnreadable",
            Self::Spool(_) => "SpoolFailed",
            Self::Client(_) => "ClientFailed",
        }
    }

    /// Whether it may go away by itself, so that it is worth being tried again soon. The others wait for the schedule, or
    /// for somebody to change something.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dns { .. }
            | Self::Connect { .. }
            | Self::Handshake { .. }
            | Self::ConnectionLost { .. }
            | Self::Timeout { .. }
            | Self::Stalled { .. }
            | Self::OnHold { .. }
            | Self::CutShort { .. }
            | Self::Spool(_) => true,
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

    /// How long the server wants to be left alone.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::OnHold { remaining, .. } => Some(*remaining),
            _ => None,
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
        401 => "it wants credentials: give the repository the right ones",
        403 => "the credentials, or the lack of them, do not suffice: check them and the URL",
        404 | 410 => "check the repository's URL: index.yaml is looked for directly below it",
        407 => "the proxy wants credentials: put them into the proxy's URL",
        429 => "it is asked too often; it is tried again later",
        500.. => "its server has a fault; it is tried again",
        _ => "only 200 counts as success: check the repository's URL",
    }
}
