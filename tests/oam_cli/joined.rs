//! `portolan vela diff` and `portolan doctor` with joined clusters.

use kube::ResourceExt;
use portolan::api::oam::ManagedResource;
use portolan::controllers::oam::trackers::encode;
use serde_json::{Value, json};

use super::clusters::{TOKEN, token};
use super::diff::{CONFIG, config, owned};
use super::{Site, application, assert_line, worker};
use crate::oam_apps::setup::starter_set;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, joined_control_plane};
use crate::support::cue::executable;
use crate::support::ports::free_port;

fn shop(clusters: &[&str]) -> Value {
    let topology = json!({ "name": "places", "type": "topology", "properties": { "clusters": clusters } });
    let components = [config("web", json!({ "text": "one" }))];
    application("shop", json!({ "components": components, "policies": [topology] }))
}

impl Site {
    /// Runs `portolan vela diff` with the clusters that are joined in the namespace.
    async fn diff_joined(&self, document: Value) -> String {
        let (file, evaluator) = (self.file("diff.yaml", &[document]), executable());
        let evaluator = ["--cue-evaluator", evaluator.to_str().unwrap()];
        let joined = ["--system-definition-namespace", &self.namespace];
        let arguments = [&["diff", &file][..], &evaluator, &joined].concat();
        self.vela(&arguments).await.ok()
    }

    /// Defines what an Application with a topology needs.
    async fn define_deployment(&self) {
        self.define("config", CONFIG).await;
        let definitions = starter_set();
        let is_deploy = |one: &&Value| one["kind"] == "WorkflowStepDefinition" && one["metadata"]["name"] == "deploy";
        self.apply_object(definitions.iter().find(is_deploy).unwrap()).await;
    }

    /// Creates an object in another cluster.
    async fn create_in(&self, other: &ControlPlane, object: &Value) {
        let file = self.file("object.yaml", std::slice::from_ref(object));
        other.kubectl(&["create", "-f", &file]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_compared_in_their_clusters_and_one_that_cannot_be_reached_is_named() {
    let site = Site::new().await;
    site.define_deployment().await;
    let (namespace, other) = (&site.namespace, joined_control_plane(0).await);
    site.join("prod", TOKEN, token(&other.url(), other.ca_pem(), ADMIN_TOKEN))
        .await;
    let dead = format!("https://127.0.0.1:{}", free_port());
    site.join("dead", TOKEN, token(&dead, other.ca_pem(), "hunter2")).await;

    let new = site.diff_joined(shop(&["local", "prod", "dead"])).await;
    assert_line(&new, &format!("create ConfigMap {namespace}/web"));
    assert_line(&new, &format!("create ConfigMap {namespace}/web in cluster prod"));
    let unknown =
        "unknown   changes: component web in cluster dead: cluster dead can't be reached: failed to connect to ";
    assert!(new.contains(unknown) && !new.contains("hunter2"), "{new}");

    site.create_in(
        other,
        &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
    )
    .await;
    site.create_in(other, &owned(&site, "web", "shop", json!({ "text": "zero" })))
        .await;
    let old = owned(&site, "old", "shop", json!({}));
    site.create_in(other, &old).await;
    let deployed = shop(&["local"]);
    let uid = site.create_application("shop", deployed["spec"].clone()).await.uid();
    let old = ManagedResource {
        cluster: "prod".to_owned(),
        ..site.entry(&old)
    };
    let tracker = encode(vec![old], None).unwrap();
    site.create_tracker("shop", &uid.unwrap(), 1, tracker).await;
    let changed = site.diff_joined(shop(&["prod"])).await;
    assert_line(&changed, &format!("change ConfigMap {namespace}/web in cluster prod"));
    assert_line(&changed, "- data.text: \"zero\"");
    assert_line(
        &changed,
        &format!("remove ConfigMap old (Cluster: prod, Namespace: {namespace})"),
    );
    let same = site.diff_joined(deployed).await;
    assert_line(&same, &format!("create ConfigMap {namespace}/web"));
    assert!(!same.contains("prod"), "{same}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_not_joined_ends_the_comparison() {
    let site = Site::new().await;
    site.define_deployment().await;
    let file = site.file("diff.yaml", &[shop(&["prod"])]);
    let joined = ["--system-definition-namespace", &site.namespace];
    let error = site.vela(&[&["diff", &file][..], &joined].concat()).await.failed(1);
    assert!(error.contains("failed to get cluster prod: no such cluster"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_refused_clusters_and_credentials_that_may_not_impersonate() {
    let site = Site::new().await;
    let (namespace, other) = (&site.namespace, joined_control_plane(0).await);
    let limited = other.token_for(&other.namespace().await, "default").await;
    for (name, type_, secret) in [
        ("prod", TOKEN, ADMIN_TOKEN),
        ("limited", TOKEN, limited.as_str()),
        ("unused", TOKEN, limited.as_str()),
        ("dynamic", "Dynamic", "hunter2"),
    ] {
        site.join(name, type_, token(&other.url(), other.ca_pem(), secret))
            .await;
    }
    // It names no identity, and may get one by default.
    site.apply_object(&application("shop", worker("nginx:1"))).await;
    let manifest = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web" } });
    let entries = ["prod", "limited", "gone"].map(|cluster| ManagedResource {
        cluster: cluster.to_owned(),
        ..site.entry(&manifest)
    });
    let uid = site.application("shop").await.uid().unwrap();
    site.create_tracker("shop", &uid, 1, encode(entries.into(), None).unwrap())
        .await;

    let joined = ["--controllers=oam", "--system-definition-namespace", namespace];
    let text = site.run(&[&["doctor"], &joined[..]].concat()).await.stdout;
    for line in [
        "problem  cluster dynamic is refused: the credential type Dynamic is not supported",
        "ok       cluster prod: the credential may impersonate the users of Applications",
        "warning  cluster limited: the credential may not impersonate users",
        "warning  cluster gone: Applications have objects there, and it is not joined",
    ] {
        assert!(text.lines().any(|found| found.starts_with(line)), "{line} in {text}");
    }
    assert!(!text.contains("cluster unused") && !text.contains("hunter2"), "{text}");
}
