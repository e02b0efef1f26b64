use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::Mutex;

use super::{SecretReadError, secret};
use crate::api::{AppRepository, AppRepositoryStatus, FINALIZER, NamespacedName, Partial};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::manifests::SecretContent;

const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
const MIN_RECHECK: Duration = Duration::from_secs(5);

pub struct ClusterOrigin {
    client: Client,
    id: String,
    uid: String,
    events: EventPublisher,
    status_subresource: Mutex<StatusSubresource>,
}

/// Cached check for the status subresource, which Kubeapps' CRD does not have.
#[derive(Default)]
struct StatusSubresource {
    /// The last result, and its time.
    checked: Option<(bool, Instant)>,
    warned: bool,
}

impl StatusSubresource {
    /// Returns the cached result. A missing subresource is checked again, since the CRD may be upgraded.
    fn fresh(&self) -> Option<bool> {
        let (exists, when) = self.checked?;
        (exists || when.elapsed() < RECHECK_INTERVAL).then_some(exists)
    }
}

impl ClusterOrigin {
    /// Creates an origin whose ID is the UID of the namespace `kube-system`, after `cluster_id` unless that is empty.
    pub async fn new(client: Client, cluster_id: &str) -> Result<Self, ApiError> {
        let uid = cluster_uid(&client).await?;
        let id = match cluster_id {
            "" => uid.clone(),
            cluster_id => format!("{cluster_id}/{uid}"),
        };
        Ok(Self {
            events: EventPublisher::new(client.clone(), FIELD_MANAGER),
            client,
            id,
            uid,
            status_subresource: Mutex::default(),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns true if the API server still serves the same cluster: a recreated cluster has another UID.
    pub(super) async fn is_same_cluster(&self) -> Result<bool, ApiError> {
        Ok(cluster_uid(&self.client).await? == self.uid)
    }

    pub(super) async fn secret(&self, name: &NamespacedName) -> Result<Option<SecretContent>, SecretReadError> {
        secret::read(&self.client, name).await
    }

    fn api(&self, meta: &ObjectMeta) -> Api<Partial<AppRepository>> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    /// Reads the metadata of an object; `None` if it does not exist.
    pub(super) async fn metadata(&self, name: &NamespacedName) -> Result<Option<ObjectMeta>, ApiError> {
        // A list of one: the required rights include list, but not get.
        let api: Api<Partial<AppRepository>> = Api::namespaced(self.client.clone(), &name.namespace);
        let only = ListParams::default().fields(&format!("metadata.name={}", name.name));
        let live = call(api.list_metadata(&only)).await?.items.pop();
        Ok(live.map(|object| object.metadata))
    }

    pub(super) async fn has_status(&self) -> Result<bool, ApiError> {
        let mut subresource = self.status_subresource.lock().await;
        if let Some(exists) = subresource.fresh() {
            return Ok(exists);
        }
        let version = AppRepository::api_version(&());
        let subresource_name = format!("{}/status", AppRepository::plural(&()));
        let resources = call(self.client.list_api_group_resources(&version)).await?;
        let exists = (resources.resources.iter()).any(|resource| resource.name == subresource_name);
        if !exists && !std::mem::replace(&mut subresource.warned, true) {
            tracing::warn!(
                "the custom resource definition of AppRepository has no status subresource, reporting by events and metrics \
                 only; run `portolan crds --apply` to upgrade it"
            );
        }
        subresource.checked = Some((exists, Instant::now()));
        Ok(exists)
    }

    pub(super) async fn write_status(
        &self,
        meta: &ObjectMeta,
        status: &AppRepositoryStatus,
    ) -> Result<ObjectMeta, ApiError> {
        let patch = json!({
            "apiVersion": AppRepository::api_version(&()),
            "kind": AppRepository::kind(&()),
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let name = meta.name.as_deref().unwrap_or_default();
        let patch = Patch::Apply(patch);
        // Decodes metadata only, since objects that can't be decoded get a status too.
        match call(self.api(meta).patch_status(name, &parameters, &patch)).await {
            // The API server ignores the UID in a status patch, so that the patch may have changed a recreated object.
            // The sync of that object overwrites it.
            Ok(written) if written.metadata.uid != meta.uid => Err(ApiError::not_found("the object was replaced")),
            Ok(written) => Ok(written.metadata),
            Err(error) => {
                if error.is_not_found() {
                    // The object is gone, or a CRD without status replaced its CRD: check again, but not for each of
                    // many deleted objects.
                    let mut subresource = self.status_subresource.lock().await;
                    subresource.checked = subresource.checked.filter(|(_, when)| when.elapsed() < MIN_RECHECK);
                }
                Err(error)
            }
        }
    }

    pub(super) async fn publish(&self, meta: &ObjectMeta, event: Event) {
        self.events.publish::<AppRepository>(meta, "Sync", event).await;
    }

    pub(super) async fn add_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        if has_finalizer(meta) {
            return Ok(());
        }
        let all: Vec<&str> = other_finalizers(meta).chain([FINALIZER]).collect();
        self.patch_finalizers(meta, &all).await
    }

    pub(super) async fn remove_finalizer(&self, meta: &ObjectMeta) -> Result<(), ApiError> {
        if !has_finalizer(meta) {
            return Ok(());
        }
        let others: Vec<&str> = other_finalizers(meta).collect();
        match self.patch_finalizers(meta, &others).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Replaces the whole list, since a merge patch can't merge lists. The resource version detects concurrent changes.
    async fn patch_finalizers(&self, meta: &ObjectMeta, finalizers: &[&str]) -> Result<(), ApiError> {
        let patch = json!({
            "metadata": { "resourceVersion": meta.resource_version, "uid": meta.uid, "finalizers": finalizers }
        });
        let name = meta.name.as_deref().unwrap_or_default();
        let parameters = PatchParams::apply(FIELD_MANAGER);
        call(self.api(meta).patch(name, &parameters, &Patch::Merge(patch))).await?;
        Ok(())
    }
}

async fn cluster_uid(client: &Client) -> Result<String, ApiError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    Ok(call(namespaces.get("kube-system")).await?.uid().unwrap_or_default())
}

fn has_finalizer(meta: &ObjectMeta) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn other_finalizers(meta: &ObjectMeta) -> impl Iterator<Item = &str> {
    let finalizers = meta.finalizers.iter().flatten().map(String::as_str);
    finalizers.filter(|&finalizer| finalizer != FINALIZER)
}
