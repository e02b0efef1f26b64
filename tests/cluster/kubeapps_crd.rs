//! A cluster with Kubeapps' CRD, and its upgrade to ours while Portolan runs.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use portolan::api::{self, AppRepository};
use serde_json::{Value, json};

use super::rows::Postgres;
use super::{World, condition, finalizers, index};
use crate::support::control_plane::ControlPlane;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};

/// The effective part of Kubeapps' CRD: no subresources, no defaults, and unknown fields are pruned.
fn kubeapps_crd() -> CustomResourceDefinition {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let secret = json!({ "type": "object", "properties": { "secretKeyRef": {
        "type": "object", "required": ["key", "name"], "properties": { "key": text, "name": text } } } });
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let spec = json!({ "type": "object", "required": ["type", "url"], "properties": {
        "type": { "type": "string", "enum": ["helm", "oci"] },
        "url": text,
        "description": text,
        "auth": { "type": "object", "properties": { "header": secret, "customCA": secret } },
        "dockerRegistrySecrets": texts,
        "tlsInsecureSkipVerify": { "type": "boolean" },
        "passCredentials": { "type": "boolean" },
        "interval": text,
        "filterRule": { "type": "object", "properties": {
            "jq": text, "variables": { "type": "object", "additionalProperties": text } } },
        "ociRepositories": texts,
        "resyncRequests": { "type": "integer" },
        "syncJobPodTemplate": { "type": "object", "properties": { "metadata": anything, "spec": anything } },
    } });
    let status = json!({ "type": "object", "properties": { "status": text } });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "apprepositories.kubeapps.com" },
        "spec": {
            "group": "kubeapps.com",
            "scope": "Namespaced",
            "names": { "kind": "AppRepository", "plural": "apprepositories", "shortNames": ["apprepos"] },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    { "name": "Type", "type": "string", "jsonPath": ".spec.type" },
                    { "name": "URL", "type": "string", "jsonPath": ".spec.url" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object", "required": ["spec"], "properties": { "spec": spec, "status": status } } },
            }],
        },
    });
    serde_json::from_value(crd).unwrap()
}

/// Objects written by Kubeapps' clients, its controller, and users by mistake. Kubeapps' CRD accepts all.
fn odd_objects() -> Vec<(&'static str, Value)> {
    let helm = |more: Value| {
        let mut spec = json!({ "type": "helm", "url": "http://127.0.0.1:9/none" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "spec": spec })
    };
    // Written by Kubeapps' controller into objects with a proxy.
    let password =
        json!({ "name": "DB_PASSWORD", "valueFrom": { "secretKeyRef": { "name": "db", "key": "password" } } });
    let polluted = json!({
        "metadata": { "creationTimestamp": null, "labels": { "apprepositories.kubeapps.com/repo-name": "polluted" } },
        "spec": {
            "containers": [{
                "name": "sync", "image": "kubeapps/asset-syncer:2.12.1", "command": ["/chart-repo"], "args": ["sync"],
                "env": [{ "name": "https_proxy", "value": "" }, password, password, password], "resources": {},
            }],
            "restartPolicy": "OnFailure",
        },
    });
    let mut zero = helm(json!({
        "auth": {}, "description": "", "dockerRegistrySecrets": [], "filterRule": { "jq": "" }, "interval": "",
        "ociRepositories": [], "passCredentials": false, "resyncRequests": 0, "tlsInsecureSkipVerify": false,
        "syncJobPodTemplate": { "metadata": { "creationTimestamp": null }, "spec": { "containers": null } },
    }));
    zero["status"] = json!({ "status": "" });
    zero["metadata"] = json!({ "creationTimestamp": null });
    vec![
        ("zero-values", zero),
        ("polluted", helm(json!({ "syncJobPodTemplate": polluted }))),
        ("empty-template", helm(json!({ "syncJobPodTemplate": {} }))),
        ("no-url", json!({ "spec": { "type": "helm", "url": "" } })),
        (
            "spaces-for-url",
            json!({ "spec": { "type": "helm", "url": "  not a url\n" } }),
        ),
        ("no-interval", helm(json!({ "interval": "every now and then" }))),
        ("negative", helm(json!({ "resyncRequests": -1 }))),
        ("large", helm(json!({ "resyncRequests": 9_007_199_254_740_991_i64 }))),
        (
            "oci-alone",
            json!({ "spec": { "type": "oci", "url": "oci://127.0.0.1:9" } }),
        ),
        (
            "oci-names",
            json!({ "spec": { "type": "oci", "url": "ftp://x", "ociRepositories": ["", "a/b", "a/b"] } }),
        ),
        (
            "bad-filter",
            helm(json!({ "filterRule": { "jq": "((", "variables": { "no-dollar": "", "": "x" } } })),
        ),
        (
            "empty-auth",
            helm(json!({ "auth": { "header": { "secretKeyRef": { "name": "", "key": "" } }, "customCA": {} } })),
        ),
        (
            "insecure",
            helm(json!({ "tlsInsecureSkipVerify": true, "passCredentials": true, "dockerRegistrySecrets": [""] })),
        ),
    ]
}

/// AppRepositories as untyped objects.
fn raw(world: &World) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<AppRepository>(&());
    Api::namespaced_with(world.client.clone(), &world.namespace, &resource)
}

async fn fetched(world: &World, name: &str) -> AppRepository {
    world.repositories.get(name).await.unwrap()
}

