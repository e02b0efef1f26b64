//! `portolan vela` and `portolan cluster`, without a running controller: the tests write what it would.

mod clusters;
mod definitions;
mod diff;
mod inspect;
mod joined;
mod logs;
mod operations;
mod placed;
mod recovery;
mod render;
mod takeover;
mod up;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use portolan::api::NamespacedName;
use portolan::api::oam::{Application, ApplicationRevision, ManagedResource, RawManifest, ResourceTracker, crds};
use portolan::controllers::oam::trackers::{AppIdentity, Encoded, TrackerType, create};
use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::portolan::{command, run};
use crate::support::process::ScratchDir;

/// A namespace of its own, with the CRDs of the group.
struct Site {
    control_plane: &'static ControlPlane,
    client: Client,
    namespace: String,
    files: ScratchDir,
}

/// The result of a command.
#[derive(Debug)]
struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Output {
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout
    }

    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.stderr
    }
}

/// Runs a command without a cluster.
async fn execute(arguments: &[&str]) -> Output {
    let output = run(command(arguments)).await;
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Asserts that a line consists of these words.
fn assert_line(text: &str, expected: &str) {
    let expected = words(expected);
    assert!(
        text.lines().any(|line| words(line) == expected),
        "{expected:?}:\n{text}"
    );
}

impl Site {
    async fn new() -> Self {
        Self::of(control_plane().await).await
    }

    async fn of(control_plane: &'static ControlPlane) -> Self {
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self {
            control_plane,
            client: control_plane.client().await,
            namespace: control_plane.namespace().await,
            files: ScratchDir::new("oam-cli"),
        }
    }

    /// Runs `portolan vela …` in the namespace.
    async fn vela(&self, arguments: &[&str]) -> Output {
        let namespace = ["-n", &self.namespace];
        self.run(&[&["vela"], arguments, &namespace].concat()).await
    }

    /// Runs a command with the cluster.
    async fn run(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.control_plane.kubeconfig();
        let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
        execute(&[arguments, &cluster].concat()).await
    }

    fn file(&self, name: &str, documents: &[Value]) -> String {
        let texts: Vec<_> = documents
            .iter()
            .map(|one| serde_yaml::to_string(one).unwrap())
            .collect();
        let path = self.files.write(name, texts.join("---\n"));
        path.to_str().unwrap().to_owned()
    }

    fn applications(&self) -> Api<Application> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn application(&self, name: &str) -> Application {
        self.applications().get(name).await.unwrap()
    }

    async fn create_application(&self, name: &str, spec: Value) -> Application {
        let object = serde_json::from_value(application(name, spec)).unwrap();
        self.applications()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    async fn set_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let parameters = PatchParams::default();
        self.applications()
            .patch_status(name, &parameters, &patch)
            .await
            .unwrap();
    }

    async fn create_revision(&self, name: &str, application: &str, version: Option<&str>, spec: Value) {
        let mut object = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
            "metadata": { "name": name, "labels": { "app.oam.dev/name": application } },
            "spec": spec,
        });
        if let Some(version) = version {
            object["metadata"]["annotations"] = json!({ "app.oam.dev/publishVersion": version });
        }
        let revisions: Api<ApplicationRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = serde_json::from_value(object).unwrap();
        revisions.create(&PostParams::default(), &object).await.unwrap();
    }

    fn trackers(&self) -> Api<ResourceTracker> {
        Api::all(self.client.clone())
    }

    /// Creates the tracker of a generation. Trackers are not bound to namespaces, but their names contain them.
    async fn create_tracker(&self, application: &str, uid: &str, generation: i64, objects: Encoded) -> String {
        let identity = AppIdentity {
            name: NamespacedName::new(&self.namespace, application),
            uid: uid.to_owned(),
            generation,
            publish_version: None,
        };
        let tracker = create(&identity, TrackerType::Versioned, None, None, objects);
        self.trackers().create(&PostParams::default(), &tracker).await.unwrap();
        tracker.name_any()
    }

    fn entry(&self, manifest: &Value) -> ManagedResource {
        let text = |pointer| {
            manifest
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        ManagedResource {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            namespace: self.namespace.clone(),
            name: text("/metadata/name"),
            raw: Some(RawManifest::of(manifest).unwrap()),
            ..ManagedResource::default()
        }
    }
}

fn application(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": { "name": name }, "spec": spec })
}

fn worker(image: &str) -> Value {
    json!({ "components": [{ "name": "web", "type": "worker", "properties": { "image": image } }] })
}
