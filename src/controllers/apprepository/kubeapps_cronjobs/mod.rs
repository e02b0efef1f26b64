//! Removes the CronJobs of Kubeapps' controller, which would keep running the old syncer.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::batch::v1::CronJob;
use kube::api::{Api, DeleteParams, ListParams, Preconditions, PropagationPolicy};
use kube::{Client, ResourceExt};

use super::state::RepositoryStates;
use crate::api::jobs::{MANAGED_BY, MANAGER, REPOSITORY_NAME, REPOSITORY_NAMESPACE};
use crate::api::{NamespacedName, Partial};
use crate::runtime::kube_client::{ApiError, call};

const PAGE: u32 = 500;

type CronJobMetadata = Partial<CronJob>;

/// Failure to list or delete Kubeapps' CronJobs. It never fails a sync.
#[derive(Debug, thiserror::Error)]
pub enum CronJobError {
    #[error(
        "not allowed to {verb} CronJobs in namespace {namespace}: grant the service account the verbs list and delete on \
         cronjobs.batch (chart values adoptKubeapps and kubeappsNamespace)"
    )]
    Forbidden { verb: &'static str, namespace: String },
    #[error("failed to {verb} CronJobs in namespace {namespace}: {cause}")]
    Failed {
        verb: &'static str,
        namespace: String,
        cause: ApiError,
    },
}

impl CronJobError {
    fn new(verb: &'static str, namespace: &str, cause: ApiError) -> Self {
        let namespace = namespace.to_owned();
        if cause.is_forbidden() {
            Self::Forbidden { verb, namespace }
        } else {
            Self::Failed { verb, namespace, cause }
        }
    }
}

/// Kubernetes allows 52 characters. The end of a part over [`PART`] is replaced by its checksum.
#[must_use]
pub fn cron_job_name(name: &NamespacedName) -> String {
    let (namespace, name) = (shorten(&name.namespace), shorten(&name.name));
    format!("apprepo-{namespace}-sync-{name}")
}

/// Maximum length of the namespace and the name within the 52 characters.
const PART: usize = 19;
const CHECKSUM: usize = 11;

fn shorten(part: &str) -> String {
    // Names in Kubernetes are ASCII; other text never matches a CronJob.
    if part.len() <= PART || !part.is_ascii() {
        return part.to_owned();
    }
    let (head, tail) = part.split_at(PART - CHECKSUM);
    format!("{head}-{}", adler32(tail.as_bytes()))
}

fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

/// Ignores our own CronJobs. Both labels and name must match: labels may be copied, a name may be a coincidence.
fn repository_of(cron_job: &CronJobMetadata) -> Option<NamespacedName> {
    let labels = cron_job.labels();
    if labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER) {
        return None;
    }
    let name = NamespacedName::new(labels.get(REPOSITORY_NAMESPACE)?, labels.get(REPOSITORY_NAME)?);
    (cron_job.name_any() == cron_job_name(&name)).then_some(name)
}

async fn list(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> Result<Vec<(NamespacedName, CronJobMetadata)>, CronJobError> {
    let cron_jobs: Api<CronJobMetadata> = Api::namespaced(client.clone(), namespace);
    let mut parameters = ListParams::default().labels(selector).limit(PAGE);
    let mut listed = Vec::new();
    loop {
        let page = call(cron_jobs.list(&parameters))
            .await
            .map_err(|error| CronJobError::new("list", namespace, error))?;
        let items = page.items.into_iter();
        listed.extend(items.filter_map(|job| Some((repository_of(&job)?, job))));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters = parameters.continue_token(&token),
            _ => return Ok(listed),
        }
    }
}

/// Removes Jobs and pods too. Returns the number of CronJobs. A running Kubeapps controller recreates them.
pub async fn remove_cron_jobs(
    client: &Client,
    kubeapps_namespace: &str,
    repository: &NamespacedName,
) -> Result<usize, CronJobError> {
    if !(is_label_value(&repository.name) && is_label_value(&repository.namespace)) {
        return Ok(0);
    }
    let selector = format!(
        "{REPOSITORY_NAME}={},{REPOSITORY_NAMESPACE}={}",
        repository.name, repository.namespace
    );
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), kubeapps_namespace);
    let mut removed = 0;
    let listed = list(client, kubeapps_namespace, &selector).await?;
    for (_, cron_job) in listed.into_iter().filter(|(name, _)| name == repository) {
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: cron_job.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match call(cron_jobs.delete(&cron_job.name_any(), &parameters)).await {
            Ok(_) => removed += 1,
            // Deleted or replaced meanwhile; the next sync retries.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => return Err(CronJobError::new("delete", kubeapps_namespace, error)),
        }
    }
    Ok(removed)
}

