//! Copies of the Secrets that repositories of other namespaces reference: a pod reads only Secrets of its own namespace.
//!
//! The name is a hash: under the name of Kubeapps' copy, syncs here would read ours after the source was deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::client::JobError;
use super::names::{hashed_secret, labels};
use super::objects::JobSecrets;
use super::watch::Jobs;
use crate::api::jobs::{MANAGED_BY, MANAGER, REPOSITORY, REPOSITORY_UID, repository_name};
use crate::api::{NamespacedName, Partial, SecretKeyRef};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets::{self, SecretError, SecretRefs, Values};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::runtime::kube_client::call;

/// Annotation of a copy with the versions of its sources, and its keys.
const SOURCE: &str = "portolan.dev/source-versions";
/// Time for which the absence of a copy is known: another leader may have written it.
const RECHECK: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Write(#[from] JobError),
}

#[derive(Debug, Default)]
pub struct Copied {
    pub secrets: JobSecrets,
    pub versions: String,
}

impl Jobs {
    /// Returns the Secrets in Portolan's namespace with the credentials of the repository; copies them if necessary.
    pub(super) async fn copy_secrets(&self, origin: &Origin, spec: &RepositorySpec) -> Result<Copied, CopyError> {
        let access = &spec.access;
        let refs = SecretRefs {
            header: access.auth_header.as_ref(),
            ca: access.custom_ca.as_ref(),
        };
        if refs.header.is_none() && refs.ca.is_none() {
            return Ok(Copied::default());
        }
        let namespace = &self.settings.namespace;
        let values = secrets::values(origin, &spec.name, refs, namespace).await?;
        // Validates them, so that the errors are the same as in a sync in this process.
        let versions = values.credentials()?.versions;
        if spec.name.namespace == *namespace {
            let secrets = JobSecrets {
                header: refs.header.cloned(),
                ca: refs.ca.cloned(),
            };
            return Ok(Copied { secrets, versions });
        }
        let name = hashed_secret(&spec.name);
        let (secrets, data) = build_copy(&name, values);
        let api: Api<Partial<Secret>> = Api::namespaced(self.client.clone(), namespace);
        let live = call(api.get_metadata_opt(&name))
            .await
            .map_err(|cause| JobError::new("get", "secrets", namespace, cause))?;
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        let source = format!("{versions} {}", keys.join(" "));
        // With the UID of an earlier object, garbage collection would delete it.
        let is_current = live.is_some_and(|live| {
            let annotation = |key| live.annotations().get(key);
            annotation(SOURCE) == Some(&source) && annotation(REPOSITORY_UID) == Some(&spec.uid)
        });
        if !is_current {
            self.without_copy.lock().remove(&spec.name);
            let copy = self.secret(&name, &spec.name, &spec.uid, &source, &data);
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            call(api.patch_metadata(&name, &parameters, &Patch::Apply(&copy)))
                .await
                .map_err(|cause| JobError::new("patch", "secrets", namespace, cause))?;
        }
        Ok(Copied { secrets, versions })
    }

    fn secret(
        &self,
        name: &str,
        repository: &NamespacedName,
        uid: &str,
        source: &str,
        data: &BTreeMap<String, ByteString>,
    ) -> serde_json::Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": self.settings.namespace,
                "labels": labels(repository),
                "annotations": {
                    (REPOSITORY): repository.to_string(),
                    (REPOSITORY_UID): uid,
                    (SOURCE): source,
                },
            },
            "type": "Opaque",
            "data": data,
        })
    }

    /// Deletes our copy of the Secrets of a repository that needs none. Asks the API server once an hour.
    pub(super) async fn remove_copy(&self, repository: &NamespacedName) -> Result<(), JobError> {
        let is_known = |checked: &Instant| checked.elapsed() < RECHECK;
        if self.without_copy.lock().get(repository).is_some_and(is_known) {
            return Ok(());
        }
        delete_copy(&self.client, &self.settings.namespace, repository).await?;
        self.without_copy.lock().insert(repository.clone(), Instant::now());
        Ok(())
    }

    /// Same for a deleted repository. Asks the API server each time.
    pub(super) async fn remove_copy_of_deleted(&self, repository: &NamespacedName) -> Result<(), JobError> {
        self.without_copy.lock().remove(repository);
        delete_copy(&self.client, &self.settings.namespace, repository).await
    }
}

/// Deletes our copy of the Secrets of a repository. Without the right to read Secrets there is none.
pub(super) async fn delete_copy(client: &Client, namespace: &str, repository: &NamespacedName) -> Result<(), JobError> {
    if repository.namespace == namespace {
        return Ok(());
    }
    let name = hashed_secret(repository);
    let api: Api<Partial<Secret>> = Api::namespaced(client.clone(), namespace);
    let live = match call(api.get_metadata_opt(&name)).await {
        Ok(live) => live,
        Err(error) if error.is_forbidden() => return Ok(()),
        Err(cause) => return Err(JobError::new("get", "secrets", namespace, cause)),
    };
    let Some(live) = live.filter(|live| is_own_copy(live, repository)) else {
        return Ok(());
    };
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: live.uid(),
            resource_version: live.resource_version(),
        }),
        ..DeleteParams::default()
    };
    match call(api.delete(&name, &parameters)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(cause) => Err(JobError::new("delete", "secrets", namespace, cause)),
    }
}

fn build_copy(copy: &str, values: Values) -> (JobSecrets, BTreeMap<String, ByteString>) {
    let mut data = BTreeMap::new();
    let mut add = |value: secrets::SecretValue| {
        let (key, bytes) = value.into_parts();
        // Two Secrets may use the same key.
        let key = if data.contains_key(&key) {
            format!("ca-{key}")
        } else {
            key
        };
        data.insert(key.clone(), ByteString(bytes));
        let name = copy.to_owned();
        SecretKeyRef { name, key }
    };
    let secrets = JobSecrets {
        header: values.header.map(&mut add),
        ca: values.ca.map(&mut add),
    };
    (secrets, data)
}

fn is_own_copy(secret: &impl Resource, repository: &NamespacedName) -> bool {
    let meta = secret.meta();
    let label = meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    label.is_some_and(|label| label == MANAGER)
        && repository_name(meta).as_ref() == Some(repository)
        && meta.annotations.as_ref().is_some_and(|all| all.contains_key(SOURCE))
}
