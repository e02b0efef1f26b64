//! Steps that read, apply and delete objects and configurations.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_step_waits_for_another_application() {
    let step = Step::of_type("depends-on-app", json!({ "name": "db", "namespace": "team" }));
    let ended = step
        .run(|call| object(call, json!({ "status": { "status": "rendering" } })))
        .await;
    assert_eq!(ended.names(), ["dependsOn kube.read"]);
    let read = json!({ "cluster": "", "value": {
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": { "name": "db", "namespace": "team" },
    } });
    assert_eq!(ended.calls[0].params, read);
    assert_eq!(ended.end, waiting(""));
    assert_eq!(step.run(|call| object(call, json!({}))).await.end, waiting(""));
    let ended = step
        .run(|call| object(call, json!({ "status": { "status": "running" } })))
        .await;
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_step_applies_an_application_that_is_not_there() {
    let step = Step::of_type("depends-on-app", json!({ "name": "db", "namespace": "team" }));
    let answer = |call: &Call| match call.path.as_str() {
        "dependsOn" => returned(json!({ "value": call.params["value"], "err": "not found" })),
        "load.configMap" => object(
            call,
            json!({ "data": { "application": "kind: Application\nspec: {a: 1}\n" } }),
        ),
        _ => object(call, json!({ "status": { "status": "running" } })),
    };
    let ended = step.run(answer).await;
    assert_eq!(
        ended.names(),
        [
            "dependsOn kube.read",
            "load.configMap kube.read",
            "load.apply kube.apply"
        ]
    );
    let applied = json!({ "kind": "Application", "spec": { "a": 1 } });
    assert_eq!(ended.calls[2].params["value"], applied);
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_wait_for_a_field_that_is_not_there_yet_goes_on() {
    let template = r#"
import (
	"strings"
	"vela/kube"
	"vela/builtin"
)

output: kube.#Apply & {$params: {
	cluster: parameter.cluster
	value: {kind: "Deployment", metadata: name: context.stepName, spec: replicas: parameter.replicas}
}}
gate: builtin.#ConditionalWait & {
	$params: continue: output.$returns.value.status.readyReplicas == parameter.replicas
}
parameter: {
	replicas: *1 | int
	cluster:  *"" | string
	cmd?: [...string]
}
"#;
    let step = Step::new(template, json!({}));
    let ended = step.run(|call| object(call, json!({ "status": {} }))).await;
    let expected = json!({ "kind": "Deployment", "metadata": { "name": "deploy" }, "spec": { "replicas": 1 } });
    assert_eq!(ended.calls[0].params, json!({ "cluster": "", "value": expected }));
    assert_eq!(
        ended.end,
        waiting("gate.$params.continue: undefined field: readyReplicas (line 13)")
    );
    let ended = step
        .run(|call| object(call, json!({ "status": { "readyReplicas": 1 } })))
        .await;
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_deployment_is_applied_until_its_pods_are_ready() {
    let step = Step::of_type("apply-deployment", json!({ "image": "i", "replicas": 2, "cmd": ["c"] }));
    let ended = step.run(|call| object(call, json!({ "status": {} }))).await;
    let labels = json!({ "workflow.oam.dev/step-name": "shop-deploy" });
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "deploy", "namespace": "team" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "deploy", "image": "i", "command": ["c"] }] },
            },
        },
    });
    assert_eq!(ended.calls[0].params, json!({ "cluster": "", "value": expected }));
    assert_eq!(ended.end, waiting(""));
    let ready = json!({ "status": { "readyReplicas": 2 } });
    let ended = step.run(|call| object(call, ready.clone())).await;
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn outputs_come_from_an_object_that_was_read() {
    let properties = json!({ "name": "settings", "apiVersion": "v1", "kind": "ConfigMap" });
    let step = Step::of_type("read-object", properties)
        .output("output.$returns.value.data[\"cpu\"]")
        .output("output.$returns.value.data.memory")
        .output("\"is \" + output.$returns.value.kind")
        .output("nowhere.x")
        .output("} x: {")
        .output("strings.ToUpper(parameter.name)");
    let ended = step.run(|call| object(call, json!({ "data": { "cpu": "1" } }))).await;
    let expected = json!({ "cluster": "", "value": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": "default" },
    } });
    assert_eq!(ended.calls[0].params, expected);
    let StepResult::Succeeded { outputs, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(outputs[0], Ok(json!("1")));
    let absent = "failed to lookup value: var(path=output.$returns.value.data.memory) not exist";
    assert_eq!(outputs[1], Err(absent.to_owned()));
    assert_eq!(outputs[2], Ok(json!("is ConfigMap")));
    let not_found = "reference \"nowhere\" not found";
    assert!(outputs[3].as_ref().unwrap_err().starts_with(not_found), "{outputs:?}");
    assert_eq!(outputs[4], Err("line 1: unexpected '}'".to_owned()));
    assert!(outputs[5].is_err(), "{outputs:?}");
}

