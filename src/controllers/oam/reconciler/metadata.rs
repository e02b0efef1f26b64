//! Writes to the Application itself: finalizer, annotations and status.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};

use super::conditions::{self, Failure};
use super::pass::{Pass, Stop};
use crate::api::Partial;
use crate::api::oam::{Application, ApplicationStatus, labels};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::cron;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;

pub const TRACKER_FINALIZER: &str = "app.oam.dev/resource-tracker-finalizer";
/// Annotation: `true`, a time, or a duration after the end of each run.
const RESTART: &str = "app.oam.dev/restart-workflow";

/// Shortest time between the end of a run and the next one.
const MIN_RESTART: Duration = Duration::from_secs(10);

impl Pass<'_> {
    /// Adds the finalizer, and takes a requested restart into the status.
    pub(super) async fn write_metadata(&mut self) -> Result<(), Stop> {
        let mut metadata = json!({});
        let has_finalizer = self.app.finalizers().iter().any(|one| one == TRACKER_FINALIZER);
        if !has_finalizer {
            let mut finalizers = self.app.finalizers().to_vec();
            finalizers.push(TRACKER_FINALIZER.to_owned());
            metadata["finalizers"] = json!(finalizers);
            if !self.app.annotations().contains_key(labels::KUBEVELA_VERSION) {
                let version = self.reconciler.options.compat_version.as_str();
                metadata["annotations"] = json!({ labels::KUBEVELA_VERSION: version });
            }
        }
        if self.take_restart() {
            metadata["annotations"][RESTART] = Value::Null;
        }
        if metadata.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(());
        }
        if metadata["annotations"][RESTART].is_null() && metadata["annotations"].get(RESTART).is_some() {
            // Recorded before the request is removed.
            self.write_status().await.map_err(|error| self.stop(&error))?;
        }
        self.patch_metadata(metadata).await.map_err(|error| self.stop(&error))
    }

    pub(super) fn stop(&self, error: &ApiError) -> Stop {
        if error.is_conflict() {
            return Stop::Stale;
        }
        Failure::new(conditions::SYNCED, "FailedApply", error.to_string()).into()
    }

    /// Reads the annotation for a restart. Returns true if it must be removed.
    fn take_restart(&mut self) -> bool {
        let Some(text) = self.app.annotations().get(RESTART).cloned() else {
            return false;
        };
        let text = text.trim();
        if text == "true" {
            self.status.workflow_restart_scheduled_at = Some(Time(self.now));
            return true;
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            self.status.workflow_restart_scheduled_at = Some(Time(time));
            return true;
        }
        let end = self
            .status
            .workflow
            .as_ref()
            .and_then(|workflow| workflow.end_time.clone());
        if let (Some(interval), Some(Time(end))) = (cron::parse_duration(text), end)
            && let Ok(time) = end.checked_add(interval.max(MIN_RESTART))
        {
            self.status.workflow_restart_scheduled_at = Some(Time(time));
        }
        false
    }

    /// Merges a change into the metadata, if the Application still has its version.
    pub(super) async fn patch_metadata(&mut self, mut change: Value) -> Result<(), ApiError> {
        change["uid"] = json!(self.app.uid());
        change["resourceVersion"] = json!(self.app.resource_version());
        let patch = Patch::Merge(json!({ "metadata": change }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(self.api().patch(&self.name.name, &parameters, &patch)).await?;
        self.reconciler.metrics.count_write("patch", "Application");
        self.app.metadata = written.metadata;
        self.assume();
        Ok(())
    }

    /// Writes the status if it has changed.
    pub(super) async fn write_status(&mut self) -> Result<(), ApiError> {
        let before = self.app.status.as_ref().map(fields).unwrap_or_default();
        let Some(change) = three_way::difference(&before, &fields(&self.status)) else {
            return Ok(());
        };
        let patch = Patch::Merge(json!({
            "metadata": { "uid": self.app.uid(), "resourceVersion": self.app.resource_version() },
            "status": change,
        }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(self.api().patch_status(&self.name.name, &parameters, &patch)).await?;
        self.reconciler.metrics.count_write("patch", "Application/status");
        self.app.metadata = written.metadata;
        self.app.status = Some(self.status.clone());
        self.assume();
        Ok(())
    }

    fn assume(&self) {
        self.reconciler.caches.assume_application(&self.app);
    }

    fn api(&self) -> Api<Partial<Application>> {
        Api::namespaced(self.reconciler.client.clone(), &self.name.namespace)
    }
}

/// Returns the fields of a status.
fn fields(status: &ApplicationStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
