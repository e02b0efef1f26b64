//! Objects created from manifests, changed by others, and patched.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use portolan::runtime::three_way::{self, DROPPED_ZEROS};
use serde_json::{Value, json};

use crate::support::control_plane::control_plane;

/// A namespace for the objects of a test.
struct Site {
    client: Client,
    namespace: String,
}

impl Site {
    async fn new() -> Self {
        let control_plane = control_plane().await;
        Self {
            client: control_plane.client().await,
            namespace: control_plane.namespace().await,
        }
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::from_gvk(&kind))
    }

    async fn create(&self, manifest: &Value) -> Value {
        let object: DynamicObject = serde_json::from_value(manifest.clone()).unwrap();
        live(
            self.api(manifest)
                .create(&PostParams::default(), &object)
                .await
                .unwrap(),
            manifest,
        )
    }

    /// Merges a change of another writer.
    async fn change(&self, object: &Value, change: Value) -> Value {
        self.try_change(object, change).await.unwrap()
    }

    async fn try_change(&self, object: &Value, change: Value) -> kube::Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patched = self
            .api(object)
            .patch(name, &PatchParams::default(), &Patch::Merge(change))
            .await?;
        Ok(live(patched, object))
    }

    /// Applies a manifest as three-way merge does, and checks that nothing is left to do.
    ///
    /// After a conflict it is tried again with the object as it is then: controllers of the cluster write to it, too.
    async fn apply(&self, applied: &[&Value], manifest: &Value, object: &Value) -> Value {
        let mut object = object.clone();
        let patched = loop {
            let patch = three_way::patch(applied, manifest, &object)
                .unwrap()
                .expect("there is a difference");
            match self.try_change(&object, patch.into_body(&object)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => object = self.read(&object).await,
                patched => break patched.unwrap(),
            }
        };
        assert_eq!(
            three_way::patch(&[manifest], manifest, &patched),
            Ok(None),
            "{patched:#}"
        );
        patched
    }

    async fn read(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        live(self.api(object).get(name).await.unwrap(), object)
    }
}

/// The object as JSON, with the fields that a list of objects lacks.
fn live(object: DynamicObject, manifest: &Value) -> Value {
    assert!(object.resource_version().is_some());
    let mut object = serde_json::to_value(object).unwrap();
    for field in ["apiVersion", "kind"] {
        object[field] = manifest[field].clone();
    }
    object
}

/// A Deployment with all that the API server stores in another form.
fn unusual_deployment() -> Value {
    let container = json!({
        "name": "web", "image": "x", "args": [], "command": [], "workingDir": "", "stdin": false, "stdinOnce": false,
        "tty": false, "resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"cpu": "1.50"}},
        "env": [
            {"name": "A", "value": ""},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}},
        ],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "name": "quic"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": false, "subPath": ""}],
        "livenessProbe": {"initialDelaySeconds": 0, "httpGet": {"port": 80}},
    });
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {}, "matchExpressions": []}},
    ]}});
    let downward = json!({"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {}, "creationTimestamp": null},
        "spec": {
            "replicas": 0, "paused": false, "minReadySeconds": 0, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {}, "creationTimestamp": null},
                "spec": {
                    "hostNetwork": false, "hostPID": false, "hostIPC": false, "hostname": "", "subdomain": "",
                    "nodeName": "", "nodeSelector": {}, "priorityClassName": "", "serviceAccountName": "",
                    "tolerations": [], "affinity": affinity, "containers": [container],
                    "volumes": [
                        {"name": "data", "emptyDir": {"medium": "", "sizeLimit": "1024Ki"}},
                        {"name": "pod", "downwardAPI": downward},
                    ],
                },
            },
        },
        "status": {},
    })
}

fn objects_in_unusual_form() -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {}},
        "spec": {
            "selector": {"app": "web"}, "publishNotReadyAddresses": false, "externalIPs": [],
            "ports": [{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}],
        },
    });
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0.5Gi"}},
    }});
    let mut template = unusual_deployment()["spec"]["template"].clone();
    template["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .retain(|volume| volume["name"] != "data");
    let stateful_set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": 0, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}}, "template": template,
            "volumeClaimTemplates": [claim],
        },
    });
    let cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "AverageValue", "averageValue": 0.5},
    }});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3,
            "metrics": [cpu],
        },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "text"},
    });
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
        "spec": {"podSelector": {"matchLabels": {}}, "ingress": [{"from": [], "ports": [{"port": 80}]}]},
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    });
    vec![
        unusual_deployment(),
        service,
        stateful_set,
        autoscaler,
        secret,
        policy,
        binding,
    ]
}

