//! Begin and end of runs, which revisions record.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::api::oam::{WorkflowStatus, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::reconciler::conditions::{self, Failure};
use crate::controllers::oam::reconciler::pass::{Pass, Stop};
use crate::controllers::oam::reconciler::revision::Current;
use crate::controllers::oam::revisions::names::is_revision_of;
use crate::controllers::oam::trackers::ResourceKey;
use crate::controllers::oam::workflow::State;
use crate::runtime::kube_client::call;

impl Pass<'_> {
    /// Begins a new run for a new revision or published version, or if a restart is due.
    pub(super) async fn restart_if_due(&mut self, current: &Current) -> Result<(), Stop> {
        let version = current.app.annotations().get(labels::PUBLISH_VERSION);
        let wanted = version.cloned().unwrap_or_else(|| current.name());
        let workflow = self.status.workflow.as_ref();
        // Old versions of KubeVela add a hash.
        let is_current = workflow.is_some_and(|workflow| {
            workflow.app_revision == wanted || workflow.app_revision.starts_with(&format!("{wanted}:"))
        });
        let is_due = self.is_restart_due();
        if let Some(time) = self.scheduled_restart().filter(|time| *time > self.now) {
            let wait = time.duration_since(self.now).try_into().unwrap_or_default();
            self.look_again_in(wait);
        }
        if is_current && !is_due && !self.lacks_tracker() {
            return Ok(());
        }
        self.record_cut_off().await?;
        self.status.services.clear();
        self.status.applied_resources.clear();
        conditions::remove_after_render(&mut self.status);
        if is_due {
            self.status.workflow_restart_scheduled_at = None;
        }
        self.memory.lock().values = None;
        self.status.workflow = Some(WorkflowStatus {
            app_revision: wanted,
            ..WorkflowStatus::default()
        });
        Ok(())
    }

    /// Returns true if the workflow has finished for this generation.
    pub(in crate::controllers::oam::reconciler) fn is_deployed(&self) -> bool {
        let is_observed = self.status.observed_generation == self.app.metadata.generation;
        is_observed && self.status.workflow.as_ref().and_then(finished_state).is_some()
    }

    /// Returns true if the workflow has finished, and the time of its restart has come.
    pub(in crate::controllers::oam::reconciler) fn is_restart_due(&self) -> bool {
        self.scheduled_restart().is_some_and(|time| time <= self.now)
    }

    /// Returns the time at which a workflow that has finished starts again.
    fn scheduled_restart(&self) -> Option<Timestamp> {
        let Time(time) = self.status.workflow_restart_scheduled_at.as_ref()?;
        let workflow = self.status.workflow.as_ref().filter(|workflow| workflow.finished)?;
        let is_later = workflow.end_time.as_ref().is_none_or(|Time(end)| time > end);
        is_later.then_some(*time)
    }

    /// Returns true if steps have succeeded, and nothing records their objects for this generation: the spec was changed
    /// without a new revision, or changed back before the change was deployed. Another run applies what it already finds,
    /// and records it. It takes place once, since all objects may stand in other trackers.
    fn lacks_tracker(&self) -> bool {
        let Some(workflow) = &self.status.workflow else {
            return false;
        };
        let has_succeeded = match workflow.finished {
            true => finished_state(workflow) == Some(State::Succeeded),
            false => workflow.steps.iter().any(|step| step.phase == "succeeded"),
        };
        let root = self.inventory.root.iter().flat_map(|tracker| &tracker.entries);
        let in_root: HashSet<ResourceKey> = root.map(ResourceKey::of).collect();
        let history = self.inventory.history.iter().filter(|tracker| !tracker.is_deleting());
        let mut entries = history.flat_map(|tracker| &tracker.entries);
        let lacks = has_succeeded
            && self.inventory.current.is_none()
            && entries.any(|entry| !entry.skip_gc && !in_root.contains(&ResourceKey::of(entry)));
        let generation = self.app.metadata.generation;
        lacks && std::mem::replace(&mut self.memory.lock().restarted, generation) != generation
    }

    /// Records a run that a new one replaces in the revision that it belongs to.
    async fn record_cut_off(&mut self) -> Result<(), Stop> {
        let Some(mut workflow) = self.status.workflow.clone().filter(|workflow| !workflow.finished) else {
            return Ok(());
        };
        if workflow.app_revision.is_empty() {
            return Ok(());
        }
        workflow.terminated = true;
        workflow.finished = true;
        workflow.end_time.get_or_insert(Time(self.now));
        let name = workflow.app_revision.split(':').next().unwrap_or_default().to_owned();
        if !is_revision_of(&self.name.name, &name) {
            // A published version has no revision of its name.
            return Ok(());
        }
        self.write_revision_status(&name, false, &workflow).await
    }

    /// Records the end of a run, once.
    pub(in crate::controllers::oam::reconciler) async fn finish_run(
        &mut self,
        current: &Current,
        has_succeeded: bool,
    ) -> Result<(), Stop> {
        let Some(mut workflow) = self.status.workflow.clone().filter(|workflow| !workflow.finished) else {
            return Ok(());
        };
        workflow.finished = true;
        workflow.end_time = Some(Time(self.now));
        self.write_revision_status(&current.name(), has_succeeded, &workflow)
            .await?;
        // Only now: a run that has finished is not recorded again.
        self.status.workflow = Some(workflow);
        self.reconciler
            .metrics
            .count_workflow(if has_succeeded { "succeeded" } else { "failed" });
        Ok(())
    }

    async fn write_revision_status(&self, name: &str, succeeded: bool, workflow: &WorkflowStatus) -> Result<(), Stop> {
        let context = self.stored_values();
        let patch = Patch::Merge(json!({
            "status": { "succeeded": succeeded, "workflow": workflow, "workflowContext": context },
        }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(self.revisions().patch_status(name, &parameters, &patch)).await;
        self.reconciler
            .metrics
            .count_write("patch", "ApplicationRevision/status");
        match written {
            Ok(written) => {
                self.status_written(&written);
                Ok(())
            }
            // Deleted, or named by a version that has no revision.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                let message = format!("failed to record the workflow in applicationrevision {name}: {error}");
                Err(Failure::synced("FailedWorkflow", message).into())
            }
        }
    }
}

/// Returns the state of a workflow that has ended.
pub(super) fn finished_state(workflow: &WorkflowStatus) -> Option<State> {
    if !workflow.finished {
        return None;
    }
    Some(match workflow.phase.as_str() {
        "failed" => State::Failed,
        "terminated" => State::Terminated,
        // `Finished` in statuses of old versions.
        _ if !workflow.terminated => State::Succeeded,
        _ => State::Terminated,
    })
}
