//! Records what the controller has left in a namespace, in the form of the files of a case.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use portolan::api::oam::compression::Compressed;
use serde_json::{Map, Value, json};

use super::super::{APPLICATION, REVISION, TRACKER, setup};
use crate::applications::resource;

/// Kinds of which all objects of the namespace are recorded, besides tracked ones.
const KINDS: [&str; 11] = [
    "v1 ConfigMap",
    "v1 Secret",
    "v1 Service",
    "v1 PersistentVolumeClaim",
    "apps/v1 Deployment",
    "apps/v1 StatefulSet",
    "apps/v1 DaemonSet",
    "batch/v1 Job",
    "batch/v1 CronJob",
    "networking.k8s.io/v1 Ingress",
    "autoscaling/v2 HorizontalPodAutoscaler",
];
/// Objects that the cluster creates in each namespace.
const OF_CLUSTER: &str = "kube-root-ca.crt";
/// Far more than any tracker of these tests.
const MAX_TRACKER: usize = 1 << 20;

pub struct Capture<'a> {
    pub client: Client,
    pub namespace: &'a str,
}

impl Capture<'_> {
    /// Records these Applications.
    pub async fn record(&self, apps: &[&str]) -> Result<Value, kube::Error> {
        let (mut applications, mut revisions) = (Map::new(), Map::new());
        let mut trackers = Vec::new();
        for app in apps {
            applications.insert((*app).to_owned(), self.application(app).await?);
            revisions.insert((*app).to_owned(), self.revisions(app).await?);
            trackers.extend(self.trackers(app).await?);
        }
        let (objects, missing) = self.objects(&trackers).await?;
        Ok(json!({
            "application": applications,
            "revisions": revisions,
            "trackers": trackers,
            "events": self.events(apps).await?,
            "objects": objects,
            "missing": missing,
        }))
    }

    fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (client, resource) = (self.client.clone(), resource(kind));
        match namespace {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        }
    }

    async fn application(&self, name: &str) -> Result<Value, kube::Error> {
        let app = self.api(APPLICATION, self.namespace).get_opt(name).await?;
        let Some(app) = app.map(|app| json!(app)) else {
            return Ok(Value::Null);
        };
        let (status, metadata) = (&app["status"], &app["metadata"]);
        Ok(json!({
            "status": status, "labels": metadata["labels"],
            "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        }))
    }

    async fn revisions(&self, app: &str) -> Result<Value, kube::Error> {
        let of_app = ListParams::default().labels(&format!("app.oam.dev/name={app}"));
        let list = self.api(REVISION, self.namespace).list(&of_app).await?;
        let revisions = list.items.into_iter().map(|revision| {
            let revision = json!(revision);
            let metadata = &revision["metadata"];
            json!({
                "name": metadata["name"], "labels": metadata["labels"], "annotations": metadata["annotations"],
                "status": { "succeeded": revision["status"]["succeeded"] },
            })
        });
        Ok(revisions.collect())
    }

    async fn trackers(&self, app: &str) -> Result<Vec<Value>, kube::Error> {
        let labels = format!("app.oam.dev/name={app},app.oam.dev/namespace={}", self.namespace);
        let of_app = ListParams::default().labels(&labels);
        let list = self.api(TRACKER, "").list(&of_app).await?;
        Ok(list.items.into_iter().map(|tracker| shown(&json!(tracker))).collect())
    }

    /// Returns type, reason and message of the events of these Applications, each once.
    async fn events(&self, apps: &[&str]) -> Result<Value, kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), self.namespace);
        let list = api.list(&ListParams::default()).await?;
        let of_apps = list.items.into_iter().filter(|event| {
            let object = event.regarding.as_ref();
            let name = object.and_then(|object| object.name.as_deref());
            object.is_some_and(|object| object.kind.as_deref() == Some("Application"))
                && name.is_some_and(|name| apps.contains(&name))
        });
        let unique: BTreeSet<_> = of_apps.map(|event| [event.type_, event.reason, event.note]).collect();
        Ok(json!(unique))
    }

    /// Returns the tracked objects that exist, others of the usual kinds, and the tracked objects that do not exist.
    async fn objects(&self, trackers: &[Value]) -> Result<(Vec<Value>, Vec<Value>), kube::Error> {
        let (mut objects, mut missing) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        let entries = trackers
            .iter()
            .flat_map(|tracker| tracker["managedResources"].as_array().into_iter().flatten());
        for entry in entries {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let (kind, namespace, name) = (setup::kind(entry), text("namespace"), text("name"));
            if !seen.insert((kind.clone(), namespace.clone(), name.clone())) {
                continue;
            }
            match self.api(&kind, &namespace).get_opt(&name).await? {
                Some(object) => objects.push(json!(object)),
                None => missing.push(json!(format!("{kind} {namespace}/{name}"))),
            }
        }
        for kind in KINDS {
            let list = self.api(kind, self.namespace).list(&ListParams::default()).await?;
            let (version, word) = kind.split_once(' ').unwrap_or_default();
            for mut object in list.items.into_iter().map(|object| json!(object)) {
                object["apiVersion"] = version.into();
                object["kind"] = word.into();
                let name = setup::name(&object).to_owned();
                let is_new = seen.insert((kind.to_owned(), self.namespace.to_owned(), name.clone()));
                if is_new && name != OF_CLUSTER {
                    objects.push(object);
                }
            }
        }
        Ok((objects, missing))
    }
}

/// Returns a tracker as the records hold it, decompressed.
fn shown(tracker: &Value) -> Value {
    let (metadata, spec) = (&tracker["metadata"], &tracker["spec"]);
    let compressed: Compressed = serde_json::from_value(spec["compression"].clone()).unwrap_or_default();
    let entries = if compressed.is_empty() {
        spec["managedResources"].clone()
    } else {
        serde_json::from_slice(&compressed.decode(MAX_TRACKER).unwrap()).unwrap()
    };
    json!({
        "name": metadata["name"],
        "type": spec["type"],
        "applicationGeneration": spec["applicationGeneration"],
        "compression": (!compressed.is_empty()).then_some(compressed.type_),
        "deleting": metadata["deletionTimestamp"].is_string(),
        "finalizers": metadata["finalizers"],
        "labels": metadata["labels"],
        "managedResources": entries,
    })
}
