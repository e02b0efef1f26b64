//! Receivers of webhooks as the chart deploys them: their pods, and rights that the real API server enforces.

use kube::Api;
use kube::api::{Patch, PatchParams};
use portolan::api::{AppRepository, POLL_AT, REQUESTED_AT};
use serde_json::{Value, json};

use super::{KUBE_VERSION, chart, documents, helm, helm_output};
use crate::cluster::World;
use crate::support::control_plane::control_plane;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::{command, run};
use crate::support::process::ScratchDir;

const ACCOUNT: &str = "portolan-receivers";

/// Returns the objects of the receivers of a release in `namespace`, which may read the Secret `push` there.
async fn objects(namespace: &str, more: &[&str]) -> Vec<Value> {
    let settings = format!(
        "--set=receivers.enabled=true,receivers.namespaces[0].name={namespace},receivers.namespaces[0].secrets={{push}}"
    );
    let arguments = [
        "template",
        "portolan",
        &chart(),
        KUBE_VERSION,
        "--namespace",
        namespace,
        &settings,
    ];
    let rendered = documents(&helm_output(&[&arguments[..], more].concat()).await);
    let component = "app.kubernetes.io/component";
    let of_receivers = |object: &Value| object["metadata"]["labels"][component] == "receivers";
    rendered.into_iter().filter(of_receivers).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

#[tokio::test]
async fn the_pods_have_no_database_and_an_account_of_their_own() {
    let objects = objects("sea", &["--set=database.existingSecret=postgres,replicas=2"]).await;
    let pod = &of_kind(&objects, "Deployment").unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], ACCOUNT);
    assert_eq!(pod["volumes"], Value::Null);
    let container = &pod["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let variables: Vec<&str> = variables.map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["PORTOLAN_LISTEN", "PORTOLAN_LOG_FORMAT"]);
    let mut flags: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    assert_eq!(flags, ["serve", "--only=hooks", "--watch-namespace=sea"]);
    // Help is printed only if all flags before it are valid.
    flags.push("--help".to_owned());
    assert!(run(command(&flags)).await.status.success());
    let labels = &of_kind(&objects, "Deployment").unwrap()["spec"]["selector"]["matchLabels"];
    assert_eq!(of_kind(&objects, "Service").unwrap()["spec"]["selector"], *labels);
    let cluster_roles = objects
        .iter()
        .filter(|object| object["kind"].as_str().unwrap().starts_with("ClusterRole"));
    assert_eq!(cluster_roles.count(), 0);
}

#[tokio::test]
async fn receivers_are_off_by_default_and_need_namespaces() {
    let rendered = helm_output(&["template", "portolan", &chart(), KUBE_VERSION]).await;
    assert!(!rendered.contains("receivers"), "{rendered}");
    let first = "receivers.enabled=true,receivers.namespaces[0].name=a";
    for (settings, complaint) in [
        ("receivers.enabled=true".to_owned(), "list them in receivers.namespaces"),
        (format!("{first},receivers.namespaces[1].name=a"), "lists a twice"),
        (
            format!("{first},watchNamespace=b"),
            "the namespace a is not watchNamespace",
        ),
        (
            format!("{first},networkPolicy.enabled=true"),
            "receivers.networkPolicy.from",
        ),
        (format!("{first},receivers.namespaces[0].secrets={{A}}"), "secrets"),
    ] {
        let output = helm(&["template", "portolan", &chart(), KUBE_VERSION, "--set", &settings]).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(complaint),
            "{settings}: {errors}"
        );
    }
}

#[tokio::test]
async fn a_cluster_that_knows_no_policies_gets_the_rights_alone() {
    let old = objects("sea", &["--kube-version=1.29.0"]).await;
    assert!(of_kind(&old, "ValidatingAdmissionPolicy").is_none() && of_kind(&old, "Role").is_some());
    let current = objects("sea", &[]).await;
    assert!(of_kind(&current, "ValidatingAdmissionPolicyBinding").is_some());
}

