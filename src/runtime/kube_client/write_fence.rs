//! Refuses writes to the API server unless this process leads.
//!
//! If the leader runs, it stops all work before another process can take its Lease. A suspended leader resumes amid its
//! work, and would send a write before it looks at the Lease. So each write looks at the time until which this process
//! leads, immediately before it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Method, Request};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tower::{BoxError, Layer, Service};

use crate::runtime::boot_time::boot_time;

/// Reviews are created, but not stored.
const REVIEWS: [&str; 2] = ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"];

/// The Leases of this process, each with the time since boot until which it leads. Closed without a Lease.
#[derive(Clone, Debug, Default)]
pub struct WriteFence {
    leads_until: Arc<Mutex<BTreeMap<String, Duration>>>,
    refused: Counter,
}

impl WriteFence {
    #[must_use]
    pub fn counting(refused: Counter) -> Self {
        Self {
            refused,
            ..Self::default()
        }
    }

    /// Moves the end of the leadership: a renewal that was sent at a time before `until` has succeeded.
    pub fn extend(&self, lease: &str, until: Duration) {
        self.leads_until.lock().insert(lease.to_owned(), until);
    }

    pub fn remove(&self, lease: &str) {
        self.leads_until.lock().remove(lease);
    }

    /// Returns true if this process leads by all Leases that it took. The loss of one of them ends it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let leads_until = self.leads_until.lock();
        let now = boot_time();
        !leads_until.is_empty() && leads_until.values().all(|until| now < *until)
    }

    fn refuses<A>(&self, request: &Request<A>) -> bool {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let is_review = || REVIEWS.iter().any(|path| request.uri().path().starts_with(path));
        if is_read || is_review() || self.is_open() {
            return false;
        }
        self.refused.inc();
        true
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the request was not sent: the lease was not renewed in time")]
pub(super) struct NotLeading;

/// The layer of clients; without a fence it passes all requests.
#[derive(Clone, Debug)]
pub(super) struct FenceLayer(pub(super) Option<WriteFence>);

impl<S> Layer<S> for FenceLayer {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> FencedService<S> {
        FencedService {
            inner,
            fence: self.0.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct FencedService<S> {
    inner: S,
    fence: Option<WriteFence>,
}

impl<S, A> Service<Request<A>> for FencedService<S>
where
    S: Service<Request<A>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        if self.fence.as_ref().is_some_and(|fence| fence.refuses(&request)) {
            return async { Err(NotLeading.into()) }.boxed();
        }
        let call = self.inner.call(request);
        async move { call.await.map_err(Into::into) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::ServiceExt;

    use super::*;

    const PATH: &str = "/api/v1/namespaces/team/configmaps/a";

    async fn is_sent(fence: Option<&WriteFence>, method: Method, path: &str) -> bool {
        let server = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(()) });
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let service = FenceLayer(fence.cloned()).layer(server);
        service.oneshot(request).await.is_ok()
    }

    #[tokio::test]
    async fn writes_pass_only_until_the_end_of_each_lease() {
        let (fence, soon) = (WriteFence::default(), boot_time() + Duration::from_secs(60));
        let writes = async |expected: bool| {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                assert_eq!(is_sent(Some(&fence), method.clone(), PATH).await, expected, "{method}");
            }
            assert!(is_sent(Some(&fence), Method::GET, PATH).await);
        };
        writes(false).await;
        fence.extend("portolan-0", soon);
        writes(true).await;
        fence.extend("portolan-1", boot_time());
        writes(false).await;
        fence.extend("portolan-1", soon);
        writes(true).await;
        fence.remove("portolan-0");
        writes(true).await;
        fence.remove("portolan-1");
        writes(false).await;
        assert_eq!(fence.refused.get(), 12);
    }

    #[tokio::test]
    async fn reviews_and_clients_without_a_fence_need_no_lease() {
        let fence = WriteFence::default();
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert!(is_sent(Some(&fence), Method::POST, review).await);
        assert!(is_sent(None, Method::DELETE, PATH).await);
    }
}
