//! Clients of other API servers, which are not trusted to answer, nor to answer briefly.

use axum::body::{Bytes, HttpBody};
use axum::http::{Request, Response, Uri};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use tower::{BoxError, Service};

use super::connect::{host_label, with_layers};
use super::large_responses::{LargeResponses, RemotePermits};
use super::metrics::{HostMetrics, RequestMetrics};
use super::request_limits::{RequestLimiter, RequestLimits};
use super::response_size::limit_responses;
use super::write_fence::WriteFence;
use crate::budget::ResourceMetrics;

#[derive(Clone)]
pub struct RemoteOptions {
    /// The timeouts include retries, and waits for a permit or the end of a pause.
    pub limits: RequestLimits,
    /// Refuses writes unless this process leads; none if it runs alone.
    pub write_fence: Option<WriteFence>,
    /// Shared by the clients of all remote API servers.
    pub permits: RemotePermits,
}

/// Returns a client of another API server, by a transport that knows its address and has the credentials.
///
/// A failure is no outage of the API server of this process.
pub fn connect_remote<S, B>(transport: S, url: &Uri, requests: &RequestMetrics, options: &RemoteOptions) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let host = host_label(url);
    let permits = LargeResponses::remote(&options.permits, &host);
    let builder = ClientBuilder::new(transport, "default");
    let builder = with_layers(builder, options.write_fence.clone(), HostMetrics { requests, host });
    // The gauges of requests in flight are those of the API server of this process.
    let limiter = RequestLimiter::new(options.limits, ResourceMetrics::unregistered());
    limit_responses(builder.build(), Some(limiter.with_total_timeouts()), permits)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::num::NonZeroU32;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, DeleteParams, ListParams, WatchParams};
    use prometheus_client::registry::Registry;
    use tokio::time::Instant;

    use super::*;
    use crate::runtime::kube_client::RequestTimeouts;

    fn options(write_fence: Option<WriteFence>) -> RemoteOptions {
        RemoteOptions {
            limits: RequestLimits {
                inflight: 2,
                per_second: NonZeroU32::new(50),
                burst: None,
                timeouts: Some(RequestTimeouts {
                    get: Duration::from_secs(5),
                    list: Duration::from_secs(20),
                    write: Duration::from_secs(10),
                }),
            },
            write_fence,
            permits: RemotePermits::default(),
        }
    }

    fn client(status: u16, write_fence: Option<WriteFence>, requests: &RequestMetrics) -> Client {
        let transport = tower::service_fn(move |_: Request<Body>| async move {
            let version = r#"{ "major": "1", "minor": "35", "gitVersion": "v1.35.0" }"#;
            let response = Response::builder().status(status).header("Retry-After", "3");
            Ok::<_, Infallible>(response.body(Body::from(version.as_bytes().to_vec())).unwrap())
        });
        let url = Uri::from_static("https://other.example:6443");
        connect_remote(transport, &url, requests, &options(write_fence))
    }

    #[tokio::test]
    async fn requests_are_counted_with_the_host_of_the_api_server() {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry, ResourceMetrics::unregistered());
        let client = client(200, None, &requests);
        assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.35.0");
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = "rest_client_requests_total{code=\"200\",host=\"other.example:6443\",method=\"GET\"} 1";
        assert!(text.contains(series), "{text}");
    }

    #[tokio::test]
    async fn a_process_that_does_not_lead_sends_no_write() {
        let fence = WriteFence::default();
        let requests = RequestMetrics::default();
        let api: Api<ConfigMap> = Api::default_namespaced(client(404, Some(fence), &requests));
        let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Service(_)), "{error}");
        let api: Api<ConfigMap> = Api::default_namespaced(client(404, None, &requests));
        let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(_)), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_have_a_rate() {
        let api: Api<ConfigMap> = Api::default_namespaced(client(200, None, &RequestMetrics::default()));
        let start = Instant::now();
        for _ in 0..151 {
            drop(api.watch(&WatchParams::default(), "0").await.unwrap());
        }
        assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_always_refused_ends_within_its_time_limit() {
        let requests = RequestMetrics::default();
        let api: Api<ConfigMap> = Api::default_namespaced(client(429, None, &requests));
        let start = Instant::now();
        let all = (0..10).map(|_| api.get("a"));
        for result in futures::future::join_all(all).await {
            result.unwrap_err();
        }
        let gets = start.elapsed();
        assert!(gets <= Duration::from_millis(5_010), "{gets:?}");
        let start = Instant::now();
        api.list(&ListParams::default()).await.unwrap_err();
        let list = start.elapsed();
        assert!(
            list > Duration::from_secs(10) && list <= Duration::from_millis(20_010),
            "{list:?}"
        );
    }
}
