use std::sync::Arc;

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::names::{self, digest};
use super::progress::view::NotStarted;
use super::watch::{Jobs, Written};
use crate::api::jobs::{NOT_STARTED, REPOSITORY_NAME, REPOSITORY_NAMESPACE, repository_name};
use crate::api::{NamespacedName, Partial};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::Cached;

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(
        "not allowed to {verb} {resource} in namespace {namespace}: {cause}; grant the service account the verb, or raise the quota"
    )]
    Forbidden {
        verb: &'static str,
        resource: &'static str,
        namespace: String,
        cause: ApiError,
    },
    #[error("failed to {verb} {resource} in namespace {namespace}: {cause}")]
    Failed {
        verb: &'static str,
        resource: &'static str,
        namespace: String,
        cause: ApiError,
    },
    #[error("CronJob {namespace}/{name} exists and is not managed by Portolan; delete it")]
    Taken { namespace: String, name: String },
}

impl JobError {
    pub(super) fn new(verb: &'static str, resource: &'static str, namespace: &str, cause: ApiError) -> Self {
        let namespace = namespace.to_owned();
        if cause.is_forbidden() {
            Self::Forbidden {
                verb,
                resource,
                namespace,
                cause,
            }
        } else {
            Self::Failed {
                verb,
                resource,
                namespace,
                cause,
            }
        }
    }

    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::Forbidden { .. } => "JobsForbidden",
            Self::Failed { .. } => "JobsFailed",
            Self::Taken { .. } => "CronJobExists",
        }
    }

    /// Returns true if a retry may succeed without a change by a user.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Failed { cause, .. } if cause.is_retryable() || cause.code.is_none())
    }
}

