//! One request, hop by hop.

use ::url::Url;
use jiff::Timestamp;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};

use super::body::Spool;
use super::error::FetchError;
use super::host_credentials::Credentials;
use super::rate_limit::Host;
use super::request::{Answer, Request};
use super::{Inner, Limits, Validators, connect_error as classify, download as receive, retry_after, url};
use crate::text::public_url;

/// Redirects that are followed, as many as Go's client follows.
const REDIRECTS: usize = 10;

/// Bytes that a validator may have to be kept and sent back.
const VALIDATOR_BYTES: usize = 1024;

/// Challenges of a 401 that are kept; servers send one, or two.
const CHALLENGES: usize = 8;

/// Bytes that one of them may have; a longer one is as good as none.
const CHALLENGE_BYTES: usize = 4096;

impl Inner {
    /// Follows redirects by itself rather than by the client, so that each hop keeps to its own host's limits, gets only
    /// the credentials that it may have, and leads nowhere that may not be reached.
    pub(super) async fn follow(&self, request: &Request, limits: &Limits) -> Result<Answer, FetchError> {
        url::check(&request.url)?;
        let mut credentials = Credentials::new(&self.access, request)?;
        let headers = headers(request);
        let may_be_unchanged =
            headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MODIFIED_SINCE);
        let mut url = url::bare(&request.url);
        for _ in 0..=REDIRECTS {
            let (client, proxy) = self.clients.for_url(&url, limits.connect).await?;
            let host = self.hosts.get(self.way, &url::host_and_port(&url));
            let _turn = host.turn().await?;
            let mut headers = headers.clone();
            if let Some(authorization) = credentials.at(&url) {
                headers.insert(header::AUTHORIZATION, authorization);
            }
            let method = if request.head { Method::HEAD } else { Method::GET };
            let sent = client.request(method, url.clone()).headers(headers).send();
            // Connecting has its own limit within this one.
            let response = tokio::time::timeout(limits.connect.saturating_add(limits.stall), sent)
                .await
                .map_err(|_| FetchError::Stalled {
                    url: public_url(&url),
                    limit: limits.stall,
                    bytes: 0,
                })?
                .map_err(|error| classify::no_answer(&error, &url, proxy))?;
            match response.status() {
                StatusCode::OK => return self.answer(request, response, url, limits).await,
                StatusCode::NOT_MODIFIED if may_be_unchanged => return self.without_body(response, url),
                status if is_redirect(status) => {
                    let next = target(&url, &response)?;
                    if request.tls_only && next.scheme() != "https" {
                        return Err(bad_redirect(
                            &url,
                            "it leads to plain http, where what is asked for is a secret",
                        ));
                    }
                    url = next;
                }
                _ => return Err(refused(&response, &url, &host)),
            }
        }
        Err(FetchError::TooManyRedirects {
            url: public_url(&request.url),
            limit: REDIRECTS,
        })
    }

    async fn answer(
        &self,
        request: &Request,
        mut response: Response,
        url: Url,
        limits: &Limits,
    ) -> Result<Answer, FetchError> {
        if request.head {
            return self.without_body(response, url);
        }
        let shown = public_url(&url);
        let is_packed = receive::is_packed(&response, &shown, request.verbatim)?;
        let headers = std::mem::take(response.headers_mut());
        let spool = Spool::new(self.spool_dir.as_deref(), limits.max_bytes);
        let body = receive::receive(response, spool, &shown, is_packed, validators_of(&headers), limits).await?;
        Ok(Answer {
            status: StatusCode::OK,
            headers,
            url,
            body,
        })
    }

    fn without_body(&self, mut response: Response, url: Url) -> Result<Answer, FetchError> {
        let headers = std::mem::take(response.headers_mut());
        let body = Spool::new(self.spool_dir.as_deref(), 0).finish(validators_of(&headers))?;
        Ok(Answer {
            status: response.status(),
            headers,
            url,
            body,
        })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads.
fn target(url: &Url, response: &Response) -> Result<Url, FetchError> {
    let bad = |problem: &str| bad_redirect(url, problem);
    let location = response
        .headers()
        .get(header::LOCATION)
        .ok_or_else(|| bad("it names no location"))?;
    let location = location.to_str().map_err(|_| bad("its location is no text"))?;
    let target = url.join(location).map_err(|_| bad("its location is no URL"))?;
    url::check(&target).map_err(|_| bad("its location is neither http nor https"))?;
    // Credentials are given by who declares a repository, never by a server.
    Ok(url::bare(&target))
}

fn bad_redirect(url: &Url, problem: &str) -> FetchError {
    FetchError::BadRedirect {
        url: public_url(url),
        problem: problem.to_owned(),
    }
}

/// The error for an answer that is neither a body nor a redirect. A host that asks to be left alone is.
fn refused(response: &Response, url: &Url, host: &Host) -> FetchError {
    let status = response.status();
    let is_overloaded = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let text = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let retry_after = text(header::RETRY_AFTER).filter(|_| is_overloaded).and_then(|value| {
        // A date is told by the server's clock.
        let now = text(header::DATE)
            .and_then(retry_after::http_date)
            .unwrap_or_else(Timestamp::now);
        retry_after::parse(value, now)
    });
    let retry_after = retry_after.map(|wanted| host.hold(status, wanted));
    let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    let challenges = challenges
        .filter(|_| status == StatusCode::UNAUTHORIZED)
        .filter_map(|value| value.to_str().ok())
        .filter(|value| value.len() <= CHALLENGE_BYTES)
        .take(CHALLENGES);
    FetchError::Status {
        url: public_url(url),
        status,
        retry_after,
        challenges: challenges.map(str::to_owned).collect(),
    }
}

/// The headers of each hop of a request. What can't be a header's value can't have come from one.
fn headers(request: &Request) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let encoding = if request.verbatim { "identity" } else { "gzip" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    let validators = request.validators.as_ref();
    let optional = [
        (header::ACCEPT, request.accept.as_ref()),
        (
            header::IF_NONE_MATCH,
            validators.and_then(|validators| validators.etag.as_ref()),
        ),
        (
            header::IF_MODIFIED_SINCE,
            validators.and_then(|validators| validators.last_modified.as_ref()),
        ),
    ];
    for (name, value) in optional {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

fn validators_of(headers: &HeaderMap) -> Validators {
    let text = |name| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())?;
        (!value.is_empty() && value.len() <= VALIDATOR_BYTES).then(|| value.to_owned())
    };
    Validators {
        etag: text(header::ETAG),
        last_modified: text(header::LAST_MODIFIED),
    }
}
