//! The rate limits that templates set: a burst of `limit` requests, and one more each `period`, by method and URL without
//! its query.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::params::{HttpRequest, Rate};
use crate::api::NamespacedName;
use crate::clock::TokioClock;

/// KubeVela keeps 128 for all Applications together.
const MAX_LIMITERS: usize = 1_024;
/// Larger values are as good as these: their product must fit into nanoseconds.
const MAX_BURST: i64 = 10_000;
const MAX_PERIOD: Duration = Duration::from_secs(7 * 24 * 3_600);

#[derive(Default)]
pub(super) struct RateLimits(Mutex<HashMap<Key, Limiter>>);

/// A digest, because the URL may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    digest: [u8; 32],
}

struct Limiter {
    rate: Rate,
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock>,
    used: Instant,
}

impl RateLimits {
    /// Counts a request. Returns false if it exceeds the rate that it sets.
    pub(super) fn allow(&self, application: &NamespacedName, request: &HttpRequest) -> bool {
        match request.rate {
            Some(rate) => self.allow_key(Key::of(application, request), rate),
            None => true,
        }
    }

    fn allow_key(&self, key: Key, rate: Rate) -> bool {
        // Go's limiter allows any number of events without a period.
        let Some(quota) = Quota::with_period(rate.period.min(MAX_PERIOD)) else {
            return true;
        };
        let burst = u32::try_from(rate.limit.min(MAX_BURST)).ok().and_then(NonZeroU32::new);
        let Some(burst) = burst else {
            return false;
        };
        let new = || Limiter {
            rate,
            limiter: RateLimiter::direct_with_clock(quota.allow_burst(burst), TokioClock),
            used: Instant::now(),
        };
        let mut limiters = self.0.lock();
        if limiters.len() >= MAX_LIMITERS && !limiters.contains_key(&key) {
            evict(&mut limiters);
        }
        let limiter = limiters.entry(key).or_insert_with(new);
        if limiter.rate != rate {
            *limiter = new();
        }
        limiter.used = Instant::now();
        limiter.limiter.check().is_ok()
    }
}

/// Removes the limiter that was unused for longest, in the namespace with most limiters.
fn evict(limiters: &mut HashMap<Key, Limiter>) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for key in limiters.keys() {
        *counts.entry(&key.namespace).or_default() += 1;
    }
    let largest = counts.into_iter().max_by_key(|(name, count)| (*count, *name));
    let largest = largest.map(|(name, _)| name.to_owned()).unwrap_or_default();
    let of_largest = limiters.iter().filter(|(key, _)| key.namespace == largest);
    let oldest = of_largest.min_by_key(|(_, limiter)| limiter.used);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        limiters.remove(&key);
    }
}

impl Key {
    fn of(application: &NamespacedName, request: &HttpRequest) -> Self {
        let mut url = request.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        let mut hash = Sha256::new();
        for part in [&*application.name, request.method.as_str(), url.as_str()] {
            hash.update(part);
            hash.update([0]);
        }
        Self {
            namespace: application.namespace.clone(),
            digest: hash.finalize().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::oam::functions::http::params::request;

    fn allow(limits: &RateLimits, application: &str, url: &str, limit: i64, period: &str) -> bool {
        let rate = json!({"limit": limit, "period": period});
        let request = request(&json!({"url": url, "request": {"ratelimiter": rate}})).unwrap();
        limits.allow(&NamespacedName::new("ns", application), &request)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_one_request_each_period() {
        let limits = RateLimits::default();
        let next = || allow(&limits, "app", "http://a/b", 2, "10s");
        assert_eq!([next(), next(), next()], [true, true, false]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!([next(), next()], [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn applications_and_urls_have_limits_of_their_own_and_queries_do_not() {
        let limits = RateLimits::default();
        assert!(allow(&limits, "app", "http://a/b?x=1", 1, "10s"));
        assert!(!allow(&limits, "app", "http://a/b?x=2", 1, "10s"));
        assert!(allow(&limits, "app", "http://a/c", 1, "10s"));
        assert!(allow(&limits, "other", "http://a/b", 1, "10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_limit_starts_again() {
        let limits = RateLimits::default();
        assert!(allow(&limits, "app", "http://a", 1, "10s"));
        assert!(allow(&limits, "app", "http://a", 2, "10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn extreme_limits_neither_panic_nor_overflow() {
        let limits = RateLimits::default();
        for (limit, period, is_allowed) in [
            (0, "1s", false),
            (-5, "1s", false),
            (0, "0s", true),
            (i64::MAX, "2562047h", true),
            (1, "1ns", true),
        ] {
            assert_eq!(
                allow(&limits, "app", "http://a", limit, period),
                is_allowed,
                "{limit} {period}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_limiters_is_bounded_and_a_namespace_evicts_its_own() {
        let limits = RateLimits::default();
        let key = |namespace: &str, number: usize| Key {
            namespace: namespace.to_owned(),
            digest: Sha256::digest(number.to_le_bytes()).into(),
        };
        let rate = Rate {
            limit: 1,
            period: Duration::from_secs(3_600),
        };
        assert!(limits.allow_key(key("honest", 0), rate));
        for number in 0..3 * MAX_LIMITERS {
            assert!(limits.allow_key(key("hostile", number), rate));
        }
        assert_eq!(limits.0.lock().len(), MAX_LIMITERS);
        assert!(!limits.allow_key(key("honest", 0), rate));
    }
}
