//! Ends the Jobs of a repository, and removes the charts of a deleted repository by a Job.
//!
//! A deletion never hangs: if the Job can't be created, fails, or does not end in time, this process removes the charts.

use std::time::Duration;

use jiff::Timestamp;

use super::admission::namespace;
use super::client::JobError;
use super::names;
use super::progress::view::JobView;
use super::watch::Jobs;
use crate::api::NamespacedName;

/// Deadline of the Job, from its creation: a pod that never starts counts too.
const DEADLINE: Duration = Duration::from_secs(120);
/// Interval between checks of a Job whose end the watch reports.
const POLL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    Wait(Duration),
    /// The Job has ended or can't run: this process removes what is left.
    Finish,
}

impl Jobs {
    /// Ends all work for a repository that this process syncs from now on. Returns true once nothing is left.
    pub(in crate::controllers::apprepository) async fn end(&self, name: &NamespacedName) -> Result<bool, JobError> {
        self.delete_cron_jobs(name).await?;
        let mut running = self.jobs_of(name);
        running.retain(JobView::is_unfinished);
        // Jobs of a CronJob are collected with it, but later than their pods could write.
        let is_idle = running.is_empty() && self.cron_jobs_of(name).is_empty();
        for job in running {
            if !job.is_deleted {
                self.delete_job(&job.name, &job.uid).await?;
            }
        }
        if is_idle && let Err(error) = self.remove_copy(name).await {
            // The sync in this process does not wait for it, and each reconcile tries again.
            tracing::warn!(%error, "failed to delete the copy of the Secret of a repository that has no Jobs");
        }
        Ok(is_idle)
    }

    /// Errors are logged and don't block the deletion: the tombstone keeps late pods from writing.
    pub(in crate::controllers::apprepository) async fn end_deleted(&self, name: &NamespacedName) {
        if let Err(error) = self.delete_cron_jobs(name).await {
            tracing::warn!(%error, "failed to delete the CronJob of a deleted repository");
        }
        let mut running = self.jobs_of(name);
        running.retain(|job| {
            let uid = job.repository_uid.as_deref().unwrap_or_default();
            job.is_unfinished() && !job.is_deleted && job.name != names::cleanup_job(name, uid)
        });
        for job in running {
            if let Err(error) = self.delete_job(&job.name, &job.uid).await {
                tracing::warn!(%error, job = job.name, "failed to delete a Job of a deleted repository");
            }
        }
        if let Err(error) = self.remove_copy_of_deleted(name).await {
            tracing::warn!(%error, "failed to delete the copy of the Secret of a deleted repository");
        }
    }

    /// Runs the Job that removes the charts of a repository, which is being deleted since `deleted`.
    pub(in crate::controllers::apprepository) async fn clean_up(
        &self,
        name: &NamespacedName,
        uid: &str,
        deleted: Option<Timestamp>,
    ) -> Cleanup {
        let now = Timestamp::now();
        let age = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        // Also if someone deletes the Job each time.
        if !self.is_synced() || deleted.is_some_and(|deleted| age(deleted) > 2 * DEADLINE) {
            return Cleanup::Finish;
        }
        let job_name = names::cleanup_job(name, uid);
        let all = self.all();
        let existing = all.iter().find(|job| job.name == job_name).cloned();
        match existing {
            Some(JobView {
                outcome: Some(outcome), ..
            }) => {
                if !outcome.is_success() {
                    tracing::warn!(
                        job = job_name,
                        "the cleanup Job failed, removing the charts in this process"
                    );
                }
                Cleanup::Finish
            }
            Some(job) if age(job.created) >= DEADLINE => {
                tracing::warn!(
                    job = job_name,
                    "the cleanup Job did not end in time, removing the charts in this process"
                );
                if let Err(error) = self.delete_job(&job.name, &job.uid).await {
                    tracing::warn!(%error, job = job_name, "failed to delete the cleanup Job");
                }
                Cleanup::Finish
            }
            Some(_) => Cleanup::Wait(POLL),
            None => {
                // They wait for no limit, so this process does what exceeds one.
                let running = || all.iter().filter(|job| job.is_unfinished() && !job.is_suspended);
                let is_near = |job: &&JobView| namespace(job) == name.namespace;
                let limits = self.settings.limits;
                if running().count() >= limits.total || running().filter(is_near).count() >= limits.per_namespace {
                    return Cleanup::Finish;
                }
                let job = self.settings.cleanup_job(name, uid, DEADLINE.as_secs());
                match self.create_job(&job).await {
                    Ok(()) => Cleanup::Wait(POLL),
                    Err(error) => {
                        tracing::warn!(%error, "failed to create the cleanup Job, removing the charts in this process");
                        Cleanup::Finish
                    }
                }
            }
        }
    }

    /// Deletes unfinished Jobs of earlier generations or of an earlier repository of this name.
    pub(super) async fn end_superseded(
        &self,
        name: &NamespacedName,
        uid: &str,
        generation: Option<i64>,
    ) -> Result<(), JobError> {
        let mut superseded = self.jobs_of(name);
        superseded.retain(|job| {
            let is_other = job.repository_uid.as_deref() != Some(uid);
            let is_earlier = job.generation.is_none_or(|of_job| Some(of_job) < generation);
            job.is_unfinished() && !job.is_deleted && (is_other || is_earlier)
        });
        for job in superseded {
            self.delete_job(&job.name, &job.uid).await?;
        }
        Ok(())
    }
}
