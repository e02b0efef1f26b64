//! The transport of a connection, with its circuit.

use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body as ResponseBody;
use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Service};

use super::circuit::{Circuit, NoResponse};
use super::connection::{HEAD_LIMITS, RemoteTransport, transport_failure};
use super::gateway::GatewayError;
use crate::http::FetchError;
use crate::runtime::kube_client::response_size::is_watch;

/// Sends requests unless the circuit is open, and opens it after a request without a response.
#[derive(Clone)]
pub(super) struct GuardedTransport {
    pub(super) transport: RemoteTransport,
    pub(super) circuit: Arc<Circuit>,
}

#[derive(Debug, thiserror::Error)]
#[error("the request was not sent: {0}")]
struct NotSent(String);

impl Service<Request<Body>> for GuardedTransport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.transport.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = HEAD_LIMITS.limit_of(&request);
        let is_watch = is_watch(request.uri());
        let attempt = match self.circuit.admit(limit, may_be_aggregated(request.uri().path())) {
            Ok(attempt) => attempt,
            Err(problem) => return async move { Err(NotSent(problem).into()) }.boxed(),
        };
        let call = self.transport.call(request);
        async move {
            let response = timeout(limit, call).await;
            match &response {
                Ok(Ok(_)) => attempt.succeed(),
                Ok(Err(error)) if is_outage(error) => attempt.fail(transport_failure(error)),
                Ok(Err(_)) => drop(attempt),
                // An aggregated API server may be down.
                Err(_) if is_watch => attempt.release(),
                Err(_) => attempt.time_out(),
            }
            response.unwrap_or_else(|_| Err(NoResponse(limit).into()))
        }
        .boxed()
    }
}

/// Returns true for a path of an API group that need not be built in.
fn may_be_aggregated(path: &str) -> bool {
    let mut segments = path.split('/');
    segments.any(|segment| segment == "apis") && segments.next().is_some_and(|group| group.contains('.'))
}

/// Returns false for a response that is refused, and for a request that can't be sent to any server.
fn is_outage(error: &BoxError) -> bool {
    let failure = error.downcast_ref::<FetchError>();
    error.is::<GatewayError>() || failure.is_some_and(|error| !matches!(error, FetchError::BadRedirect { .. }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};
    use tower::ServiceExt;
    use tower::util::BoxCloneSyncService;

    use super::*;

    const OBJECT: &str = "/api/v1/namespaces/sea/pods/a";

    /// Returns a transport whose requests end after a time, with a response or an error.
    fn guarded(time: Duration, answer: fn() -> Result<(), BoxError>) -> GuardedTransport {
        let server = tower::service_fn(move |_: Request<Body>| async move {
            sleep(time).await;
            answer().map(|()| Response::new(ResponseBody::empty()))
        });
        GuardedTransport {
            transport: BoxCloneSyncService::new(server),
            circuit: Arc::default(),
        }
    }

    fn connect_error() -> Result<(), BoxError> {
        let (host, detail) = ("prod:6443".to_owned(), "connection refused".to_owned());
        Err(FetchError::Connect { host, detail }.into())
    }

    fn redirect() -> Result<(), BoxError> {
        let (url, problem) = ("https://prod".to_owned(), "not followed".to_owned());
        Err(FetchError::BadRedirect { url, problem }.into())
    }

    async fn sent(guarded: &GuardedTransport, method: &str, path: &str) -> Result<(), String> {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let response = guarded.clone().oneshot(request).await;
        response.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_ends_at_the_limit_of_its_verb() {
        for (method, path, seconds) in [
            ("GET", OBJECT, 5),
            ("PATCH", OBJECT, 10),
            ("GET", "/api/v1/namespaces/sea/pods", 20),
        ] {
            let guarded = guarded(Duration::from_secs(1_000), || Ok(()));
            let start = Instant::now();
            let error = sent(&guarded, method, path).await.unwrap_err();
            assert_eq!(error, format!("no response within {seconds}s"));
            assert_eq!(start.elapsed().as_secs(), seconds);
            let error = sent(&guarded, method, path).await.unwrap_err();
            assert_eq!(start.elapsed().as_secs(), seconds, "it fails at once");
            assert!(error.starts_with("the request was not sent: no response"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_fails_opens_the_circuit_with_the_cause() {
        let guarded = guarded(Duration::ZERO, connect_error);
        sent(&guarded, "GET", OBJECT).await.unwrap_err();
        let problem = guarded.circuit.problem().unwrap();
        assert!(problem.contains("failed to connect to prod:6443"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_is_down_opens_the_circuit() {
        let guarded = guarded(Duration::ZERO, || Err(GatewayError::NotServed.into()));
        sent(&guarded, "GET", OBJECT).await.unwrap_err();
        let problem = guarded.circuit.problem().unwrap();
        assert!(problem.contains("install cluster-gateway"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn responses_and_requests_that_are_refused_open_nothing() {
        let answers: [fn() -> Result<(), BoxError>; 3] = [|| Ok(()), redirect, || Err("invalid path".into())];
        for answer in answers {
            let guarded = guarded(Duration::ZERO, answer);
            let _ = sent(&guarded, "GET", OBJECT).await;
            assert_eq!(guarded.circuit.problem(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_a_response_opens_nothing() {
        let guarded = guarded(Duration::from_secs(1_000), || Ok(()));
        let path = "/apis/metrics.k8s.io/v1beta1/pods?watch=true";
        assert_eq!(sent(&guarded, "GET", path).await.unwrap_err(), "no response within 20s");
        assert_eq!(guarded.circuit.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_without_a_response_opens_the_circuit_only_if_its_api_is_built_in() {
        let opens = [
            ("/apis/metrics.k8s.io/v1beta1/namespaces/sea/pods/a", false),
            ("/k8s/clusters/a/apis/metrics.k8s.io/v1beta1", false),
            ("/apis/apps/v1/namespaces/sea.io/deployments/a", true),
            (OBJECT, true),
        ];
        for (path, opens) in opens {
            let guarded = guarded(Duration::from_secs(1_000), || Ok(()));
            sent(&guarded, "GET", path).await.unwrap_err();
            assert_eq!(guarded.circuit.problem().is_some(), opens, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_its_caller_drops_early_opens_nothing() {
        let guarded = guarded(Duration::from_secs(1_000), || Ok(()));
        let dropped = timeout(Duration::from_secs(4), sent(&guarded, "GET", OBJECT)).await;
        assert!(dropped.is_err());
        assert_eq!(guarded.circuit.problem(), None);
    }
}
