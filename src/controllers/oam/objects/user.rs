//! The objects with the rights of a user.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;

use super::Objects;
use crate::runtime::watch::GroupKind;

/// A kind in a namespace; in none for cluster-scoped kinds.
pub type CacheScope = (GroupKind, String);

#[derive(Clone)]
pub(super) struct User {
    client: Client,
    readable: Arc<BTreeSet<CacheScope>>,
}

impl User {
    pub(super) fn may_read_cached(&self, kind: &GroupKind, namespace: &str) -> bool {
        self.readable.contains(&(kind.clone(), namespace.to_owned()))
    }
}

impl Objects {
    /// Returns the objects with the rights of a user, whose requests `client` sends. The watches keep the rights of
    /// the controller; objects outside of the `readable` part of the cache are read with a request each time.
    #[must_use]
    pub fn as_user(&self, client: Client, readable: BTreeSet<CacheScope>) -> Self {
        let user = User {
            client,
            readable: Arc::new(readable),
        };
        Self {
            user: Some(user),
            ..self.clone()
        }
    }

    #[must_use]
    pub fn as_controller(&self) -> Self {
        Self {
            user: None,
            ..self.clone()
        }
    }

    #[must_use]
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        self.user.as_ref().map_or(&self.client, |user| &user.client)
    }
}