#[tokio::test]
async fn a_field_that_an_output_lacks_is_looked_up_in_what_the_call_has_returned() {
    let properties = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "settings" });
    let step = Step::of_type("read-object", properties)
        .output("output.value.data[\"cpu\"]")
        .output("\"is \" + output.value.kind")
        .output("output.value.data.memory")
        .output("output.$params.value.kind")
        .output("output.missing");
    let ended = step.run(|call| object(call, json!({ "data": { "cpu": "1" } }))).await;
    let StepResult::Succeeded { outputs, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    let absent = |path: &str| {
        Err(format!(
            "failed to lookup value: var(path=output.$returns.{path}) not exist"
        ))
    };
    let expected = [
        Ok(json!("1")),
        Ok(json!("is ConfigMap")),
        absent("value.data.memory"),
        Ok(json!("ConfigMap")),
        absent("missing"),
    ];
    assert_eq!(outputs, expected);
    // As the reference pages of KubeVela have it.
    for type_ in ["list-config", "read-config"] {
        let name = if type_ == "list-config" { "configs" } else { "config" };
        let properties = match type_ {
            "list-config" => json!({ "template": "t", "namespace": "team" }),
            _ => json!({ "name": "a", "namespace": "team" }),
        };
        let step = Step::of_type(type_, properties);
        let step = step.output(&format!("output.{name}"));
        let ended = step.run(|_| returned(json!({ name: "found" }))).await;
        let StepResult::Succeeded { outputs, .. } = ended.end else {
            panic!("{:?}", ended.end);
        };
        assert_eq!(outputs, [Ok(json!("found"))], "{type_}");
    }
}

#[tokio::test]
async fn an_object_is_applied_as_it_is() {
    let value = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" }, "data": { "a": "b" } });
    let step = Step::of_type("apply-object", json!({ "value": value })).output("apply.$returns.value.status");
    let ended = step.run(|call| object(call, json!({ "status": "s" }))).await;
    assert_eq!(ended.calls[0].params, json!({ "value": value, "cluster": "" }));
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!("s"))],
        message: String::new(),
    };
    assert_eq!(
        (ended.names(), ended.end),
        (vec!["apply kube.apply".to_owned()], expected)
    );
}

