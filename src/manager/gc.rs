use kube::Api;
use kube::api::ListParams;
use prometheus_client::registry::Registry;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::once::LIST_TIMEOUT;
use super::setup::{ManagerMetrics, Repositories, Setup};
use super::startup::CatalogAccess;
use super::{Error, Options};
use crate::api::{AppRepository, Partial};
use crate::budget;
use crate::controllers::Source;
use crate::controllers::apprepository::event_handler::cleanup_key;
use crate::controllers::apprepository::garbage::orphans::OrphanComparison;
use crate::controllers::apprepository::garbage::report::{GarbageKind, GarbageReport};
use crate::runtime::controller::{Action, Reconcile};
use crate::runtime::kube_client::call;
use crate::runtime::workqueue::Priority;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Remove,
    /// Finds garbage and removes nothing.
    Preview,
}

/// Fails if `shutdown` comes first.
pub async fn run(options: &Options, mode: Mode, shutdown: CancellationToken) -> Result<GarbageReport, Error> {
    let collect = async {
        let metrics = ManagerMetrics::register(&mut Registry::default(), &budget::Metrics::default(), None);
        let access = match mode {
            Mode::Remove => CatalogAccess::Write,
            Mode::Preview => CatalogAccess::Read,
        };
        let (context, repositories) = Setup::for_command(options, &metrics, access).await?;
        collect(repositories, &context.source, mode).await
    };
    let interrupted = || {
        Err(Error(
            "interrupted by a signal before the end of the collection".to_owned(),
        ))
    };
    shutdown.run_until_cancelled(collect).await.unwrap_or_else(interrupted)
}

async fn collect(repositories: Repositories, source: &Source, mode: Mode) -> Result<GarbageReport, Error> {
    let Repositories { parts, catalog, .. } = repositories;
    check_list(source, parts.garbage.orphans.namespace.as_deref()).await?;
    let informer = tokio::spawn(parts.informer);
    if timeout(LIST_TIMEOUT, parts.store.wait_until_synced()).await.is_err() {
        let seconds = LIST_TIMEOUT.as_secs();
        return Err(Error(format!(
            "failed to list the repositories within {seconds} s, nothing was removed; see log"
        )));
    }
    let garbage = &parts.garbage;
    let mut report = match mode {
        Mode::Preview => {
            let comparison = garbage.orphans.preview().await.map_err(Error::from_display)?;
            garbage.preview(&comparison).await
        }
        Mode::Remove => {
            let comparison = garbage.orphans.compare().await.map_err(Error::from_display)?;
            let mut report = garbage.collect(&comparison).await;
            remove_repositories(&comparison, parts.reconciler.as_ref(), &mut report).await;
            report
        }
    };
    if !parts.problems.is_complete() {
        let reason = "a manifest could not be read, see log".to_owned();
        report.skipped = report.skipped.map(|_| reason);
    }
    informer.abort();
    let _ = informer.await;
    catalog.catalog.close().await;
    drop(catalog.lock);
    Ok(report)
}

/// Lists one object, to fail with the reason instead of a timeout: the watch would retry.
async fn check_list(source: &Source, namespace: Option<&str>) -> Result<(), Error> {
    let Source::Cluster(client) = source else {
        return Ok(());
    };
    let repositories: Api<Partial<AppRepository>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = call(repositories.list_metadata(&ListParams::default().limit(1))).await;
    let failed = |error| Error(format!("failed to list AppRepositories, nothing was removed: {error}"));
    listed.map(drop).map_err(failed)
}

/// Removes the approved repositories as the cleanup worker does. The report keeps the removed ones.
async fn remove_repositories(comparison: &OrphanComparison, reconciler: &impl Reconcile, report: &mut GarbageReport) {
    let OrphanComparison::Gone(gone) = comparison else {
        return;
    };
    let mut removed = Vec::new();
    for (name, _) in gone {
        match reconciler.reconcile(&cleanup_key(name), Priority::LOW).await {
            Ok(Action::Done) => removed.push(name.to_string()),
            // Declared since the list was taken.
            Ok(_) => {}
            Err(error) => report
                .failures
                .push((GarbageKind::Repositories, format!("{name}: {error}"))),
        }
    }
    report.set(GarbageKind::Repositories, removed);
}
