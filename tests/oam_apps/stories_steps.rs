//! The types of steps in the starter set, and those of users.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::apps::{config, spec, web};
use super::site::Site;
use super::workflows::{input, outcome, output, status, step, until_ended, with, with_steps};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT};
use crate::support::eventually::{SOON, eventually};

const SECRET: &str = "v1 Secret";
const JOB: &str = "batch/v1 Job";

/// Returns a text of a Secret.
fn text(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_write_and_read_objects_for_each_other() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let namespace = &site.namespace;
    let source = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "source", "namespace": namespace },
        "data": { "color": "blue" },
    });
    let named = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "source", "namespace": namespace });
    let account = json!({ "username": "ann", "password": "pw", "server": "registry.example.com" });
    let registry = json!({ "secretName": "pull", "kind": "docker-registry", "data": {}, "dockerRegistry": account });
    let steps = [
        step("apply", "apply-object", json!({ "value": source })),
        with(
            step("read", "read-object", named),
            output("color", "output.$returns.value.data.color"),
        ),
        with(
            step(
                "map",
                "export2config",
                json!({ "configName": "copy", "data": { "fixed": "1" } }),
            ),
            input("color", "data.color"),
        ),
        with(
            step("secret", "export2secret", json!({ "secretName": "copy" })),
            input("color", "data.color"),
        ),
        step("registry", "export2secret", registry),
        step(
            "data",
            "export-data",
            json!({ "name": "exported", "data": { "a": "b" } }),
        ),
        step(
            "sealed",
            "export-data",
            json!({ "kind": "Secret", "data": { "a": "b" }, "topology": "here" }),
        ),
    ];
    let mut spec = with_steps(&[], &steps);
    spec["policies"] = json!([{ "name": "here", "type": "topology", "properties": { "clusters": ["local"] } }]);
    site.declare("shop", spec).await;
    let app = site.until_running("shop").await;

    let data = async |kind: &str, name: &str| site.get(kind, name).await.unwrap()["data"].clone();
    assert_eq!(data(CONFIG_MAP, "source").await, json!({ "color": "blue" }));
    assert_eq!(data(CONFIG_MAP, "copy").await, json!({ "fixed": "1", "color": "blue" }));
    assert_eq!(text(&site.get(SECRET, "copy").await.unwrap(), "color"), "blue");
    let pull = site.get(SECRET, "pull").await.unwrap();
    assert_eq!(pull["type"], "kubernetes.io/dockerconfigjson");
    let auths = r#"{"auths":{"registry.example.com":{"username":"ann","password":"pw","auth":"YW5uOnB3"}}}"#;
    assert_eq!(text(&pull, ".dockerconfigjson"), auths);
    assert_eq!(data(CONFIG_MAP, "exported").await, json!({ "a": "b" }));
    assert_eq!(text(&site.get(SECRET, "shop").await.unwrap(), "a"), "b");
    assert_eq!(app["status"]["appliedResources"].as_array().unwrap().len(), 6);
    assert!(
        !app.to_string().contains("YW5uOnB3"),
        "secrets are no part of the status"
    );

    // They are objects of the Application: kept, and deleted with it.
    site.edit(CONFIG_MAP, "copy", json!({ "data": { "color": "red" } }))
        .await;
    site.until(CONFIG_MAP, "copy", "restored", |map| map["data"]["color"] == "blue")
        .await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    for (kind, name) in [
        (CONFIG_MAP, "source"),
        (CONFIG_MAP, "exported"),
        (SECRET, "pull"),
        (SECRET, "shop"),
    ] {
        assert_eq!(site.get(kind, name).await, None, "{kind} {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_user_takes_inputs_gives_outputs_and_runs_on_a_condition() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let template = r#"
        import (
            "strings"
            "vela/kube"
        )
        greeting: "hello " + strings.ToUpper(parameter.name)
        if parameter.store {
            write: kube.#Apply & {$params: value: {
                apiVersion: "v1", kind: "ConfigMap"
                metadata: {name: context.stepName, namespace: context.namespace}
                data: "greeting": greeting
            }}
        }
        parameter: {
            name:  string
            store: *false | bool
        }
    "#;
    site.define_step("greet", template).await;
    let condition = json!({ "if": "inputs.greeting == \"hello ANN\" && status.first.succeeded" });
    let steps = [
        with(
            step("first", "greet", json!({ "name": "ann" })),
            output("greeting", "greeting"),
        ),
        with(
            with(
                step("second", "greet", json!({ "store": true })),
                input("greeting", "name"),
            ),
            condition,
        ),
        with(
            step("third", "greet", json!({ "name": "x", "store": true })),
            json!({ "if": "status.first.failed" }),
        ),
        step("said", "print-message-in-status", json!({ "message": "done" })),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_running("shop").await;
    assert_eq!(
        site.get(CONFIG_MAP, "second").await.unwrap()["data"]["greeting"],
        "hello HELLO ANN"
    );
    assert_eq!(outcome(&app, "third")[..2], ["skipped", "Skip"]);
    assert_eq!(site.get(CONFIG_MAP, "third").await, None);
    assert_eq!(outcome(&app, "said"), ["succeeded", "", "done"]);
    assert_eq!(app["status"]["workflow"]["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_is_not_supported_fails_once_by_name_and_cleanup_still_runs() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.define_step("vela-cli", "parameter: command: [...string]").await;
    let always = json!({ "if": "always" });
    let steps = [
        step("cli", "vela-cli", json!({ "command": ["vela"] })),
        step("next", "print-message-in-status", json!({ "message": "next" })),
        with(
            step("mail", "notification", json!({ "email": { "to": ["a@example.com"] } })),
            always.clone(),
        ),
        with(
            step(
                "cleanup",
                "export2config",
                json!({ "configName": "cleanup", "data": {} }),
            ),
            always,
        ),
    ];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;
    let app = until_ended(&site, "shop").await;
    for (name, what) in [("cli", "step type vela-cli"), ("mail", "email.#SendEmail")] {
        let [phase, reason, message] = outcome(&app, name);
        assert_eq!((phase, reason), ("failed", "Rendering"));
        let refused = format!("{what} is not supported by this controller: it ");
        assert!(message.starts_with(&refused), "{message}");
    }
    assert_eq!(outcome(&app, "next")[..2], ["skipped", "Skip"]);
    assert_eq!(outcome(&app, "cleanup")[0], "succeeded");
    assert!(site.get(CONFIG_MAP, "cleanup").await.is_some());
    assert_eq!(app["status"]["status"], "workflowFailed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_waits_for_another_application_or_applies_it() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let on = |name: &str| {
        step(
            name,
            "depends-on-app",
            json!({ "name": name, "namespace": site.namespace }),
        )
    };
    let stored = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": { "name": "stored", "namespace": site.namespace },
        "spec": spec(&[config("of-stored", "one")]),
    });
    site.apply(
        CONFIG_MAP,
        "stored",
        json!({ "data": { "application": stored.to_string() } }),
    )
    .await;
    // It suspends until a user resumes it.
    let ask = with_steps(&[], &[step("ask", "suspend", json!({}))]);
    site.declare("database", ask).await;
    let after = step("after", "apply-component", json!({ "component": "settings" }));
    let steps = [on("stored"), on("database"), after];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;

    let app = site
        .until(APPLICATION, "shop", "a wait for the other Application", |app| {
            outcome(app, "database") == ["running", "Wait", ""]
        })
        .await;
    assert_eq!(outcome(&app, "stored")[0], "succeeded");
    site.until_running("stored").await;
    assert!(site.get(CONFIG_MAP, "of-stored").await.is_some());
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    site.declare("database", spec(&[config("of-database", "one")])).await;
    site.until_running("shop").await;
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_of_a_step_is_ready_before_jobs_are_cleaned() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    for (name, labels) in [
        ("labeled", json!({ "workflow.oam.dev/name": "shop" })),
        ("other", json!({})),
    ] {
        let container = json!({ "name": "main", "image": "example.com/job:1" });
        let pod = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container], "restartPolicy": "Never" } });
        let job = json!({ "metadata": { "labels": labels }, "spec": { "template": pod } });
        site.apply(JOB, name, job).await;
        let pods = format!("job-name={name}");
        eventually(SOON, "a pod of the job", async || {
            site.list("v1 Pod", &pods).await.pop()
        })
        .await;
    }
    let properties = json!({ "image": "example.com/web:1", "replicas": 2, "cmd": ["serve"] });
    let steps = [
        step("web", "apply-deployment", properties),
        step("clean", "clean-jobs", json!({})),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_running("shop").await;

    assert_eq!(outcome(&app, "web")[0], "succeeded");
    let deployment = site.get(DEPLOYMENT, "web").await.unwrap();
    assert_eq!(deployment["status"]["readyReplicas"], 2);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["command"],
        json!(["serve"])
    );
    site.until_gone(JOB, "labeled").await;
    eventually(SOON, "no pods of the deleted job", async || {
        site.list("v1 Pod", "workflow.oam.dev/name=shop")
            .await
            .is_empty()
            .then_some(())
    })
    .await;
    assert!(site.get(JOB, "other").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configs_are_created_read_listed_and_deleted() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let create = |name: &str| {
        step(
            name,
            "create-config",
            json!({ "name": name, "config": { "host": name, "port": 1 } }),
        )
    };
    let read = with(
        step("read", "read-config", json!({ "name": "kept" })),
        output("host", "output.$returns.config.host"),
    );
    let write = step("write", "export2config", json!({ "configName": "read", "data": {} }));
    let delete = step("delete", "delete-config", json!({ "name": "dropped" }));
    let steps = [
        create("kept"),
        create("dropped"),
        read,
        with(write, input("host", "data.host")),
        delete,
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    site.until_running("shop").await;

    let kept = site.get(SECRET, "kept").await.unwrap();
    assert_eq!(kept["metadata"]["labels"]["config.oam.dev/catalog"], "velacore-config");
    assert_eq!(site.get(CONFIG_MAP, "read").await.unwrap()["data"]["host"], "kept");
    assert_eq!(site.get(SECRET, "dropped").await, None);
    // State keeping restores what it records: another pass shows that it does not record the deleted one.
    site.edit(CONFIG_MAP, "read", json!({ "data": { "host": "edited" } }))
        .await;
    site.until(CONFIG_MAP, "read", "restored", |map| map["data"]["host"] == "kept")
        .await;
    assert_eq!(site.get(SECRET, "dropped").await, None);

    // Of a template, as `vela config create` writes it.
    let labels = json!({ "config.oam.dev/catalog": "velacore-config", "config.oam.dev/type": "database" });
    let properties = BASE64_STANDARD.encode(r#"{"host":"listed"}"#);
    let secret = json!({ "metadata": { "labels": labels }, "data": { "input-properties": properties } });
    site.apply(SECRET, "listed", secret).await;
    let names = "[for config in output.$returns.configs {config.name}][0]";
    let list = with(
        step("list", "list-config", json!({ "template": "database" })),
        output("name", names),
    );
    let write = step("write", "export2config", json!({ "configName": "list", "data": {} }));
    site.declare(
        "lists",
        with_steps(&[], &[list, with(write, input("name", "data.name"))]),
    )
    .await;
    site.until_running("lists").await;
    assert_eq!(site.get(CONFIG_MAP, "list").await.unwrap()["data"]["name"], "listed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_connects_to_a_database_of_a_secret() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let data = json!({ "DB_HOST": "db", "DB_PORT": "3306", "DB_NAME": "shop", "DB_USER": "ann", "DB_PASSWORD": "pw" });
    site.apply(SECRET, "database", json!({ "stringData": data })).await;
    let properties = json!({ "name": "database", "namespace": site.namespace });
    let steps = [
        with(
            step("connect", "generate-jdbc-connection", properties),
            output("variables", "env"),
        ),
        with(
            step("deploy", "apply-component", json!({ "component": "front" })),
            input("variables", "env"),
        ),
    ];
    site.declare("shop", with_steps(&[web("front", 1)], &steps)).await;
    site.until_running("shop").await;
    let deployment = site.get(DEPLOYMENT, "front").await.unwrap();
    let env = json!([
        { "name": "url", "value": "jdbc://db:3306/shop?characterEncoding=utf8&useSSL=false" },
        { "name": "username", "value": "ann" },
        { "name": "password", "value": "pw" },
    ]);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["env"], env);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_ends_with_its_steps_and_a_suspension_with_its_duration() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let group = json!({ "name": "group", "type": "step-group", "subSteps": [
        step("settings", "apply-component", json!({ "component": "settings" })),
        step("pause", "suspend", json!({ "duration": "1s", "message": "a moment" })),
    ] });
    let deploy = step("all", "deploy", json!({ "policies": [] }));
    site.declare(
        "shop",
        with_steps(&[config("settings", "one"), config("more", "two")], &[group, deploy]),
    )
    .await;
    site.until(APPLICATION, "shop", "suspension", |app| {
        outcome(app, "pause") == ["suspending", "Suspend", "a moment"]
            && status(app, "group")["phase"] == "suspending"
            && app["status"]["status"] == "workflowSuspending"
    })
    .await;
    let app = site.until_running("shop").await;
    for name in ["group", "settings", "pause", "all"] {
        assert_eq!(outcome(&app, name)[0], "succeeded", "{name}");
    }
    assert!(site.get(CONFIG_MAP, "more").await.is_some());
}