#[tokio::test]
async fn the_notes_say_how_a_sender_gets_its_address() {
    let settings = "--set=receivers.enabled=true,receivers.namespaces[0].name=team";
    let chart = chart();
    let install = [
        "install",
        "portolan",
        &chart,
        "--dry-run=client",
        "--no-hooks",
        "--namespace=sea",
        settings,
    ];
    let notes = helm_output(&install).await;
    for text in [
        "portolan receiver address team/REPOSITORY --url https://HOST",
        "to the Service portolan-receivers",
    ] {
        assert!(notes.contains(text), "{text}: {notes}");
    }
    assert!(!notes.contains("WARNING: Kubernetes before 1.30"), "{notes}");
}

/// Patches as the service account of the receivers. Returns the refusal.
async fn patch(repositories: &Api<AppRepository>, patch: Value) -> Result<(), String> {
    let patched = repositories
        .patch("stable", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match patched {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => Err(error.to_string()),
    }
}

fn annotated(annotation: &str, value: Value) -> Value {
    json!({ "metadata": { "annotations": { annotation: value } } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_lets_receivers_change_one_annotation_and_read_their_secrets() {
    let (world, control_plane) = (World::new().await, control_plane().await);
    let objects = objects(&world.namespace, &[]).await;
    let directory = ScratchDir::new("receivers");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let file = directory
        .write("receivers.json", list.to_string())
        .display()
        .to_string();
    control_plane
        .kubectl(&["apply", "--validate=strict", "-f", &file])
        .await;
    let metadata = json!({ "labels": { "crew": "small" }, "annotations": { "note": "kept", POLL_AT: "before" } });
    let spec = json!({ "type": "helm", "url": "https://charts.example" });
    world
        .declare_with("stable", json!({ "metadata": metadata, "spec": spec }))
        .await;
    for secret in ["push", "login"] {
        world
            .write_secret(&world.namespace, secret, json!({ "type": "generic" }))
            .await;
    }
    let token = control_plane.token_for(&world.namespace, ACCOUNT).await;
    let client = control_plane.client_with(&token).await;
    let repositories: Api<AppRepository> = Api::namespaced(client.clone(), &world.namespace);
    // The API server applies new roles and policies with a short delay.
    eventually(SOON, "the role", async || {
        patch(&repositories, annotated(POLL_AT, "now".into())).await
    })
    .await;
    let mut tries = 0;
    eventually(SOON, "the policy", async || {
        // A patch without a change would be no request to refuse.
        tries += 1;
        match patch(&repositories, annotated(REQUESTED_AT, tries.to_string().into())).await {
            Err(message) if message.contains("may only change the annotation") => Ok(()),
            result => Err(format!("{result:?}")),
        }
    })
    .await;
    for (change, message) in [
        (
            json!({ "spec": { "url": "https://evil.example" } }),
            "may not change the spec",
        ),
        (
            json!({ "metadata": { "labels": { "crew": "large" } } }),
            "may not change the labels",
        ),
        (json!({ "metadata": { "labels": null } }), "may not change the labels"),
        (
            json!({ "metadata": { "finalizers": ["a.example/b"] } }),
            "may not change the finalizers",
        ),
        (annotated("note", Value::Null), "may only change the annotation"),
        (annotated("note", "changed".into()), "may only change the annotation"),
        (
            json!({ "metadata": { "annotations": null } }),
            "may only change the annotation",
        ),
    ] {
        let refused = patch(&repositories, change.clone()).await.unwrap_err();
        assert!(refused.contains(message), "{change}: {refused}");
    }
    assert_eq!(patch(&repositories, annotated(POLL_AT, "later".into())).await, Ok(()));
    assert_eq!(patch(&repositories, annotated(POLL_AT, Value::Null)).await, Ok(()));
    let object = world.repositories.get("stable").await.unwrap();
    assert_eq!(object.annotation("note"), Some("kept"));
    assert_eq!(object.spec.url, "https://charts.example");
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, &world.namespace);
    assert!(secrets.get("push").await.is_ok());
    let refused = secrets.get("login").await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    assert!(
        repositories.list(&kube::api::ListParams::default()).await.is_err(),
        "it needs no list"
    );
    world
        .edit("stable", json!({ "spec": { "url": "https://other.example" } }))
        .await;
}
