//! The Secret of a sink: its address, format, key of signatures and charts. It is read for each row and never stored, so
//! that a change applies to the next try.

use url::Url;

use crate::api::NamespacedName;
use crate::controllers::apprepository::origin::{Origin, SecretReadError};
use crate::runtime::manifests::{SecretContent, is_object_name};
use crate::text::matches_wildcards;

const MAX_URL: usize = 2048;
const MAX_PATTERNS: usize = 1000;
/// Names of charts are not longer.
const MAX_PATTERN: usize = 253;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    CloudEvents,
    Slack,
    Flux,
}

/// Implements no Debug: the URL of a Slack webhook is a secret, too.
pub struct Sink {
    pub url: Url,
    pub format: Format,
    /// Absent only for Slack, which can't check a signature.
    pub key: Option<Vec<u8>>,
    /// Wildcards of chart names; all charts if empty.
    charts: Vec<String>,
}

/// Messages follow the name of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    #[error("its name is not valid; correct the annotation portolan.dev/news or --news")]
    InvalidName,
    #[error("it does not exist; create it with the keys url and token, or remove it from portolan.dev/news or --news")]
    NotFound,
    #[error(transparent)]
    Unreadable(#[from] SecretReadError),
    #[error("its key url must be an http or https URL of at most {} bytes", MAX_URL)]
    InvalidUrl,
    #[error("its key format must be cloudevents, slack or flux")]
    UnknownFormat,
    #[error("it has no key token; set it to the key of the signatures, which only format slack goes without")]
    NoToken,
    #[error(
        "its key charts must have at most {} lines of at most {} bytes",
        MAX_PATTERNS,
        MAX_PATTERN
    )]
    InvalidCharts,
}

impl SinkError {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "SecretNotFound",
            Self::Unreadable(_) => "SecretUnreadable",
            _ => "SecretInvalid",
        }
    }
}

impl Sink {
    pub async fn read(origin: &Origin, secret: &NamespacedName) -> Result<Self, SinkError> {
        if !is_object_name(&secret.namespace) || !is_object_name(&secret.name) {
            return Err(SinkError::InvalidName);
        }
        let content = origin.secret(secret).await?.ok_or(SinkError::NotFound)?;
        Self::parse(&content)
    }

    pub(super) fn parse(content: &SecretContent) -> Result<Self, SinkError> {
        // Line breaks come from `echo` and editors.
        let text = |key: &str| {
            let value = content
                .data
                .get(key)
                .map(|value| std::str::from_utf8(value).map(str::trim));
            value.unwrap_or(Ok(""))
        };
        let url = text("url").ok().filter(|url| url.len() <= MAX_URL);
        let url = url.and_then(|url| Url::parse(url).ok()).ok_or(SinkError::InvalidUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(SinkError::InvalidUrl);
        }
        let format = match text("format") {
            Ok("" | "cloudevents") => Format::CloudEvents,
            Ok("slack") => Format::Slack,
            Ok("flux") => Format::Flux,
            _ => return Err(SinkError::UnknownFormat),
        };
        // As it is: Flux uses all bytes of its own Secret as the key.
        let key = content.data.get("token").filter(|key| !key.is_empty()).cloned();
        if key.is_none() && format != Format::Slack {
            return Err(SinkError::NoToken);
        }
        let charts = text("charts").map_err(|_| SinkError::InvalidCharts)?;
        let lines = charts.lines().map(str::trim).filter(|line| !line.is_empty());
        let charts: Vec<String> = lines.take(MAX_PATTERNS + 1).map(str::to_owned).collect();
        if charts.len() > MAX_PATTERNS || charts.iter().any(|pattern| pattern.len() > MAX_PATTERN) {
            return Err(SinkError::InvalidCharts);
        }
        Ok(Self {
            url,
            format,
            key,
            charts,
        })
    }

    #[must_use]
    pub fn wants(&self, chart: &str) -> bool {
        self.charts.is_empty() || self.charts.iter().any(|pattern| matches_wildcards(pattern, chart))
    }

    /// Returns the host and the port: all of the URL that may be logged.
    #[must_use]
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}
