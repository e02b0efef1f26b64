use serde::Deserialize;
use serde_json::{Value, json};

use super::{application, execute};
use crate::support::cue::executable;
use crate::support::process::ScratchDir;

pub fn definition(kind: &str, name: &str, template: &str) -> Value {
    json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "metadata": { "name": name, "namespace": "elsewhere" },
        "spec": { "workload": { "type": "autodetects.core.oam.dev" }, "schematic": { "cue": { "template": template } } },
    })
}

pub async fn render(files: &ScratchDir, documents: &[Value], more: &[&str]) -> super::Output {
    let texts: Vec<_> = documents
        .iter()
        .map(|one| serde_yaml::to_string(one).unwrap())
        .collect();
    let file = files.write("app.yaml", texts.join("---\n"));
    let evaluator = executable();
    let arguments = [
        "vela",
        "render",
        file.to_str().unwrap(),
        "--cue-evaluator",
        evaluator.to_str().unwrap(),
    ];
    execute(&[&arguments, more].concat()).await
}

pub fn objects(yaml: &str) -> Vec<Value> {
    let documents = serde_yaml::Deserializer::from_str(yaml);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    objects.filter(|object| !object.is_null()).collect()
}

#[tokio::test]
async fn an_application_is_rendered_from_the_starter_set_without_a_cluster() {
    let files = ScratchDir::new("render");
    let spec = json!({ "components": [{
        "name": "web", "type": "webservice",
        "properties": { "image": "nginx:1", "ports": [{ "port": 80, "expose": true }] },
        "traits": [{ "type": "scaler", "properties": { "replicas": 3 } }],
    }] });
    let yaml = render(&files, &[application("shop", spec)], &["-n", "team"]).await.ok();
    let objects = objects(&yaml);
    assert_eq!(objects.len(), 2, "{yaml}");
    let (deployment, service) = (&objects[0], &objects[1]);
    assert_eq!(
        (&deployment["kind"], &service["kind"]),
        (&json!("Deployment"), &json!("Service"))
    );
    assert_eq!(deployment["metadata"]["name"], "web");
    assert_eq!(deployment["metadata"]["namespace"], "team");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let labels = &deployment["metadata"]["labels"];
    assert_eq!(labels["app.oam.dev/appRevision"], "shop-v1");
    assert_eq!(labels["app.oam.dev/name"], "shop");
    assert_eq!(labels["workload.oam.dev/type"], "webservice");
    assert_eq!(service["metadata"]["labels"]["trait.oam.dev/type"], "AuxiliaryWorkload");
}

#[tokio::test]
async fn definitions_of_a_directory_and_of_the_file_are_used_and_secrets_are_hidden() {
    let files = ScratchDir::new("render");
    let directory = files.join("definitions/nested");
    std::fs::create_dir_all(&directory).unwrap();
    let secret = r#"output: {apiVersion: "v1", kind: "Secret", stringData: token: parameter.token}
        parameter: token: string"#;
    let definition_file = serde_yaml::to_string(&definition("ComponentDefinition", "token", secret)).unwrap();
    std::fs::write(directory.join("token.yaml"), definition_file).unwrap();
    let role = r#"outputs: role: {apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole"}"#;
    let spec = json!({ "components": [{
        "name": "key", "type": "token", "properties": { "token": "hush" }, "traits": [{ "type": "role" }],
    }] });
    let documents = [definition("TraitDefinition", "role", role), application("shop", spec)];
    let root = files.join("definitions");
    let yaml = render(&files, &documents, &["--definitions", root.to_str().unwrap()])
        .await
        .ok();
    assert!(!yaml.contains("hush"), "{yaml}");
    let objects = objects(&yaml);
    assert_eq!(objects[0]["stringData"]["token"], "(hidden)");
    let role = &objects[1]["metadata"];
    assert!(role["namespace"].is_null(), "{yaml}");
    let name = role["name"].as_str().unwrap();
    assert!(name.starts_with("key-role-"), "{name}");
}

#[tokio::test]
async fn traits_that_wait_for_health_see_the_rendered_objects() {
    let files = ScratchDir::new("render");
    let template = |value: &str| {
        let object = r#"{apiVersion: "v1", kind: "ConfigMap", metadata: name: "note", data: text: "#;
        format!("outputs: note: {object} {value}}}")
    };
    let post = |name: &str, value: &str| {
        let mut definition = definition("TraitDefinition", name, &template(value));
        definition["spec"]["stage"] = json!("PostDispatch");
        definition
    };
    let documents = |trait_: &str| {
        let spec = json!({ "components": [{
            "name": "web", "type": "worker", "properties": { "image": "nginx:1" }, "traits": [{ "type": trait_ }],
        }] });
        [
            post("kind", "context.output.kind"),
            post("ready", r#""\(context.output.status.readyReplicas)""#),
            application("shop", spec),
        ]
    };
    let yaml = render(&files, &documents("kind"), &[]).await.ok();
    let rendered = objects(&yaml);
    assert_eq!(rendered[1]["data"]["text"], "Deployment", "{yaml}");
    assert_eq!(rendered[1]["metadata"]["labels"]["trait.oam.dev/type"], "kind");

    let output = render(&files, &documents("ready"), &[]).await;
    let warning = "warning: not rendered without live objects: component web: trait ready: ";
    assert!(output.stderr.contains(warning), "{output:?}");
    assert_eq!(objects(&output.ok()).len(), 1);
}

#[tokio::test]
async fn an_application_that_cannot_be_rendered_names_the_cause() {
    let files = ScratchDir::new("render");
    let missing = application("shop", json!({ "components": [{ "name": "web", "type": "nowhere" }] }));
    let error = render(&files, &[missing], &[]).await.failed(1);
    assert!(
        error.contains("component web: ComponentDefinition nowhere not found"),
        "{error}"
    );

    let invalid = json!({ "components": [{ "name": "web", "type": "worker", "properties": { "image": 1 } }] });
    let error = render(&files, &[application("shop", invalid)], &[]).await.failed(1);
    assert!(
        error.contains("Application shop: component web: ") && error.contains("image"),
        "{error}"
    );

    let references = json!({ "components": [{ "name": "copy", "type": "ref-objects" }] });
    let error = render(&files, &[application("shop", references)], &[]).await.failed(1);
    let words = "not supported: component copy with references to existing objects";
    assert!(error.contains(words), "{error}");

    let nothing = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    let error = render(&files, &[nothing], &[]).await.failed(1);
    assert!(error.contains("contain no Application"), "{error}");
}
