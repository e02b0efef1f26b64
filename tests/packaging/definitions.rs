//! The CRD of Applications in a real API server: accepted objects, stored fields and printed columns.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client};
use portolan::api::{Application, ApplicationStatus, crds};
use serde_json::{Value, json};

use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::{SOON, eventually};

/// Returns a namespace of the shared control plane, with the CRDs installed.
async fn namespace() -> (&'static ControlPlane, String, Client) {
    let control_plane = control_plane().await;
    for crd in crds() {
        control_plane.install_crd(&crd).await;
    }
    (
        control_plane,
        control_plane.namespace().await,
        control_plane.client().await,
    )
}

/// Applications as untyped objects.
fn raw(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Application>(&()))
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "metadata": { "name": name }, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// Returns a spec with all fields.
fn full_spec() -> Value {
    let object = |more: Value| {
        let mut reference = json!({
            "apiVersion": "v1", "kind": "Thing", "name": "thing", "namespace": "sea", "uid": "1-2", "resourceVersion": "7",
            "fieldPath": "spec.containers[2]",
        });
        reference
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        reference
    };
    json!({
        "componentKinds": [
            { "group": "v1", "kind": "Service" },
            { "group": "core", "kind": "ConfigMap" },
            { "group": "apps/v1", "kind": "Deployment" },
            { "group": "apps", "kind": "StatefulSet" },
            { "group": "", "kind": "Pod" },
        ],
        "descriptor": {
            "type": "an unusual type", "version": "1.2.3", "description": "Sells charts", "notes": "# Begin\n",
            "icons": [{ "src": "data:image/png;base64,AA==", "size": "25x25", "type": "image/png" }, { "src": "" }],
            "maintainers": [{ "name": "Crew", "url": "https://crew.example.com", "email": "crew@example.com" }, {}],
            "owners": [{ "name": "Captain", "url": "https://captain.example.com", "email": "captain@example.com" }],
            "keywords": ["sea", ""],
            "links": [{ "description": "Dashboard", "url": "https://dash.example.com" }, {}],
        },
        "selector": {
            "matchLabels": { "app.kubernetes.io/name": "shop", "empty": "" },
            "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["web", "db"] },
                { "key": "tier", "operator": "NotIn", "values": ["cache"] },
                { "key": "stage", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        },
        "addOwnerRef": true,
        "info": [
            { "name": "Address", "type": "Value", "value": "https://shop.example.com" },
            { "name": "Password", "type": "Reference", "valueFrom": {
                "type": "SecretKeyRef", "secretKeyRef": object(json!({ "key": "password" })) } },
            { "name": "Settings", "type": "Reference", "valueFrom": {
                "type": "ConfigMapKeyRef", "configMapKeyRef": object(json!({ "key": "settings" })) } },
            { "name": "Service", "type": "Reference", "valueFrom": {
                "type": "ServiceRef", "serviceRef": object(json!({ "port": 8080, "path": "/", "protocol": "http" })) } },
            { "name": "Ingress", "type": "Reference", "valueFrom": {
                "type": "IngressRef", "ingressRef": object(json!({ "host": "shop", "path": "/", "protocol": "https" })) } },
        ],
        "assemblyPhase": "Pending",
    })
}

#[tokio::test]
async fn all_fields_of_an_application_are_stored_unchanged() {
    let (_, namespace, client) = namespace().await;
    let applications = raw(&client, &namespace);
    let made = applications
        .create(&PostParams::default(), &object("full", &full_spec()))
        .await
        .unwrap();
    assert_eq!(made.data["spec"], full_spec());

    // Also through our own type.
    let typed: Api<Application> = Api::namespaced(client, &namespace);
    let mut read = typed.get("full").await.unwrap();
    assert_eq!(serde_json::to_value(&read.spec).unwrap(), full_spec());
    read.metadata = kube::api::ObjectMeta {
        name: Some("copy".to_owned()),
        ..Default::default()
    };
    typed.create(&PostParams::default(), &read).await.unwrap();
    assert_eq!(applications.get("copy").await.unwrap().data["spec"], full_spec());
}

#[tokio::test]
async fn the_status_is_a_subresource() {
    let (_, namespace, client) = namespace().await;
    let applications = raw(&client, &namespace);
    let status = json!({
        "observedGeneration": 1,
        "components": [
            { "link": "/api/v1/namespaces/sea/services/web", "name": "web", "kind": "Service", "status": "Ready" },
            { "name": "web", "kind": "Deployment", "group": "apps", "status": "InProgress" },
        ],
        "conditions": [
            { "type": "Ready", "status": "False", "reason": "ComponentsNotReady", "message": "1 components not ready",
              "lastUpdateTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            { "type": "Error", "status": "False" },
            // Kubernetes does not allow duplicate conditions; this CRD does.
            { "type": "Error", "status": "Unknown" },
        ],
        "componentsReady": "1/2",
    });
    let mut new = object("shop", &json!({ "addOwnerRef": true }));
    new.data["status"] = json!({ "componentsReady": "9/9" });
    let made = applications.create(&PostParams::default(), &new).await.unwrap();
    assert_eq!(
        made.data["status"],
        Value::Null,
        "the status of a new object is ignored"
    );

    let patch = Patch::Merge(json!({ "spec": { "addOwnerRef": false }, "status": status }));
    let strictly = PatchParams {
        field_validation: Some(kube::api::ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let patched = applications.patch_status("shop", &strictly, &patch).await.unwrap();
    assert_eq!(patched.data["status"], status);
    assert_eq!(
        patched.data["spec"]["addOwnerRef"], true,
        "a status patch changes only the status"
    );
    assert_eq!(patched.metadata.generation, Some(1));

    let typed: Api<Application> = Api::namespaced(client, &namespace);
    let mut read = typed.get("shop").await.unwrap();
    assert_eq!(serde_json::to_value(&read.status).unwrap(), status);
    read.status
        .get_or_insert_with(ApplicationStatus::default)
        .components_ready = Some("2/2".to_owned());
    typed
        .replace_status("shop", &PostParams::default(), &read)
        .await
        .unwrap();
    let mut expected = status;
    expected["componentsReady"] = json!("2/2");
    assert_eq!(applications.get("shop").await.unwrap().data["status"], expected);
}

#[tokio::test]
async fn objects_accepted_by_the_crd_of_kubernetes_sigs_are_accepted() {
    let (_, namespace, client) = namespace().await;
    let applications = raw(&client, &namespace);
    let odd = [
        json!({}),
        json!({ "selector": {}, "componentKinds": [] }),
        json!({ "selector": { "matchLabels": {}, "matchExpressions": [] } }),
        json!({ "selector": { "matchExpressions": [{ "key": "", "operator": "Resembles", "values": [] }] } }),
        json!({ "selector": { "matchLabels": { "not a label": "not a value" } } }),
        json!({ "componentKinds": [{ "group": "", "kind": "" }, { "group": "a/b/c", "kind": "Deployment" }] }),
        json!({ "componentKinds": [{ "group": "apps", "kind": "Deployment" }, { "group": "apps", "kind": "Deployment" }] }),
        json!({ "assemblyPhase": "Adrift", "descriptor": { "icons": [{ "src": "", "size": "vast" }], "keywords": ["a", "a"] } }),
        json!({ "info": [{ "name": "twice" }, { "name": "twice", "type": "Rumour", "valueFrom": { "type": "OracleRef" } }] }),
        json!({ "info": [{ "valueFrom": { "serviceRef": { "port": -1 } } }, {}] }),
        json!({ "selector": null, "descriptor": null, "info": null, "addOwnerRef": null, "assemblyPhase": null }),
    ];
    for (number, spec) in odd.iter().enumerate() {
        let name = format!("odd-{number}");
        let made = applications.create(&PostParams::default(), &object(&name, spec)).await;
        made.unwrap_or_else(|error| panic!("{spec}: {error}"));
        let typed: Api<Application> = Api::namespaced(client.clone(), &namespace);
        typed.get(&name).await.unwrap();
    }
    let mut without_spec = object("without-spec", &Value::Null);
    without_spec.data.as_object_mut().unwrap().remove("spec");
    applications
        .create(&PostParams::default(), &without_spec)
        .await
        .unwrap();
    for wrong in [
        json!({ "componentKinds": [{ "kind": "Service" }] }),
        json!({ "descriptor": { "icons": [{ "size": "1x1" }] } }),
        json!({ "selector": { "matchExpressions": [{ "key": "app" }] } }),
        json!({ "addOwnerRef": "true" }),
    ] {
        let refused = applications
            .create(&PostParams::default(), &object("wrong", &wrong))
            .await;
        let is_invalid = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 422);
        assert!(refused.as_ref().is_err_and(is_invalid), "{wrong}: {refused:?}");
    }
}

#[tokio::test]
async fn kubectl_prints_the_columns_of_kubernetes_sigs() {
    let (control_plane, namespace, client) = namespace().await;
    let spec = json!({ "descriptor": { "type": "web", "version": "1.2.3" }, "addOwnerRef": true });
    let applications = raw(&client, &namespace);
    applications
        .create(&PostParams::default(), &object("shop", &spec))
        .await
        .unwrap();
    let status = Patch::Merge(json!({ "status": { "componentsReady": "2/3" } }));
    applications
        .patch_status("shop", &PatchParams::default(), &status)
        .await
        .unwrap();
    // By its full name, because other resources may have the same short name.
    let get = async |what: &str| control_plane.kubectl(&["get", what, "--namespace", &namespace]).await;
    let shown = get("applications.app.k8s.io").await;
    let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words[0],
        ["NAME", "TYPE", "VERSION", "OWNER", "READY", "AGE"],
        "{shown}"
    );
    assert_eq!(words[1][..5], ["shop", "web", "1.2.3", "true", "2/3"], "{shown}");
    // It is in the category `all`, which kubectl sees after its next discovery.
    eventually(SOON, "the Application in `get all`", async || {
        let all = get("all").await;
        if all.contains("application.app.k8s.io/shop") {
            Ok(())
        } else {
            Err(all)
        }
    })
    .await;
}
