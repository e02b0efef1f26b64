use std::time::Duration;

use ::url::Url;
use jiff::Timestamp;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};

use super::error::FetchError;
use super::host_credentials::Credentials;
use super::hosts::Host;
use super::request::{Request, Response};
use super::retry_after::{parse_http_date, parse_retry_after};
use super::{FetchLimits, Inner, Validators, download, error, url};
use crate::text::public_url;

/// Same limit as in Go's client.
pub(super) const MAX_REDIRECTS: usize = 10;

const MAX_VALIDATOR_BYTES: usize = 1024;

/// Servers send one or two.
const MAX_CHALLENGES: usize = 8;

const MAX_CHALLENGE_BYTES: usize = 4096;

impl Inner {
    /// Sends a request hop by hop. reqwest's own redirects would bypass host limits, credential scope and address policy.
    pub(super) async fn follow(&self, request: &Request, limits: &FetchLimits) -> Result<Response, FetchError> {
        url::check(&request.url)?;
        let mut credentials = Credentials::new(&self.access, request)?;
        let headers = headers(request);
        let is_conditional =
            headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MODIFIED_SINCE);
        let mut url = url::bare(&request.url);
        for _ in 0..=MAX_REDIRECTS {
            let (client, proxy) = self.clients.for_url(&url, limits.connect).await?;
            let host = self.hosts.get(&url::host_and_port(&url));
            let _permit = host.acquire(&self.requester).await?;
            let in_flight = self.access.tracker.begin();
            let mut headers = headers.clone();
            if let Some(authorization) = credentials.for_hop(&url) {
                headers.insert(header::AUTHORIZATION, authorization);
            }
            let method = if request.head { Method::HEAD } else { Method::GET };
            let sent = client.request(method, url.clone()).headers(headers).send();
            // The client enforces the connect timeout within this one.
            let response = tokio::time::timeout(limits.connect.saturating_add(limits.stall), sent)
                .await
                .map_err(|_| FetchError::Stalled {
                    url: public_url(&url),
                    limit: limits.stall,
                    bytes: 0,
                })?
                .map_err(|error| error::classify(&error, &url, proxy))?;
            if response.status() == StatusCode::OK {
                let response = self.read_response(request, response, url, limits).await?;
                in_flight.answered();
                return Ok(response);
            }
            in_flight.answered();
            match response.status() {
                StatusCode::NOT_MODIFIED if is_conditional => return self.without_body(response, url),
                status if is_redirect(status) => {
                    let next = redirect_target(&url, &response)?;
                    if request.tls_only && next.scheme() != "https" {
                        return Err(bad_redirect(&url, "plain http is not allowed for this request"));
                    }
                    url = next;
                }
                _ => return Err(self.status_error(&response, &url, &host)),
            }
        }
        Err(FetchError::TooManyRedirects {
            url: public_url(&request.url),
            limit: MAX_REDIRECTS,
        })
    }

    async fn read_response(
        &self,
        request: &Request,
        mut response: reqwest::Response,
        url: Url,
        limits: &FetchLimits,
    ) -> Result<Response, FetchError> {
        if request.head {
            return self.without_body(response, url);
        }
        let url_text = public_url(&url);
        let is_gzip = download::is_gzip(&response, &url_text, request.verbatim)?;
        let headers = std::mem::take(response.headers_mut());
        let spool = self
            .spool
            .open(url_text.clone(), limits.max_bytes, &self.access.namespace);
        let (validators, tracker) = (validators_of(&headers), &self.access.tracker);
        let body = download::read_body(response, spool, &url_text, is_gzip, validators, limits, tracker).await?;
        Ok(Response {
            status: StatusCode::OK,
            headers,
            url,
            body,
        })
    }

    fn without_body(&self, mut response: reqwest::Response, url: Url) -> Result<Response, FetchError> {
        let headers = std::mem::take(response.headers_mut());
        let spool = self.spool.open(String::new(), 0, &self.access.namespace);
        let body = spool.finish(validators_of(&headers))?;
        Ok(Response {
            status: response.status(),
            headers,
            url,
            body,
        })
    }

    /// Returns the error of an unexpected status. Starts a backoff if the response has a `Retry-After`.
    fn status_error(&self, response: &reqwest::Response, url: &Url, host: &Host) -> FetchError {
        let status = response.status();
        let is_overloaded = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after = retry_after(response.headers()).filter(|_| is_overloaded);
        let retry_after = retry_after.map(|duration| host.back_off(&self.requester, status, duration));
        let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let challenges = challenges
            .filter(|_| status == StatusCode::UNAUTHORIZED)
            .filter_map(|value| value.to_str().ok())
            .filter(|value| value.len() <= MAX_CHALLENGE_BYTES)
            .take(MAX_CHALLENGES);
        FetchError::Status {
            url: public_url(url),
            status,
            retry_after,
            challenges: challenges.map(str::to_owned).collect(),
        }
    }
}

pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

pub(super) fn redirect_target(url: &Url, response: &reqwest::Response) -> Result<Url, FetchError> {
    let bad = |problem: &str| bad_redirect(url, problem);
    let location = response.headers().get(header::LOCATION);
    let location = location.ok_or_else(|| bad("missing Location header"))?;
    let location = location.to_str().map_err(|_| bad("the Location header is not text"))?;
    let target = url
        .join(location)
        .map_err(|_| bad("the Location header is not a valid URL"))?;
    url::check(&target).map_err(|_| bad("the target is not an http or https URL"))?;
    // Removes credentials, which only a repository's owner may set.
    Ok(url::bare(&target))
}

pub(super) fn bad_redirect(url: &Url, problem: &str) -> FetchError {
    FetchError::BadRedirect {
        url: public_url(url),
        problem: problem.to_owned(),
    }
}

/// Returns the headers of every hop. Skips invalid header values, which cannot come from a response.
fn headers(request: &Request) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let encoding = if request.verbatim { "identity" } else { "gzip" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    let validators = request.validators.clone().unwrap_or_default();
    let optional = [
        (header::ACCEPT, request.accept.clone()),
        (header::IF_NONE_MATCH, validators.etag),
        (header::IF_MODIFIED_SINCE, validators.last_modified),
    ];
    for (name, value) in optional {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns the time that a response asks to wait.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = header_text(headers, header::RETRY_AFTER)?;
    // The date refers to the server's clock.
    let now = header_text(headers, header::DATE).and_then(parse_http_date);
    parse_retry_after(value, now.unwrap_or_else(Timestamp::now))
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn validators_of(headers: &HeaderMap) -> Validators {
    let text = |name| {
        let value = header_text(headers, name)?;
        (!value.is_empty() && value.len() <= MAX_VALIDATOR_BYTES).then(|| value.to_owned())
    };
    Validators {
        etag: text(header::ETAG),
        last_modified: text(header::LAST_MODIFIED),
    }
}
