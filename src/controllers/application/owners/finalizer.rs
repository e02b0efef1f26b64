//! The finalizer of Applications that adopt components.
//!
//! An owner reference that is written after its owner is gone has the component deleted. So an Application has a
//! finalizer before the first reference is written, until the garbage collector knows the last reference. If it is
//! deleted with `--cascade=orphan` meanwhile, our references are removed before the finalizer.

use std::collections::HashMap;
use std::future::ready;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::apply::{CONCURRENCY, MAX_TIME};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::application::cached::CachedApplication;
use crate::controllers::application::report;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::owner_refs::{self as owners, ChangeError, OwnerChange};
use crate::runtime::watch::discover;

pub const FINALIZER: &str = "portolan.dev/adoption";
/// Kubernetes' finalizers for the policies Orphan and Foreground.
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Time from the last adoption to the removal of the finalizer. The garbage collector learns of owner references from
/// watches of its own; references it does not know yet are not orphaned.
const HOLD: Duration = Duration::from_secs(10);

/// Time after a deletion in which a missing API group is taken for an outage, and not for removed definitions.
const GROUP_OUTAGE: SignedDuration = SignedDuration::from_secs(30);

/// The times of the last adoptions, by the UID of the Application. Those of an earlier process count from the start.
#[derive(Debug)]
pub struct Adoptions {
    start: Instant,
    by_uid: Mutex<HashMap<String, Instant>>,
}

impl Default for Adoptions {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            by_uid: Mutex::default(),
        }
    }
}

impl Adoptions {
    pub(super) fn record(&self, uid: &str) {
        let mut adoptions = self.by_uid.lock();
        adoptions.retain(|_, at| at.elapsed() < HOLD);
        adoptions.insert(uid.to_owned(), Instant::now());
    }

    /// Returns the time until the finalizer may be removed.
    pub(super) fn wait(&self, uid: &str) -> Option<Duration> {
        let last = self.by_uid.lock().get(uid).copied().unwrap_or(self.start);
        HOLD.checked_sub(last.elapsed()).filter(|wait| !wait.is_zero())
    }
}

#[must_use]
pub fn has_finalizer(meta: &ObjectMeta) -> bool {
    has(meta, FINALIZER)
}

/// Returns the finalizers with or without ours.
#[must_use]
pub fn finalizers(meta: &ObjectMeta, with_ours: bool) -> Vec<String> {
    let others = meta.finalizers.iter().flatten().filter(|name| *name != FINALIZER);
    others.cloned().chain(with_ours.then(|| FINALIZER.to_owned())).collect()
}

/// Returns true if components must survive the deletion of the Application. The garbage collector removes its finalizer
/// when it has orphaned what it knows, so a deletion whose beginning was not observed may be an orphaning: components
/// that are left over can be deleted, deleted components can't be restored.
#[must_use]
pub fn must_release(deleting: &ObjectMeta, is_begin_observed: bool) -> bool {
    has(deleting, ORPHAN) || !is_begin_observed && !has(deleting, FOREGROUND)
}

fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|name| name == finalizer)
}

#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    Complete,
    Incomplete,
    /// The API server does not serve a group now, perhaps because an aggregated API is down.
    GroupMissing,
}

/// Removes the owner references to an Application that is being deleted. Objects are listed live: a cache may lack a
/// reference that was just written, and the finalizer is all that keeps the object.
pub async fn release(client: &Client, application: &CachedApplication) -> Result<Released, ChangeError> {
    let spec = &application.spec;
    // From the first patch, so that each call makes progress although lists may take long.
    let (mut start, mut is_group_missing) = (None, false);
    let served = call(discover(client)).await?;
    let remove = OwnerChange::Remove(spec.uid.clone());
    for kind in &spec.recorded_kinds {
        let Some(resource) = served.get(kind) else {
            // Objects of a removed kind are gone.
            let has_group = served.has_group(&kind.group) && served.is_complete(&kind.group);
            is_group_missing |= !has_group && is_recent(&application.metadata);
            continue;
        };
        if !resource.is_namespaced {
            continue;
        }
        let owned = owners::owned_by(client, resource, &spec.name.namespace, &spec.uid).await?;
        for batch in owned.chunks(CONCURRENCY) {
            if start.get_or_insert_with(Instant::now).elapsed() >= MAX_TIME {
                return Ok(Released::Incomplete);
            }
            let released = batch
                .iter()
                .map(|target| owners::change(client, FIELD_MANAGER, target, &remove, |_| ready(Ok(true))));
            try_join_all(released).await?;
        }
    }
    Ok(if is_group_missing {
        Released::GroupMissing
    } else {
        Released::Complete
    })
}

fn is_recent(deleting: &ObjectMeta) -> bool {
    let deleted = deleting.deletion_timestamp.as_ref().map(|time| time.0);
    let age = deleted.map(|deleted| Timestamp::now().duration_since(deleted));
    // A negative age comes from a clock that is behind the API server's.
    age.is_some_and(|age| (SignedDuration::ZERO..GROUP_OUTAGE).contains(&age))
}

pub async fn remove_finalizer(client: &Client, application: &CachedApplication) -> Result<(), ApiError> {
    let (meta, name) = (&application.metadata, &application.spec.name);
    let written = report::write_finalizers(client, name, meta, &finalizers(meta, false)).await;
    written.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn meta(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            finalizers: Some(finalizers.iter().map(|name| (*name).to_owned()).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn components_are_released_unless_the_deletion_is_known_to_cascade() {
        for (finalizers, is_begin_observed, expected) in [
            (&[FINALIZER, "orphan"][..], true, true),
            (&[FINALIZER, "orphan"], false, true),
            (&[FINALIZER], true, false),
            (&[FINALIZER], false, true),
            (&[FINALIZER, "foregroundDeletion"], false, false),
        ] {
            assert_eq!(
                must_release(&meta(finalizers), is_begin_observed),
                expected,
                "{finalizers:?}"
            );
        }
    }

    #[test]
    fn finalizers_of_others_are_kept() {
        assert_eq!(finalizers(&meta(&["a"]), true), ["a", FINALIZER]);
        assert_eq!(finalizers(&meta(&[FINALIZER, "a"]), true), ["a", FINALIZER]);
        assert_eq!(finalizers(&meta(&[FINALIZER, "a"]), false), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_finalizer_stays_for_a_while_after_the_last_adoption() {
        let adoptions = Adoptions::default();
        assert_eq!(adoptions.wait("a"), Some(HOLD), "an earlier process may have adopted");
        advance(HOLD).await;
        assert_eq!(adoptions.wait("a"), None);
        adoptions.record("a");
        advance(HOLD / 2).await;
        adoptions.record("b");
        assert_eq!(adoptions.wait("a"), Some(HOLD / 2));
        advance(HOLD / 2).await;
        assert_eq!((adoptions.wait("a"), adoptions.wait("b")), (None, Some(HOLD / 2)));
        adoptions.record("c");
        assert_eq!(adoptions.by_uid.lock().len(), 2, "old ones are dropped");
    }
}
