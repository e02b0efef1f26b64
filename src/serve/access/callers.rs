//! Callers by token. What was reviewed is kept for a minute.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::credentials::time_to_expiry;
use super::identity::{Identity, REFUSED_TTL, TTL};
use super::reviewer::{Reviewer, Reviews, Turn};
use super::{AccessError, AccessOptions, Caller, Limits, ListedResource, Visible};
use crate::serve::limits::{ClientAddress, MAX_RATES, RateTable};
use crate::server::tokens::{TokenCache, TokenDigest};
use crate::text::sanitize;

/// Tokens that were valid within this time don't count as unknown.
const KNOWN_TTL: Duration = Duration::from_secs(3600);
const MAX_KNOWN: usize = 4096;
/// Seconds after which an unknown token may be sent again.
const UNKNOWN_RETRY_AFTER: u64 = 1;

/// `None`: the token is refused.
type Reviewed = Option<Arc<Identity>>;

pub(super) struct Callers {
    resource: ListedResource,
    anonymous: Visible,
    global_repos_namespace: Option<String>,
    watched_namespace: Option<String>,
    limits: Limits,
    reviewer: Reviewer,
    identities: TokenCache<Reviewed>,
    known: TokenCache<()>,
    /// `None`: of all callers.
    unknown: RateTable<Option<ClientAddress>>,
    locks: Locks,
}

impl Callers {
    pub(super) fn new(options: AccessOptions, reviews: Arc<dyn Reviews>) -> Self {
        let limits = options.limits;
        let unknown = limits.unknown_tokens_per_second;
        Self {
            resource: options.resource,
            anonymous: options.anonymous,
            global_repos_namespace: options.global_repos_namespace,
            watched_namespace: options.watched_namespace,
            limits,
            reviewer: Reviewer::new(reviews, &limits, options.metrics),
            identities: TokenCache::new(limits.callers),
            known: TokenCache::new(MAX_KNOWN),
            unknown: RateTable::new(unknown, unknown, MAX_RATES),
            locks: Locks::default(),
        }
    }

    pub(super) async fn caller(
        self: &Arc<Self>,
        token: String,
        namespaces: &[String],
        named: Option<&str>,
        address: Option<ClientAddress>,
    ) -> Result<Caller, AccessError> {
        let identity = self.identity(token, namespaces, address).await?;
        let visible = match named {
            _ if identity.can_list_all => Visible::All,
            None => Visible::Only(self.visible(&identity, namespaces).await?),
            Some(named) if self.is_visible(&identity, named).await? => Visible::one(named),
            Some(named) => {
                return Err(AccessError::Forbidden {
                    user: identity.name().to_owned(),
                    resource: self.resource,
                    namespace: Some(sanitize(named)),
                });
            }
        };
        Ok(Caller {
            user: Some(identity.name().to_owned()),
            namespaces: visible,
        })
    }

    /// Returns the name of a token's owner.
    pub(super) async fn owner(
        self: &Arc<Self>,
        token: String,
        address: Option<ClientAddress>,
    ) -> Result<String, AccessError> {
        let identity = self.identity(token, &[], address).await?;
        Ok(identity.name().to_owned())
    }

    /// Returns the digest of a token that was valid within the last hour.
    pub(super) fn known(&self, token: &str) -> Option<TokenDigest> {
        let digest = TokenDigest::of(token);
        self.known.get(&digest).map(|()| digest)
    }

    async fn identity(
        self: &Arc<Self>,
        token: String,
        namespaces: &[String],
        address: Option<ClientAddress>,
    ) -> Result<Arc<Identity>, AccessError> {
        let digest = TokenDigest::of(&token);
        if let Some(reviewed) = self.identities.get(&digest) {
            let identity = reviewed.ok_or(AccessError::Unauthenticated)?;
            if identity.begin_renewal() {
                self.renew(&identity, token, digest, namespaces.to_vec());
            }
            return Ok(identity);
        }
        let lock = self.locks.of(digest);
        let _turn = lock.lock().await;
        // Another request with this token may have had the lock before.
        if let Some(reviewed) = self.identities.get(&digest) {
            return reviewed.ok_or(AccessError::Unauthenticated);
        }
        let identity = self.review(token, digest, address).await?;
        self.store(digest, &identity);
        Ok(identity)
    }

    /// Renews an identity in the background. Requests use the old one until it expires.
    fn renew(self: &Arc<Self>, old: &Arc<Identity>, token: String, digest: TokenDigest, namespaces: Vec<String>) {
        let (callers, old) = (Arc::clone(self), Arc::clone(old));
        tokio::spawn(async move {
            let lock = callers.locks.of(digest);
            let renewal = async {
                let _turn = lock.lock().await;
                // Its token is known.
                let identity = callers.review(token, digest, None).await?;
                if old.visible().is_some() && !identity.can_list_all {
                    let visible = callers.visible(&identity, &namespaces);
                    // If the old set expires first, the next request continues with what was reviewed.
                    if let Ok(visible) = timeout_at(old.expires, visible).await {
                        visible?;
                    }
                }
                callers.store(digest, &identity);
                Ok::<_, AccessError>(())
            };
            // Failures are logged by the reviewer, and the next request after the expiry tries again.
            let _ = timeout_at(old.expires, renewal).await;
        });
    }

