//! Limits the time until the API server starts a response.
//!
//! kube's connections time out when they are silent, but a request can be lost without one: if the server closes a
//! connection at the moment hyper hands it a request, the request is neither sent nor returned (hyperium/hyper#4122).
//! Watches are affected most, since all of them reconnect together. The caller limits the time for the rest of the
//! response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Request;
use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Layer, Service};

use super::response_size::is_watch;

/// Time limit to open a watch; an API server that is not overloaded responds immediately.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// After a watch that timed out: an overloaded API server queues requests for a quarter of its own limit of a minute.
pub(in crate::runtime) const SLOW_WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of other requests, above the API server's own default of a minute.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(65);

#[derive(Clone, Debug, Default)]
pub struct ResponseTimeout {
    is_slow: Arc<AtomicBool>,
}

impl<S> Layer<S> for ResponseTimeout {
    type Service = TimeoutService<S>;

    fn layer(&self, inner: S) -> TimeoutService<S> {
        TimeoutService {
            inner,
            timeout: self.clone(),
        }
    }
}

#[derive(Clone)]
pub struct TimeoutService<S> {
    inner: S,
    timeout: ResponseTimeout,
}

#[derive(Debug, thiserror::Error)]
#[error("no response within {}s", .0.as_secs())]
pub(super) struct ResponseTimedOut(pub(super) Duration);

impl From<ResponseTimedOut> for kube::Error {
    fn from(error: ResponseTimedOut) -> Self {
        Self::Service(Box::new(error))
    }
}

impl<S, A> Service<Request<A>> for TimeoutService<S>
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
        let is_slow = is_watch(request.uri()).then(|| Arc::clone(&self.timeout.is_slow));
        let limit = match &is_slow {
            None => REQUEST_TIMEOUT,
            Some(is_slow) if is_slow.load(Ordering::Relaxed) => SLOW_WATCH_TIMEOUT,
            Some(_) => WATCH_TIMEOUT,
        };
        let call = self.inner.call(request);
        async move {
            let response = tokio::time::timeout(limit, call).await;
            if let Some(is_slow) = is_slow {
                is_slow.store(response.is_err(), Ordering::Relaxed);
            }
            match response {
                Ok(response) => response.map_err(Into::into),
                Err(_) => Err(ResponseTimedOut(limit).into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use parking_lot::Mutex;
    use tokio::time::{Instant, sleep};
    use tower::ServiceExt;

    use super::*;

    const LIST: &str = "/api/v1/pods?limit=200";
    const OPEN: &str = "/api/v1/pods?&watch=true&timeoutSeconds=290";

    /// Sends requests to an API server with these response times, one after another; returns each result and its
    /// duration.
    async fn requested(uri: &str, response_times: &[u64]) -> Vec<(String, u64)> {
        let waits: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(response_times.iter().rev().copied().collect()));
        let server = tower::service_fn(move |_: Request<()>| {
            let wait = waits.lock().pop().unwrap();
            async move {
                sleep(Duration::from_secs(wait)).await;
                Ok::<_, Infallible>("answer")
            }
        });
        let service = ResponseTimeout::default().layer(server);
        let mut seen = Vec::new();
        for _ in response_times {
            let start = Instant::now();
            let request = Request::get(uri).body(()).unwrap();
            let response = service.clone().oneshot(request).await;
            let text = response.map_or_else(|error| error.to_string(), ToOwned::to_owned);
            seen.push((text, start.elapsed().as_secs()));
        }
        seen
    }

    fn expected(seen: &[(&str, u64)]) -> Vec<(String, u64)> {
        seen.iter()
            .map(|(text, seconds)| ((*text).to_owned(), *seconds))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_never_opens_fails_early_and_the_next_one_has_more_time() {
        let seen = requested(OPEN, &[1000, 20, 4, 6]).await;
        let expected = expected(&[
            ("no response within 5s", 5),
            ("answer", 20),
            ("answer", 4),
            ("no response within 5s", 5),
        ]);
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_watch_timeouts_use_the_longer_limit() {
        let seen = requested(OPEN, &[1000, 1000, 1000]).await;
        let slow = ("no response within 30s", 30);
        assert_eq!(seen, expected(&[("no response within 5s", 5), slow, slow]));
    }

    #[tokio::test(start_paused = true)]
    async fn other_requests_have_the_time_limit_of_the_api_server() {
        let seen = requested(LIST, &[1000, 60]).await;
        assert_eq!(seen, expected(&[("no response within 65s", 65), ("answer", 60)]));
    }
}