#[tokio::test]
async fn data_goes_to_secrets_and_config_maps() {
    let generic = Step::of_type("export2secret", json!({ "secretName": "s", "data": { "a": "b" } }));
    let ended = generic.run(|call| object(call, json!({}))).await;
    assert_eq!(
        (ended.names(), ended.end),
        (vec!["secret.apply kube.apply".to_owned()], succeeded())
    );
    let value = &ended.calls[0].params["value"];
    assert_eq!(value["stringData"], json!({ "a": "b" }));
    assert_eq!(value["metadata"], json!({ "name": "s", "namespace": "team" }));
    let account = json!({ "username": "u", "password": "p" });
    let registry = json!({ "secretName": "s", "data": {}, "kind": "docker-registry", "namespace": "n", "dockerRegistry": account });
    let ended = Step::of_type("export2secret", registry)
        .run(|call| object(call, json!({})))
        .await;
    let value = &ended.calls[0].params["value"];
    assert_eq!(value["type"], "kubernetes.io/dockerconfigjson");
    let data = concat!(
        r#"{"auths":{"https://index.docker.io/v1/":"#,
        r#"{"username":"u","password":"p","auth":"dTpw"}}}"#,
    );
    assert_eq!(value["stringData"], json!({ ".dockerconfigjson": data }));
    assert_eq!(value["metadata"]["namespace"], "n");
    let step = Step::of_type(
        "export2config",
        json!({ "configName": "c", "data": { "a": "b" }, "cluster": "east" }),
    );
    let ended = step.run(|call| object(call, json!({}))).await;
    let expected = json!({ "cluster": "east", "value": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": "team" }, "data": { "a": "b" },
    } });
    assert_eq!(ended.calls[0].params, expected);
    assert_eq!(
        (ended.names(), ended.end),
        (vec!["apply kube.apply".to_owned()], succeeded())
    );
}

#[tokio::test]
async fn jobs_are_deleted_by_label_before_their_pods() {
    let ended = Step::of_type("clean-jobs", json!({}))
        .run(|_| returned(json!(null)))
        .await;
    assert_eq!(ended.names(), ["cleanJobs kube.delete", "cleanPods kube.delete"]);
    let target = |version: &str, kind: &str, labels: &Value| {
        let metadata = json!({ "name": "shop", "namespace": "team" });
        json!({
            "cluster": "", "value": { "apiVersion": version, "kind": kind, "metadata": metadata },
            "filter": { "namespace": "team", "matchingLabels": labels },
        })
    };
    let labels = json!({ "workflow.oam.dev/name": "shop" });
    assert_eq!(ended.calls[0].params, target("batch/v1", "Job", &labels));
    assert_eq!(ended.calls[1].params, target("v1", "Pod", &labels));
    assert_eq!(ended.end, succeeded());
    let labels = json!({ "a": "b" });
    let step = Step::of_type("clean-jobs", json!({ "labelselector": labels }));
    let ended = step.run(|_| returned(json!(null))).await;
    assert_eq!(ended.calls[1].params, target("v1", "Pod", &labels));
}

#[tokio::test]
async fn configs_are_created_read_listed_and_deleted() {
    let in_team = |name: &str| json!({ "name": name, "namespace": "team" });
    let cases = [
        (
            "create-config",
            json!({ "name": "c", "config": { "a": 1 } }),
            json!({ "name": "c", "namespace": "team", "config": { "a": 1 } }),
            "deploy config.create",
        ),
        (
            "create-config",
            json!({ "name": "c", "namespace": "n", "template": "t", "config": {} }),
            json!({ "name": "c", "namespace": "n", "template": "t", "config": {} }),
            "deploy config.create",
        ),
        (
            "read-config",
            json!({ "name": "c" }),
            in_team("c"),
            "output config.read",
        ),
        (
            "list-config",
            json!({ "template": "t" }),
            json!({ "template": "t", "namespace": "team" }),
            "output config.list",
        ),
        (
            "delete-config",
            json!({ "name": "c" }),
            in_team("c"),
            "deploy config.delete",
        ),
    ];
    for (type_, properties, params, name) in cases {
        let ended = Step::of_type(type_, properties).run(|_| returned(json!({}))).await;
        assert_eq!(ended.names(), [name]);
        assert_eq!(ended.calls[0].params, params);
        assert_eq!(ended.end, succeeded());
    }
    let step = Step::of_type("read-config", json!({ "name": "c" })).output("output.$returns.config.a");
    let ended = step.run(|_| returned(json!({ "config": { "a": 1 } }))).await;
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!(1))],
        message: String::new(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_connection_is_made_from_a_secret() {
    let step = Step::of_type("generate-jdbc-connection", json!({ "name": "db" })).output("env");
    let mut data = json!({
        "DB_HOST": "aG9zdA==", "DB_PORT": "MzMwNg==", "DB_NAME": "c2hvcA==", "DB_USER": "dQ==", "DB_PASSWORD": "cA==",
    });
    let ended = step.run(|call| object(call, json!({ "data": data }))).await;
    let expected = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "db" } });
    assert_eq!(ended.calls[0].params["value"], expected);
    let env = json!([
        { "name": "url", "value": "jdbc://host:3306/shop?characterEncoding=utf8&useSSL=false" },
        { "name": "username", "value": "u" },
        { "name": "password", "value": "p" },
    ]);
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(env)],
        message: String::new(),
    };
    assert_eq!(ended.end, expected);
    data.as_object_mut().unwrap().remove("DB_PORT");
    let ended = step.run(|call| object(call, json!({ "data": data }))).await;
    let StepResult::Failed { reason, message } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(reason, FailureReason::Execute);
    assert!(
        message.contains("dbPort.$params.bt") && message.contains("DB_PORT"),
        "{message}"
    );
    assert!(!message.contains("aG9zdA"), "{message}");
}

