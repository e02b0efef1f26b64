//! The owner of a token, and the namespaces that were reviewed for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::reviewer::{Turn, User};

/// For which reviews are used: a right that was taken away is gone after a minute.
pub(super) const TTL: Duration = Duration::from_secs(60);
/// Short, because a permission may just have been granted.
pub(super) const REFUSED_TTL: Duration = Duration::from_secs(10);
/// Requests renew the reviews after this time, so that they don't wait for it at its end.
const RENEWAL_AGE: Duration = Duration::from_secs(45);

/// Used until it expires. All reviews of it are younger.
pub(super) struct Identity {
    pub(super) user: User,
    pub(super) turn: Turn,
    pub(super) can_list_all: bool,
    pub(super) expires: Instant,
    renews: Instant,
    renewal_began: AtomicBool,
    namespaces: Mutex<Namespaces>,
    /// Serializes the reviews of a caller's requests.
    pub(super) busy: tokio::sync::Mutex<()>,
}

/// The rate of reviews limits their number.
#[derive(Default)]
struct Namespaces {
    reviewed: HashMap<String, Review>,
    /// `None` until all namespaces with repositories are reviewed.
    visible: Option<Arc<BTreeSet<String>>>,
}

#[derive(Clone, Copy)]
struct Review {
    is_allowed: bool,
    expires: Instant,
}

impl Identity {
    pub(super) fn new(user: User, turn: Turn, can_list_all: bool, reviewed: Instant, expires: Instant) -> Self {
        Self {
            user,
            turn,
            can_list_all,
            expires,
            renews: reviewed + RENEWAL_AGE,
            renewal_began: AtomicBool::new(false),
            namespaces: Mutex::default(),
            busy: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

    /// Returns true once, for the request that starts the renewal.
    pub(super) fn begin_renewal(&self) -> bool {
        Instant::now() >= self.renews && !self.renewal_began.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_allowed(&self, namespace: &str) -> Option<bool> {
        let namespaces = self.namespaces.lock();
        let review = namespaces.reviewed.get(namespace)?;
        (review.expires > Instant::now()).then_some(review.is_allowed)
    }

    /// Returns the same for the set of all namespaces, for which refusals count as long as permissions: at the rate of reviews,
    /// the first refusals of a large set would expire before the last review.
    pub(super) fn is_allowed_in_set(&self, namespace: &str) -> Option<bool> {
        let namespaces = self.namespaces.lock();
        let review = namespaces.reviewed.get(namespace)?;
        (self.expires > Instant::now()).then_some(review.is_allowed)
    }

    pub(super) fn store(&self, namespace: &str, is_allowed: bool, reviewed: Instant) {
        let expires = if is_allowed {
            self.expires
        } else {
            reviewed + REFUSED_TTL
        };
        let review = Review { is_allowed, expires };
        self.namespaces.lock().reviewed.insert(namespace.to_owned(), review);
    }

    pub(super) fn visible(&self) -> Option<Arc<BTreeSet<String>>> {
        self.namespaces.lock().visible.clone()
    }

    pub(super) fn store_visible(&self, visible: Arc<BTreeSet<String>>) {
        self.namespaces.lock().visible = Some(visible);
    }
}
