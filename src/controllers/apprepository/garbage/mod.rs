//! Garbage collection: rows and objects whose repository is gone, and rows that no sync removes.
//!
//! ```text
//!  complete list ─► OrphanFinder ─┬─ gone ─────► approved, enqueued for the cleanup worker
//!  each interval ─┘               │              CronJobs, Jobs, Secrets, rows of no repository
//!                                 └─ unknown, or too many ─► nothing of these
//!  each interval ─────────────────────────────► files, history, Leases
//! ```

mod metrics;
pub mod objects;
pub mod orphans;
pub mod report;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

pub use metrics::GarbageMetrics;

use crate::api::NamespacedName;
use crate::catalog::{self, Catalog};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::jitter::jitter;
use crate::runtime::kube_client::ApiError;
use objects::{GarbageObjects, ObjectNames};
use orphans::{OrphanComparison, OrphanFinder};
use report::{GarbageKind, GarbageReport};

/// Time limit of a collector, so that none holds up the others.
const COLLECTOR_DEADLINE: Duration = Duration::from_secs(10 * 60);
/// Names in a log line.
const MAX_NAMES: usize = 20;

pub struct GarbageCollector {
    pub orphans: OrphanFinder,
    pub catalog: Catalog,
    /// `None` with a directory of manifests.
    pub objects: Option<GarbageObjects>,
    pub metrics: GarbageMetrics,
}

#[derive(Debug, thiserror::Error)]
enum GarbageError {
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("not done within {} minutes, the next collection continues", COLLECTOR_DEADLINE.as_secs() / 60)]
    TimedOut,
}

impl GarbageCollector {
    /// Compares after each complete list. Collects all garbage after the first one and every `interval`. Never returns.
    pub async fn run(self, listed: Arc<Notify>, interval: Duration) {
        let mut next = Instant::now();
        let mut has_list = false;
        loop {
            tokio::select! {
                () = listed.notified() => has_list = true,
                () = sleep_until(next), if has_list => {}
            }
            let comparison = self.orphans.compare_until_done().await;
            if Instant::now() >= next {
                self.collect(&comparison).await;
                // Collections of several installations are spread.
                next = Instant::now() + jitter(interval, 0.9..1.1);
            }
        }
    }

    /// Removes all garbage besides the repositories, whose removal the comparison has approved.
    pub async fn collect(&self, comparison: &OrphanComparison) -> GarbageReport {
        let report = self.collect_all(comparison, false).await;
        for garbage in &report.garbage {
            // The worker counts repositories when it removes them.
            if garbage.kind != GarbageKind::Repositories {
                self.metrics.count_removed(garbage.kind, garbage.count);
            }
            let names = &garbage.names[..garbage.names.len().min(MAX_NAMES)];
            tracing::info!(
                kind = garbage.kind.label(),
                count = garbage.count,
                ?names,
                "collected garbage"
            );
        }
        for (kind, error) in &report.failures {
            self.metrics.count_failure(*kind);
            tracing::warn!(kind = kind.label(), error, "failed to collect garbage");
        }
        self.metrics.record_end();
        self.publish(&report).await;
        report
    }

    /// Finds garbage and removes nothing.
    pub async fn preview(&self, comparison: &OrphanComparison) -> GarbageReport {
        self.collect_all(comparison, true).await
    }

    async fn collect_all(&self, comparison: &OrphanComparison, dry_run: bool) -> GarbageReport {
        let mut report = GarbageReport::default();
        let is_trusted = match comparison {
            OrphanComparison::Gone(gone) => {
                let names: ObjectNames = gone.iter().map(|(name, _)| name.to_string()).collect();
                report.add(GarbageKind::Repositories, names.len() as u64, names);
                true
            }
            OrphanComparison::Pending { missing, total } => {
                report.skipped = Some(format!(
                    "{missing} of {total} repositories are no longer declared; to remove them, use --confirm-removals"
                ));
                false
            }
            OrphanComparison::Unknown => {
                report.skipped = Some("there is no complete list of the declared repositories".to_owned());
                false
            }
        };
        let dependent: &[GarbageKind] = if is_trusted {
            &[
                GarbageKind::CronJobs,
                GarbageKind::Jobs,
                GarbageKind::Secrets,
                GarbageKind::Rows,
            ]
        } else {
            &[]
        };
        for kind in [GarbageKind::Files, GarbageKind::History, GarbageKind::Leases]
            .iter()
            .chain(dependent)
        {
            let collected = timeout(COLLECTOR_DEADLINE, self.collect_kind(*kind, dry_run)).await;
            match collected.unwrap_or(Err(GarbageError::TimedOut)) {
                Ok((count, names)) => report.add(*kind, count, names),
                Err(error) => report.failures.push((*kind, error.to_string())),
            }
        }
        report
    }

    async fn collect_kind(&self, kind: GarbageKind, dry_run: bool) -> Result<(u64, ObjectNames), GarbageError> {
        let store = &self.orphans.store;
        match kind {
            GarbageKind::Files => Ok((self.collect_files(dry_run).await?, ObjectNames::new())),
            GarbageKind::History => Ok((self.catalog.collect_history(dry_run).await?, ObjectNames::new())),
            GarbageKind::Rows => {
                let is_declared =
                    |name: &NamespacedName| store.get(name).is_some() || !self.orphans.is_watched(&name.namespace);
                let rows = self.catalog.collect_stray_rows(is_declared, dry_run).await?;
                Ok((rows, ObjectNames::new()))
            }
            kind => match &self.objects {
                Some(objects) => {
                    let names = objects.collect(kind, &self.orphans, dry_run).await?;
                    Ok((names.len() as u64, names))
                }
                None => Ok((0, ObjectNames::new())),
            },
        }
    }

    async fn collect_files(&self, dry_run: bool) -> Result<u64, catalog::Error> {
        let mut collected = 0;
        for name in self.catalog.names().await? {
            collected += self.catalog.collect_files(&name, dry_run).await?;
        }
        Ok(collected)
    }

    /// Publishes what was removed, as an event of the namespace: the repositories are gone.
    async fn publish(&self, report: &GarbageReport) {
        let Some(objects) = self.objects.as_ref().filter(|_| !report.is_empty()) else {
            return;
        };
        let meta = ObjectMeta {
            name: Some(objects.namespace.clone()),
            namespace: Some(objects.namespace.clone()),
            ..ObjectMeta::default()
        };
        let event = Event::normal("GarbageCollected", format!("removed {report}"));
        let events = EventPublisher::new(objects.client.clone(), FIELD_MANAGER);
        events.publish::<Namespace>(&meta, "GarbageCollection", event).await;
    }
}
