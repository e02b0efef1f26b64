//! Finds repositories that were deleted while the watch was down, and charts that vanished from the database.
//!
//! A missing name proves nothing: the watch may have failed, or the list may be wrong. Charts are removed only after a
//! deletion event, or if few repositories are missing from a complete list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::watch;

use super::metrics::GarbageMetrics;
use super::report::GarbageKind;
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog, Record};
use crate::controllers::apprepository::CachedRepository;
use crate::controllers::apprepository::event_handler::{cleanup_key, enqueue_all};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::state::RepositoryStates;
use crate::runtime::controller::Key;
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Priority, Queue};

/// Removals that need no confirmation, however few repositories there are.
const ALWAYS_REMOVED: usize = 5;

pub struct OrphanFinder {
    pub store: Store<Cached<CachedRepository>>,
    pub catalog: Catalog,
    pub queue: Queue<Key>,
    pub states: RepositoryStates,
    pub metrics: GarbageMetrics,
    pub origin: Arc<Origin>,
    /// Returns true while the store may lack declared objects, such as objects of an unreadable manifest.
    pub is_incomplete: Box<dyn Fn() -> bool + Send + Sync>,
    /// The watched namespace; `None` for all.
    pub namespace: Option<String>,
    /// Set by `--confirm-removals`: allows any number of removals in the first comparison.
    pub confirmed: AtomicBool,
}

#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    #[error("failed to read the namespace kube-system: {0}")]
    Api(#[from] ApiError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrphanComparison {
    /// Without a complete list of this cluster, nothing is known to be gone.
    Unknown,
    /// Too many repositories are missing to remove them without confirmation. The number may be wrong.
    Pending { missing: usize, total: usize },
    /// The removed repositories, with the UIDs of their objects.
    Gone(Vec<(NamespacedName, String)>),
}

impl OrphanFinder {
    pub async fn compare_until_done(&self) -> OrphanComparison {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(60))
            .without_max_times()
            .with_jitter();
        let compared = (|| self.compare()).retry(backoff).notify(|error, delay| {
            self.metrics.count_failure(GarbageKind::Repositories);
            tracing::warn!(%error, retry_in = ?delay, "failed to compare the catalog with declared repositories, retrying");
        });
        compared.await.unwrap_or_else(|error| {
            tracing::error!(%error, "failed to compare the catalog with declared repositories");
            OrphanComparison::Unknown
        })
    }

    /// Approves the removal of orphans and enqueues their keys, if the list is complete. A restored or recreated
    /// cluster declares other objects under the same names, so it removes nothing.
    pub async fn compare(&self) -> Result<OrphanComparison, CompareError> {
        // The confirmation applies to the first comparison only, whatever it finds.
        let comparison = self.find(|| self.confirmed.swap(false, Ordering::AcqRel)).await?;
        match &comparison {
            OrphanComparison::Unknown => {}
            OrphanComparison::Pending { missing, total } => {
                self.metrics.set_pending_removals(*missing);
                tracing::error!(
                    "{missing} of {total} repositories are no longer declared, keeping their charts; to remove them, restart once \
                     with --confirm-removals"
                );
            }
            OrphanComparison::Gone(gone) => {
                self.metrics.set_pending_removals(0);
                for (name, uid) in gone {
                    // It may have been declared since the list was taken; the reconciler checks again.
                    self.states
                        .update(name, |state| state.approved_removal = Some(uid.clone()));
                    self.queue.add(cleanup_key(name), Priority::LOW);
                }
            }
        }
        Ok(comparison)
    }

    /// Compares once, and changes nothing.
    pub async fn preview(&self) -> Result<OrphanComparison, CompareError> {
        self.find(|| self.confirmed.load(Ordering::Acquire)).await
    }

    async fn find(&self, confirmed: impl FnOnce() -> bool) -> Result<OrphanComparison, CompareError> {
        // A complete list follows, and with it another comparison.
        if !self.store.is_synced() || (self.is_incomplete)() {
            return Ok(OrphanComparison::Unknown);
        }
        if !self.origin.is_same_cluster().await? {
            tracing::error!(
                "the UID of the namespace kube-system has changed, keeping all charts; restart to use the new cluster"
            );
            return Ok(OrphanComparison::Unknown);
        }
        let records = self.catalog.records().await?;
        let declared: BTreeSet<_> = self.store.names().into_iter().collect();
        let scope = Comparable {
            origin: self.origin.id(),
            is_directory: self.origin.is_directory(),
            is_confirmed: confirmed(),
        };
        let orphans = find_orphans(&records, &declared, &scope, |namespace| self.is_watched(namespace));
        Ok(match orphans {
            // Approved removals are on their way.
            OrphanComparison::Pending { missing, .. } if missing == self.approved(&records) => {
                OrphanComparison::Gone(Vec::new())
            }
            orphans => orphans,
        })
    }

    /// Returns the number of repositories whose approved removal has not ended.
    fn approved(&self, records: &[Record]) -> usize {
        let is_approved = |record: &&Record| {
            let approved = self.states.read(&record.name, |state| state.approved_removal.clone());
            approved.as_ref() == Some(&record.uid)
        };
        records.iter().filter(is_approved).count()
    }

    #[must_use]
    pub fn is_watched(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|watched| watched == namespace)
    }
}