#[tokio::test]
async fn an_object_as_created_needs_no_patch() {
    let site = Site::new().await;
    for manifest in objects_in_unusual_form() {
        let object = site.create(&manifest).await;
        assert_eq!(
            three_way::patch(&[&manifest], &manifest, &object),
            Ok(None),
            "{object:#}"
        );
    }
}

#[test]
fn all_zeros_that_are_dropped_are_tested() {
    let text: String = objects_in_unusual_form().iter().map(Value::to_string).collect();
    for name in DROPPED_ZEROS {
        let is_tested = ["\"\"", "{}", "0", "false"]
            .iter()
            .any(|zero| text.contains(&format!("\"{name}\":{zero}")));
        assert!(is_tested, "{name}");
    }
}

#[tokio::test]
async fn changes_of_others_are_undone_and_their_additions_stay() {
    let site = Site::new().await;
    let manifest = unusual_deployment();
    let object = site.create(&manifest).await;
    let mut spec = object["spec"]["template"]["spec"].clone();
    spec["containers"][0]["image"] = "other".into();
    let env = spec["containers"][0]["env"].as_array_mut().unwrap();
    env.insert(0, json!({"name": "INJECTED", "value": "x"}));
    let containers = spec["containers"].as_array_mut().unwrap();
    containers.insert(0, json!({"name": "sidecar", "image": "y"}));
    let change = json!({"spec": {"replicas": 3, "template": {"spec": spec}}});
    let object = site.change(&object, change).await;
    let patched = site.apply(&[&manifest], &manifest, &object).await;
    assert_eq!(patched["spec"]["replicas"], 0);
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        (&containers[0]["name"], &containers[1]["name"]),
        (&json!("sidecar"), &json!("web"))
    );
    assert_eq!(containers[1]["image"], "x");
    assert_eq!(containers[1]["env"][0]["name"], "INJECTED");
}

#[tokio::test]
async fn what_the_manifest_no_longer_has_is_removed() {
    let site = Site::new().await;
    let before = unusual_deployment();
    let object = site.create(&before).await;
    let mut after = before.clone();
    after["spec"]["strategy"] = json!({"type": "Recreate"});
    let spec = &mut after["spec"]["template"]["spec"];
    spec["volumes"] = json!([{"name": "data", "configMap": {"name": "c"}}]);
    let container = spec["containers"][0].as_object_mut().unwrap();
    container.remove("livenessProbe");
    container.insert("env".to_owned(), json!([]));
    container.insert(
        "ports".to_owned(),
        json!([{"containerPort": 80, "protocol": "UDP", "name": "quic"}]),
    );
    let patched = site.apply(&[&before], &after, &object).await;
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
    let spec = &patched["spec"]["template"]["spec"];
    assert_eq!(
        spec["volumes"],
        json!([{"name": "data", "configMap": {"name": "c", "defaultMode": 420}}])
    );
    let container = &spec["containers"][0];
    assert_eq!((container.get("livenessProbe"), container.get("env")), (None, None));
    assert_eq!(
        container["ports"],
        json!([{"containerPort": 80, "protocol": "UDP", "name": "quic"}])
    );
}

#[tokio::test]
async fn ports_of_equal_number_are_kept_apart() {
    let site = Site::new().await;
    let service = |udp: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns"},
            "spec": {"ports": [{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": udp}]},
        })
    };
    let object = site.create(&service("udp")).await;
    let patched = site.apply(&[&service("udp")], &service("dns"), &object).await;
    let names: Vec<_> = patched["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| &port["name"])
        .collect();
    assert_eq!(names, ["tcp", "dns"]);
}

#[tokio::test]
async fn a_concurrent_change_of_a_list_is_a_conflict() {
    let site = Site::new().await;
    let manifest = unusual_deployment();
    let stale = site.create(&manifest).await;
    site.change(&stale, json!({"metadata": {"labels": {"theirs": "1"}}}))
        .await;
    let mut changed = manifest.clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "new".into();
    let patch = three_way::patch(&[&manifest], &changed, &stale)
        .unwrap()
        .unwrap()
        .into_body(&stale);
    let result = site
        .api(&manifest)
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await;
    assert!(matches!(result, Err(kube::Error::Api(status)) if status.code == 409));
    let mut scaled = manifest.clone();
    scaled["spec"]["replicas"] = 1.into();
    let patch = three_way::patch(&[&manifest], &scaled, &stale)
        .unwrap()
        .unwrap()
        .into_body(&stale);
    assert_eq!(
        site.change(&stale, patch).await["spec"]["replicas"],
        1,
        "a field of its own is not"
    );
}
