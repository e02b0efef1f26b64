//! Definitions of the starter set without a recorded rendering of KubeVela's own code.

use serde_json::{Value, json};

use super::{Case, starter_template};

const DEPLOYMENT: &str = r#"output: {apiVersion: "apps/v1", kind: "Deployment"}"#;

/// Returns what the controller reads of the properties of a built-in policy.
fn properties(policy: &str) -> Value {
    let selector = json!({
        "componentNames": ["web"], "componentTypes": ["webservice"], "oamTypes": ["TRAIT"], "traitTypes": ["gateway"],
        "resourceTypes": ["Ingress"], "resourceNames": ["web"],
    });
    match policy {
        "apply-once" => json!({ "enable": true, "rules": [
            { "selector": selector, "strategy": { "affect": "onUpdate", "path": ["spec.replicas"] } },
        ] }),
        "garbage-collect" => json!({
            "applicationRevisionLimit": 3, "keepLegacyResource": true, "continueOnFailure": true, "order": "dependency",
            "rules": [{ "selector": selector, "strategy": "onAppDelete", "propagation": "orphan" }],
        }),
        "override" => json!({ "selector": ["web"], "components": [{
            "name": "web", "type": "webservice", "properties": { "image": "nginx" },
            "traits": [{ "type": "scaler", "properties": { "replicas": 3 }, "disable": true }],
        }] }),
        "replication" => json!({ "keys": ["a", "b"], "selector": ["web"] }),
        "resource-update" => json!({ "rules": [
            { "selector": selector, "strategy": { "op": "replace", "recreateFields": ["spec.selector"] } },
        ] }),
        "topology" => json!({
            "clusters": ["local"], "clusterLabelSelector": { "a": "b" }, "clusterSelector": { "c": "d" },
            "allowEmpty": true, "namespace": "prod",
        }),
        _ => json!({ "rules": [{ "selector": selector }] }),
    }
}

#[tokio::test]
async fn policies_declare_the_properties_that_the_controller_reads() {
    for policy in [
        "apply-once",
        "garbage-collect",
        "override",
        "read-only",
        "replication",
        "resource-update",
        "shared-resource",
        "take-over",
        "topology",
    ] {
        let template = starter_template(&format!("policies/{policy}")) + "\noutput: parameter\n";
        let properties = properties(policy);
        let rendered = Case::new(&template, properties.clone()).strict().render().await;
        assert_eq!(rendered, Ok(json!({ "output": properties })), "{policy}");
    }
}

#[tokio::test]
async fn rules_of_policies_have_the_defaults_of_kubevela() {
    for (policy, rule, expected) in [
        (
            "garbage-collect",
            json!({ "selector": {} }),
            json!({ "strategy": "onAppUpdate" }),
        ),
        (
            "resource-update",
            json!({ "selector": {}, "strategy": {} }),
            json!({ "strategy": { "op": "patch" } }),
        ),
    ] {
        let template = starter_template(&format!("policies/{policy}")) + "\noutput: parameter.rules[0]\n";
        let rendered = Case::new(&template, json!({ "rules": [rule] })).render().await.unwrap();
        assert_eq!(rendered["output"]["strategy"], expected["strategy"], "{policy}");
    }
}

#[tokio::test]
async fn raw_is_the_object_itself() {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "b": "c" } });
    let rendered = Case::new(&starter_template("components/raw"), object.clone())
        .render()
        .await;
    assert_eq!(rendered, Ok(json!({ "output": object })));
}

#[tokio::test]
async fn pure_ingress_routes_paths_to_the_service_of_the_component() {
    let properties = json!({ "domain": "shop.example.com", "http": { "/": 8080 } });
    let ingress = async |minor: u32| {
        let case = Case::new(DEPLOYMENT, json!({})).with(&starter_template("traits/pure-ingress"), properties.clone());
        let rendered = Case { minor, ..case }.render().await.unwrap();
        rendered["outputs"].clone()
    };
    let expected = |version: &str, path: Value| {
        json!({ "ingress": {
            "apiVersion": version, "kind": "Ingress", "metadata": { "name": "web" },
            "spec": { "rules": [{ "host": "shop.example.com", "http": { "paths": [path] } }] },
        } })
    };
    let path = json!({ "path": "/", "pathType": "ImplementationSpecific",
        "backend": { "service": { "name": "web", "port": { "number": 8080 } } } });
    assert_eq!(ingress(19).await, expected("networking.k8s.io/v1", path));
    let path = json!({ "path": "/", "backend": { "serviceName": "web", "servicePort": 8080 } });
    assert_eq!(ingress(18).await, expected("networking.k8s.io/v1beta1", path));
}

