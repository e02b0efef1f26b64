//! Copies of the Secrets that repositories of other namespaces reference: a pod reads only Secrets of its own namespace.
//!
//! The name is Kubeapps', so that Kubeapps' own copy serves too. Where Kubeapps' name could be that of another repository,
//! the name is a hash.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::client::JobError;
use super::names::{self, MANAGED_BY, PORTOLAN, hashed_secret, labels, repository_of};
use super::objects::JobSecrets;
use super::watch::Jobs;
use crate::api::{NamespacedName, Partial, SecretKeyRef};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets::copy::{KubeappsCopy, copy_of};
use crate::controllers::apprepository::secrets::{self, SecretError, SecretRefs};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::runtime::kube_client::call;

/// Annotation of a copy with the versions of its sources, and its keys.
const SOURCE: &str = "portolan.dev/source-versions";

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Write(#[from] JobError),
}

/// The Secrets of a Job, and their versions at the source.
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
        // Validates them, so that the errors are those of a sync in this process.
        let versions = secrets::credentials(origin, &spec.name, refs, namespace)
            .await?
            .versions;
        let own = JobSecrets {
            header: refs.header.cloned(),
            ca: refs.ca.cloned(),
        };
        if spec.name.namespace == *namespace {
            return Ok(Copied { secrets: own, versions });
        }
        let (copy, is_kubeapps) = match copy_of(&spec.name, namespace) {
            KubeappsCopy::Named(copy) => (copy.name, true),
            KubeappsCopy::None | KubeappsCopy::Ambiguous(_) => (hashed_secret(&spec.name), false),
        };
        let api: Api<Partial<Secret>> = Api::namespaced(self.client.clone(), namespace);
        let live = call(api.get_metadata_opt(&copy))
            .await
            .map_err(|cause| JobError::new("get", "secrets", namespace, cause))?;
        let is_ours = live.as_ref().is_none_or(|live| is_own_copy(live, &spec.name));
        if !is_ours && is_kubeapps {
            return Ok(Copied {
                secrets: in_copy(&copy, refs),
                versions,
            });
        }
        let mut data: BTreeMap<String, ByteString> = BTreeMap::new();
        let mut copied = JobSecrets::default();
        for (reference, target) in [(refs.header, &mut copied.header), (refs.ca, &mut copied.ca)] {
            let Some(reference) = reference else { continue };
            let source = NamespacedName::new(&spec.name.namespace, &reference.name);
            let content = origin.secret(&source).await.ok().flatten();
            // Only Kubeapps' copy exists, which the check above has read.
            let Some(value) = content.and_then(|content| content.data.get(&reference.key).cloned()) else {
                return Ok(Copied {
                    secrets: in_copy(&copy, refs),
                    versions,
                });
            };
            // Two Secrets may use the same key.
            let key = if data.contains_key(&reference.key) {
                format!("ca-{}", reference.key)
            } else {
                reference.key.clone()
            };
            *target = Some(SecretKeyRef {
                name: copy.clone(),
                key: key.clone(),
            });
            data.insert(key, ByteString(value));
        }
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        let source = format!("{versions} {}", keys.join(" "));
        let is_current = live.is_some_and(|live| live.annotations().get(SOURCE) == Some(&source));
        if !is_current {
            let copy = self.secret(&copy, &spec.name, &spec.uid, &source, &data);
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            let name = copy["metadata"]["name"].as_str().unwrap_or_default();
            call(api.patch_metadata(name, &parameters, &Patch::Apply(&copy)))
                .await
                .map_err(|cause| JobError::new("patch", "secrets", namespace, cause))?;
        }
        Ok(Copied {
            secrets: copied,
            versions,
        })
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
                    (names::REPOSITORY): repository.to_string(),
                    (names::REPOSITORY_UID): uid,
                    (SOURCE): source,
                },
            },
            "type": "Opaque",
            "data": data,
        })
    }

    /// Deletes our copy of the Secrets of a repository.
    pub(super) async fn delete_copy(&self, repository: &NamespacedName) -> Result<(), JobError> {
        let namespace = &self.settings.namespace;
        if repository.namespace == *namespace {
            return Ok(());
        }
        let name = match copy_of(repository, namespace) {
            KubeappsCopy::Named(copy) => copy.name,
            KubeappsCopy::None | KubeappsCopy::Ambiguous(_) => hashed_secret(repository),
        };
        let api: Api<Partial<Secret>> = Api::namespaced(self.client.clone(), namespace);
        let live = call(api.get_metadata_opt(&name))
            .await
            .map_err(|cause| JobError::new("get", "secrets", namespace, cause))?;
        let Some(live) = live.filter(|live| is_own_copy(live, repository)) else {
            return Ok(());
        };
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: live.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match call(api.delete(&name, &parameters)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(cause) => Err(JobError::new("delete", "secrets", namespace, cause)),
        }
    }
}

/// Returns the same keys in a copy.
fn in_copy(copy: &str, refs: SecretRefs<'_>) -> JobSecrets {
    let key = |reference: &SecretKeyRef| SecretKeyRef {
        name: copy.to_owned(),
        key: reference.key.clone(),
    };
    JobSecrets {
        header: refs.header.map(key),
        ca: refs.ca.map(key),
    }
}

fn is_own_copy(secret: &impl Resource, repository: &NamespacedName) -> bool {
    let meta = secret.meta();
    let label = meta.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    label.is_some_and(|label| label == PORTOLAN)
        && repository_of(meta.annotations.as_ref()).as_ref() == Some(repository)
}