#[tokio::test]
async fn data_is_exported_to_each_placement() {
    let properties = json!({ "topology": "all", "kind": "Secret", "data": { "a": "b" } });
    let placements = json!({ "placements": [
        { "cluster": "local", "namespace": "team" }, { "cluster": "east-1", "namespace": "team" },
    ] });
    let answer = |call: &Call| match call.provider.as_str() {
        "multicluster" => returned(placements.clone()),
        _ => object(call, json!({})),
    };
    let step = Step::of_type("export-data", properties).output("apply[\"east-1\"].$returns.value.kind");
    let ended = step.run(answer).await;
    let names = [
        "getPlacements multicluster.get-placements-from-topology-policies",
        "apply.local kube.apply",
        "apply.east-1 kube.apply",
    ];
    assert_eq!(ended.names(), names);
    assert_eq!(ended.calls[0].params, json!({ "policies": ["all"] }));
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "shop", "namespace": "team" },
        "stringData": { "a": "b" },
    });
    assert_eq!(ended.calls[2].params, json!({ "cluster": "east-1", "value": object }));
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!("Secret"))],
        message: String::new(),
    };
    assert_eq!(ended.end, expected);
    let step = Step::of_type(
        "export-data",
        json!({ "data": { "a": "b" }, "name": "n", "namespace": "o" }),
    );
    let ended = step.run(answer).await;
    assert_eq!(ended.calls[0].params, json!({ "policies": [] }));
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "n", "namespace": "o" }, "data": { "a": "b" },
    });
    assert_eq!(ended.calls[1].params["value"], object);
}

#[tokio::test]
async fn a_service_is_exported_to_each_placement() {
    let properties = json!({ "topology": "all", "ip": "192.0.2.7", "port": 80, "targetPort": 8080 });
    let placements = json!({ "placements": [
        { "cluster": "local", "namespace": "team" }, { "cluster": "east-1", "namespace": "team" },
    ] });
    let answer = |call: &Call| match call.provider.as_str() {
        "multicluster" => returned(placements.clone()),
        _ => object(call, json!({})),
    };
    let ended = Step::of_type("export-service", properties).run(answer).await;
    let names = [
        "getPlacements multicluster.get-placements-from-topology-policies",
        "apply.local-Service kube.apply",
        "apply.local-Endpoints kube.apply",
        "apply.east-1-Service kube.apply",
        "apply.east-1-Endpoints kube.apply",
    ];
    assert_eq!(ended.names(), names);
    let metadata = json!({ "name": "shop", "namespace": "team" });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": { "type": "ClusterIP", "ports": [{ "protocol": "TCP", "port": 80, "targetPort": 8080 }] },
    });
    assert_eq!(ended.calls[3].params, json!({ "cluster": "east-1", "value": service }));
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata,
        "subsets": [{ "addresses": [{ "ip": "192.0.2.7" }], "ports": [{ "port": 8080 }] }],
    });
    assert_eq!(
        ended.calls[4].params,
        json!({ "cluster": "east-1", "value": endpoints })
    );
    assert_eq!(ended.end, succeeded());
}
