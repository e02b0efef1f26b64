//! Objects of every kind that is watched, which take a hundred times as much memory once they are parsed.

use serde_json::{Value, json};

use super::BESIDE;
use super::cluster::{Cluster, REPOSITORY};
use super::objects::{LARGEST, OBJECTS, POLICY, large, pod_template, policy};
use crate::applications;
use crate::oam_apps::{APPLICATION, DEFINITION, TRACKER};
use crate::support::portolan::{Portolan, peak_memory};

/// Elements of a list of 330 KB, which takes 29 MiB once it is parsed: more than the limit of an object.
const ELEMENTS: usize = 42_000;
/// Half of the container for which the budget of [`Cluster`] is meant.
const MAX_PEAK_MIB: u64 = 256;

fn definition(length: usize, more: &Value) -> Value {
    let mut spec = json!({ "schematic": { "cue": { "template": "" } }, "extension": large(length) });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    json!({ "spec": spec })
}

/// Every kind that is watched, with its largest free-form field.
fn kinds(length: usize) -> [(&'static str, Value); 13] {
    let components = json!([{ "name": "a", "type": "webservice", "properties": large(length) }]);
    [
        (
            applications::APPLICATION,
            json!({ "spec": { "componentKinds": vec![json!({ "group": "", "kind": "a" }); length / 3] } }),
        ),
        (POLICY, policy(length)),
        (
            DEFINITION,
            definition(length, &json!({ "workload": { "type": "autodetects.core.oam.dev" } })),
        ),
        (
            "core.oam.dev/v1beta1 DefinitionRevision",
            json!({
                "metadata": { "labels": { "componentdefinition.oam.dev/name": "a" } },
                "spec": { "definitionType": "Component", "revision": 1, "revisionHash": "a",
                    "componentDefinition": definition(length, &json!({ "workload": {} })) },
            }),
        ),
        (
            TRACKER,
            json!({ "spec": { "type": "versioned", "applicationGeneration": 1, "managedResources": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "raw": large(length) }] } }),
        ),
        (
            "core.oam.dev/v1alpha1 Workflow",
            json!({ "steps": [{ "name": "s", "type": "suspend", "properties": large(length) }] }),
        ),
        ("core.oam.dev/v1beta1 TraitDefinition", definition(length, &json!({}))),
        ("core.oam.dev/v1beta1 PolicyDefinition", definition(length, &json!({}))),
        (
            "core.oam.dev/v1beta1 WorkflowStepDefinition",
            definition(length, &json!({})),
        ),
        (
            "core.oam.dev/v1beta1 WorkloadDefinition",
            definition(length, &json!({ "definitionRef": { "name": "deployments.apps" } })),
        ),
        (
            "core.oam.dev/v1beta1 ApplicationRevision",
            json!({
                "metadata": { "labels": { "app.oam.dev/name": "a" } },
                "spec": { "application": { "spec": { "components": components } } },
            }),
        ),
        (APPLICATION, json!({ "spec": { "components": components } })),
        (REPOSITORY, pod_template(length)),
    ]
}

fn assert_peak(portolan: &Portolan, when: &str) {
    let peak = peak_memory(portolan);
    println!("peak after {when}: {peak} MiB");
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB after {when}");
}

async fn objects_of_all_kinds(length: usize) {
    let mut cluster = Cluster::new().await;
    assert_peak(&cluster.portolan, "the start");
    for (number, (kind, object)) in kinds(length).into_iter().enumerate() {
        cluster.attack(kind, 0, OBJECTS, |_| object.clone()).await;
        serve_honest(&cluster, &format!("honest-{number}")).await;
        assert_peak(&cluster.portolan, kind);
    }
    let words = "MiB of memory when it is decoded";
    cluster.until_said(APPLICATION, "hostile-0", words).await;
    // Another process lists all of them.
    cluster.restart().await;
    serve_honest(&cluster, "after-a-restart").await;
    assert_peak(&cluster.portolan, "a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_of_no_kind_take_the_memory_of_others() {
    objects_of_all_kinds(ELEMENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the API server takes gigabytes: `make chaos`"]
async fn objects_as_large_as_the_api_server_allows_take_no_memory_of_others() {
    objects_of_all_kinds(LARGEST).await;
}

async fn serve_honest(cluster: &Cluster, name: &str) {
    cluster.declare(name, "one").await;
    let took = cluster.until_served(name, "one", 2 * BESIDE).await.unwrap();
    println!("{name}: {took:?}");
}
