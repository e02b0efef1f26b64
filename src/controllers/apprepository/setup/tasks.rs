//! Tasks beside the workers, which need a cluster.

use futures::FutureExt;
use kube::Client;

use super::scope;
use crate::api::NamespacedName;
use crate::controllers::Task;
use crate::controllers::apprepository::CachedRepository;
use crate::controllers::apprepository::event_handler::key;
use crate::controllers::apprepository::options::Options;
use crate::controllers::apprepository::secrets::{self, repositories_of};
use crate::controllers::apprepository::state::RepositoryStates;
use crate::controllers::apprepository::{jobs, kubeapps_cronjobs};
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Priority, Queue};

/// Syncs repositories when a Secret changes that they reference.
pub(super) fn watch_secrets(
    client: &Client,
    options: &Options,
    store: &Store<Cached<CachedRepository>>,
    states: RepositoryStates,
    queue: &Queue<Key>,
) -> Task {
    let kubeapps_namespace = options.kubeapps_namespace.clone();
    let (store, queue, namespace) = (store.clone(), queue.clone(), kubeapps_namespace.clone());
    let on_change = move |secret| {
        for name in repositories_of(&secret, &store, &namespace) {
            states.update(&name, |state| state.force_sync = true);
            // A new leader enqueues all repositories.
            if !queue.is_paused() {
                queue.add(key(&name), Priority::USER);
            }
        }
    };
    secrets::watch(client.clone(), scope(options), kubeapps_namespace, on_change).boxed()
}

/// Logs remaining CronJobs once. To adopt Kubeapps, removes CronJobs of deleted repositories; syncs remove the others.
pub(super) fn check_cron_jobs(client: &Client, options: &Options, store: &Store<Cached<CachedRepository>>) -> Task {
    let (namespace, watched) = (options.kubeapps_namespace.clone(), options.namespace.clone());
    let (client, store, adopts) = (client.clone(), store.clone(), options.adopt_kubeapps);
    async move {
        store.wait_until_synced().await;
        let is_watched = |name: &NamespacedName| is_watched(watched.as_deref(), name);
        let is_declared = |name: &NamespacedName| store.get(name).is_some();
        if adopts {
            let is_undeclared = |name: &NamespacedName| is_watched(name) && !is_declared(name);
            kubeapps_cronjobs::remove_of_undeclared(&client, &namespace, is_undeclared).await;
        } else {
            kubeapps_cronjobs::warn_of_cron_jobs(&client, &namespace, is_declared).await;
        }
        futures::future::pending().await
    }
    .boxed()
}

/// Returns true if the repository is in the watched namespace, `None` for all.
fn is_watched(watched: Option<&str>, name: &NamespacedName) -> bool {
    watched.is_none_or(|watched| watched == name.namespace)
}

/// With a selector, other objects than the cached ones belong to another release.
pub(super) fn remove_leftovers(
    client: &Client,
    options: &Options,
    has_selector: bool,
    store: &Store<Cached<CachedRepository>>,
) -> Task {
    let (client, namespace) = (client.clone(), options.kubeapps_namespace.clone());
    let (watched, store) = (options.namespace.clone(), store.clone());
    async move {
        store.wait_until_synced().await;
        let is_ours = |name: &NamespacedName| {
            is_watched(watched.as_deref(), name) && (!has_selector || store.get(name).is_some())
        };
        jobs::remove_leftovers(&client, &namespace, is_ours).await;
        futures::future::pending().await
    }
    .boxed()
}
