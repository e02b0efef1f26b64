//! Metrics of requests to the API server, named as in client-go, and their spans.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};
use tracing::Instrument;

use super::trace::{record_status, request_span};
use crate::budget::ResourceMetrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    in_flight: ResourceMetrics,
}

impl RequestMetrics {
    /// `in_flight` counts requests of limited clients.
    pub fn register(registry: &mut Registry, in_flight: ResourceMetrics) -> Self {
        let requests = Self {
            in_flight,
            ..Self::default()
        };
        let help = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("rest_client_requests", help, requests.requests.clone());
        requests
    }

    pub(super) fn in_flight(&self) -> ResourceMetrics {
        self.in_flight.clone()
    }
}

/// Counts the requests of a client. Its layers see paths only, so the client determines the host.
pub struct HostMetrics<'a> {
    pub requests: &'a RequestMetrics,
    pub host: String,
}

impl<S> Layer<S> for HostMetrics<'_> {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> CountedService<S> {
        CountedService {
            inner,
            requests: self.requests.clone(),
            host: self.host.clone(),
        }
    }
}

#[derive(Clone)]
pub struct CountedService<S> {
    inner: S,
    requests: RequestMetrics,
    host: String,
}

impl<S, A, B> Service<Request<A>> for CountedService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: 'static,
    S::Error: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let requests = self.requests.clone();
        let host = self.host.clone();
        let method = request.method().to_string();
        let count = move |code: &str| {
            let labels = RequestLabels {
                code: code.to_owned(),
                host: host.clone(),
                method: method.clone(),
            };
            requests.requests.get_or_create(&labels).inc();
        };
        let count_error = count.clone();
        let span = request_span(&request);
        let (response_span, error_span) = (span.clone(), span.clone());
        let call = self.inner.call(request);
        call.inspect_ok(move |response| {
            let status = response.status();
            // A joined cluster may respond with any of 900 codes.
            count(status.canonical_reason().map_or("<other>", |_| status.as_str()));
            record_status(&response_span, Some(response.status().as_u16()));
        })
        .inspect_err(move |_| {
            // client-go's label for requests without a response.
            count_error("<error>");
            record_status(&error_span, None);
        })
        .instrument(span)
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_code_host_and_method() {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry, ResourceMetrics::unregistered());
        for code in [409, 777] {
            let server = tower::service_fn(move |_: Request<()>| async move {
                Ok::<_, Infallible>(Response::builder().status(code).body(()).unwrap())
            });
            let request = Request::patch("/api").body(()).unwrap();
            let host = HostMetrics {
                requests: &requests,
                host: "10.0.0.1:6443".to_owned(),
            };
            host.layer(server).oneshot(request).await.unwrap();
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for code in ["409", "<other>"] {
            let labels = format!("{{code=\"{code}\",host=\"10.0.0.1:6443\",method=\"PATCH\"}}");
            let line = format!("rest_client_requests_total{labels} 1");
            assert!(text.contains(&line), "{text}");
        }
    }
}
