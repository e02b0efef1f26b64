//! Faults of workflows are named where the user looks, harm nothing else, and heal.

use std::sync::Arc;

use axum::http::Method;
use serde_json::{Value, json};

use super::apps::{config, spec, web};
use super::operators::By;
use super::site::{Site, condition, version};
use super::workflows::{
    input, outcome, output, step, until_ended, until_step_says, with, with_parallel_steps, with_steps,
};
use super::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::SOON;
use crate::support::fault_proxy::{ApiFault, ApiRequest, Pause};

/// The first failure of a step ends it.
const NO_RETRIES: &str = "--max-workflow-step-error-retry-times=0";

fn apply(component: &str) -> Value {
    step(component, "apply-component", json!({ "component": component }))
}

fn print(name: &str) -> Value {
    step(name, "print-message-in-status", json!({ "message": "printed" }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_component_is_named_and_nothing_runs_until_the_spec_is_corrected() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let components = [config("settings", "one")];
    let steps = [apply("settings"), apply("nowhere")];
    site.declare("shop", with_steps(&components, &steps)).await;
    let app = site.until_said("shop", "component nowhere not found").await;
    assert_eq!(condition(&app, "Workflow")["status"], "False");
    assert_eq!(app["status"]["status"], "workflowFailed");
    assert_eq!(site.managed_objects().await, Vec::<Value>::new());

    site.declare("shop", with_steps(&components, &[apply("settings")]))
        .await;
    site.until_running("shop").await;
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_and_inputs_that_never_come_are_shown_and_cause_no_writes() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let after = |step: Value, other: &str| with(step, json!({ "dependsOn": [other] }));
    let steps = [
        after(print("chicken"), "egg"),
        after(print("egg"), "chicken"),
        with(print("reader"), input("nothing", "message")),
        print("free"),
    ];
    site.declare("shop", with_parallel_steps(&[], &steps)).await;
    let app = site
        .until(APPLICATION, "shop", "the step that can run", |app| {
            outcome(app, "free")[0] == "succeeded"
        })
        .await;
    for (name, cause) in [
        ("chicken", "Pending on DependsOn: egg"),
        ("egg", "Pending on DependsOn: chicken"),
        ("reader", "Pending on Input: nothing"),
    ] {
        let [phase, _, message] = outcome(&app, name);
        assert_eq!((phase, message), ("pending", cause), "{name}");
    }
    let before = site.get(APPLICATION, "shop").await.unwrap();
    // Another Application takes several turns meanwhile.
    site.declare("other", spec(&[web("front", 1)])).await;
    site.until_running("other").await;
    let stays = site.get(APPLICATION, "shop").await.unwrap();
    assert_eq!(version(&stays), version(&before));

    site.declare("shop", with_parallel_steps(&[], &[print("free")])).await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_do_not_fit_are_named_by_the_step_that_takes_them() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[NO_RETRIES]).await;
    let number = "number: 5\nparameter: {}";
    site.define_step("number", number).await;
    let give = || step("give", "number", json!({}));
    let components = [web("front", 1), config("settings", "one")];
    let cases = [
        (
            "typed",
            with(give(), output("value", "number")),
            input("value", "image"),
            "image",
        ),
        (
            "absent",
            with(give(), output("value", "nowhere.x")),
            input("value", "image"),
            "image",
        ),
        (
            "path",
            with(give(), output("value", "number")),
            input("value", "ports[x].port"),
            "ports[x].port",
        ),
    ];
    for (app, give, input, expected) in cases {
        site.declare(app, with_steps(&components, &[give, with(apply("front"), input)]))
            .await;
        let app = until_ended(&site, app).await;
        let [phase, _, message] = outcome(&app, "front");
        assert!(phase == "failed" && message.contains(expected), "{message}");
        assert!(outcome(&app, "give")[0] == "succeeded");
    }
    let app = site.get(APPLICATION, "absent").await.unwrap();
    let [_, _, message] = outcome(&app, "give");
    assert!(message.contains("failed to get output from nowhere.x"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_does_not_compile_skips_its_step_and_says_why() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let steps = [
        with(print("broken"), json!({ "if": "status.x ==" })),
        with(print("unknown"), json!({ "if": "status.nowhere.succeeded" })),
        with(print("number"), json!({ "if": "1 + 1" })),
        print("next"),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_running("shop").await;
    for name in ["broken", "unknown", "number"] {
        let [phase, reason, message] = outcome(&app, name);
        assert_eq!([phase, reason], ["skipped", "Skip"], "{name}");
        assert!(message.starts_with("pre check error: "), "{name}: {message}");
    }
    assert_eq!(outcome(&app, "next"), ["succeeded", "", "printed"]);
}

/// Calls any function with any parameters, without the types of the packages.
const CALL: &str = r#"
    call: {#provider: parameter.provider, #do: parameter.function, $params: parameter.params, ...}
    parameter: {provider: string, function: string, params: _}
"#;

/// Functions that can't succeed without parameters, by provider.
const FUNCTIONS: [(&str, &[&str]); 5] = [
    (
        "kube",
        &["apply", "apply-in-parallel", "read", "list", "patch", "delete"],
    ),
    ("http", &["do"]),
    ("config", &["create", "read", "list", "delete"]),
    ("util", &["nonsense"]),
    ("nonsense", &["do"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_refuse_nonsense_by_name_and_change_nothing() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[NO_RETRIES]).await;
    site.define_step("call", CALL).await;
    let nested = json!({ "apiVersion": 5, "kind": ["x"], "metadata": "x" });
    let path = json!({ "apiVersion": "../v1", "kind": "ConfigMap", "metadata": { "name": "../../x", "namespace": 5 } });
    let nonsense = [
        json!({}),
        json!("text"),
        json!([1, null]),
        json!({ "value": 5, "resource": "x", "patch": [], "url": {}, "name": [], "namespace": 5, "template": {} }),
        json!({ "value": nested, "resource": nested, "patch": { "a": 1 }, "url": "file:///", "name": "../x", "config": 5 }),
        json!({ "value": path, "resource": path, "patch": {}, "filter": "x", "request": 5, "namespace": "..", "name": "x" }),
        json!({ "value": [path], "cluster": { "a": "b" }, "url": "http://", "template": "../x", "name": "x" }),
    ];
    let mut steps = Vec::new();
    for (provider, functions) in FUNCTIONS {
        for function in functions {
            for (number, params) in nonsense.iter().enumerate() {
                let properties = json!({ "provider": provider, "function": function, "params": params });
                steps.push(step(&format!("{provider}-{function}-{number}"), "call", properties));
            }
        }
    }
    let foreign = site.apply(CONFIG_MAP, "x", json!({ "data": { "a": "b" } })).await;
    site.declare("shop", with_parallel_steps(&[config("settings", "one")], &steps))
        .await;
    let app = until_ended(&site, "shop").await;
    for step in &steps {
        let name = step["name"].as_str().unwrap();
        let [phase, _, message] = outcome(&app, name);
        assert_eq!(phase, "failed", "{name}: {message}");
        assert!(message.len() > 10, "{name}: {message}");
    }
    assert_eq!(site.managed_objects().await, Vec::<Value>::new());
    assert_eq!(version(&site.get(CONFIG_MAP, "x").await.unwrap()), version(&foreign));
    site.declare("other", spec(&[config("settings", "one")])).await;
    site.until_running("other").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placements_and_waits_refuse_nonsense_by_name() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[NO_RETRIES]).await;
    site.define_step("call", CALL).await;
    let call = |name: &str, provider: &str, function: &str, params: Value| {
        step(
            name,
            "call",
            json!({ "provider": provider, "function": function, "params": params }),
        )
    };
    let steps = [
        call("policies", "multicluster", "deploy", json!({ "policies": 5 })),
        call(
            "parallelism",
            "multicluster",
            "deploy",
            json!({ "policies": [], "parallelism": "x" }),
        ),
        call("unknown", "multicluster", "deploy", json!({ "policies": ["nowhere"] })),
        call(
            "placements",
            "multicluster",
            "get-placements-from-topology-policies",
            json!({ "policies": [{}] }),
        ),
        call("duration", "builtin", "suspend", json!({ "duration": "soon" })),
        call("bytes", "util", "string", json!({ "bt": "!" })),
        call("fail", "builtin", "fail", json!({ "message": 5 })),
    ];
    site.declare("shop", with_parallel_steps(&[config("settings", "one")], &steps))
        .await;
    let app = until_ended(&site, "shop").await;
    for (name, expected) in [
        ("policies", "policies"),
        ("parallelism", "parallelism"),
        ("unknown", "policy nowhere not found"),
        ("placements", "policies"),
        ("duration", "duration \"soon\" is invalid"),
        ("bytes", "bt is not base64"),
        ("fail", ""),
    ] {
        let [phase, _, message] = outcome(&app, name);
        assert!(phase == "failed" && message.contains(expected), "{name}: {message}");
    }
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_two_megabytes_is_refused_and_its_reader_is_named() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[NO_RETRIES]).await;
    let template = "import \"strings\"\nlarge: strings.Repeat(\"x\", 2097152)\nparameter: {}";
    site.define_step("large", template).await;
    let applied = r#"
        import (
            "strings"
            "vela/kube"
        )
        apply: kube.#Apply & {$params: value: {
            apiVersion: "v1", kind: "ConfigMap"
            metadata: {name: "large", namespace: context.namespace}
            data: text: strings.Repeat("x", 2097152)
        }}
    "#;
    site.define_step("apply-large", applied).await;
    let steps = [
        with(step("give", "large", json!({})), output("large", "large")),
        with(print("take"), input("large", "message")),
        print("free"),
    ];
    site.declare("shop", with_parallel_steps(&[], &steps)).await;
    let apply = step("apply", "apply-large", json!({}));
    site.declare("applies", with_parallel_steps(&[], &[apply])).await;
    let app = until_step_says(&site, "shop", "take", "Pending on Input: large").await;
    let [phase, _, message] = outcome(&app, "give");
    assert_eq!(phase, "succeeded");
    assert!(
        message.contains("failed to set output large: values of the workflow exceed 512 KiB"),
        "{message}"
    );
    let applies = until_ended(&site, "applies").await;
    let [phase, _, message] = outcome(&applies, "apply");
    assert!(
        phase == "failed" && message.contains("arguments of apply: more than 1024 KiB"),
        "{message}"
    );
    assert_eq!(outcome(&app, "free")[0], "succeeded");
    assert!(app.to_string().len() < 64 << 10, "{}", app.to_string().len());
}

/// Declares an Application that gives a value, suspends, and takes the value.
async fn declare_suspended(site: &Site) -> String {
    site.define_step("give", "color: \"blue\"\nparameter: {}").await;
    let write = step("write", "export2config", json!({ "configName": "written", "data": {} }));
    let steps = [
        with(step("give", "give", json!({})), output("color", "color")),
        step("pause", "suspend", json!({})),
        with(write, input("color", "data.color")),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site
        .until(APPLICATION, "shop", "suspension", |app| {
            outcome(app, "pause")[0] == "suspending"
        })
        .await;
    let backend = &app["status"]["workflow"]["contextBackend"]["name"];
    backend.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_edited_or_deleted_while_the_process_runs_are_those_it_knows() {
    for change in [Some("garbage {{{"), Some("color: \"red\"\n"), None] {
        let site = Site::new().await;
        let _portolan = site.portolan(&[]).await;
        let values = declare_suspended(&site).await;
        match change {
            Some(text) => {
                site.edit(CONFIG_MAP, &values, json!({ "data": { "vars": text } }))
                    .await
            }
            None => site.delete(CONFIG_MAP, &values).await,
        }
        site.resume(By::Vela, "shop").await;
        site.until_running("shop").await;
        assert_eq!(
            site.get(CONFIG_MAP, "written").await.unwrap()["data"]["color"],
            "blue",
            "{change:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_takes_edited_values_and_names_those_that_it_can_not_read() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let values = declare_suspended(&site).await;
    drop(portolan);
    let set = async |text: &str| {
        site.edit(CONFIG_MAP, &values, json!({ "data": { "vars": text } }))
            .await
    };
    set("garbage {{{").await;
    site.resume(By::Vela, "shop").await;
    let portolan = site.portolan(&[]).await;
    site.until_said("shop", &format!("values of the workflow in configmap {values}"))
        .await;
    // Another Application goes on.
    site.declare("other", spec(&[config("settings", "one")])).await;
    site.until_running("other").await;
    drop(portolan);

    // As the peer writes them, with a default, and fields that no step uses.
    set("color: string | *\"red\"\nother: [...{a: 1}]\n").await;
    let _portolan = site.portolan(&[]).await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "written").await.unwrap()["data"]["color"], "red");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_lost_with_the_process_are_named_by_the_step_that_takes_them() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let values = declare_suspended(&site).await;
    drop(portolan);
    site.delete(CONFIG_MAP, &values).await;
    site.resume(By::Vela, "shop").await;
    let _portolan = site.portolan(&[]).await;
    let app = until_step_says(&site, "shop", "write", "Pending on Input: color").await;
    assert_eq!(outcome(&app, "write")[0], "pending");
    // A restart gives the value again.
    site.restart(By::Vela, "shop").await;
    site.until(APPLICATION, "shop", "suspension", |app| {
        outcome(app, "pause")[0] == "suspending"
    })
    .await;
    site.resume(By::Vela, "shop").await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "written").await.unwrap()["data"]["color"], "blue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_keep_their_usual_name_after_a_conflict_with_no_object() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    proxy.inject(1, ApiFault::Status(409), |request| {
        request.method == Method::POST && request.path.ends_with("/configmaps")
    });
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    let app = site.until_running("shop").await;
    assert_eq!(
        app["status"]["workflow"]["contextBackend"]["name"],
        "workflow-shop-context"
    );
}

/// The status is stored before a new revision is used. A spec that changed meanwhile belongs to the next pass: this one would
/// record its objects for a generation that does not declare them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spec_that_changes_while_its_revision_is_stored_is_deployed_by_the_next_pass() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    let pause = Arc::new(Pause::default());
    proxy.inject(1, ApiFault::Paused(pause.clone()), |request| {
        request.method == Method::PATCH && request.path.ends_with("/applications/shop/status")
    });
    site.declare("shop", spec(&[config("settings", "one")])).await;
    pause.arrived.given().await;
    site.declare("shop", spec(&[config("settings", "two")])).await;
    pause.goes_on.give();
    site.until_running("shop").await;

    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(settings["data"]["key"], "two");
    // It was created with its last contents.
    let is_change = |request: &ApiRequest| {
        request.method == Method::PATCH
            && request.path.ends_with("/configmaps/settings")
            && !request.query.contains_key("dryRun")
    };
    let changes: Vec<_> = proxy.requests().into_iter().filter(is_change).collect();
    assert!(changes.is_empty(), "{changes:#?}");
}
