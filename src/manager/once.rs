use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::setup::{ManagerMetrics, Repositories, Setup};
use super::startup::CatalogAccess;
use super::{Error, Options};
use crate::api::NamespacedName;
use crate::budget;
use crate::controllers::SetupContext;
use crate::controllers::apprepository;
use crate::controllers::apprepository::reconciler::RepositoryReconciler;
use crate::runtime::controller::{Action, Class, Key, Reconcile, ReconcileError, WorkerPool};
use crate::runtime::workqueue::Priority;

/// The timeout for the first complete list of declarations.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of attempts to sync a repository that changes during the sync.
const TRIES: usize = 3;

/// Fails if a repository or a manifest failed, or `shutdown` came first.
pub async fn run(options: &Options, shutdown: CancellationToken) -> Result<(), Error> {
    let sync = async {
        let metrics = ManagerMetrics::register(&mut Registry::default(), &budget::Metrics::default(), None);
        let (context, repositories) = Setup::for_command(options, &metrics, CatalogAccess::Write).await?;
        sync_all(repositories, &context, metrics).await
    };
    // A canceled sync has written nothing: its transaction is rolled back.
    shutdown.run_until_cancelled(sync).await.unwrap_or_else(|| {
        Err(Error(
            "interrupted by a signal before all repositories were synced".to_owned(),
        ))
    })
}

async fn sync_all(repositories: Repositories, context: &SetupContext, metrics: ManagerMetrics) -> Result<(), Error> {
    let Repositories {
        options,
        parts,
        catalog,
        ..
    } = repositories;
    let informer = tokio::spawn(parts.informer);
    if timeout(LIST_TIMEOUT, parts.store.wait_until_synced()).await.is_err() {
        return Err(Error(format!(
            "failed to list the repositories within {} s, see log",
            LIST_TIMEOUT.as_secs()
        )));
    }
    let problems = parts.problems.list();
    parts.garbage.orphans.compare().await.map_err(Error::from_display)?;
    // Later changes are ignored. The informer has enqueued all keys of the list when it ends.
    informer.abort();
    let _ = informer.await;

    let once = Arc::new(Once {
        reconciler: Arc::clone(&parts.reconciler),
        results: Mutex::default(),
    });
    let class = |name| Class {
        name,
        workers: options.workers,
        reconciler: Arc::clone(&once) as Arc<dyn Reconcile>,
    };
    let classes = [apprepository::NAME, apprepository::CLEANUP].map(class);
    // Workers of a queue that is shut down end when it is empty.
    context.queue.shut_down();
    WorkerPool::new(
        context.queue.clone(),
        classes.into(),
        context.budgets.clone(),
        metrics.workers,
    )
    .run(CancellationToken::new())
    .await;
    let names = parts.store.names();
    let import = |name: NamespacedName| {
        let files = Arc::clone(&parts.files);
        let span = tracing::error_span!("import", namespace = %name.namespace, name = %name.name);
        async move {
            if let Err(error) = files.import_all(&name).await {
                tracing::error!(%error, "failed to import chart files");
            }
        }
        .instrument(span)
    };
    stream::iter(names.iter().cloned())
        .for_each_concurrent(options.files_workers, import)
        .await;
    catalog.catalog.close().await;
    drop(catalog.lock);
    summarize(&names, &once.results.lock(), problems.len())
}

/// Counts failures. If a repository has no result, its sync panicked, which was logged.
fn summarize(names: &[NamespacedName], results: &BTreeMap<NamespacedName, bool>, problems: usize) -> Result<(), Error> {
    let failed = names
        .iter()
        .filter(|name| results.get(name).copied() != Some(true))
        .count();
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{failed} of {} repositories failed to sync", names.len()));
    }
    if problems > 0 {
        parts.push(format!("{problems} errors in the manifests"));
    }
    if parts.is_empty() {
        tracing::info!("synced {} repositories", names.len());
        return Ok(());
    }
    Err(Error(format!("{}; see log", parts.join(", "))))
}

/// Syncs each repository regardless of its schedule, and records the result.
struct Once {
    reconciler: Arc<RepositoryReconciler>,
    results: Mutex<BTreeMap<NamespacedName, bool>>,
}

impl Once {
    async fn sync(&self, name: &NamespacedName) -> Result<(), String> {
        let mut tries = 0;
        while tries < TRIES {
            match self.reconciler.sync_now(name).await {
                Ok(Action::Requeue) => tries += 1,
                // A registry has more tags than one sync takes. Requeues of the schedule have another priority.
                Ok(Action::RequeueAfter {
                    delay: Duration::ZERO,
                    priority: None | Some(Priority::CONTINUED),
                }) => {}
                Ok(Action::Done | Action::RequeueAfter { .. }) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the repository kept changing during the sync".to_owned())
    }
}

impl Reconcile for Once {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            let name = &key.name;
            let result = self.sync(name).await;
            if let Err(message) = &result {
                tracing::error!(error = message, "sync failed");
            }
            self.results.lock().insert(name.clone(), result.is_ok());
            // No retry: the error is in `results`.
            Ok(Action::Done)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_succeeds_only_if_each_repository_was_synced_and_each_manifest_read() {
        let name = |name: &str| NamespacedName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let names = [name("a"), name("b")];
        let all = BTreeMap::from([(name("a"), true), (name("b"), true)]);
        assert_eq!(summarize(&names, &all, 0), Ok(()));
        let failed = BTreeMap::from([(name("a"), true), (name("b"), false)]);
        assert!(summarize(&names, &failed, 0).is_err());
        let panicked = BTreeMap::from([(name("a"), true)]);
        let failure = summarize(&names, &panicked, 2).unwrap_err().to_string();
        assert!(
            failure.starts_with("1 of 2 repositories failed to sync, 2 errors in the manifests"),
            "{failure}"
        );
    }
}
