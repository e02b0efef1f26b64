//! Reviews by the API server, limited in number, rate and time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use governor::clock::Clock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use k8s_openapi::api::authentication::v1::UserInfo;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::metrics::AccessMetrics;
use super::{AccessError, Limits, RETRY_AFTER};
use crate::clock::TokioClock;
use crate::runtime::fair_semaphore::{FairLimits, FairSemaphore, Requester};
use crate::runtime::kube_client::{ApiError, call_within, is_api_server_unreachable};
use crate::server::tokens::TokenDigest;
use crate::text::hex;

const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// Between warnings of failed reviews: each request may have one.
const WARNING_INTERVAL: Duration = Duration::from_secs(15);

pub type User = UserInfo;
pub type ReviewError = ApiError;

/// TokenReview and SubjectAccessReview of the API server.
pub trait Reviews: Send + Sync {
    /// Returns the owner of a token, `None` if the token is not valid.
    fn authenticate(&self, token: String) -> BoxFuture<'_, Result<Option<User>, ReviewError>>;

    /// Returns true if the user may list the resource in a namespace, or in all.
    fn may_list(&self, user: &User, namespace: Option<&str>) -> BoxFuture<'_, Result<bool, ReviewError>>;
}

type Rate = RateLimiter<NotKeyed, InMemoryState, TokioClock>;

fn rate(per_second: NonZeroU32, burst: NonZeroU32) -> Rate {
    RateLimiter::direct_with_clock(Quota::per_second(per_second).allow_burst(burst), TokioClock)
}

/// The caller of reviews. Callers take turns.
pub(super) struct Turn(Requester);

impl Turn {
    /// Tokens that were not valid lately wait in a class of their own: anyone may send them.
    pub(super) fn of(token: &TokenDigest, is_known: bool) -> Self {
        Self(Requester {
            class: if is_known { "known" } else { "unknown" }.to_owned(),
            group: hex(token.as_bytes()),
            object: String::new(),
        })
    }
}

pub(super) struct Reviewer {
    reviews: Arc<dyn Reviews>,
    permits: FairSemaphore,
    rate: Rate,
    metrics: AccessMetrics,
    last_warning: Mutex<Option<Instant>>,
}

impl Reviewer {
    pub(super) fn new(reviews: Arc<dyn Reviews>, limits: &Limits, metrics: AccessMetrics) -> Self {
        let permits = FairLimits {
            total: limits.concurrent_reviews,
            per_object: limits.concurrent_reviews,
        };
        Self {
            reviews,
            permits: FairSemaphore::new(permits, metrics.permits.clone()),
            rate: rate(limits.reviews_per_second, limits.review_burst),
            metrics,
            last_warning: Mutex::default(),
        }
    }

    pub(super) async fn authenticate(&self, turn: &Turn, token: String) -> Result<Option<User>, AccessError> {
        let user = self.review(turn, || self.reviews.authenticate(token)).await?;
        self.count(user.is_some());
        Ok(user)
    }

    pub(super) async fn may_list(
        &self,
        turn: &Turn,
        user: &User,
        namespace: Option<&str>,
    ) -> Result<bool, AccessError> {
        let is_allowed = self.review(turn, || self.reviews.may_list(user, namespace)).await?;
        self.count(is_allowed);
        Ok(is_allowed)
    }

    async fn review<'a, T>(
        &self,
        turn: &Turn,
        review: impl FnOnce() -> BoxFuture<'a, Result<T, ReviewError>>,
    ) -> Result<T, AccessError> {
        let _permit = self.permits.acquire(turn.0.clone()).await;
        while let Err(not_yet) = self.rate.check() {
            sleep(not_yet.wait_time_from(TokioClock.now())).await;
        }
        let reviewed = call_within(REVIEW_TIMEOUT, review()).await.flatten();
        reviewed.map_err(|error| {
            self.metrics.count("failed");
            self.warn(&error);
            AccessError::Unavailable {
                retry_after: RETRY_AFTER,
            }
        })
    }

    fn count(&self, is_allowed: bool) {
        self.metrics.count(if is_allowed { "allowed" } else { "refused" });
    }

    fn warn(&self, error: &ReviewError) {
        let now = Instant::now();
        let mut last = self.last_warning.lock();
        // Outages of the API server are reported by its client.
        if is_api_server_unreachable() || last.is_some_and(|last| now < last + WARNING_INTERVAL) {
            tracing::debug!(%error, "failed to review the token or the rights of a caller");
        } else {
            *last = Some(now);
            tracing::warn!(%error, "failed to review the token or the rights of a caller");
        }
    }
}
