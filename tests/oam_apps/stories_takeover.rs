//! Taking over from KubeVela: what it has left is neither written nor run again, but kept from then on.

use std::collections::HashSet;

use axum::http::Method;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::golden::capture::Capture;
use super::golden::cases::Case;
use super::golden::compare::differences;
use super::golden::normalize;
use super::site::{Site, version};
use super::{APPLICATION, DEPLOYMENT, REVISION, TRACKER, setup};
use crate::applications::resource;
use crate::support::corpus;
use crate::support::cue::executable;
use crate::support::eventually::SOON;
use crate::support::fault_proxy::ApiRequest;

const LAST_APPLIED: &str = "app.oam.dev/last-applied-configuration";
const RENDER_HASH: &str = "oam.dev/render-hash";
const COMPONENT: &str = "app.oam.dev/component";
const TIME: &str = "2026-01-02T03:04:05Z";

/// A recorded case, restored in its namespace.
pub struct Restored {
    pub site: Site,
    case: Case,
    app: Value,
}

impl Restored {
    pub async fn new(case: Case) -> Self {
        let server = setup::shared().await;
        setup::namespace(server, &case.namespace).await;
        let site = Site::of(server, case.namespace.clone()).await;
        let mut app = case.apps().next().unwrap().clone();
        let recorded = &case.files["application"][setup::name(&app)];
        app["metadata"]["annotations"] = recorded["annotations"].clone();
        app["metadata"]["finalizers"] = recorded["finalizers"].clone();
        let app = site.create(&app).await;
        let restored = Self { site, case, app };
        restored.objects().await;
        restored.trackers().await;
        restored.revisions().await;
        restored.status().await;
        restored
    }

    pub fn name(&self) -> &str {
        setup::name(&self.app)
    }

    pub fn recorded_objects(&self) -> impl Iterator<Item = &Value> {
        self.case.files["objects"].as_array().into_iter().flatten()
    }

    /// Sets the uid in the reference to the Application.
    fn owned(&self, mut object: Value) -> Value {
        for owner in object["metadata"]["ownerReferences"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            owner["uid"] = self.app["metadata"]["uid"].clone();
        }
        object
    }

    async fn objects(&self) {
        let mut created = HashSet::new();
        for object in self.recorded_objects() {
            // Some were recorded in two versions.
            if created.insert((text(&object["kind"]), setup::name(object))) {
                self.site.create(&self.owned(object.clone())).await;
            }
        }
        for object in self.recorded_objects().filter(|object| object["kind"] == "Deployment") {
            let is_ready = |live: &Value| live["status"]["readyReplicas"] == live["spec"]["replicas"];
            self.site
                .until(DEPLOYMENT, setup::name(object), "ready", is_ready)
                .await;
        }
    }

    /// Creates the trackers with manifests, which the records lack.
    async fn trackers(&self) {
        for tracker in self.case.files["trackers"].as_array().unwrap() {
            let mut entries = tracker["managedResources"].clone();
            for entry in entries.as_array_mut().unwrap() {
                let is_same = |object: &&Value| {
                    let metadata = &object["metadata"];
                    object["kind"] == entry["kind"] && metadata["name"] == entry["name"]
                };
                let manifest = manifest(self.recorded_objects().find(is_same).unwrap());
                entry["raw"] = manifest;
            }
            let mut labels = tracker["labels"].clone();
            labels["app.oam.dev/uid"] = self.app["metadata"]["uid"].clone();
            let tracker = json!({
                "apiVersion": "core.oam.dev/v1beta1", "kind": "ResourceTracker",
                "metadata": { "name": tracker["name"], "labels": labels, "finalizers": tracker["finalizers"] },
                "spec": {
                    "type": tracker["type"], "applicationGeneration": tracker["applicationGeneration"],
                    "managedResources": entries,
                },
            });
            self.site.create(&tracker).await;
        }
    }

