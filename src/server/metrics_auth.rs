//! Authorization of requests for metrics by bearer token, with a cache of decisions.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::tokens::{TokenCache, TokenDigest, bearer_token};

/// Decides if the owner of a token may read metrics.
pub type Authorize = Box<dyn Fn(String) -> BoxFuture<'static, AccessDecision> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDecision {
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

pub(super) struct Authorizer {
    authorize: Authorize,
    decisions: TokenCache<AccessDecision>,
    reviews: Semaphore,
}

impl Authorizer {
    pub(super) fn new(authorize: Authorize) -> Self {
        Self {
            authorize,
            decisions: TokenCache::new(MAX_CACHED),
            reviews: Semaphore::new(MAX_REVIEWS),
        }
    }

    async fn decide(&self, token: &str) -> AccessDecision {
        let key = TokenDigest::of(token);
        if let Some(decision) = self.decisions.get(&key) {
            return decision;
        }
        let review = async {
            // The semaphore is never closed.
            let _permit = self.reviews.acquire().await;
            // Another request with this token may have had the permit before.
            match self.decisions.get(&key) {
                Some(decision) => decision,
                None => (self.authorize)(token.to_owned()).await,
            }
        };
        let decision = timeout(DEADLINE, review).await.unwrap_or(AccessDecision::Unknown);
        match decision {
            AccessDecision::Allowed => self.decisions.store_valid(key, decision, ALLOWED_TTL),
            AccessDecision::Unauthenticated | AccessDecision::Forbidden => {
                self.decisions.store_refused(key, decision, REFUSED_TTL);
            }
            AccessDecision::Unknown => {}
        }
        decision
    }
}

pub(super) async fn require_permission(
    State(authorizer): State<Arc<Authorizer>>,
    request: Request,
    next: Next,
) -> Response {
    let decision = match bearer_token(request.headers()) {
        Some(token) => authorizer.decide(token).await,
        None => AccessDecision::Unauthenticated,
    };
    match decision {
        AccessDecision::Allowed => next.run(request).await,
        AccessDecision::Unauthenticated => {
            let challenge = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
            (
                StatusCode::UNAUTHORIZED,
                challenge,
                "a valid bearer token is required\n",
            )
                .into_response()
        }
        AccessDecision::Forbidden => {
            let text = "the non-resource URL /metrics requires the verb get\n";
            (StatusCode::FORBIDDEN, text).into_response()
        }
        AccessDecision::Unknown => {
            let text = "the API server did not review the token\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;

    fn authorizer() -> (Authorizer, Arc<AtomicUsize>) {
        let reviews = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&reviews);
        let authorize: Authorize = Box::new(move |token| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match token.as_str() {
                    "good" => AccessDecision::Allowed,
                    "away" => AccessDecision::Unknown,
                    "hang" => std::future::pending().await,
                    _ => AccessDecision::Unauthenticated,
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
            assert_eq!(authorizer.decide("good").await, AccessDecision::Allowed);
        }
        assert_eq!(reviews.load(Ordering::SeqCst), 1);
        tokio::time::advance(ALLOWED_TTL).await;
        assert_eq!(authorizer.decide("good").await, AccessDecision::Allowed);
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_review_is_not_cached_and_has_a_deadline() {
        let (authorizer, reviews) = authorizer();
        assert_eq!(authorizer.decide("away").await, AccessDecision::Unknown);
        assert_eq!(authorizer.decide("away").await, AccessDecision::Unknown);
        assert_eq!(reviews.load(Ordering::SeqCst), 2);
        let start = Instant::now();
        assert_eq!(authorizer.decide("hang").await, AccessDecision::Unknown);
        assert_eq!(start.elapsed(), DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn guessed_tokens_do_not_evict_valid_ones() {
        let (authorizer, reviews) = authorizer();
        authorizer.decide("good").await;
        for number in 0..3 * MAX_CACHED {
            authorizer.decide(&number.to_string()).await;
        }
        assert!(authorizer.decisions.len() <= MAX_CACHED);
        let before = reviews.load(Ordering::SeqCst);
        assert_eq!(authorizer.decide("good").await, AccessDecision::Allowed);
        assert_eq!(reviews.load(Ordering::SeqCst), before);
    }
}