pub struct CronJobRemover {
    client: Client,
    kubeapps_namespace: String,
    states: RepositoryStates,
    warned: AtomicBool,
}

impl CronJobRemover {
    #[must_use]
    pub fn new(client: Client, kubeapps_namespace: String, states: RepositoryStates) -> Self {
        Self {
            client,
            kubeapps_namespace,
            states,
            warned: AtomicBool::new(false),
        }
    }

    /// Removes the CronJobs after the first successful sync, and returns their number. Transient errors are retried
    /// after the next sync. A missing permission is logged once and not retried.
    pub async fn after_sync(&self, repository: &NamespacedName) -> usize {
        if self.states.read(repository, |state| state.cron_jobs_removed) {
            return 0;
        }
        let (removed, is_done) = self.remove(repository).await;
        if is_done {
            self.states.update(repository, |state| state.cron_jobs_removed = true);
        }
        removed
    }

    /// Removes the CronJobs of a deleted repository, whether or not it was ever synced. Never fails a deletion.
    pub async fn after_deletion(&self, repository: &NamespacedName) -> usize {
        self.remove(repository).await.0
    }

    /// Returns the number of removed CronJobs, and true if no retry is needed.
    async fn remove(&self, repository: &NamespacedName) -> (usize, bool) {
        match remove_cron_jobs(&self.client, &self.kubeapps_namespace, repository).await {
            Ok(removed) => {
                if removed > 0 {
                    tracing::info!(removed, "removed Kubeapps' CronJobs of the repository");
                }
                (removed, true)
            }
            Err(error @ CronJobError::Forbidden { .. }) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "keeping Kubeapps' CronJobs");
                }
                (0, true)
            }
            Err(error) => {
                tracing::warn!(%error, "failed to remove Kubeapps' CronJobs, retrying after the next sync or start");
                (0, false)
            }
        }
    }
}

/// Returns true for valid label values; a repository with a longer name never got a CronJob.
fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=63).contains(&text.len()) && text.bytes().all(inner)
}

/// Returns the sorted names of those AppRepositories that a CronJob of Kubeapps syncs.
pub async fn with_cron_jobs(
    client: &Client,
    kubeapps_namespace: &str,
    is_wanted: impl Fn(&NamespacedName) -> bool,
) -> Result<Vec<NamespacedName>, CronJobError> {
    let listed = list(client, kubeapps_namespace, REPOSITORY_NAME).await?;
    let names: BTreeSet<_> = listed
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| is_wanted(name))
        .collect();
    Ok(names.into_iter().collect())
}

/// Logs once how many repositories Kubeapps' CronJobs sync too. Call it after the initial list. Errors are only logged.
pub async fn warn_of_cron_jobs(
    client: &Client,
    kubeapps_namespace: &str,
    is_managed: impl Fn(&NamespacedName) -> bool,
) {
    match with_cron_jobs(client, kubeapps_namespace, is_managed).await {
        Ok(names) => {
            if let Some(warning) = warning(&names, kubeapps_namespace) {
                tracing::warn!("{warning}");
            }
        }
        Err(error) => tracing::warn!(%error, "failed to list Kubeapps' CronJobs"),
    }
}

/// Removes CronJobs left by deletions while Portolan was down. Errors are only logged. Call it after the initial list.
pub async fn remove_of_undeclared(
    client: &Client,
    kubeapps_namespace: &str,
    is_undeclared: impl Fn(&NamespacedName) -> bool,
) {
    let remove = async {
        for name in with_cron_jobs(client, kubeapps_namespace, is_undeclared).await? {
            let removed = remove_cron_jobs(client, kubeapps_namespace, &name).await?;
            tracing::info!(removed, repository = %name, "removed Kubeapps' CronJobs of a deleted repository");
        }
        Ok::<_, CronJobError>(())
    };
    if let Err(error) = remove.await {
        tracing::warn!(%error, "failed to remove Kubeapps' CronJobs of deleted repositories");
    }
}

fn warning(names: &[NamespacedName], kubeapps_namespace: &str) -> Option<String> {
    let first = names.first()?;
    let many = names.len();
    let repositories = if many == 1 { "repository" } else { "repositories" };
    Some(format!(
        "{many} {repositories} (first: {first}) are also synced by CronJobs of Kubeapps' controller in namespace \
         {kubeapps_namespace}; stop that controller and run Portolan with --adopt-kubeapps to remove the CronJobs"
    ))
}
