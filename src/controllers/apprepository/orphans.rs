//! Finds repositories that were deleted while the watch was down, and charts that vanished from the database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::{Notify, watch};

use super::event_handler::key;
use super::metrics::Metrics;
use super::removals::{Orphans, find_orphans};
use super::state::RepositoryStates;
use crate::api::AppRepository;
use crate::catalog::{self, Catalog};
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Priority, Queue};

pub struct OrphanFinder {
    pub store: Store<Cached<AppRepository>>,
    pub catalog: Catalog,
    pub queue: Queue<Key>,
    pub states: RepositoryStates,
    pub metrics: Metrics,
    pub origin: String,
    /// The watched namespace; `None` for all.
    pub namespace: Option<String>,
    /// Set by `--confirm-removals`: allows any number of removals in the first comparison.
    pub confirmed: AtomicBool,
}

impl OrphanFinder {
    /// Compares after each complete list. Never returns.
    pub async fn run(self, listed: Arc<Notify>) {
        loop {
            listed.notified().await;
            let backoff = ExponentialBuilder::default()
                .with_min_delay(Duration::from_secs(1))
                .with_max_delay(Duration::from_secs(60))
                .without_max_times()
                .with_jitter();
            let compared = (|| self.compare()).retry(backoff).notify(|error, delay| {
                tracing::warn!(%error, retry_in = ?delay, "failed to compare the catalog with declared repositories, retrying");
            });
            if let Err(error) = compared.await {
                tracing::error!(%error, "failed to compare the catalog with declared repositories");
            }
        }
    }

    /// Compares once: approves the removal of orphans and enqueues their keys.
    pub async fn compare(&self) -> Result<(), catalog::Error> {
        let records = self.catalog.records().await?;
        let declared: BTreeSet<_> = self.store.names().into_iter().collect();
        let is_watched = |namespace: &str| self.namespace.as_deref().is_none_or(|watched| watched == namespace);
        // The confirmation applies to the first comparison only, whatever it finds.
        let confirmed = self.confirmed.swap(false, Ordering::AcqRel);
        let gone = match find_orphans(&records, &declared, &self.origin, is_watched, confirmed) {
            Orphans::Remove(gone) => gone,
            Orphans::Pending { missing, total } => {
                self.metrics.pending_removals(missing);
                tracing::error!(
                    "{missing} of {total} repositories are no longer declared, keeping their charts; to remove them, restart once \
                     with --confirm-removals"
                );
                return Ok(());
            }
        };
        self.metrics.pending_removals(0);
        for (name, uid) in gone {
            // It may have been declared since the list was taken; the reconciler checks again.
            self.states.update(&name, |state| state.approved_removal = Some(uid));
            self.queue.add(key(&name), Priority::LOW);
        }
        Ok(())
    }
}

/// Enqueues all repositories whenever missing catalog tables were recreated. Ends with the catalog.
pub async fn refill(mut rebuilt: watch::Receiver<u64>, store: Store<Cached<AppRepository>>, queue: Queue<Key>) {
    while rebuilt.changed().await.is_ok() {
        tracing::warn!("catalog tables were recreated, syncing all repositories");
        for name in store.names() {
            queue.add(key(&name), Priority::LOW);
        }
    }
}
