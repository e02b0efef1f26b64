//! KubeVela's definitions and types against a real API server.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Resource, ResourceExt};
use portolan::api::oam::{
    Application, ApplicationRevision, ComponentDefinition, DefinitionRevision, Policy, TraitDefinition, Workflow,
    WorkloadDefinition, crds,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::portolan::{command, run};

async fn install(server: &ControlPlane) -> String {
    let mut command = command(["crds", "core.oam.dev", "--apply", "--kubeconfig"]);
    command.arg(server.kubeconfig());
    String::from_utf8(run(command).await.stdout).unwrap()
}

/// Needs an API server of its own, because definitions are cluster-scoped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_installed_unless_another_manager_did() {
    let server = ControlPlane::start().await;
    let definitions = crds();
    let foreign = definitions
        .iter()
        .find(|crd| crd.spec.names.plural == "policies")
        .unwrap();
    server.install_crd(foreign).await;
    let expected: Vec<_> = definitions
        .iter()
        .map(|crd| match crd.name_any().as_str() {
            "policies.core.oam.dev" => "policies.core.oam.dev left unchanged: managed by tests\n".to_owned(),
            name => format!("{name} applied\n"),
        })
        .collect();
    for _ in 0..2 {
        assert_eq!(install(&server).await, expected.concat());
    }
}

/// Creates an object and returns it as it is stored, untyped and through its type.
async fn stored<K>(namespace: &str, object: &Value) -> (Value, Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let client = control_plane().await.client().await;
    let resource = ApiResource::erase::<K>(&());
    let mut object = object.clone();
    object["apiVersion"] = resource.api_version.clone().into();
    object["kind"] = resource.kind.clone().into();
    let untyped: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let created = untyped.create(&PostParams::default(), &object).await.unwrap();
    let typed: Api<K> = Api::namespaced(client, namespace);
    let typed = typed.get(&created.name_any()).await.unwrap();
    let (mut untyped, mut typed) = (json!(created), json!(typed));
    for object in [&mut untyped, &mut typed] {
        object.as_object_mut().unwrap().remove("metadata");
    }
    (untyped, typed)
}

async fn assert_stored<K>(namespace: &str, fields: &Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut object = fields.clone();
    object["metadata"] = json!({ "generateName": "test-" });
    let (untyped, typed) = stored::<K>(namespace, &object).await;
    let kind = K::kind(&());
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(untyped[name], *value, "{kind}");
        assert_eq!(typed[name], *value, "{kind}");
    }
}

#[tokio::test]
async fn all_fields_are_stored_and_read() {
    let server = control_plane().await;
    for crd in crds() {
        server.install_crd(&crd).await;
    }
    let namespace = server.namespace().await;
    let step = json!({
        "name": "group", "type": "step-group", "if": "always", "timeout": "5m", "meta": { "alias": "a" }, "mode": "DAG",
        "dependsOn": ["x"], "inputs": [{ "from": "a", "parameterKey": "b" }], "outputs": [{ "name": "a", "valueFrom": "b" }],
        "properties": { "free": null },
        "subSteps": [{ "name": "one", "type": "suspend", "properties": { "duration": "3s" }, "if": "false" }],
    });
    let spec = json!({
        "components": [{
            "name": "web", "type": "webservice@v1", "externalRevision": "r", "properties": { "image": "nginx", "n": null },
            "dependsOn": ["db"], "inputs": [{ "from": "a", "parameterKey": "b" }],
            "outputs": [{ "name": "a", "valueFrom": "b" }], "scopes": { "health": "h" },
            "traits": [{ "type": "scaler", "properties": { "replicas": 2 } }],
        }],
        "policies": [{ "name": "p", "type": "take-over", "properties": {} }],
        "workflow": { "ref": "r", "mode": { "steps": "DAG", "subSteps": "DAG" }, "steps": [step] },
    });
    assert_stored::<Application>(&namespace, &json!({ "spec": spec })).await;

    let definition = json!({
        "workload": { "definition": { "apiVersion": "apps/v1", "kind": "Deployment" } }, "childResourceKinds": [{}],
        "schematic": { "cue": { "template": "output: {}" }, "future": 1 }, "future": { "a": [1] },
        "status": { "details": "a", "healthPolicy": "b", "customStatus": "c" }, "extension": { "template": "x" },
    });
    assert_stored::<ComponentDefinition>(&namespace, &json!({ "spec": definition })).await;
    let scaler = json!({
        "appliesToWorkloads": ["*"], "conflictsWith": ["x"], "stage": "PreDispatch", "manageWorkload": true,
        "controlPlaneOnly": true, "podDisruptive": true, "workloadRefPath": "spec.ref", "definitionRef": { "name": "n" },
    });
    assert_stored::<TraitDefinition>(&namespace, &json!({ "spec": scaler })).await;
    let workload = json!({ "definitionRef": { "name": "deployments.apps", "version": "v1" }, "podSpecPath": "spec" });
    assert_stored::<WorkloadDefinition>(&namespace, &json!({ "spec": workload })).await;

    let policy = json!({ "type": "topology", "properties": { "clusters": ["local"] } });
    assert_stored::<Policy>(&namespace, &policy).await;
    assert_stored::<Workflow>(&namespace, &json!({ "mode": { "steps": "DAG" }, "steps": [step] })).await;

    let client = server.client().await;
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &namespace);
    let revision = json!({
        "metadata": { "name": "shop-v1" },
        "spec": {
            "application": { "metadata": { "name": "shop", "labels": { "a": "b" } }, "spec": spec },
            "componentDefinitions": { "web": { "metadata": { "name": "web" }, "spec": definition } },
            "referredObjects": [{ "kind": "Pod", "free": 1 }],
        },
    });
    let revision: ApplicationRevision = serde_json::from_value(revision).unwrap();
    let created = revisions.create(&PostParams::default(), &revision).await.unwrap();
    assert_eq!(created.spec, revision.spec);

    let revisions: Api<DefinitionRevision> = Api::namespaced(client, &namespace);
    let revision = json!({
        "metadata": { "name": "web-v1" },
        "spec": { "revision": 1, "revisionHash": "p1", "definitionType": "Component",
            "componentDefinition": { "metadata": { "name": "web" }, "spec": definition } },
    });
    let revision: DefinitionRevision = serde_json::from_value(revision).unwrap();
    let created = revisions.create(&PostParams::default(), &revision).await.unwrap();
    assert_eq!(created.spec, revision.spec);
}