    /// Creates the revisions with the contents, which the records lack.
    async fn revisions(&self) {
        for revision in self.case.files["revisions"][self.name()].as_array().unwrap() {
            let application = json!({
                "apiVersion": self.app["apiVersion"], "kind": self.app["kind"], "spec": self.app["spec"],
                "metadata": {
                    "name": self.name(), "namespace": self.case.namespace,
                    "annotations": self.app["metadata"]["annotations"],
                },
            });
            let owner = json!({
                "apiVersion": self.app["apiVersion"], "kind": self.app["kind"],
                "name": self.name(), "uid": self.app["metadata"]["uid"], "controller": true,
            });
            let created = json!({
                "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
                "metadata": {
                    "name": revision["name"], "labels": revision["labels"], "annotations": revision["annotations"],
                    "ownerReferences": [owner],
                },
                "spec": {
                    "application": application,
                    "componentDefinitions": self.definitions("ComponentDefinition"),
                    "traitDefinitions": self.definitions("TraitDefinition"),
                },
            });
            self.site.create(&created).await;
            let status = json!({ "status": revision["status"] });
            self.patch_status(REVISION, revision["name"].as_str().unwrap(), status)
                .await;
        }
    }

    /// Returns the definitions that the Application names.
    fn definitions(&self, kind: &str) -> Map<String, Value> {
        let components = || self.app["spec"]["components"].as_array().into_iter().flatten();
        let traits = components().flat_map(|component| component["traits"].as_array().into_iter().flatten());
        let used: Vec<_> = components().chain(traits).map(|part| &part["type"]).collect();
        let definitions = setup::starter_set().into_iter();
        definitions
            .filter(|definition| definition["kind"] == kind && used.contains(&&definition["metadata"]["name"]))
            .map(|mut definition| {
                definition["metadata"]["namespace"] = "vela-system".into();
                (setup::name(&definition).to_owned(), definition)
            })
            .collect()
    }

    async fn status(&self) {
        let mut status = self.case.files["application"][self.name()]["status"].clone();
        for condition in status["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = TIME.into();
        }
        let workflow = &mut status["workflow"];
        workflow["startTime"] = TIME.into();
        workflow["endTime"] = TIME.into();
        for (number, step) in workflow["steps"].as_array_mut().unwrap().iter_mut().enumerate() {
            step["id"] = format!("abcdefgh{number:02}").into();
            step["firstExecuteTime"] = TIME.into();
            step["lastExecuteTime"] = TIME.into();
        }
        self.patch_status(APPLICATION, self.name(), json!({ "status": status }))
            .await;
    }

    async fn patch_status(&self, kind: &str, name: &str, status: Value) {
        let (api, parameters) = (self.site.api(kind), PatchParams::default());
        api.patch_status(name, &parameters, &Patch::Merge(status))
            .await
            .unwrap();
    }

    async fn assert_that_a_dry_run_shows_no_change(&self) {
        let evaluator = executable();
        let version = "--compat-version=portolan";
        let arguments = ["takeover", self.name(), version, "--dry-run", "--cue-evaluator"];
        let arguments = [&arguments[..], &[evaluator.to_str().unwrap()]].concat();
        let text = self.site.app(&arguments).await;
        let mut lines = text.lines();
        let first = format!("{}/{}: would be taken over", self.site.namespace, self.name());
        assert_eq!(lines.next(), Some(first.as_str()), "{text}");
        let is_quiet = |line: &str| line.starts_with("unchanged ") || line.starts_with("later ");
        assert!(text.contains("\nunchanged ") && lines.all(is_quiet), "{text}");
    }

