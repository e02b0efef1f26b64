//! Requests with method, headers and body, whose responses of any status go back to the caller. Address policy, host
//! limits and redirects are the same as for downloads. The body is small and in memory.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
use axum::body::HttpBody as _;
use reqwest::header::{self, HeaderMap};
use reqwest::{Method, StatusCode};

use super::host_credentials::{basic_credentials, header as sensitive_header};
use super::hosts::Host;
use super::request_loop::{MAX_REDIRECTS, is_redirect, redirect_target, retry_after};
use super::url::UrlOrigin;
use super::{FetchError, FetchLimits, Fetcher, Inner, Validators, error, url};
use crate::budget::Reservation;
use crate::text::public_url;

pub struct Exchange {
    pub method: Method,
    /// User information is sent as `Basic` credentials to the URL's own origin.
    pub url: Url,
    pub headers: HeaderMap,
    /// Sent to the origin of the URL only, like `Authorization` and `Cookie` of the other headers.
    pub credentials: HeaderMap,
    pub body: Vec<u8>,
}

/// The names without the values, which may be secrets.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |headers: &HeaderMap| headers.keys().cloned().collect::<Vec<_>>();
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .field("host", &self.url.host_str())
            .field("headers", &names(&self.headers))
            .field("credentials", &names(&self.credentials))
            .field("bytes", &self.body.len())
            .finish()
    }
}

pub struct Exchanged {
    pub status: StatusCode,
    /// hyper limits them: 100 headers and 408 KiB with HTTP/1, 16 KiB with HTTP/2.
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
    pub body: Vec<u8>,
}

impl fmt::Debug for Exchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchanged")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The head of a response whose body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: StatusCode,
    pub retry_after: Option<Duration>,
}

impl Fetcher {
    /// Sends a request, and returns the head of its response. Follows no redirect: what is sent is for this host only.
    pub async fn notify(&self, exchange: &Exchange, limits: &FetchLimits) -> Result<ResponseHead, FetchError> {
        let timeout = |_| timed_out(exchange, limits);
        let head = tokio::time::timeout(limits.total, self.0.notify(exchange, limits)).await;
        head.map_err(timeout)?
    }

    /// Sends a request and reads the response, whatever its status is. Redirects are followed as Go's client does.
    pub async fn exchange(&self, exchange: &Exchange, limits: &FetchLimits) -> Result<Exchanged, FetchError> {
        let timeout = |_| timed_out(exchange, limits);
        let exchanged = tokio::time::timeout(limits.total, self.0.exchange(exchange, limits)).await;
        exchanged.map_err(timeout)?
    }
}

fn timed_out(exchange: &Exchange, limits: &FetchLimits) -> FetchError {
    FetchError::Timeout {
        url: public_url(&exchange.url),
        limit: limits.total,
    }
}

/// A host is not forgotten while a request to it is in flight.
struct HostPermit {
    _permit: Reservation,
    _host: Arc<Host>,
}

/// The next request of an exchange.
struct Hop {
    url: Url,
    method: Method,
    headers: HeaderMap,
    has_body: bool,
}

impl Inner {
    async fn exchange(&self, exchange: &Exchange, limits: &FetchLimits) -> Result<Exchanged, FetchError> {
        url::check(&exchange.url)?;
        let mut hop = Hop::first(exchange)?;
        for _ in 0..=MAX_REDIRECTS {
            let (response, _permit) = self.send_hop(&hop, &exchange.body, limits).await?;
            if is_redirect(response.status()) && response.headers().contains_key(header::LOCATION) {
                let target = redirect_target(&hop.url, &response)?;
                hop.redirect(target, response.status(), exchange);
                continue;
            }
            return read(response, &hop.url, limits.max_bytes).await;
        }
        Err(FetchError::TooManyRedirects {
            url: public_url(&exchange.url),
            limit: MAX_REDIRECTS,
        })
    }

    async fn notify(&self, exchange: &Exchange, limits: &FetchLimits) -> Result<ResponseHead, FetchError> {
        url::check(&exchange.url)?;
        let hop = Hop::first(exchange)?;
        let (response, _permit) = self.send_hop(&hop, &exchange.body, limits).await?;
        Ok(ResponseHead {
            status: response.status(),
            retry_after: retry_after(response.headers()),
        })
    }

    /// The caller holds the permit of the host until it has read the body.
    async fn send_hop(
        &self,
        hop: &Hop,
        body: &[u8],
        limits: &FetchLimits,
    ) -> Result<(reqwest::Response, HostPermit), FetchError> {
        let (client, proxy) = self.clients.for_url(&hop.url, limits.connect).await?;
        let host = self.hosts.get(&url::host_and_port(&hop.url));
        let permit = host.acquire(&self.requester).await?;
        let permit = HostPermit {
            _permit: permit,
            _host: host,
        };
        let mut request = client.request(hop.method.clone(), hop.url.clone());
        request = request.headers(hop.headers.clone());
        if hop.has_body {
            request = request.body(body.to_vec());
        }
        let sent = request.send().await;
        let response = sent.map_err(|error| error::classify(&error, &hop.url, proxy))?;
        Ok((response, permit))
    }
}

impl Hop {
    fn first(exchange: &Exchange) -> Result<Self, FetchError> {
        let mut headers = exchange.headers.clone();
        if !headers.contains_key(header::AUTHORIZATION)
            && let Some(basic) = basic_credentials(&exchange.url)
        {
            headers.insert(header::AUTHORIZATION, sensitive_header(&basic)?);
        }
        for (name, value) in &exchange.credentials {
            headers.insert(name, value.clone());
        }
        Ok(Self {
            url: url::bare(&exchange.url),
            method: exchange.method.clone(),
            headers,
            has_body: !exchange.body.is_empty(),
        })
    }

    fn redirect(&mut self, target: Url, status: StatusCode, exchange: &Exchange) {
        let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if !keeps_method {
            self.has_body = false;
            self.headers.remove(header::CONTENT_TYPE);
            if self.method != Method::HEAD {
                self.method = Method::GET;
            }
        }
        // Includes the scheme and the port. Another origin chooses whether a later hop goes back to the first.
        if UrlOrigin::of(&target) != UrlOrigin::of(&self.url) {
            for name in exchange.credentials.keys() {
                self.headers.remove(name);
            }
            for name in [header::AUTHORIZATION, header::COOKIE] {
                self.headers.remove(name);
            }
        }
        self.url = target;
    }
}

async fn read(mut response: reqwest::Response, url: &Url, limit: u64) -> Result<Exchanged, FetchError> {
    let too_large = |actual: u64| FetchError::TooLarge {
        name: public_url(url),
        limit,
        actual,
        validators: Validators::default(),
    };
    if let Some(length) = response.content_length().filter(|length| *length > limit) {
        return Err(too_large(length));
    }
    let status = response.status();
    let headers = std::mem::take(response.headers_mut());
    let mut frames = reqwest::Body::from(response);
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut frames).poll_frame(context)).await {
        let frame = frame.map_err(|error| FetchError::Interrupted {
            url: public_url(url),
            bytes: body.len() as u64,
            detail: error::root_cause(&error),
        })?;
        match frame.into_data() {
            Ok(data) => {
                let length = (body.len() + data.len()) as u64;
                if length > limit {
                    return Err(too_large(length));
                }
                body.extend_from_slice(&data);
            }
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    Ok(Exchanged {
        status,
        headers,
        trailers,
        body,
    })
}
