//! A bound on how long the API server may take to begin an answer.
//!
//! The client's connections have a bound on their silence, but a request may be on none: where the server closes a connection in
//! the very moment in which the client hands it a request, that is neither sent nor given back (hyperium/hyper#4122), and whoever
//! waits for its answer waits for ever. Watches are what that happens to: all of them are opened again at once when their
//! connections are cut. How long an answer takes to come to its end is the business of whoever asks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Request;
use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Layer, Service};

use super::response_size::is_watch;

/// How long the API server may take to open a watch, which it does at once where it is not overloaded.
const WATCH: Duration = Duration::from_secs(5);
/// The same after a watch that was not opened in time: an overloaded API server lets requests wait for a quarter of its own limit,
/// which is a minute where nothing else is set.
const SLOW_WATCH: Duration = Duration::from_secs(30);
/// How long it may take for anything else: by then it has given up by itself.
const REQUEST: Duration = Duration::from_secs(65);

/// Bounds the wait for the beginning of each answer. A handle: clones have the same patience.
#[derive(Clone, Debug, Default)]
pub struct ResponseTimeout {
    /// Whether the last watch was not opened in time.
    is_slow: Arc<AtomicBool>,
}

impl<S> Layer<S> for ResponseTimeout {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded {
            inner,
            patience: self.clone(),
        }
    }
}

/// A service whose answers begin in time, or never.
#[derive(Clone)]
pub struct Bounded<S> {
    inner: S,
    patience: ResponseTimeout,
}

/// An answer has not begun in time.
#[derive(Debug)]
struct NoAnswer {
    within: Duration,
}

impl std::error::Error for NoAnswer {}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {} s", self.within.as_secs())
    }
}

impl<S, A> Service<Request<A>> for Bounded<S>
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
        let is_slow = is_watch(request.uri()).then(|| Arc::clone(&self.patience.is_slow));
        let within = match &is_slow {
            None => REQUEST,
            Some(is_slow) if is_slow.load(Ordering::Relaxed) => SLOW_WATCH,
            Some(_) => WATCH,
        };
        let call = self.inner.call(request);
        async move {
            let answer = tokio::time::timeout(within, call).await;
            if let Some(is_slow) = is_slow {
                is_slow.store(answer.is_err(), Ordering::Relaxed);
            }
            match answer {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(NoAnswer { within }.into()),
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

    /// Asks an API server that begins its answers after these times, one after another; says what came of it, and when.
    async fn asked(uri: &str, answers_after: &[u64]) -> Vec<(String, u64)> {
        let waits: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(answers_after.iter().rev().copied().collect()));
        let server = tower::service_fn(move |_: Request<()>| {
            let wait = waits.lock().pop().unwrap();
            async move {
                sleep(Duration::from_secs(wait)).await;
                Ok::<_, Infallible>("answer")
            }
        });
        let service = ResponseTimeout::default().layer(server);
        let mut seen = Vec::new();
        for _ in answers_after {
            let start = Instant::now();
            let request = Request::get(uri).body(()).unwrap();
            let answer = service.clone().oneshot(request).await;
            let text = answer.map_or_else(|error| error.to_string(), ToOwned::to_owned);
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
    async fn a_watch_that_is_never_opened_fails_soon_and_the_next_is_given_more_time() {
        let seen = asked(OPEN, &[1000, 20, 4, 6]).await;
        let expected = expected(&[
            ("no answer within 5 s", 5),
            ("answer", 20),
            ("answer", 4),
            ("no answer within 5 s", 5),
        ]);
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_opens_no_watches_is_not_pressed() {
        let seen = asked(OPEN, &[1000, 1000, 1000]).await;
        let slow = ("no answer within 30 s", 30);
        assert_eq!(seen, expected(&[("no answer within 5 s", 5), slow, slow]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_else_has_the_time_that_the_api_server_itself_allows() {
        let seen = asked(LIST, &[1000, 60]).await;
        assert_eq!(seen, expected(&[("no answer within 65 s", 65), ("answer", 60)]));
    }
}
