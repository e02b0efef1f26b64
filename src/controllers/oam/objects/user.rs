//! The objects with the rights of a user.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;

use super::ClusterObjects;
use crate::controllers::oam::clusters::{ClusterError, Connection, IdentityKinds};
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

impl ClusterObjects {
    #[must_use]
    pub fn as_user(&self, client: Client, readable: BTreeSet<CacheScope>) -> Self {
        let user = User {
            client,
            readable: Arc::new(readable),
        };
        let mut objects = self.clone();
        objects.user = Some(user);
        objects
    }

    #[must_use]
    pub fn as_controller(&self) -> Self {
        let mut objects = self.clone();
        objects.user = None;
        objects
    }

    #[must_use]
    pub fn client(&self) -> &Client {
        self.user.as_ref().map_or(&self.client, |user| &user.client)
    }
}

/// The clients of a user in joined clusters.
pub(super) struct UserClients {
    kinds: IdentityKinds,
    impersonate: Box<dyn Fn(&Client) -> Client + Send + Sync>,
    /// By the cluster, with the number of the connection.
    clients: Mutex<HashMap<String, (u64, Client)>>,
    /// The clusters where requests have the rights of the user.
    clusters: Mutex<BTreeSet<String>>,
}

impl UserClients {
    /// `kinds` are those of the user and its groups.
    pub(super) fn new(kinds: IdentityKinds, impersonate: impl Fn(&Client) -> Client + Send + Sync + 'static) -> Self {
        Self {
            kinds,
            impersonate: Box::new(impersonate),
            clients: Mutex::default(),
            clusters: Mutex::default(),
        }
    }

    /// Returns true from the first connection on that can impersonate. Checks are left to the rights of the user then, so
    /// that another credential must not send the requests with its own.
    ///
    /// Fails if the connection can impersonate others only: its administrator wants identities to count.
    pub(super) fn impersonates(&self, cluster: &str, can_impersonate: IdentityKinds) -> Result<bool, ClusterError> {
        let mut clusters = self.clusters.lock();
        let missing = can_impersonate.missing(self.kinds);
        if missing.is_empty() {
            clusters.insert(cluster.to_owned());
        }
        if clusters.contains(cluster) {
            return Ok(true);
        }
        if can_impersonate == IdentityKinds::NONE {
            return Ok(false);
        }
        let cluster = cluster.to_owned();
        Err(ClusterError::NotImpersonated { cluster, missing })
    }

    /// Reads no object from the cache: the cluster was not asked what the user may read.
    pub(super) fn objects(&self, objects: &ClusterObjects, cluster: &str, connection: &Connection) -> ClusterObjects {
        let mut clients = self.clients.lock();
        let known = clients.get(cluster).filter(|(number, _)| *number == connection.number);
        let client = match known {
            Some((_, client)) => client.clone(),
            None => (self.impersonate)(&connection.client),
        };
        clients.insert(cluster.to_owned(), (connection.number, client.clone()));
        objects.as_user(client, BTreeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(kinds: [bool; 3]) -> UserClients {
        UserClients::new(IdentityKinds::of(kinds), Client::clone)
    }

    #[test]
    fn another_credential_takes_no_request_of_a_user() {
        let user = user([true, true, false]);
        let (all, none) = (IdentityKinds::ALL, IdentityKinds::NONE);
        assert_eq!(user.impersonates("prod", none), Ok(false));
        assert_eq!(user.impersonates("prod", all), Ok(true));
        assert_eq!(user.impersonates("prod", none), Ok(true));
        assert_eq!(user.impersonates("test", none), Ok(false));
    }

    #[test]
    fn a_credential_that_may_impersonate_others_does_not_act_with_its_own_rights() {
        let account = user([false, false, true]);
        let accounts_only = IdentityKinds::of([false, false, true]);
        assert_eq!(account.impersonates("prod", accounts_only), Ok(true));
        let member = user([true, true, false]);
        let error = member.impersonates("prod", accounts_only).unwrap_err();
        let words = "the credential of cluster prod may impersonate other identities, but no users, groups; grant it";
        assert!(error.to_string().starts_with(words), "{error}");
    }
}
