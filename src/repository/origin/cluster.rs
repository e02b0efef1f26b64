//! A cluster's API server as the origin of declarations.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::Mutex;

use super::{API_DEADLINE, News, OriginError, SecretReadError, secret};
use crate::api::{AppRepository, AppRepositoryStatus, FINALIZER, Partial};
use crate::informer::ObjectName;
use crate::informer::manifests::SecretContent;
use crate::text::{printable, truncate};

/// The name under which the API server keeps what we own of an object, and under which our events appear.
pub const FIELD_MANAGER: &str = "portolan";
/// The API server lets no longer note of an event in.
const MAX_NOTE: usize = 1024;

/// How long a definition without a status subresource is believed to be still the installed one.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A cluster's API server.
pub struct Cluster {
    client: Client,
    id: String,
    reporter: Reporter,
    status_subresource: Mutex<StatusSubresource>,
}

/// What is known of the status subresource of the installed definition; Kubeapps' own has none.
#[derive(Default)]
struct StatusSubresource {
    known: Option<(bool, Instant)>,
    warned: bool,
}

impl StatusSubresource {
    /// Whether it is there, if that was found out lately enough: that it is there holds until a write fails, that it is not is
    /// asked again, since the definition may be upgraded.
    fn fresh(&self) -> Option<bool> {
        let (found, when) = self.known?;
        (found || when.elapsed() < LOOK_AGAIN).then_some(found)
    }
}

impl Cluster {
    /// Connects the cluster that `client` talks to. It is known by the UID of its namespace `kube-system`, which is made once
    /// and never again.
    ///
    /// # Errors
    /// The namespace can't be read.
    pub async fn new(client: Client) -> Result<Self, kube::Error> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let id = namespaces.get("kube-system").await?.uid().unwrap_or_default();
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: std::env::var("POD_NAME").ok(),
        };
        Ok(Self {
            client,
            id,
            reporter,
            status_subresource: Mutex::default(),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn secret(&self, name: &ObjectName) -> Result<Option<SecretContent>, SecretReadError> {
        secret::read(&self.client, name).await
    }

    fn api(&self, meta: &ObjectMeta) -> Api<Partial<AppRepository>> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or_default())
    }

    pub(super) async fn has_status(&self) -> Result<bool, OriginError> {
        let mut subresource = self.status_subresource.lock().await;
        if let Some(found) = subresource.fresh() {
            return Ok(found);
        }
        let version = AppRepository::api_version(&());
        let wanted = format!("{}/status", AppRepository::plural(&()));
        let resources = within(self.client.list_api_group_resources(&version)).await?;
        let found = resources.resources.iter().any(|resource| resource.name == wanted);
        if !found && !std::mem::replace(&mut subresource.warned, true) {
            tracing::warn!(
                "the custom resource definition of AppRepository has no status subresource, reporting by events and metrics \
                 only; run `portolan crds --apply` to upgrade it"
            );
        }
        subresource.known = Some((found, Instant::now()));
        Ok(found)
    }

    pub(super) async fn write_status(
        &self,
        meta: &ObjectMeta,
        status: &AppRepositoryStatus,
    ) -> Result<(), OriginError> {
        let patch = json!({
            "apiVersion": AppRepository::api_version(&()),
            "kind": AppRepository::kind(&()),
            "status": status,
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let name = meta.name.as_deref().unwrap_or_default();
        let patch = Patch::Apply(patch);
        // Of the answer nothing is of interest; and an object that can't be decoded has to be told so too.
        match within(self.api(meta).patch_status(name, &parameters, &patch)).await {
            // The API server passes over the UID in a patch of the status, so it may have gone to an object of the same name that was
            // made meanwhile; whose own sync puts it right.
            Ok(written) if written.metadata.uid != meta.uid => Err(OriginError::Gone),
            Ok(_) => Ok(()),
            Err(error) => {
                if matches!(error, OriginError::Gone) {
                    // The object is gone, or the definition was exchanged for one without a status: look again.
                    self.status_subresource.lock().await.known = None;
                }
                Err(error)
            }
        }
    }

    pub(super) async fn publish(&self, meta: &ObjectMeta, news: News) {
        let reference = ObjectReference {
            api_version: Some(AppRepository::api_version(&()).into_owned()),
            kind: Some(AppRepository::kind(&()).into_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: if news.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: news.reason.to_owned(),
            note: Some(truncate(&printable(&news.note), MAX_NOTE)),
            action: "Sync".to_owned(),
            secondary: None,
        };
        // A recorder that is kept counts a second event of one reason as the first again, and its note is lost; each of ours
        // says something new.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = within(recorder.publish(&event, &reference)).await {
            let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
            tracing::warn!(namespace, name, reason = news.reason, %error, "failed to publish event");
        }
    }

    pub(super) async fn add_finalizer(&self, meta: &ObjectMeta) -> Result<(), OriginError> {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        let all: Vec<&str> = finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
        self.patch_finalizers(meta, &all).await
    }

    pub(super) async fn remove_finalizer(&self, meta: &ObjectMeta) -> Result<(), OriginError> {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        let rest: Vec<&str> = finalizers
            .iter()
            .map(String::as_str)
            .filter(|&finalizer| finalizer != FINALIZER)
            .collect();
        match self.patch_finalizers(meta, &rest).await {
            // That it is gone is what was wanted.
            Err(OriginError::Gone) => Ok(()),
            other => other,
        }
    }

    /// Writes the whole list, for lists of finalizers can't be merged; the resource version makes sure that nobody else has
    /// changed it since it was read.
    async fn patch_finalizers(&self, meta: &ObjectMeta, finalizers: &[&str]) -> Result<(), OriginError> {
        let patch = json!({
            "metadata": { "resourceVersion": meta.resource_version, "uid": meta.uid, "finalizers": finalizers }
        });
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let name = meta.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(patch);
        within(self.api(meta).patch(name, &parameters, &patch)).await?;
        Ok(())
    }
}

/// A call of the API server that ends, although a connection may be half open and never tell: a worker that waits for it is lost
/// to all others.
async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, OriginError> {
    match tokio::time::timeout(API_DEADLINE, call).await {
        Ok(result) => result.map_err(OriginError::from),
        Err(_) => Err(OriginError::Silent(API_DEADLINE)),
    }
}
