//! Bearer tokens of requests, and a cache of reviews of them.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Maximum length of a token in bytes. Those of service accounts have about 1 KiB.
pub const MAX_TOKEN: usize = 8 * 1024;

/// The SHA-256 of a token: caches hold no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Results by token, each for a limited time. Refused tokens never evict valid ones: anyone may send them.
pub struct TokenCache<T> {
    max_entries: usize,
    entries: Mutex<HashMap<TokenDigest, Entry<T>>>,
}

struct Entry<T> {
    value: T,
    is_valid: bool,
    expires: Instant,
}

impl<T: Clone> TokenCache<T> {
    #[must_use]
    pub fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            entries: Mutex::default(),
        }
    }

    #[must_use]
    pub fn get(&self, token: &TokenDigest) -> Option<T> {
        let entries = self.entries.lock();
        let entry = entries.get(token)?;
        (entry.expires > Instant::now()).then(|| entry.value.clone())
    }

    /// Stores the result of a valid token. If only valid tokens are left, the one that expires first is evicted.
    pub fn store_valid(&self, token: TokenDigest, value: T, ttl: Duration) {
        self.store(token, value, true, ttl);
    }

    /// Stores the result of a refused token, unless valid ones need the place.
    pub fn store_refused(&self, token: TokenDigest, value: T, ttl: Duration) {
        self.store(token, value, false, ttl);
    }

    pub fn remove(&self, token: &TokenDigest) {
        self.entries.lock().remove(token);
    }

    fn store(&self, token: TokenDigest, value: T, is_valid: bool, ttl: Duration) {
        let now = Instant::now();
        let mut entries = self.entries.lock();
        entries.remove(&token);
        // Each store follows a review, so that this is rare.
        entries.retain(|_, entry| entry.expires > now);
        if entries.len() >= self.max_entries {
            entries.retain(|_, entry| entry.is_valid);
        }
        if entries.len() >= self.max_entries && is_valid {
            let first = entries.iter().min_by_key(|(_, entry)| entry.expires);
            if let Some(first) = first.map(|(token, _)| *token) {
                entries.remove(&first);
            }
        }
        if entries.len() < self.max_entries {
            let expires = now + ttl;
            entries.insert(
                token,
                Entry {
                    value,
                    is_valid,
                    expires,
                },
            );
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// Returns the bearer token of a request.
#[must_use]
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn digest(number: usize) -> TokenDigest {
        TokenDigest::of(&number.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_expires_and_its_place_is_given_to_others() {
        let cache = TokenCache::new(2);
        cache.store_refused(digest(0), "refused", TTL);
        assert_eq!(cache.get(&digest(0)), Some("refused"));
        tokio::time::advance(TTL).await;
        assert_eq!(cache.get(&digest(0)), None);
        cache.store_refused(digest(1), "refused", TTL);
        assert_eq!(cache.len(), 1);
        cache.remove(&digest(1));
        assert_eq!(cache.get(&digest(1)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_tokens_never_evict_valid_ones() {
        let cache = TokenCache::new(4);
        for number in 0..4 {
            cache.store_valid(digest(number), "valid", TTL);
        }
        for number in 4..100 {
            cache.store_refused(digest(number), "refused", TTL);
        }
        assert!((0..4).all(|number| cache.get(&digest(number)) == Some("valid")));
        assert_eq!(cache.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_valid_token_evicts_refused_ones_and_then_the_one_that_expires_first() {
        let cache = TokenCache::new(2);
        cache.store_refused(digest(0), 0, TTL);
        cache.store_valid(digest(1), 1, TTL);
        cache.store_valid(digest(2), 2, TTL / 2);
        assert_eq!(
            [0, 1, 2].map(|number| cache.get(&digest(number))),
            [None, Some(1), Some(2)]
        );
        cache.store_valid(digest(3), 3, TTL);
        assert_eq!(
            [1, 2, 3].map(|number| cache.get(&digest(number))),
            [Some(1), None, Some(3)]
        );
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
