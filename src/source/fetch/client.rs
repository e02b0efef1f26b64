//! The client itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RETRY_AFTER};
use reqwest::{Certificate, Client, Response, StatusCode, redirect};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::body::Spool;
use super::hosts::Hosts;
use super::{FetchError, Fetched, Limits, Settings, Validators};

/// How often a server may send us elsewhere.
const MAX_REDIRECTS: usize = 10;
/// A server that asks to be left alone for longer is asked again after this time all the same.
const LONGEST_HOLD: Duration = Duration::from_secs(60 * 60);
/// A validator that is longer is not worth keeping.
const MAX_VALIDATOR: usize = 1024;

/// Fetches over http and https; a handle, cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    client: Client,
    hosts: Arc<Hosts>,
    spool_dir: Option<PathBuf>,
}

impl Fetcher {
    /// A client with these settings. Proxies are taken from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).
    ///
    /// # Errors
    /// A root certificate can't be read, or no crypto provider is installed.
    pub fn new(settings: &Settings) -> Result<Self, FetchError> {
        let broken = |error: reqwest::Error| FetchError::Client { why: error.to_string() };
        let mut roots = Vec::new();
        for pem in &settings.extra_roots {
            roots.extend(Certificate::from_pem_bundle(pem.as_bytes()).map_err(broken)?);
        }
        let client = Client::builder()
            .user_agent(&settings.user_agent)
            .connect_timeout(settings.connect_timeout)
            .redirect(redirect::Policy::custom(follow))
            .tls_certs_merge(roots)
            // The request names no page before it: a URL may hold secrets.
            .referer(false)
            .build()
            .map_err(broken)?;
        Ok(Self {
            client,
            hosts: Arc::new(Hosts::new(settings)),
            spool_dir: settings.spool_dir.clone(),
        })
    }

    /// Fetches `url`, or learns that it is as it was when it had `validators`.
    ///
    /// # Errors
    /// Anything but a whole body, or the word that it has not changed: see [`FetchError`].
    pub async fn get(
        &self,
        url: &Url,
        validators: Option<&Validators>,
        limits: &Limits,
    ) -> Result<Fetched, FetchError> {
        let host = self.hosts.of(url);
        let _turn = host.turn().await?;
        let deadline = Instant::now() + limits.total;
        let late = |_| FetchError::Timeout { after: limits.total };
        let name = url.host_str().unwrap_or_default();
        let mut request = self.client.get(url.clone());
        let conditional = validators.filter(|validators| !validators.is_empty());
        if let Some(validators) = conditional {
            if let Some(etag) = &validators.etag {
                request = request.header(IF_NONE_MATCH, etag);
            }
            if let Some(date) = &validators.last_modified {
                request = request.header(IF_MODIFIED_SINCE, date);
            }
        }
        let response = timeout_at(deadline, request.send()).await.map_err(late)?;
        let response = response.map_err(|error| FetchError::sort(&error, name, 0, limits.total))?;
        match check(&response, conditional.is_some()) {
            Ok(Answer::NotModified) => return Ok(Fetched::NotModified),
            Ok(Answer::Body) => {}
            Err(error) => {
                if let FetchError::LeaveAlone {
                    retry_after: Some(time),
                    ..
                } = &error
                {
                    host.hold(*time);
                }
                return Err(error);
            }
        }
        let body = timeout_at(deadline, self.read(response, name, limits))
            .await
            .map_err(late)??;
        Ok(Fetched::Body(body))
    }

    async fn read(&self, mut response: Response, host: &str, limits: &Limits) -> Result<super::Body, FetchError> {
        if let Some(announced) = response.content_length().filter(|bytes| *bytes > limits.max_bytes) {
            return Err(FetchError::TooLarge {
                limit: limits.max_bytes,
                seen: announced,
            });
        }
        let validators = Validators {
            etag: text(response.headers(), &ETAG),
            last_modified: text(response.headers(), &LAST_MODIFIED),
        };
        let mut spool = Spool::new(self.spool_dir.as_deref(), limits.max_bytes);
        let mut seen = 0;
        loop {
            let piece = timeout(limits.stall, response.chunk())
                .await
                .map_err(|_| FetchError::Stalled {
                    after: limits.stall,
                    seen,
                })?
                .map_err(|error| FetchError::sort(&error, host, seen, limits.total))?;
            let Some(piece) = piece else {
                return spool.finish(validators);
            };
            seen += piece.len() as u64;
            spool.push(&piece)?;
        }
    }
}

/// What an answer is good for.
enum Answer {
    NotModified,
    Body,
}

fn check(response: &Response, is_conditional: bool) -> Result<Answer, FetchError> {
    let status = response.status();
    match status {
        StatusCode::OK => Ok(Answer::Body),
        StatusCode::NOT_MODIFIED if is_conditional => Ok(Answer::NotModified),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(FetchError::Denied { status }),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(FetchError::NotFound { status }),
        StatusCode::TOO_MANY_REQUESTS => Err(FetchError::LeaveAlone {
            status,
            retry_after: retry_after(response),
        }),
        StatusCode::SERVICE_UNAVAILABLE => match retry_after(response) {
            Some(time) => Err(FetchError::LeaveAlone {
                status,
                retry_after: Some(time),
            }),
            None => Err(FetchError::Server { status }),
        },
        _ if status.is_server_error() => Err(FetchError::Server { status }),
        _ => Err(FetchError::Status { status }),
    }
}

/// `Retry-After` in both of its forms: seconds, or a date.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    let time = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
            Duration::try_from(date.duration_since(Timestamp::now())).unwrap_or_default()
        }
    };
    Some(time.min(LONGEST_HOLD))
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers
        .get(name)?
        .to_str()
        .ok()
        .filter(|text| text.len() <= MAX_VALIDATOR)
        .map(str::to_owned)
}

fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error(format!("more than {MAX_REDIRECTS} redirects"));
    }
    match attempt.url().scheme() {
        "http" | "https" => attempt.follow(),
        _ => attempt.error("the redirect leads to another scheme than http and https"),
    }
}