    async fn review(
        &self,
        token: String,
        digest: TokenDigest,
        address: Option<ClientAddress>,
    ) -> Result<Arc<Identity>, AccessError> {
        let is_known = self.known.get(&digest).is_some();
        if !is_known && self.unknown.check(address).is_err() {
            return Err(AccessError::TooMany {
                retry_after: UNKNOWN_RETRY_AFTER,
            });
        }
        let turn = Turn::of(&digest, is_known);
        let reviewed = Instant::now();
        let expires = reviewed + time_to_expiry(&token).map_or(TTL, |left| left.min(TTL));
        let Some(user) = self.reviewer.authenticate(&turn, token).await? else {
            self.known.remove(&digest);
            self.identities.store_refused(digest, None, REFUSED_TTL);
            return Err(AccessError::Unauthenticated);
        };
        self.known.store_valid(digest, (), KNOWN_TTL);
        let turn = Turn::of(&digest, true);
        let can_list_all = matches!(self.anonymous, Visible::All) || self.reviewer.may_list(&turn, &user, None).await?;
        Ok(Arc::new(Identity::new(user, turn, can_list_all, reviewed, expires)))
    }

    fn store(&self, digest: TokenDigest, identity: &Arc<Identity>) {
        let ttl = identity.expires.saturating_duration_since(Instant::now());
        self.identities.store_valid(digest, Some(Arc::clone(identity)), ttl);
    }

    /// Returns all visible namespaces of those with objects of the resource.
    async fn visible(&self, identity: &Identity, namespaces: &[String]) -> Result<Arc<BTreeSet<String>>, AccessError> {
        if let Some(visible) = identity.visible() {
            return Ok(visible);
        }
        let due: BTreeSet<&String> = namespaces.iter().filter(|name| !self.is_open(name)).collect();
        if due.len() > self.limits.namespaces {
            return Err(AccessError::Forbidden {
                user: identity.name().to_owned(),
                resource: self.resource,
                namespace: None,
            });
        }
        let _turn = identity.busy.lock().await;
        if let Some(visible) = identity.visible() {
            return Ok(visible);
        }
        let review = |name: &String| self.review_namespace(identity, name.clone(), Identity::is_allowed_in_set);
        let reviews: Vec<BoxFuture<'_, _>> = due.into_iter().map(review).collect();
        let allowed: BTreeSet<Option<String>> = stream::iter(reviews)
            .buffer_unordered(self.limits.concurrent_reviews)
            .try_collect()
            .await?;
        let visible: BTreeSet<String> = allowed.into_iter().flatten().chain(self.open()).collect();
        let visible = Arc::new(visible);
        // Without namespaces the catalog may not have been read yet.
        if !namespaces.is_empty() {
            identity.store_visible(Arc::clone(&visible));
        }
        Ok(visible)
    }

    async fn is_visible(&self, identity: &Identity, named: &str) -> Result<bool, AccessError> {
        if self.is_open(named) {
            return Ok(true);
        }
        let is_served = self.watched_namespace.as_ref().is_none_or(|watched| watched == named);
        // A review of an empty name would be one of all namespaces.
        if !is_served || !is_namespace_name(named) {
            return Ok(false);
        }
        if let Some(is_allowed) = identity.is_allowed(named) {
            return Ok(is_allowed);
        }
        let _turn = identity.busy.lock().await;
        let review = self.review_namespace(identity, named.to_owned(), Identity::is_allowed);
        Ok(review.await?.is_some())
    }

    /// Returns the namespace if the caller may list in it. It is not reviewed if `earlier` returns a result.
    fn review_namespace<'a>(
        &'a self,
        identity: &'a Identity,
        namespace: String,
        earlier: fn(&Identity, &str) -> Option<bool>,
    ) -> BoxFuture<'a, Result<Option<String>, AccessError>> {
        async move {
            let is_allowed = match earlier(identity, &namespace) {
                Some(is_allowed) => is_allowed,
                None => {
                    let reviewed = Instant::now();
                    let review = self.reviewer.may_list(&identity.turn, &identity.user, Some(&namespace));
                    let is_allowed = review.await?;
                    identity.store(&namespace, is_allowed, reviewed);
                    is_allowed
                }
            };
            Ok(is_allowed.then_some(namespace))
        }
        .boxed()
    }

    /// Returns true for namespaces that every authenticated caller sees.
    fn is_open(&self, namespace: &str) -> bool {
        self.anonymous.contains(namespace) || self.global_repos_namespace.as_deref() == Some(namespace)
    }

    fn open(&self) -> impl Iterator<Item = String> {
        let anonymous = match &self.anonymous {
            Visible::All => None,
            Visible::Only(namespaces) => Some(namespaces),
        };
        let anonymous = anonymous.into_iter().flat_map(|namespaces| namespaces.iter());
        anonymous.chain(&self.global_repos_namespace).cloned()
    }
}

/// Returns true for DNS labels.
fn is_namespace_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 63 && name.bytes().all(is_allowed)
}

/// A lock for each token that is reviewed: single flight.
#[derive(Default)]
struct Locks(Mutex<HashMap<TokenDigest, Weak<tokio::sync::Mutex<()>>>>);

impl Locks {
    fn of(&self, token: TokenDigest) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(&token).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(token, Arc::downgrade(&lock));
        lock
    }
}
