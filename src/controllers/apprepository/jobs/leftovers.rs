use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, ListParams, ObjectMeta, PropagationPolicy};
use kube::{Client, ResourceExt};

use super::client::{JobError, delete};
use super::progress::view::JobView;
use super::secrets::delete_copy;
use crate::api::jobs::{repository_name, selector};
use crate::api::{NamespacedName, Partial};
use crate::runtime::kube_client::call;

/// Lists of what an earlier executor left, until nothing is found.
const REMOVAL_ROUNDS: usize = 5;

/// Deletes CronJobs and unfinished Jobs, which would sync beside this process, and retries until they are gone. Missing
/// rights are only logged: without Jobs, the service account usually has none, and then there are none. Objects of
/// repositories that `is_ours` excludes belong to another release.
pub async fn remove_leftovers(client: &Client, namespace: &str, is_ours: impl Fn(&NamespacedName) -> bool) {
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(60))
        .without_max_times()
        .with_jitter();
    let removed = (|| try_remove_leftovers(client, namespace, &is_ours))
        .retry(backoff)
        .when(|error| !matches!(error, JobError::Forbidden { .. }))
        .notify(|error, delay| {
            tracing::warn!(%error, retry_in = ?delay, "failed to remove CronJobs and Jobs of an earlier --executor=job, retrying");
        });
    match removed.await {
        Ok(()) => {}
        Err(JobError::Forbidden { verb: "list", .. }) => {
            tracing::debug!("not allowed to list CronJobs and Jobs, none of them are removed");
        }
        Err(error) => tracing::warn!(%error, "failed to remove CronJobs and Jobs of an earlier --executor=job"),
    }
}

async fn try_remove_leftovers(
    client: &Client,
    namespace: &str,
    is_ours: &impl Fn(&NamespacedName) -> bool,
) -> Result<(), JobError> {
    // A conflict may have another reason than a replacement.
    for _ in 0..REMOVAL_ROUNDS {
        if !remove_listed(client, namespace, is_ours).await? {
            break;
        }
    }
    Ok(())
}

/// Returns false if nothing was left.
async fn remove_listed(
    client: &Client,
    namespace: &str,
    is_ours: &impl Fn(&NamespacedName) -> bool,
) -> Result<bool, JobError> {
    let mut has_found = false;
    let is_left = |meta: &ObjectMeta| {
        repository_name(meta).is_some_and(|name| is_ours(&name)) && meta.deletion_timestamp.is_none()
    };
    let parameters = ListParams::default().labels(&selector());
    let listed = |cause| JobError::new("list", "cronjobs.batch", namespace, cause);
    let cron_jobs: Api<Partial<CronJob>> = Api::namespaced(client.clone(), namespace);
    for cron_job in call(cron_jobs.list(&parameters)).await.map_err(listed)?.items {
        if !is_left(&cron_job.metadata) {
            continue;
        }
        has_found = true;
        let (name, uid) = (cron_job.name_any(), cron_job.uid().unwrap_or_default());
        // Before the CronJob, by which the next start finds it.
        if let Some(repository) = repository_name(&cron_job.metadata) {
            delete_copy(client, namespace, &repository).await?;
        }
        let policy = PropagationPolicy::Background;
        delete::<CronJob>(client, namespace, "cronjobs.batch", &name, &uid, policy).await?;
        tracing::info!(
            cron_job = name,
            "deleted a CronJob, since repositories are synced by this process"
        );
    }
    let listed = |cause| JobError::new("list", "jobs.batch", namespace, cause);
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    for job in call(jobs.list(&parameters)).await.map_err(listed)?.items {
        if is_left(&job.metadata) && JobView::of(&job).is_unfinished() {
            has_found = true;
            let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
            let policy = PropagationPolicy::Background;
            delete::<Job>(client, namespace, "jobs.batch", &name, &uid, policy).await?;
        }
    }
    Ok(has_found)
}
