//! Authorization of requests for metrics by bearer token, with a cache of decisions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Decides if the owner of a token may read metrics.
pub type Authorize = Box<dyn Fn(String) -> BoxFuture<'static, Decision> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed,
    Unauthenticated,
    Forbidden,
    /// The API server did not decide.
    Unknown,
}

const ALLOWED_TTL: Duration = Duration::from_secs(60);
/// Short, because a permission may just have been granted.
const REFUSED_TTL: Duration = Duration::from_secs(10);
const MAX_CACHED: usize = 256;
/// Concurrent reviews. Anyone may send tokens, and each unknown one costs requests to the API server.
const MAX_REVIEWS: usize = 2;
const DEADLINE: Duration = Duration::from_secs(5);
/// Service account tokens have about 1 KiB.
const MAX_TOKEN: usize = 8 * 1024;

pub(super) struct Authorizer {
    authorize: Authorize,
    /// By SHA-256 of the token.
    decisions: Mutex<HashMap<[u8; 32], (Decision, Instant)>>,
    reviews: Semaphore,
}

impl Authorizer {
    pub(super) fn new(authorize: Authorize) -> Self {
        Self {
            authorize,
            decisions: Mutex::default(),
            reviews: Semaphore::new(MAX_REVIEWS),
        }
    }

    async fn decide(&self, token: &str) -> Decision {
        let key: [u8; 32] = Sha256::digest(token).into();
        if let Some(decision) = self.cached(&key) {
            return decision;
        }
        let review = async {
            // The semaphore is never closed.
            let _permit = self.reviews.acquire().await;
            // Another request with this token may have had the permit before.
            match self.cached(&key) {
                Some(decision) => decision,
                None => (self.authorize)(token.to_owned()).await,
            }
        };
        let decision = timeout(DEADLINE, review).await.unwrap_or(Decision::Unknown);
        self.store(key, decision);
        decision
    }

    fn cached(&self, key: &[u8; 32]) -> Option<Decision> {
        let decisions = self.decisions.lock();
        let (decision, expires) = decisions.get(key)?;
        (*expires > Instant::now()).then_some(*decision)
    }

    fn store(&self, key: [u8; 32], decision: Decision) {
        let ttl = match decision {
            Decision::Allowed => ALLOWED_TTL,
            Decision::Unauthenticated | Decision::Forbidden => REFUSED_TTL,
            Decision::Unknown => return,
        };
        let now = Instant::now();
        let mut decisions = self.decisions.lock();
        if decisions.len() >= MAX_CACHED {
            decisions.retain(|_, (_, expires)| *expires > now);
        }
        if decisions.len() >= MAX_CACHED {
            // Valid tokens are few. Guessed ones fill the cache.
            decisions.retain(|_, (decision, _)| *decision == Decision::Allowed);
        }
        if decisions.len() < MAX_CACHED {
            decisions.insert(key, (decision, now + ttl));
        }
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

pub(super) async fn require_permission(
    State(authorizer): State<Arc<Authorizer>>,
    request: Request,
    next: Next,
) -> Response {
    let decision = match bearer_token(request.headers()) {
        Some(token) => authorizer.decide(token).await,
        None => Decision::Unauthenticated,
    };
    match decision {
        Decision::Allowed => next.run(request).await,
        Decision::Unauthenticated => {
            let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
            (
                StatusCode::UNAUTHORIZED,
                challenge,
                "a valid bearer token is required\n",
            )
                .into_response()
        }
        Decision::Forbidden => {
            let text = "the non-resource URL /metrics requires the verb get\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Decision::Unknown => {
            let text = "the API server did not review the token\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    fn authorizer() -> (Authorizer, Arc<AtomicUsize>) {
        let reviews = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&reviews);
        let authorize: Authorize = Box::new(move |token| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match token.as_str() {
                    "good" => Decision::Allowed,
                    "away" => Decision::Unknown,
                    "hang" => std::future::pending().await,
                    _ => Decision::Unauthenticated,
                }
            }
            .boxed()
        });
        (Authorizer::new(authorize), reviews)
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_cached_for_a_short_time() {
        let (authorizer, reviews) = authorizer();
        for _ in 0..3 {
            assert_eq!(authorizer.decide("good").await, Decision::Allowed);
        }
        assert_eq!(reviews.load(Ordering::SeqCst), 1);
        tokio::time::advance(ALLOWED_TTL).await;
        assert_eq!(authorizer.decide("good").await, Decision::Allowed);
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_review_is_not_cached_and_has_a_deadline() {
        let (authorizer, reviews) = authorizer();
        assert_eq!(authorizer.decide("away").await, Decision::Unknown);
        assert_eq!(authorizer.decide("away").await, Decision::Unknown);
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
        let start = Instant::now();
        assert_eq!(authorizer.decide("hang").await, Decision::Unknown);
        assert_eq!(start.elapsed(), DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn guessed_tokens_do_not_evict_valid_ones() {
        let (authorizer, reviews) = authorizer();
        authorizer.decide("good").await;
        for number in 0..3 * MAX_CACHED {
            authorizer.decide(&number.to_string()).await;
        }
        assert!(authorizer.decisions.lock().len() <= MAX_CACHED);
        let before = reviews.load(Ordering::SeqCst);
        assert_eq!(authorizer.decide("good").await, Decision::Allowed);
        assert_eq!(reviews.load(Ordering::SeqCst), before);
    }

    #[test]
    fn only_bearer_tokens_of_a_limited_length_are_read() {
        let token = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(token("bearer abc").as_deref(), Some("abc"));
        for invalid in [
            "Basic abc",
            "Bearer ",
            "abc",
            &format!("Bearer {}", "x".repeat(MAX_TOKEN + 1)),
        ] {
            assert_eq!(token(invalid), None);
        }
    }
}