#[tokio::test]
async fn node_affinity_selects_nodes_and_tolerates_taints() {
    let pods = async |properties: Value| {
        let case = Case::new(DEPLOYMENT, json!({})).with(&starter_template("traits/node-affinity"), properties);
        let rendered = case.render().await.unwrap();
        rendered["output"]["spec"]["template"]["spec"].clone()
    };
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a", "b"] }] }],
    } } });
    let tolerations = json!([{ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" }]);
    assert_eq!(
        pods(json!({ "affinity": { "zone": ["a", "b"] }, "tolerations": { "gpu": "yes" } })).await,
        json!({ "affinity": affinity, "tolerations": tolerations })
    );
    assert_eq!(pods(json!({})).await, json!({}));
}

#[tokio::test]
async fn cron_task_runs_a_job_on_a_schedule() {
    let properties = json!({
        "schedule": "5 4 * * *", "image": "busybox", "cmd": ["true"], "count": 2, "startingDeadlineSeconds": 9,
    });
    let cron_job = async |minor: u32| {
        let case = Case::new(&starter_template("components/cron-task"), properties.clone());
        let rendered = Case { minor, ..case }.render().await.unwrap();
        rendered["output"].clone()
    };
    let current = cron_job(25).await;
    assert_eq!(
        (&current["apiVersion"], &current["kind"]),
        (&json!("batch/v1"), &json!("CronJob"))
    );
    let (spec, job) = (&current["spec"], &current["spec"]["jobTemplate"]["spec"]);
    assert_eq!(spec["schedule"], "5 4 * * *");
    assert_eq!(
        (&spec["startingDeadlineSeconds"], &spec["concurrencyPolicy"]),
        (&json!(9), &json!("Allow"))
    );
    assert_eq!((&job["parallelism"], &job["completions"]), (&json!(2), &json!(2)));
    let pods = &job["template"];
    assert_eq!(pods["metadata"]["labels"]["app.oam.dev/component"], "web");
    assert_eq!(pods["spec"]["restartPolicy"], "Never");
    let container = json!({ "name": "web", "image": "busybox", "command": ["true"] });
    assert_eq!(pods["spec"]["containers"], json!([container]));
    assert_eq!(cron_job(24).await["apiVersion"], "batch/v1beta1");
}

#[tokio::test]
async fn a_gateway_routes_paths_to_a_service_of_its_own() {
    let outputs = async |properties: Value| {
        let case = Case::new(DEPLOYMENT, json!({})).with(&starter_template("traits/gateway"), properties);
        let rendered = case.render().await.unwrap();
        rendered["outputs"].clone()
    };
    let path = |path: &str, service: &str| {
        json!({ "path": path, "pathType": "ImplementationSpecific",
            "backend": { "service": { "name": service, "port": { "number": 8080 } } } })
    };
    let own = outputs(json!({
        "domain": "shop.example.com", "http": { "/": 8080, "/api": 8080 }, "classInSpec": true,
        "gatewayHost": "gate.example.com", "secretName": "shop-tls",
    }))
    .await;
    let service = json!({
        "selector": { "app.oam.dev/component": "web" },
        "ports": [{ "name": "port-8080", "port": 8080, "targetPort": 8080 }],
    });
    assert_eq!(own["service"]["spec"], service);
    let ingress = json!({
        "ingressClassName": "nginx",
        "tls": [{ "hosts": ["shop.example.com"], "secretName": "shop-tls" }],
        "rules": [{ "host": "shop.example.com", "http": { "paths": [path("/", "web"), path("/api", "web")] } }],
    });
    assert_eq!(own["ingress"]["spec"], ingress);
    assert_eq!(
        own["ingress"]["metadata"]["annotations"],
        json!({ "ingress.controller/host": "gate.example.com" })
    );

    let second = outputs(json!({ "http": { "/": 8080 }, "name": "second", "existingServiceName": "front" })).await;
    assert!(second["service-second"].is_null(), "{second:#}");
    let ingress = &second["ingress-second"];
    assert_eq!(ingress["metadata"]["name"], "web-second");
    assert_eq!(
        ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"],
        "nginx"
    );
    assert_eq!(
        ingress["spec"]["rules"][0]["http"]["paths"],
        json!([path("/", "front")])
    );
}

/// Renders a Deployment with container `web` and a trait of the starter set, and returns the spec of its pods.
async fn pods_with(trait_: &str, properties: Value) -> Result<Value, String> {
    let template = r#"
output: {
	apiVersion: "apps/v1"
	kind:       "Deployment"
	spec: template: spec: containers: [{name: "web", image: "nginx", ports: [{containerPort: 80, name: "http"}]}]
}
"#;
    let case = Case::new(template, json!({})).with(&starter_template(&format!("traits/{trait_}")), properties);
    let rendered = case.render().await?;
    Ok(rendered["output"]["spec"]["template"]["spec"].clone())
}

#[tokio::test]
async fn container_ports_are_bound_and_added() {
    let wanted = json!({ "ports": [
        { "containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.1" },
        { "containerPort": 53, "protocol": "UDP" },
    ] });
    let pods = pods_with("container-ports", wanted).await.unwrap();
    let ports = json!([
        { "containerPort": 80, "name": "http", "hostPort": 8080, "hostIP": "192.0.2.1" },
        { "containerPort": 53, "protocol": "UDP" },
    ]);
    assert_eq!(pods["containers"][0]["ports"], ports);
    let other = json!({ "containerName": "other", "ports": [] });
    let error = pods_with("container-ports", other).await.unwrap_err();
    assert!(error.contains("container other not found"), "{error}");
}

#[tokio::test]
async fn security_contexts_of_pods_and_containers_have_safe_defaults() {
    let user = json!({ "runAsUser": 1000, "fsGroup": 2000 });
    let pods = pods_with("podsecuritycontext", user).await.unwrap();
    assert_eq!(
        pods["securityContext"],
        json!({ "runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000 })
    );
    let pods = pods_with("securitycontext", json!({ "dropCapabilities": ["ALL"] }))
        .await
        .unwrap();
    let context = json!({
        "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": false, "runAsNonRoot": true,
        "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(pods["containers"][0]["securityContext"], context);
    assert_eq!(pods["containers"][0]["image"], "nginx");
}
