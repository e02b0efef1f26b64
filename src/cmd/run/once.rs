//! `portolan run --once`: all that is declared is synced, once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Run,
    assembly::{Assembly, Metrics},
    patience::Patience,
};
use crate::api::NamespacedName;
use crate::cmd::{Failure, progress};
use crate::controllers::apprepository::reconciler::Reconciler;
use crate::runtime::controller::{self, Action, Key, Reconcile};
use crate::runtime::workqueue::Priority;

/// How long a list of all declarations may take to come. An API server that is away is not waited for longer.
const LISTED_WITHIN: Duration = Duration::from_secs(60);
/// How often a sync is begun anew when its repository was changed under it.
const TRIES: usize = 3;

/// Syncs, and says what failed.
pub(super) async fn run(run: &Run, shutdown: CancellationToken) -> Result<(), Failure> {
    let all = async {
        let metrics = Metrics::register(&mut Registry::default());
        let assembly = Assembly::new(run, metrics, Patience::Fail, CancellationToken::new()).await?;
        sync_all(assembly).await
    };
    // What is dropped on the way has written nothing: a transaction under way is rolled back.
    shutdown
        .run_until_cancelled(all)
        .await
        .unwrap_or_else(|| Err(Failure::failed("ended by a signal before all was synced")))
}

async fn sync_all(mut assembly: Assembly) -> Result<(), Failure> {
    let informer = tokio::spawn(std::mem::replace(
        &mut assembly.informer,
        futures::future::ready(()).boxed(),
    ));
    if timeout(LISTED_WITHIN, assembly.store.wait_until_synced())
        .await
        .is_err()
    {
        return Err(Failure::failed(format!(
            "the declarations could not be listed within {} s; the log tells why",
            LISTED_WITHIN.as_secs()
        )));
    }
    let problems = assembly.problems.list();
    if problems.is_empty() {
        // Only a complete list tells what is gone.
        assembly
            .collector
            .compare()
            .await
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    // Nothing that changes from now on is of interest. What it has begun to tell it tells to the end: the keys are in the queue then.
    informer.abort();
    let _ = informer.await;

    let once = Arc::new(Once {
        reconciler: Arc::clone(&assembly.reconciler),
        results: Mutex::default(),
    });
    let line = tokio::spawn(progress::follow(assembly.activity.names()));
    // A pool over a queue that is shut down works until it is empty.
    assembly.queue.shut_down();
    assembly.controller(Arc::clone(&once) as Arc<dyn Reconcile>).run().await;
    line.abort();
    let names = assembly.store.names();
    let import = |name: NamespacedName| {
        let files = Arc::clone(&assembly.files);
        let span = tracing::error_span!("import", namespace = %name.namespace, name = %name.name);
        async move {
            if let Err(error) = files.import_all(&name).await {
                tracing::error!(%error, "failed to import chart files");
            }
        }
        .instrument(span)
    };
    stream::iter(names)
        .for_each_concurrent(assembly.files_at_once(), import)
        .await;
    assembly.catalog.close().await;

    summary(&assembly.store.names(), &once.results.lock(), problems.len())
}

/// All well, or what was not. A repository without a result is one whose sync has panicked, of which the log tells.
fn summary(names: &[NamespacedName], results: &BTreeMap<NamespacedName, bool>, problems: usize) -> Result<(), Failure> {
    let failed = names
        .iter()
        .filter(|name| results.get(name).copied() != Some(true))
        .count();
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{failed} of {} repositories could not be synced", names.len()));
    }
    if problems > 0 {
        parts.push(format!("{problems} things are wrong with the manifests"));
    }
    if parts.is_empty() {
        tracing::info!("synced {} repositories", names.len());
        return Ok(());
    }
    Err(Failure::failed(format!("{}; the log tells why", parts.join(", and "))))
}

/// Syncs each repository whether it is due or not, and remembers how it went.
struct Once {
    reconciler: Arc<Reconciler>,
    results: Mutex<BTreeMap<NamespacedName, bool>>,
}

impl Once {
    async fn sync(&self, name: &NamespacedName) -> Result<(), String> {
        let mut tries = 0;
        while tries < TRIES {
            match self.reconciler.sync_now(name).await {
                Ok(Action::Requeue) => tries += 1,
                // A registry has more tags than one sync takes. A requeue with a priority is that of the schedule.
                Ok(Action::RequeueAfter {
                    delay: Duration::ZERO,
                    priority: None,
                }) => {}
                Ok(Action::Done | Action::RequeueAfter { .. }) => return Ok(()),
                Err(
                    controller::ReconcileError::Transient { message, .. }
                    | controller::ReconcileError::Terminal { message, .. },
                ) => {
                    return Err(message);
                }
            }
        }
        Err("it was changed again and again while it was synced".to_owned())
    }
}

impl Reconcile for Once {
    fn reconcile<'a>(
        &'a self,
        key: &'a Key,
        _priority: Priority,
    ) -> BoxFuture<'a, Result<Action, controller::ReconcileError>> {
        async move {
            let name = &key.name;
            let result = self.sync(name).await;
            if let Err(message) = &result {
                tracing::error!(error = message, "sync failed");
            }
            self.results.lock().insert(name.clone(), result.is_ok());
            // There is no second try, so the pool needs to know nothing.
            Ok(Action::Done)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_well_only_if_each_repository_has_been_synced_and_each_manifest_read() {
        let name = |name: &str| NamespacedName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let names = [name("a"), name("b")];
        let all = BTreeMap::from([(name("a"), true), (name("b"), true)]);
        assert_eq!(summary(&names, &all, 0), Ok(()));
        let failed = BTreeMap::from([(name("a"), true), (name("b"), false)]);
        assert!(summary(&names, &failed, 0).is_err());
        let panicked = BTreeMap::from([(name("a"), true)]);
        let failure = summary(&names, &panicked, 2).unwrap_err().to_string();
        assert!(
            failure.starts_with("1 of 2 repositories could not be synced, and 2 things are wrong"),
            "{failure}"
        );
    }
}
