//! AppRepositories declared in a real API server, synced by the real binary from a real HTTP server.

pub mod adopting;
mod bad_input;
mod database;
mod elections;
mod failover;
mod faults;
mod filtered;
mod garbage;
mod identity;
mod kubeapps_crd;
mod leading;
mod private;
mod registry;
pub mod rows;
mod secrets_reading;
mod shards;
mod shutdown;
mod shutdown_phases;
mod story;
mod takeover;
mod tenants;
mod uninstalling;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use portolan::api::{self, AppRepository, crds};
use serde_json::{Value, json};

use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command};

pub use crate::support::eventually::SOON;

/// The default schedule never fires, so that only requested syncs run.
const NEVER: &str = "--crontab=@yearly";

/// A namespace of a control plane, and a chart server.
pub struct World {
    pub namespace: String,
    pub kubeconfig: PathBuf,
    pub client: Client,
    pub repositories: Api<AppRepository>,
    pub server: ChartServer,
}

impl World {
    /// Creates a namespace in the shared control plane, with our CRDs installed.
    pub async fn new() -> Self {
        let control_plane = control_plane().await;
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self::on(control_plane).await
    }

    /// Creates a namespace in a separate control plane, where the test installs the CRDs.
    pub async fn on(control_plane: &ControlPlane) -> Self {
        let client = control_plane.client().await;
        let namespace = control_plane.namespace().await;
        Self {
            repositories: Api::namespaced(client.clone(), &namespace),
            namespace,
            kubeconfig: control_plane.kubeconfig(),
            client,
            server: ChartServer::start().await,
        }
    }

    /// Starts Portolan for this namespace, as administrator.
    pub async fn portolan(&self, database_url: &str, more: &[&str]) -> Portolan {
        self.portolan_with(&self.kubeconfig, database_url, more).await
    }

    /// Starts Portolan for this namespace with a kubeconfig, and waits until it is ready.
    pub async fn portolan_with(&self, kubeconfig: &Path, database_url: &str, more: &[&str]) -> Portolan {
        let portolan = Portolan::start(self.command(kubeconfig, database_url, more));
        portolan.ready(SOON).await;
        portolan
    }

    /// The command of [`World::portolan_with`].
    pub fn command(&self, kubeconfig: &Path, database_url: &str, more: &[&str]) -> std::process::Command {
        let mut command = command([
            "run",
            "--watch-namespace",
            &self.namespace,
            "--database-url",
            database_url,
        ]);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        command
    }

    /// Serves an index for the repository `name`, and returns the repository's URL.
    pub fn serve(&self, name: &str, index: impl AsRef<str>) -> String {
        self.server
            .serve(&format!("/{name}/index.yaml"), Page::new(index.as_ref().to_owned()));
        self.server.url(&format!("/{name}"))
    }

    pub async fn declare(&self, name: &str, url: &str) -> AppRepository {
        self.declare_with(name, json!({ "spec": { "type": "helm", "url": url } }))
            .await
    }

    /// Creates a repository with this spec and metadata.
    pub async fn declare_with(&self, name: &str, mut object: Value) -> AppRepository {
        object["apiVersion"] = "kubeapps.com/v1alpha1".into();
        object["kind"] = "AppRepository".into();
        object["metadata"]["name"] = name.into();
        let object: AppRepository = serde_json::from_value(object).unwrap();
        self.repositories.create(&PostParams::default(), &object).await.unwrap()
    }