/// Enqueues all repositories whenever missing catalog tables were recreated. Ends with the catalog.
pub async fn refill(mut rebuilt: watch::Receiver<u64>, store: Store<Cached<CachedRepository>>, queue: Queue<Key>) {
    while rebuilt.changed().await.is_ok() {
        tracing::warn!("catalog tables were recreated, syncing all repositories");
        enqueue_all(&store, &queue);
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Comparable<'a> {
    /// The origin of our rows; rows of others are never orphans.
    pub origin: &'a str,
    /// The volume of an empty directory may not be mounted.
    pub is_directory: bool,
    /// Any number of repositories may be removed.
    pub is_confirmed: bool,
}

/// Compares the catalog with a complete list. Only rows of this origin in watched namespaces can be orphans, not those
/// of one-shot commands, Kubeapps or other clusters.
#[must_use]
pub fn find_orphans(
    records: &[Record],
    declared: &BTreeSet<NamespacedName>,
    rules: &Comparable<'_>,
    is_watched: impl Fn(&str) -> bool,
) -> OrphanComparison {
    let is_ours = |record: &&Record| record.origin == rules.origin && is_watched(&record.name.namespace);
    let ours: Vec<&Record> = records.iter().filter(is_ours).collect();
    let missing: Vec<_> = ours
        .iter()
        .filter(|record| !declared.contains(&record.name))
        .map(|record| (record.name.clone(), record.uid.clone()))
        .collect();
    let is_majority = missing.len() > ALWAYS_REMOVED && missing.len() * 2 > ours.len();
    let is_empty_directory = rules.is_directory && declared.is_empty() && !missing.is_empty();
    if !rules.is_confirmed && (is_majority || is_empty_directory) {
        return OrphanComparison::Pending {
            missing: missing.len(),
            total: ours.len(),
        };
    }
    OrphanComparison::Gone(missing)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use kube::core::DeserializeGuard;
    use kube::runtime::watcher::Event;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::catalog::{Database, Login};
    use crate::controllers::apprepository::origin::Directory;
    use crate::runtime::watch::run;
    use crate::runtime::workqueue::{self, QueueSettings};

    fn record(namespace: &str, repository: &str, origin: &str) -> Record {
        Record {
            name: NamespacedName::new(namespace, repository),
            uid: "uid".to_owned(),
            origin: origin.to_owned(),
            ..Record::default()
        }
    }

    fn many(count: usize) -> Vec<Record> {
        (0..count)
            .map(|i| record("default", &format!("r{i}"), "here"))
            .collect()
    }

    const RULES: Comparable<'static> = Comparable {
        origin: "here",
        is_directory: false,
        is_confirmed: false,
    };

    fn declared(count: usize) -> BTreeSet<NamespacedName> {
        (0..count)
            .map(|i| NamespacedName::new("default", format!("r{i}")))
            .collect()
    }

    #[test]
    fn undeclared_repositories_are_removed() {
        let found = find_orphans(&many(3), &declared(2), &RULES, |_| true);
        assert_eq!(
            found,
            OrphanComparison::Gone(vec![(NamespacedName::new("default", "r2"), "uid".to_owned())])
        );
    }

    #[test]
    fn rows_of_other_origins_and_unwatched_namespaces_are_ignored() {
        let records = [
            record("default", "one-shot", "one-shot"),
            record("default", "other-cluster", "there"),
            record("elsewhere", "not-watched", "here"),
        ];
        let found = find_orphans(&records, &BTreeSet::new(), &RULES, |namespace| namespace == "default");
        assert_eq!(found, OrphanComparison::Gone(Vec::new()));
    }

    #[test]
    fn more_than_half_and_more_than_five_removals_are_pending() {
        assert_eq!(
            find_orphans(&many(11), &declared(5), &RULES, |_| true),
            OrphanComparison::Pending { missing: 6, total: 11 }
        );
        assert!(matches!(
            find_orphans(&many(12), &declared(6), &RULES, |_| true),
            OrphanComparison::Gone(gone) if gone.len() == 6
        ));
        assert!(matches!(
            find_orphans(&many(5), &declared(0), &RULES, |_| true),
            OrphanComparison::Gone(gone) if gone.len() == 5
        ));
    }

    #[test]
    fn pending_removals_proceed_once_confirmed() {
        let confirmed = Comparable {
            is_confirmed: true,
            ..RULES
        };
        assert!(matches!(
            find_orphans(&many(20), &declared(0), &confirmed, |_| true),
            OrphanComparison::Gone(gone) if gone.len() == 20
        ));
    }

    #[test]
    fn an_empty_directory_removes_nothing_without_confirmation() {
        let directory = Comparable {
            is_directory: true,
            ..RULES
        };
        let pending = |declared: &BTreeSet<_>, rules| {
            matches!(
                find_orphans(&many(2), declared, rules, |_| true),
                OrphanComparison::Pending { .. }
            )
        };
        assert!(pending(&declared(0), &directory));
        assert!(
            !pending(&declared(1), &directory),
            "a manifest shows that the volume is there"
        );
        assert!(!pending(&declared(0), &RULES));
        let confirmed = Comparable {
            is_confirmed: true,
            ..directory
        };
        assert!(!pending(&declared(0), &confirmed));
    }

    #[tokio::test]
    async fn nothing_is_compared_before_the_list_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("catalog.db").display());
        let database = Database::parse(&url, &Login::default()).unwrap();
        let catalog = Catalog::open(&catalog::CatalogSettings::new(database)).await.unwrap();
        let origin = Origin::Directory(Directory::new(directory.path()).unwrap());
        let orphan = record("default", "orphan", origin.id());
        catalog.save(&orphan, None, None).await.unwrap();

        let is_incomplete = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&is_incomplete);
        let registry = &mut Registry::default();
        let finder = OrphanFinder {
            store: Store::default(),
            catalog,
            queue: Queue::new(
                QueueSettings::default(),
                &workqueue::WorkqueueMetrics::register(registry),
            ),
            states: RepositoryStates::default(),
            metrics: GarbageMetrics::register(registry),
            origin: Arc::new(origin),
            is_incomplete: Box::new(move || flag.load(Ordering::Relaxed)),
            namespace: None,
            confirmed: AtomicBool::new(true),
        };
        let is_removed = async || {
            finder.compare().await.unwrap();
            finder
                .states
                .read(&orphan.name, |state| state.approved_removal.is_some())
        };
        is_incomplete.store(false, Ordering::Relaxed);
        assert!(!is_removed().await, "the cache is empty");
        is_incomplete.store(true, Ordering::Relaxed);
        let list = [Event::Init, Event::InitDone].map(Ok::<Event<DeserializeGuard<CachedRepository>>, Infallible>);
        run(stream::iter(list), finder.store.clone(), |_| ()).await;
        assert!(!is_removed().await, "a manifest could not be read");
        is_incomplete.store(false, Ordering::Relaxed);
        assert!(is_removed().await);
    }
}
