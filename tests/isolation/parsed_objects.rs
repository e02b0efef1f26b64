//! Objects of 1.3 MB that take a hundred times as much memory once they are parsed, of every kind that is watched.

use serde_json::{Value, json};

use super::BESIDE;
use super::cluster::{Cluster, REPOSITORY};
use super::objects::{OBJECTS, parsed_large, pod_template, policy};
use crate::support::portolan::{Portolan, peak_memory};

const APPLICATION: &str = "core.oam.dev/v1beta1 Application";
const POLICY: &str = "core.oam.dev/v1alpha1 Policy";
const TRACKER: &str = "core.oam.dev/v1beta1 ResourceTracker";
/// Objects of kinds that are kept like another one.
const MORE_OBJECTS: usize = 2;
const ALIKE: [&str; 6] = [
    "core.oam.dev/v1alpha1 Workflow",
    "core.oam.dev/v1beta1 TraitDefinition",
    "core.oam.dev/v1beta1 PolicyDefinition",
    "core.oam.dev/v1beta1 WorkflowStepDefinition",
    "core.oam.dev/v1beta1 WorkloadDefinition",
    "core.oam.dev/v1beta1 ApplicationRevision",
];
/// Half of the container for which the budget of [`Cluster`] is meant.
const MAX_PEAK_MIB: u64 = 256;

fn definition(more: &Value) -> Value {
    let mut spec = json!({ "schematic": { "cue": { "template": "" } }, "extension": parsed_large() });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    json!({ "spec": spec })
}

/// Every kind that is watched, with its largest free-form field. The last two get a status: their writes keep the API
/// server busy.
fn kinds() -> Vec<(&'static str, Value)> {
    let components = json!([{ "name": "a", "type": "webservice", "properties": parsed_large() }]);
    vec![
        (
            "app.k8s.io/v1beta1 Application",
            json!({ "spec": { "componentKinds": vec![json!({ "group": "", "kind": "a" }); 50_000] } }),
        ),
        (POLICY, policy()),
        (
            "core.oam.dev/v1alpha1 Workflow",
            json!({ "steps": [{ "name": "s", "type": "suspend", "properties": parsed_large() }] }),
        ),
        (
            "core.oam.dev/v1beta1 ComponentDefinition",
            definition(&json!({ "workload": { "type": "autodetects.core.oam.dev" } })),
        ),
        ("core.oam.dev/v1beta1 TraitDefinition", definition(&json!({}))),
        ("core.oam.dev/v1beta1 PolicyDefinition", definition(&json!({}))),
        ("core.oam.dev/v1beta1 WorkflowStepDefinition", definition(&json!({}))),
        (
            "core.oam.dev/v1beta1 WorkloadDefinition",
            definition(&json!({ "definitionRef": { "name": "deployments.apps" } })),
        ),
        (
            "core.oam.dev/v1beta1 DefinitionRevision",
            json!({
                "metadata": { "labels": { "componentdefinition.oam.dev/name": "a" } },
                "spec": { "definitionType": "Component", "revision": 1, "revisionHash": "a",
                    "componentDefinition": definition(&json!({ "workload": {} })) },
            }),
        ),
        (
            "core.oam.dev/v1beta1 ApplicationRevision",
            json!({
                "metadata": { "labels": { "app.oam.dev/name": "a" } },
                "spec": { "application": { "spec": { "components": components } } },
            }),
        ),
        (
            TRACKER,
            json!({ "spec": { "type": "versioned", "applicationGeneration": 1, "managedResources": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "raw": parsed_large() }] } }),
        ),
        (APPLICATION, json!({ "spec": { "components": components } })),
        (REPOSITORY, pod_template()),
    ]
}

fn assert_peak(portolan: &Portolan, when: &str) {
    let peak = peak_memory(portolan);
    println!("peak after {when}: {peak} MiB");
    assert!(peak < MAX_PEAK_MIB, "{peak} MiB after {when}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_of_no_kind_take_the_memory_of_others() {
    let mut cluster = Cluster::new().await;
    assert_peak(&cluster.portolan, "the start");
    for (number, (kind, object)) in kinds().into_iter().enumerate() {
        if kind == APPLICATION {
            // A new process lists the Policies.
            cluster.restart().await;
            serve_honest(&cluster, "after-a-restart").await;
            assert_peak(&cluster.portolan, "a restart");
            cluster.withdraw(POLICY).await;
        }
        let count = if ALIKE.contains(&kind) { MORE_OBJECTS } else { OBJECTS };
        cluster.attack(kind, 0, count, |_| object.clone()).await;
        serve_honest(&cluster, &format!("honest-{number}")).await;
        assert_peak(&cluster.portolan, kind);
        if kind == APPLICATION {
            cluster
                .until_said(kind, "hostile-0", "MiB of memory when it is decoded")
                .await;
        }
        if kind != POLICY && kind != REPOSITORY {
            cluster.withdraw(kind).await;
        }
    }
}

async fn serve_honest(cluster: &Cluster, name: &str) {
    cluster.declare(name, "one").await;
    let took = cluster.until_served(name, "one", 2 * BESIDE).await.unwrap();
    println!("{name}: {took:?}");
}