impl Jobs {
    /// Creates or repairs the CronJob of a repository. Writes nothing if it is as desired.
    pub(super) async fn ensure_cron_job(&self, repository: &NamespacedName, desired: &Value) -> Result<(), JobError> {
        const RESOURCE: &str = "cronjobs.batch";
        let namespace = &self.settings.namespace;
        let name = desired["metadata"]["name"].as_str().unwrap_or_default();
        let digest = digest(&desired.to_string(), 16);
        let cached = self.cron_jobs.get(&NamespacedName::new(namespace, name));
        let is_desired = cached.as_ref().and_then(Cached::object).is_some_and(|live| {
            // The spec is as written while the generation is: the API server fills in defaults, which differ by release.
            let metadata = serde_json::to_value(&live.metadata).unwrap_or_default();
            self.written.lock().get(name) == Some(&written(live, &digest)) && contains(&metadata, &desired["metadata"])
        });
        if is_desired {
            return Ok(());
        }
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), namespace);
        let failed = |verb, cause| JobError::new(verb, RESOURCE, namespace, cause);
        // The cache may lack it, and another program's object must not be taken over.
        let live = call(api.get_opt(name)).await.map_err(|cause| failed("get", cause))?;
        if let Some(live) = &live
            && !belongs_to(live, repository)
        {
            return Err(JobError::Taken {
                namespace: namespace.clone(),
                name: name.to_owned(),
            });
        }
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let mut applied = call(api.patch(name, &parameters, &Patch::Apply(desired)))
            .await
            .map_err(|cause| failed("patch", cause))?;
        if has_foreign_spec(&applied) {
            // Fields that someone added are not ours to remove by an apply: the spec is replaced as a whole.
            let mut replacement: Value = serde_json::to_value(&applied).unwrap_or_default();
            replacement["spec"] = desired["spec"].clone();
            if let Some(metadata) = replacement["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            if let Ok(replacement) = serde_json::from_value::<CronJob>(replacement) {
                let parameters = PostParams {
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                applied = call(api.replace(name, &parameters, &replacement))
                    .await
                    .map_err(|cause| failed("update", cause))?;
            }
            tracing::info!(cron_job = name, "restored a CronJob that was edited");
        }
        self.written.lock().insert(name.to_owned(), written(&applied, &digest));
        let cached = Cached::Object(Arc::new(applied));
        match live {
            Some(_) => self.cron_jobs.assume(cached),
            None => self.cron_jobs.assume_created(cached),
        };
        Ok(())
    }

    /// Creates a Job. A Job of the same name is the same request.
    pub(super) async fn create_job(&self, job: &Value) -> Result<(), JobError> {
        let namespace = &self.settings.namespace;
        let failed = |cause| JobError::new("create", "jobs.batch", namespace, cause);
        let job: Job = serde_json::from_value(job.clone())
            .map_err(|error| failed(ApiError::bad_request(format!("invalid Job: {error}"))))?;
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        match call(api.create(&PostParams::default(), &job)).await {
            Ok(created) => {
                tracing::info!(job = created.name_any(), "created a Job");
                self.assume_job(created);
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    pub(super) async fn release(&self, name: &str, uid: &str) -> Result<(), JobError> {
        let patch = json!({ "metadata": { "uid": uid }, "spec": { "suspend": false } });
        self.patch_job(name, patch).await
    }

    /// Suspends a Job whose pod does not start. Its pod is deleted.
    pub(super) async fn suspend(&self, name: &str, uid: &str, reason: &NotStarted) -> Result<(), JobError> {
        let annotations = json!({ NOT_STARTED: reason.to_annotation() });
        let patch = json!({ "metadata": { "uid": uid, "annotations": annotations }, "spec": { "suspend": true } });
        self.patch_job(name, patch).await
    }

    /// Patches a Job, unless it was deleted meanwhile.
    async fn patch_job(&self, name: &str, patch: Value) -> Result<(), JobError> {
        let namespace = &self.settings.namespace;
        let api: Api<Partial<Job>> = Api::namespaced(self.client.clone(), namespace);
        match call(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            // A Job of another UID is refused as invalid: the watch will show it.
            Err(cause) => Err(JobError::new("patch", "jobs.batch", namespace, cause)),
        }
    }

    /// Deletes a Job. It stays until its pods have ended.
    pub(super) async fn delete_job(&self, name: &str, uid: &str) -> Result<(), JobError> {
        delete::<Job>(
            &self.client,
            &self.settings.namespace,
            "jobs.batch",
            name,
            uid,
            PropagationPolicy::Foreground,
        )
        .await
    }

    /// Deletes the CronJobs of a repository, with the Jobs that they created.
    pub(super) async fn delete_cron_jobs(&self, repository: &NamespacedName) -> Result<(), JobError> {
        for cron_job in self.cron_jobs_of(repository) {
            if cron_job.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let (name, uid) = (cron_job.name_any(), cron_job.uid().unwrap_or_default());
            let namespace = &self.settings.namespace;
            let policy = PropagationPolicy::Background;
            delete::<CronJob>(&self.client, namespace, "cronjobs.batch", &name, &uid, policy).await?;
            self.written.lock().remove(&name);
            tracing::info!(cron_job = name, "deleted a CronJob");
        }
        Ok(())
    }
}

pub(super) async fn delete<K>(
    client: &Client,
    namespace: &str,
    resource: &'static str,
    name: &str,
    uid: &str,
    policy: PropagationPolicy,
) -> Result<(), JobError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let parameters = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match call(api.delete(name, &parameters)).await {
        Ok(_) => Ok(()),
        // Deleted or replaced meanwhile.
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(cause) => Err(JobError::new("delete", resource, namespace, cause)),
    }
}

fn written(cron_job: &CronJob, desired: &str) -> Written {
    Written {
        uid: cron_job.uid(),
        generation: cron_job.metadata.generation,
        desired: desired.to_owned(),
    }
}

/// Returns true if the CronJob is ours or Kubeapps', and belongs to the repository.
fn belongs_to(cron_job: &CronJob, repository: &NamespacedName) -> bool {
    match repository_name(&cron_job.metadata) {
        Some(owner) => owner == *repository,
        // Kubeapps' own CronJob of the repository is taken over.
        None => {
            let expected = names::labels(repository);
            let labels = cron_job.labels();
            [REPOSITORY_NAME, REPOSITORY_NAMESPACE]
                .iter()
                .all(|key| labels.get(*key) == expected.get(*key))
        }
    }
}

/// Returns true if another field manager has set a part of the spec.
fn has_foreign_spec(cron_job: &CronJob) -> bool {
    let entries = cron_job.metadata.managed_fields.iter().flatten();
    let mut foreign = entries.filter(|entry| {
        entry.manager.as_deref() != Some(FIELD_MANAGER) && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    foreign.any(|entry| {
        entry
            .fields_v1
            .as_ref()
            .is_some_and(|fields| fields.0.get("f:spec").is_some())
    })
}

/// Returns true if `live` has all fields of `desired`. Lists of the same length are compared item by item.
fn contains(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired.iter().all(|(key, desired)| match live.get(key) {
            Some(live) => contains(live, desired),
            None => is_empty(desired),
        }),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len() && live.iter().zip(desired).all(|(live, desired)| contains(live, desired))
        }
        (live, desired) => live == desired,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::Bool(value) => !value,
        Value::Null => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_as_desired_if_only_defaults_and_foreign_metadata_differ() {
        let desired =
            json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "suspend": false, "list": [{ "n": 1 }] } });
        let live = json!({
            "metadata": { "labels": { "a": "1", "foreign": "x" }, "uid": "u" },
            "spec": { "list": [{ "n": 1, "default": true }], "default": 3 },
        });
        assert!(contains(&live, &desired));
        for (pointer, value) in [
            ("/metadata/labels/a", json!("2")),
            ("/spec/list", json!([{ "n": 1 }, { "n": 2 }])),
            ("/spec/list/0/n", json!(2)),
            ("/metadata/labels", json!({})),
        ] {
            let mut edited = live.clone();
            *edited.pointer_mut(pointer).unwrap() = value;
            assert!(!contains(&edited, &desired), "{pointer}");
        }
    }
}