    /// Returns kind, name and resource version of everything restored, unless controllers of the cluster write it.
    pub async fn versions(&self, except: &Value) -> Vec<String> {
        let mut shown = Vec::new();
        let trackers = self.case.files["trackers"].as_array().into_iter().flatten();
        let names = trackers.map(|tracker| (TRACKER.to_owned(), tracker["name"].as_str().unwrap().to_owned()));
        let is_of_cluster =
            |object: &Value| object["kind"] == "Deployment" || object["kind"] == "PersistentVolumeClaim";
        let objects = self.recorded_objects();
        let objects = objects.filter(|object| *object != except && !is_of_cluster(object));
        let names = names.chain(objects.map(|object| (setup::kind(object), setup::name(object).to_owned())));
        let app = (APPLICATION.to_owned(), self.name().to_owned());
        for (kind, name) in names.chain([app]) {
            let object = self.site.get(&kind, &name).await.unwrap_or_default();
            shown.push(format!("{kind} {name} {}", version(&object)));
        }
        shown
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the manifest that was applied: that of the annotation, or the object itself if it has no defaults.
fn manifest(object: &Value) -> Value {
    let applied = object["metadata"]["annotations"][LAST_APPLIED].as_str();
    let mut manifest = applied.map_or_else(|| object.clone(), |text| serde_json::from_str(text).unwrap());
    manifest["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(RENDER_HASH);
    manifest
}

/// Returns true for a request that changes an object, except events, leases, reviews of rights and definitions.
pub fn is_write(request: &ApiRequest) -> bool {
    let allowed = ["/events", "/leases", "authorization.k8s.io", "/namespaces/vela-system/"];
    request.method != Method::GET && !allowed.iter().any(|part| request.path.contains(part))
}

#[rstest]
#[case::ingress("u-vela-app", "Service")]
#[case::config_map("u-use-configmap", "ConfigMap")]
#[case::storage("u-core-definitions-trait-storage", "ConfigMap")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kubevela_has_left_is_not_written_but_kept(#[case] name: &str, #[case] kind: &str) {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let mut cases = Case::load_all(goldens).into_iter();
    let restored = Restored::new(cases.find(|case| case.name == name).unwrap()).await;
    let site = &restored.site;
    let is_kept = |object: &&Value| object["kind"] == kind && object["metadata"]["labels"][COMPONENT].is_string();
    let kept = restored.recorded_objects().find(is_kept).unwrap();
    let before = restored.versions(kept).await;
    restored.assert_that_a_dry_run_shows_no_change().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;

    // The change is undone from the manifest in the tracker, so the Application was reconciled before.
    let (api_kind, object) = (setup::kind(kept), setup::name(kept));
    let label = &kept["metadata"]["labels"][COMPONENT];
    site.edit(
        &api_kind,
        object,
        json!({ "metadata": { "labels": { COMPONENT: "other" } } }),
    )
    .await;
    site.until(&api_kind, object, "the label of before", |live| {
        live["metadata"]["labels"][COMPONENT] == *label
    })
    .await;

    assert_eq!(restored.versions(kept).await, before);
    assert_eq!(site.revisions(restored.name()).await.len(), 1);
    let requests = proxy.requests();
    let writes: Vec<_> = requests.iter().filter(|request| is_write(request)).collect();
    let path = format!("/{}/{object}", resource(&api_kind).plural);
    let are_of_kept = writes.iter().all(|request| request.path.ends_with(&path));
    assert!(!writes.is_empty() && are_of_kept, "{writes:#?}");
}

/// Checks restoring, recording and comparing against each other, without Portolan.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_case_is_recorded_as_it_was(
    #[values("u-use-hpa", "u-enduser-sample", "u-use-storage", "u-dry-run-1")] name: &str,
) {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let mut cases = Case::load_all(goldens).into_iter();
    let restored = Restored::new(cases.find(|case| case.name == name).unwrap()).await;
    let capture = Capture {
        client: restored.site.control_plane.client().await,
        namespace: &restored.case.namespace,
    };
    let mut record = capture.record(&[restored.name()]).await.unwrap();
    // Events are not restored.
    record["events"] = restored.case.files["events"].clone();
    let found = differences(&restored.case.expected, &normalize::record(&record));
    assert!(found.is_empty(), "{found:#?}");

    let (kind, name) = (
        DEPLOYMENT,
        restored.case.files["trackers"][0]["managedResources"][0]["name"].as_str(),
    );
    restored.site.delete(kind, name.unwrap()).await;
    let record = capture.record(&[restored.name()]).await.unwrap();
    let found = differences(&restored.case.expected, &normalize::record(&record));
    let paths: Vec<_> = found.iter().map(|difference| difference.path.as_str()).collect();
    assert!(
        paths.iter().any(|path| path.starts_with("objects/apps/v1 Deployment")),
        "{paths:?}"
    );
    assert!(paths.iter().any(|path| path.starts_with("missing/")), "{paths:?}");
    assert!(paths.iter().any(|path| path.starts_with("events/")), "{paths:?}");
}
