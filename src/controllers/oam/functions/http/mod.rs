//! HTTP requests of the templates of steps and components: `http.#HTTPDo` and its variants.
//!
//! [`HttpRequests`] owns their shared limits: templates of the process and of a namespace that send requests, and the rate
//! limits that templates set for themselves.

mod answer;
mod params;
mod rate;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::secrets::{Secrets, existing, value};
use crate::api::NamespacedName;
use crate::budget::{Budget, Budgets, Reservation};
use crate::controllers::oam::steps::Answer;
use crate::http::{Access, Exchange, FetchError, FetchLimits, Fetcher};
use params::{HeaderFromSecret, HttpRequest};
use rate::RateLimits;

/// Templates that send requests, if there are workers for more. A request in flight may hold a response of
/// [`MAX_BODY`].
const MAX_IN_FLIGHT: usize = 16;
/// Of a request and of a response, in bytes.
const MAX_BODY: u64 = 1024 * 1024;
/// The longest timeout of a request.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a download of objects. An Application may have several.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect. One value, so that requests share clients.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for a permit. A template without a permit is evaluated again. A worker waits, so the time is short.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The permit of a template to send requests, one after the other.
#[derive(Debug)]
pub struct HttpPermit {
    _of_namespace: OwnedSemaphorePermit,
    _of_process: Reservation,
}

/// Sends the requests of all templates.
pub struct HttpRequests {
    fetcher: Fetcher,
    permits: Budget,
    per_namespace: usize,
    namespaces: Mutex<HashMap<String, Arc<Semaphore>>>,
    rates: RateLimits,
}

impl HttpRequests {
    /// The fetcher refuses addresses that tenants must not reach. Templates with requests hold at most half of the
    /// `workers`, and those of one namespace half of that: other Applications go on while servers don't respond.
    #[must_use]
    pub fn new(fetcher: Fetcher, budgets: &Budgets, workers: usize) -> Self {
        const RESOURCE: &str = "http_requests";
        let max_in_flight = (workers / 2).clamp(1, MAX_IN_FLIGHT);
        let limit = max_in_flight as u64;
        let metrics = budgets.metrics().of(RESOURCE, limit);
        Self {
            fetcher,
            permits: Budget::with_metrics(RESOURCE, limit, metrics),
            per_namespace: (max_in_flight / 2).max(1),
            namespaces: Mutex::default(),
            rates: RateLimits::default(),
        }
    }

    /// Sends a request of a template of the Application. Values of headers come from Secrets in its namespace only. The
    /// template keeps `permit` until its end: without it, no request was sent that its next evaluation would repeat.
    pub async fn send(
        &self,
        application: &NamespacedName,
        params: &Value,
        secrets: &impl Secrets,
        permit: &mut Option<HttpPermit>,
    ) -> Answer {
        let namespace = &application.namespace;
        let request = match params::request(params) {
            Ok(request) => request,
            Err(message) => return Answer::failed(message),
        };
        // Without a permit: the API server may be slow.
        let access = match access(&request, namespace, secrets).await {
            Ok(access) => access,
            Err(message) => return Answer::failed(message),
        };
        if permit.is_none() {
            *permit = self.permit(namespace).await;
        }
        if permit.is_none() {
            return Answer::Waiting("waiting for other HTTP requests".to_owned());
        }
        if !self.rates.allow(application, &request) {
            return Answer::failed("request exceeds the rate limiter");
        }
        self.exchange(request, access).await.into()
    }

    /// Downloads a document for an Application of the namespace, within the limits of a template.
    pub async fn download(&self, namespace: &str, url: &str) -> Result<Vec<u8>, String> {
        let url = params::parse_url(url, "the URL")?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let Some(_permit) = self.permit(namespace).await else {
            return Err("waiting for other HTTP requests".to_owned());
        };
        let exchange = Exchange {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            credentials: HeaderMap::new(),
            body: Vec::new(),
        };
        let access = Access {
            namespace: namespace.to_owned(),
            ..Access::default()
        };
        let failed = |error: FetchError| error.message_without_path(&host);
        let fetcher = self.fetcher.with(access).map_err(failed)?;
        let exchanged = fetcher
            .exchange(&exchange, &limits(DOWNLOAD_TIMEOUT))
            .await
            .map_err(failed)?;
        if exchanged.status.is_success() {
            Ok(exchanged.body)
        } else {
            Err(format!("the server returned {}", exchanged.status))
        }
    }

    async fn permit(&self, namespace: &str) -> Option<HttpPermit> {
        let semaphore = {
            let mut namespaces = self.namespaces.lock();
            namespaces.retain(|_, permits| Arc::strong_count(permits) > 1);
            let permits = namespaces.entry(namespace.to_owned());
            Arc::clone(permits.or_insert_with(|| Arc::new(Semaphore::new(self.per_namespace))))
        };
        let permit = async {
            Some(HttpPermit {
                _of_namespace: semaphore.acquire_owned().await.ok()?,
                _of_process: self.permits.acquire(namespace, 1).await,
            })
        };
        timeout(PERMIT_TIMEOUT, permit).await.ok().flatten()
    }

    async fn exchange(&self, request: HttpRequest, access: SecretAccess) -> Result<Value, String> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let exchange = Exchange {
            method: request.method,
            url: request.url,
            headers: request.headers,
            credentials: access.credentials,
            body: request.body.into_bytes(),
        };
        let failed = |error: FetchError| answer::message(&error, &host);
        let fetcher = self.fetcher.with(access.tls).map_err(failed)?;
        let exchanged = fetcher.exchange(&exchange, &limits(request.timeout)).await;
        answer::value(&exchanged.map_err(failed)?, &host)
    }
}

fn limits(total: Duration) -> FetchLimits {
    FetchLimits {
        max_bytes: MAX_BODY,
        connect: CONNECT_TIMEOUT,
        total,
        ..FetchLimits::default()
    }
}

/// The data of Secrets for a request.
struct SecretAccess {
    tls: Access,
    credentials: HeaderMap,
}

async fn access(request: &HttpRequest, namespace: &str, secrets: &impl Secrets) -> Result<SecretAccess, String> {
    let mut access = Access {
        namespace: namespace.to_owned(),
        ..Access::default()
    };
    if let Some(config) = &request.tls {
        tls::read(config, namespace, secrets, &mut access).await?;
    }
    Ok(SecretAccess {
        tls: access,
        credentials: credentials(&request.headers_from_secret, namespace, secrets).await?,
    })
}

/// Reads the headers whose values are in Secrets.
async fn credentials(
    headers: &[HeaderFromSecret],
    namespace: &str,
    secrets: &impl Secrets,
) -> Result<HeaderMap, String> {
    let mut credentials = HeaderMap::new();
    for HeaderFromSecret { header, secret, key } in headers {
        let data = existing(secrets, namespace, secret).await?;
        let text = value(&data, key)
            .ok_or_else(|| format!("Secret {secret} in namespace {namespace} has no key for the header {header}"))?;
        // Line breaks come from `echo` and editors.
        let mut text = HeaderValue::from_bytes(text.trim_ascii())
            .map_err(|_| format!("Secret {secret} in namespace {namespace}: the value for {header} is not a header"))?;
        text.set_sensitive(true);
        credentials.insert(header, text);
    }
    Ok(credentials)
}
