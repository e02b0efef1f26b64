//! Taking Kubeapps' CronJobs away once a repository has been synced from here, or at least telling of them.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::Client;

use super::adopt::{self, AdoptError};
use crate::api::AppRepository;
use crate::catalog::RepositoryName;
use crate::informer::{ObjectName, Store};

/// Takes CronJobs away, each repository's once a process: who makes them again wants them.
pub struct Adopter {
    client: Client,
    kubeapps_namespace: String,
    seen_to: Mutex<HashSet<ObjectName>>,
    has_complained: Mutex<bool>,
}

impl Adopter {
    /// One for the CronJobs in `kubeapps_namespace`.
    #[must_use]
    pub fn new(client: Client, kubeapps_namespace: String) -> Self {
        Self {
            client,
            kubeapps_namespace,
            seen_to: Mutex::default(),
            has_complained: Mutex::default(),
        }
    }

    /// Takes the CronJob of a repository away that has been synced. That it can't be done is logged, and never a reason for a
    /// sync to fail.
    pub async fn adopt(&self, name: &ObjectName) {
        if !lock(&self.seen_to).insert(name.clone()) {
            return;
        }
        let repository = RepositoryName::from(name);
        match adopt::remove_cron_jobs(&self.client, &self.kubeapps_namespace, &repository).await {
            Ok(0) => {}
            Ok(removed) => {
                tracing::info!(repository = %name, removed, "removed Kubeapps' CronJob, since the repository is synced from here")
            }
            // Nothing that a repository could change: said once, and not tried again for each.
            Err(error @ AdoptError::Forbidden { .. }) => {
                if !std::mem::replace(&mut *lock(&self.has_complained), true) {
                    tracing::warn!("Kubeapps' CronJobs can't be removed: {error}");
                }
            }
            Err(error) => {
                tracing::warn!(repository = %name, "Kubeapps' CronJob could not be removed: {error}");
                lock(&self.seen_to).remove(name);
            }
        }
    }
}

/// Tells, once the declarations are known, which repositories Kubeapps' CronJobs sync too.
pub async fn warn(client: Client, kubeapps_namespace: String, store: Store<AppRepository>) {
    store.wait_until_synced().await;
    adopt::warn_of_cron_jobs(&client, &kubeapps_namespace, |name| store.get(name).is_some()).await;
}

/// What is locked is whole between any two statements, so a panic elsewhere leaves nothing to mend.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