    /// Creates or replaces a Secret with these values.
    pub async fn write_secret(&self, namespace: &str, name: &str, values: Value) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let values: BTreeMap<String, String> = serde_json::from_value(values).unwrap();
        // As data, since the API server merges stringData.
        let data: BTreeMap<String, ByteString> = values
            .into_iter()
            .map(|(key, value)| (key, ByteString(value.into_bytes())))
            .collect();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data });
        let apply = PatchParams::apply("tests").force();
        secrets.patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
    }

    /// Waits until the files of all versions are imported.
    pub async fn until_files(&self, name: &str, versions: i64) -> AppRepository {
        self.until(name, &format!("the files of {versions} versions"), |object| {
            let files = object.status.as_ref().and_then(|status| status.files.as_ref());
            files.is_some_and(|files| (files.imported, files.total) == (versions, versions))
        })
        .await
    }

    pub async fn edit(&self, name: &str, patch: Value) -> AppRepository {
        self.repositories
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap()
    }

    /// Requests a sync; each `token` is a new request.
    pub async fn resync(&self, name: &str, token: &str) {
        self.annotate(name, api::REQUESTED_AT, token).await;
    }

    /// Requests a sync and waits for it.
    pub async fn resync_and_wait(&self, name: &str, token: &str) -> AppRepository {
        self.resync(name, token).await;
        self.until(name, "the resync to be handled", |object| {
            let status = object.status.as_ref();
            status.and_then(|status| status.last_handled_reconcile_at.as_deref()) == Some(token)
        })
        .await
    }

    pub async fn annotate(&self, name: &str, annotation: &str, value: &str) {
        self.edit(name, json!({ "metadata": { "annotations": { annotation: value } } }))
            .await;
    }

    /// Replaces all finalizers.
    pub async fn set_finalizers(&self, name: &str, finalizers: &[&str]) {
        self.edit(name, json!({ "metadata": { "finalizers": finalizers } }))
            .await;
    }

    /// Deletes an object without its finalizer, so that it disappears immediately.
    pub async fn delete_without_finalizer(&self, name: &str) {
        self.set_finalizers(name, &[]).await;
        self.delete(name).await;
        self.gone(name).await;
    }

    /// Waits until the index was requested this many times in total.
    pub async fn until_fetched(&self, name: &str, times: usize) {
        let path = format!("/{name}/index.yaml");
        eventually(SOON, &format!("{times} requests for {path}"), async || {
            let seen = self.server.requests(&path).len();
            if seen >= times { Ok(()) } else { Err(format!("{seen}")) }
        })
        .await;
    }

    /// Starts a deletion without waiting for it.
    pub async fn delete(&self, name: &str) {
        self.repositories.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn uid(&self, name: &str) -> String {
        self.repositories.get(name).await.unwrap().metadata.uid.unwrap()
    }

    pub async fn gone(&self, name: &str) {
        eventually(SOON, "the object to be deleted", async || {
            match self.repositories.get_opt(name).await.unwrap() {
                None => Ok(()),
                Some(object) => Err(format!("{:?}", object.metadata)),
            }
        })
        .await;
    }

    /// Waits until the object matches, and returns it.
    pub async fn until(&self, name: &str, what: &str, fits: impl Fn(&AppRepository) -> bool) -> AppRepository {
        self.until_within(SOON, name, what, fits).await
    }

    pub async fn until_within(
        &self,
        deadline: Duration,
        name: &str,
        what: &str,
        fits: impl Fn(&AppRepository) -> bool,
    ) -> AppRepository {
        eventually(deadline, what, async || {
            let object = self.repositories.get(name).await.map_err(|error| error.to_string())?;
            if fits(&object) {
                Ok(object)
            } else {
                Err(serde_json::to_string(&object.status).unwrap())
            }
        })
        .await
    }

    /// Waits until Ready has this status and reason for the current generation, and returns the object.
    pub async fn until_ready_is(&self, name: &str, status: &str, reason: &str) -> AppRepository {
        self.until(name, &format!("Ready to be {status} {reason}"), |object| {
            is_current(object)
                && condition(object, "Ready") == Some((status, reason))
                && (condition(object, "Reconciling").is_none_or(|(_, reason)| reason != "Syncing"))
        })
        .await
    }

    /// Waits until the object is synced, and returns it.
    pub async fn until_ready(&self, name: &str) -> AppRepository {
        self.until_ready_is(name, "True", "Synced").await
    }

    /// Reasons and notes of all events about an object.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = events.list(&ListParams::default()).await.unwrap();
        let about =
            |event: &Event| event.regarding.as_ref().and_then(|object| object.name.clone()) == Some(name.to_owned());
        list.items
            .into_iter()
            .filter(about)
            .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
            .collect()
    }

    /// Waits for an event about an object, and returns its note.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        self.event_within(SOON, name, reason).await
    }

    pub async fn event_within(&self, deadline: Duration, name: &str, reason: &str) -> String {
        eventually(deadline, &format!("an event {reason}"), async || {
            let events = self.events(name).await;
            let found = events
                .iter()
                .find(|(seen, _)| seen == reason)
                .map(|(_, note)| note.clone());
            found.ok_or_else(|| format!("{events:?}"))
        })
        .await
    }
}

/// Returns true if the status observed the current generation.
pub fn is_current(object: &AppRepository) -> bool {
    object
        .status
        .as_ref()
        .is_some_and(|status| status.observed_generation == object.metadata.generation)
}

/// Status and reason of a condition.
pub fn condition<'a>(object: &'a AppRepository, type_: &str) -> Option<(&'a str, &'a str)> {
    let conditions = &object.status.as_ref()?.conditions;
    conditions
        .iter()
        .find(|c| c.type_ == type_)
        .map(|c| (c.status.as_str(), c.reason.as_str()))
}

pub fn message(object: &AppRepository) -> String {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|c| c.type_ == "Ready")
        .map(|c| c.message.clone())
        .collect()
}

pub fn finalizers(object: &AppRepository) -> Vec<&str> {
    object.finalizers().iter().map(String::as_str).collect()
}

/// A small index of charts and versions.
pub fn index(charts: &[(&str, &[&str])]) -> String {
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for (name, versions) in charts {
        index.push_str(&format!("  {name}:\n"));
        for version in *versions {
            index.push_str(&format!(
                "  - apiVersion: v2\n    name: {name}\n    version: {version}\n    description: A chart\n    \
                 created: \"2026-01-01T00:00:00Z\"\n    digest: {name}{version}\n    urls:\n    - {name}-{version}.tgz\n"
            ));
        }
    }
    if charts.is_empty() {
        index = "apiVersion: v1\nentries: {}\n".to_owned();
    }
    index
}