/// Checks everything that works without a status.
async fn works_without_a_status(world: &World, postgres: &Postgres) {
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
    world.event("stable", "SyncSucceeded").await;
    let object = fetched(world, "stable").await;
    assert_eq!(finalizers(&object), [api::FINALIZER]);

    // Requests syncs in every way; the user's edit of the spec raises the generation by one.
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync("stable", "now").await;
    postgres.rows.until_charts(&["stable/web 2.0.0"]).await;
    world.serve("stable", index(&[("web", &["3.0.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 1 } })).await;
    postgres.rows.until_charts(&["stable/web 3.0.0"]).await;

    // An event reports the error.
    world.serve("stable", "<<<<<<< HEAD\nentries: {}\n");
    world.resync("stable", "later").await;
    world.event("stable", "SyncStalled").await;
    postgres.rows.until_charts(&["stable/web 3.0.0"]).await;

    // Suspended by annotation, since the API server prunes the field.
    let object = world.edit("stable", json!({ "spec": { "suspend": true } })).await;
    assert!(!object.spec.suspend);
    world.annotate("stable", api::SUSPEND, "true").await;
    let before = world.server.requests("/stable/index.yaml").len();
    world.serve("stable", index(&[("web", &["4.0.0"])]));
    world.resync("stable", "while suspended").await;
    // A repository declared later is synced too.
    let url = world.serve("brief", index(&[("job", &["1.0.0"])]));
    world.declare("brief", &url).await;
    postgres
        .rows
        .until_charts(&["brief/job 1.0.0", "stable/web 3.0.0"])
        .await;
    assert_eq!(world.server.requests("/stable/index.yaml").len(), before);
    world
        .edit(
            "stable",
            json!({ "metadata": { "annotations": { api::SUSPEND: null } } }),
        )
        .await;
    postgres
        .rows
        .until_charts(&["brief/job 1.0.0", "stable/web 4.0.0"])
        .await;

    world.delete("brief").await;
    world.gone("brief").await;
    postgres.rows.until_charts(&["stable/web 4.0.0"]).await;

    let object = raw(world).get("stable").await.unwrap();
    assert!(object.data["status"].is_null(), "a status was written: {}", object.data);
    assert_eq!(
        object.metadata.generation,
        Some(2),
        "only the user's edit raises the generation"
    );
}

async fn make(world: &World, objects: &[(&str, Value)]) {
    for (name, object) in objects {
        let mut object = object.clone();
        object["apiVersion"] = "kubeapps.com/v1alpha1".into();
        object["kind"] = "AppRepository".into();
        object["metadata"]["name"] = (*name).into();
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = raw(world).create(&PostParams::default(), &object).await;
        made.unwrap_or_else(|error| panic!("Kubeapps' CRD rejects {name}: {error}"));
    }
    for (name, _) in objects {
        eventually(super::SOON, &format!("the finalizer of {name}"), async || {
            let object = fetched(world, name).await;
            let found = finalizers(&object) == [api::FINALIZER];
            found.then_some(())
        })
        .await;
    }
}

/// Checks that each object can be changed and deleted.
async fn can_be_edited_and_deleted(world: &World, objects: &[(&str, Value)]) {
    for (name, _) in objects {
        for patch in [
            json!({ "metadata": { "annotations": { "example.com/edited": "yes" } } }),
            json!({ "spec": { "description": "edited" } }),
        ] {
            let patched = raw(world)
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            patched.unwrap_or_else(|error| panic!("failed to edit {name}: {error}"));
        }
    }
    for (name, _) in objects {
        world
            .until(name, &format!("a status of {name}"), |object| {
                super::is_current(object) && condition(object, "Ready").is_some()
            })
            .await;
    }
    for (name, _) in objects {
        world.delete(name).await;
    }
    for (name, _) in objects {
        world.gone(name).await;
    }
}

fn warnings(portolan: &Portolan) -> Vec<String> {
    let is_advice = |line: &&String| line.contains("WARN") && line.contains("portolan crds --apply");
    portolan.lines().iter().filter(is_advice).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeapps_crd_works_until_it_is_upgraded_while_running() {
    let control_plane = ControlPlane::start().await;
    control_plane.install_crd(&kubeapps_crd()).await;
    let (world, postgres) = (World::on(&control_plane).await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &["--min-interval=1s"]).await;

    works_without_a_status(&world, &postgres).await;
    let odd = odd_objects();
    make(&world, &odd).await;
    let reported = warnings(&portolan);
    assert_eq!(reported.len(), 1, "{reported:#?}");

    // Synced every second, so that the status is written as soon as it exists.
    world
        .edit("stable", json!({ "spec": { "interval": "* * * * * *" } }))
        .await;
    let mut apply = command(["crds", "--apply", "--kubeconfig"]);
    apply.arg(&world.kubeconfig);
    let output = run(apply).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object = world
        .until_within(
            Duration::from_secs(90),
            "stable",
            "a status, without a restart",
            |object| super::is_current(object) && condition(object, "Ready") == Some(("True", "Synced")),
        )
        .await;
    assert_eq!(
        object.metadata.generation,
        Some(3),
        "status writes do not raise the generation"
    );
    postgres.rows.until_charts(&["stable/web 4.0.0"]).await;

    can_be_edited_and_deleted(&world, &odd).await;
    world.edit("stable", json!({ "spec": { "suspend": true } })).await;
    world
        .until("stable", "the field to be stored and applied", |object| {
            object.spec.suspend && object.status.as_ref().and_then(|status| status.suspended) == Some(true)
        })
        .await;
    world.delete("stable").await;
    world.gone("stable").await;
    postgres.rows.assert_empty().await;
    assert_eq!(warnings(&portolan).len(), 1);
}
