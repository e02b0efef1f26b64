use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::{Objects, Receiver, ReceiverError};
use crate::api::{AppRepository, Guarded, NamespacedName, POLL_AT, Partial, RECEIVER, is_object_name};
use crate::runtime::kube_client::{ApiError, call};

const FIELD_MANAGER: &str = "portolan-receiver";

/// Reads and patches objects of the cluster. Needs `get` and `patch` on AppRepositories, and `get` on the Secrets.
pub struct ClusterObjects(Client);

impl ClusterObjects {
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self(client)
    }

    async fn read(&self, name: &NamespacedName) -> Result<Option<Receiver>, ApiError> {
        let repositories: Api<Guarded<AppRepository>> = Api::namespaced(self.0.clone(), &name.namespace);
        // An undecodable repository is not synced.
        let object = call(repositories.get_opt(&name.name)).await?;
        let Some(object) = object.and_then(|Guarded(object)| object.0.ok()) else {
            return Ok(None);
        };
        let is_active = !object.is_suspended() && object.metadata.deletion_timestamp.is_none();
        let secret = object.annotation(RECEIVER).map(str::trim);
        let Some(secret_name) = secret.filter(|secret| is_active && is_object_name(secret)) else {
            return Ok(None);
        };
        let secrets: Api<Secret> = Api::namespaced(self.0.clone(), &name.namespace);
        let receiver = match call(secrets.get_opt(secret_name)).await {
            Ok(secret) => secret.map(|secret| Receiver::of(name, &secret)),
            Err(error) if error.is_forbidden() => {
                tracing::warn!(repository = %name, %error, "the receiver has no right to its Secret; list the Secret in the Role");
                None
            }
            Err(error) => return Err(error),
        };
        let invalid =
            |error: ReceiverError| tracing::warn!(repository = %name, secret = secret_name, %error, "invalid receiver");
        Ok(receiver.and_then(|receiver| receiver.map_err(invalid).ok()))
    }

    async fn annotate(&self, name: &NamespacedName, at: Timestamp) -> Result<(), ApiError> {
        let repositories: Api<Partial<AppRepository>> = Api::namespaced(self.0.clone(), &name.namespace);
        let patch = json!({ "metadata": { "annotations": { POLL_AT: at.to_string() } } });
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        call(repositories.patch(&name.name, &parameters, &Patch::Merge(patch))).await?;
        Ok(())
    }
}

impl Objects for ClusterObjects {
    fn receiver<'a>(&'a self, name: &'a NamespacedName) -> BoxFuture<'a, Result<Option<Receiver>, ApiError>> {
        self.read(name).boxed()
    }

    fn poll<'a>(&'a self, name: &'a NamespacedName, at: Timestamp) -> BoxFuture<'a, Result<(), ApiError>> {
        self.annotate(name, at).boxed()
    }
}
