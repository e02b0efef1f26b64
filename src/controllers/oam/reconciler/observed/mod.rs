pub(super) mod read;
pub(super) mod requests;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};

use super::env::Env;
use super::failure::Failure;
use super::revise::Revision;
use crate::api::Partial;
use crate::api::oam::{Application, ApplicationStatus, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::cache::DecodedApplication;
use crate::controllers::oam::revisions::Packed;
use crate::controllers::oam::trackers::AppIdentity;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;

pub const TRACKER_FINALIZER: &str = "app.oam.dev/resource-tracker-finalizer";

pub(super) struct Observed {
    /// As last read or written.
    pub(super) app: Application,
    /// The memory that it would take with its spec, if that is too much.
    pub(super) too_large: Option<u64>,
    pub(super) latest: Result<Option<Arc<Packed>>, Failure>,
}

impl Observed {
    pub(super) fn identity(&self, env: &Env<'_>) -> AppIdentity {
        let version = self.app.annotations().get(labels::PUBLISH_VERSION);
        AppIdentity {
            name: env.name.clone(),
            uid: self.app.uid().unwrap_or_default(),
            generation: self.app.metadata.generation.unwrap_or_default(),
            publish_version: version.filter(|version| !version.is_empty()).cloned(),
        }
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.app.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn owns(&self, owners: &[OwnerReference]) -> bool {
        is_owned_by(owners, self.app.metadata.uid.as_deref())
    }

    /// Decodes the revision that the status names. Its memory is reserved.
    pub(super) fn latest_revision(&self) -> Result<Option<Revision>, Failure> {
        let latest = self.latest.as_ref().map_err(Clone::clone)?;
        latest.as_ref().map(|packed| Revision::unpack(packed)).transpose()
    }

    /// Merges a change into the metadata, if the Application still has its version.
    pub(super) async fn patch_metadata(&mut self, env: &Env<'_>, mut change: Value) -> Result<(), ApiError> {
        change["uid"] = json!(self.app.uid());
        change["resourceVersion"] = json!(self.app.resource_version());
        let patch = Patch::Merge(json!({ "metadata": change }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(api(env).patch(&env.name.name, &parameters, &patch)).await?;
        env.reconciler.metrics.count_write("patch", "Application");
        self.app.metadata = written.metadata;
        self.assume(env);
        Ok(())
    }

    pub(super) async fn write_status(&mut self, env: &Env<'_>, status: &ApplicationStatus) -> Result<(), ApiError> {
        let before = self.app.status.as_ref().map(fields).unwrap_or_default();
        let Some(change) = three_way::difference(&before, &fields(status)) else {
            return Ok(());
        };
        let written = match self.patch_status(env, &change).await {
            Err(error) if error.is_conflict() && self.reread_with_status(env, &before).await? => {
                self.patch_status(env, &change).await?
            }
            written => written?,
        };
        let metrics = &env.reconciler.metrics;
        metrics.count_write("patch", "Application/status");
        if let Some(workflow) = &status.workflow {
            let previous = self.app.status.as_ref().and_then(|status| status.workflow.as_ref());
            metrics.count_steps(&previous.cloned().unwrap_or_default(), workflow);
        }
        self.app.metadata = written.metadata;
        self.app.status = Some(status.clone());
        self.assume(env);
        Ok(())
    }

    async fn patch_status(&self, env: &Env<'_>, change: &Value) -> Result<Partial<Application>, ApiError> {
        let patch = Patch::Merge(json!({
            "metadata": { "uid": self.app.uid(), "resourceVersion": self.app.resource_version() },
            "status": change,
        }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        // Until the response is here: the pass may be stopped before.
        env.memory.lock().is_status_unknown = true;
        let written = call(api(env).patch_status(&env.name.name, &parameters, &patch)).await?;
        env.memory.lock().is_status_unknown = false;
        Ok(written)
    }

    /// Reads the Application. Returns true if another client has changed other fields only: results of steps must not
    /// get lost.
    async fn reread_with_status(&mut self, env: &Env<'_>, before: &Map<String, Value>) -> Result<bool, ApiError> {
        let Ok(Some(live)) = env.reconciler.read_application(env.name).await else {
            return Ok(false);
        };
        let DecodedApplication { app, too_large } = live;
        let is_same =
            app.metadata.uid == self.app.metadata.uid && app.status.as_ref().map(fields).unwrap_or_default() == *before;
        if is_same {
            (self.app, self.too_large) = (app, too_large);
        }
        Ok(is_same)
    }

    fn assume(&self, env: &Env<'_>) {
        let decoded = DecodedApplication {
            app: self.app.clone(),
            too_large: self.too_large,
        };
        env.reconciler.caches.assume_application(&decoded);
    }
}

/// Sets an annotation of the Application in any version, but not of another with its name.
pub(super) async fn annotate(env: &Env<'_>, uid: &str, name: &str, text: &str) -> Result<(), ApiError> {
    let patch = Patch::Merge(json!({ "metadata": { "uid": uid, "annotations": { name: text } } }));
    let parameters = PatchParams::apply(FIELD_MANAGER);
    call(api(env).patch(&env.name.name, &parameters, &patch)).await?;
    env.reconciler.metrics.count_write("patch", "Application");
    Ok(())
}

pub(super) fn is_owned_by(owners: &[OwnerReference], uid: Option<&str>) -> bool {
    owners.iter().any(|owner| Some(owner.uid.as_str()) == uid)
}

fn api(env: &Env<'_>) -> Api<Partial<Application>> {
    Api::namespaced(env.reconciler.client.clone(), &env.name.namespace)
}

fn fields(status: &ApplicationStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
