//! The response of `/metrics`: OpenMetrics text, in gzip for clients that accept it. Thousands of repositories make
//! megabytes of text: one thread beside the runtime's encodes it, whatever the number of clients.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::gzip::{accepts_gzip, gzip};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics, and the permit to encode them.
#[derive(Clone)]
pub(super) struct Exposition {
    registry: Arc<Registry>,
    encoder: Arc<Semaphore>,
}

impl Exposition {
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            encoder: Arc::new(Semaphore::new(1)),
        }
    }

    async fn encode(self, is_compressed: bool) -> io::Result<Vec<u8>> {
        // The thread has the permit: a client that goes away does not end it.
        let permit = self.encoder.acquire_owned().await.map_err(io::Error::other)?;
        let encoded = spawn_blocking(move || {
            let _permit = permit;
            encode(&self.registry, is_compressed)
        });
        encoded.await.map_err(io::Error::other)?
    }
}

pub(super) async fn serve(State(exposition): State<Exposition>, headers: HeaderMap) -> Response {
    let is_compressed = accepts_gzip(&headers);
    let body = match exposition.encode(is_compressed).await {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, "failed to encode metrics");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let headers = [(CONTENT_TYPE, OPEN_METRICS), (VARY, "accept-encoding")];
    let mut response = (headers, body).into_response();
    if is_compressed {
        let gzip = HeaderValue::from_static("gzip");
        response.headers_mut().insert(CONTENT_ENCODING, gzip);
    }
    response
}

fn encode(registry: &Registry, is_compressed: bool) -> io::Result<Vec<u8>> {
    let mut body = String::new();
    text::encode(&mut body, registry).map_err(io::Error::other)?;
    if is_compressed {
        gzip(body.as_bytes())
    } else {
        Ok(body.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use axum::http::header::ACCEPT_ENCODING;
    use flate2::read::GzDecoder;
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    fn registry() -> Arc<Registry> {
        let mut registry = Registry::default();
        registry.register("portolan_tests", "Tests", Counter::<u64>::default());
        Arc::new(registry)
    }

    fn accepting(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
    }

    #[tokio::test]
    async fn metrics_are_compressed_for_clients_that_accept_it() {
        let exposition = Exposition::new(registry());
        let get = async |headers: HeaderMap| {
            let response = serve(State(exposition.clone()), headers).await;
            let encoding = response.headers().get(CONTENT_ENCODING).cloned();
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (encoding, body)
        };
        let (encoding, plain) = get(HeaderMap::new()).await;
        assert_eq!(encoding, None);
        assert!(plain.ends_with(b"# EOF\n"), "{plain:?}");
        let (encoding, packed) = get(accepting("gzip")).await;
        assert_eq!(encoding.unwrap(), "gzip");
        let mut unpacked = Vec::new();
        GzDecoder::new(packed.as_ref()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain);
    }

    #[tokio::test]
    async fn one_client_at_a_time_takes_a_thread() {
        let exposition = Exposition::new(registry());
        let permit = exposition.encoder.clone().acquire_owned().await.unwrap();
        let mut waiting = std::pin::pin!(exposition.clone().encode(true));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(exposition.encoder.available_permits(), 0);
        drop(permit);
        assert!(!waiting.await.unwrap().is_empty());
    }
}
