//! Finding what nobody told us of: repositories that vanished while a watch was cut or while Portolan was down, and charts that
//! vanished from the database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio::sync::{Notify, watch};

use super::event_handler::key;
use super::metrics::Metrics;
use super::removals::{Difference, difference};
use super::state::RepositoryStates;
use crate::api::AppRepository;
use crate::catalog::{self, Catalog};
use crate::runtime::controller::Key;
use crate::runtime::informer::Store;
use crate::runtime::workqueue::{Priority, Queue};

/// Compares the catalogue with the declarations.
pub struct OrphanFinder {
    /// The declarations.
    pub store: Store<AppRepository>,
    /// The database.
    pub catalog: Catalog,
    /// Where keys go.
    pub queue: Queue<Key>,
    /// Where removals are approved.
    pub states: RepositoryStates,
    /// The figures.
    pub metrics: Metrics,
    /// The origin whose rows are looked at.
    pub origin: String,
    /// The one namespace that is watched, or nothing for all.
    pub namespace: Option<String>,
    /// Whether the removals that the first comparison finds go on however many they are.
    pub confirmed: AtomicBool,
}

impl OrphanFinder {
    /// Compares whenever a complete list has been seen. Never ends by itself.
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

    /// Compares once: what is gone is approved for removal, and its keys are in the queue.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn compare(&self) -> Result<(), catalog::Error> {
        let records = self.catalog.records().await?;
        let declared: BTreeSet<_> = self.store.names().into_iter().collect();
        let is_watched = |namespace: &str| self.namespace.as_deref().is_none_or(|watched| watched == namespace);
        // Used up by the first comparison, whatever it finds: weeks later nobody remembers having confirmed anything.
        let confirmed = self.confirmed.swap(false, Ordering::AcqRel);
        let gone = match difference(&records, &declared, &self.origin, is_watched, confirmed) {
            Difference::Remove(gone) => gone,
            Difference::Held { missing, of } => {
                self.metrics.removals_held(missing);
                tracing::error!(
                    "keeping the charts of {missing} of {of} repositories that are no longer declared, too many to remove \
                     unconfirmed; to remove them, restart once with --confirm-removals"
                );
                return Ok(());
            }
        };
        self.metrics.removals_held(0);
        for name in gone {
            // It may have been declared since the list was taken; the reconcile looks again.
            self.states.update(&name, |state| state.removal_approved = true);
            self.queue.add(key(&name), Priority::LOW);
        }
        Ok(())
    }
}

/// Has every repository looked at again whenever tables that had vanished were made anew. Ends with the catalogue.
pub async fn refill(mut rebuilt: watch::Receiver<u64>, store: Store<AppRepository>, queue: Queue<Key>) {
    while rebuilt.changed().await.is_ok() {
        tracing::warn!("catalog tables were recreated, syncing all repositories");
        for name in store.names() {
            queue.add(key(&name), Priority::LOW);
        }
    }
}
