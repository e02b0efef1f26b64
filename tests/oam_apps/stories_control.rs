//! Steps that end or restart the workflow, and steps with values of the workflow.

use jiff::Timestamp;
use serde_json::json;

use super::apps::config;
use super::site::Site;
use super::workflows::{input, outcome, status, step, until_ended, with, with_steps};
use super::{APPLICATION, CONFIG_MAP};

/// Seconds until a run that a step asks for, more than the first run takes.
const LATER: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_asks_for_another_run_at_a_time() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let time = Timestamp::from_second(Timestamp::now().as_second() + LATER).unwrap();
    let steps = [step("again", "restart-workflow", json!({ "at": time.to_string() }))];
    site.declare("shop", with_steps(&[], &steps)).await;
    let first = site
        .until(APPLICATION, "shop", "scheduled", |app| {
            app["status"]["workflowRestartScheduledAt"].is_string()
                && app["metadata"]["annotations"]["app.oam.dev/restart-workflow"].is_null()
        })
        .await;
    let id = status(&first, "again")["id"].clone();
    let second = site
        .until(APPLICATION, "shop", "another run", |app| {
            let again = status(app, "again");
            again["phase"] == "succeeded" && again["id"] != id && app["status"]["workflow"]["finished"] == true
        })
        .await;
    let started: Timestamp = second["status"]["workflow"]["startTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(started >= time, "{started} {time}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_asks_for_a_run_after_each_run_and_a_wrong_request_fails() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let steps = [step("again", "restart-workflow", json!({ "every": "2d" }))];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;
    let app = site
        .until(APPLICATION, "shop", "scheduled", |app| {
            app["status"]["workflowRestartScheduledAt"].is_string()
        })
        .await;
    assert_eq!(app["metadata"]["annotations"]["app.oam.dev/restart-workflow"], "48h");

    let steps = [step("again", "restart-workflow", json!({ "every": "soon" }))];
    site.declare("other", with_steps(&[], &steps)).await;
    let app = until_ended(&site, "other").await;
    let [phase, reason, message] = outcome(&app, "again");
    assert_eq!((phase, reason), ("failed", "Action"));
    assert!(message.starts_with("parameter.every is not a duration"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_ends_the_workflow_and_cleanup_still_runs() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let template = r#"
        import "vela/op"
        stop: op.#Break & {message: "enough"}
        parameter: {}
    "#;
    site.define_step("stop", template).await;
    let write = |name: &str| step(name, "export2config", json!({ "configName": name, "data": {} }));
    let steps = [
        step("stop", "stop", json!({})),
        write("next"),
        with(write("cleanup"), json!({ "if": "always" })),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = until_ended(&site, "shop").await;
    assert_eq!(outcome(&app, "stop"), ["succeeded", "Terminate", "enough"]);
    assert_eq!(outcome(&app, "next")[..2], ["skipped", "Skip"]);
    assert_eq!(outcome(&app, "cleanup")[0], "succeeded");
    assert_eq!(app["status"]["status"], "workflowTerminated");
    assert_eq!(site.get(CONFIG_MAP, "next").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_puts_a_value_that_templates_and_inputs_read() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    let put = r#"
        import "vela/builtin"
        put: builtin.#DoVar & {$params: {method: "Put", path: "db.host", value: parameter.host}}
        parameter: host: string
    "#;
    let get = r#"
        import "vela/op"
        get: op.#DoVar & {path: parameter.path}
        say: op.#Message & {message: get.value}
        parameter: path: string
    "#;
    site.define_step("put", put).await;
    site.define_step("get", get).await;
    let steps = [
        step("put", "put", json!({ "host": "10.0.0.1" })),
        step("get", "get", json!({ "path": "db.host" })),
        with(
            step("say", "print-message-in-status", json!({})),
            input("db.host", "message"),
        ),
        step("other", "put", json!({ "host": "10.0.0.2" })),
        step("lost", "get", json!({ "path": "lost" })),
    ];
    let always = steps.map(|step| with(step, json!({ "if": "always" })));
    site.declare("shop", with_steps(&[], &always)).await;
    let app = until_ended(&site, "shop").await;
    assert_eq!(outcome(&app, "get"), ["succeeded", "", "10.0.0.1"]);
    assert_eq!(outcome(&app, "say"), ["succeeded", "", "10.0.0.1"]);
    for (name, why) in [
        ("other", "put: failed to set db.host: conflicting values"),
        ("lost", "get: failed to lookup value: var(path=lost) not exist"),
    ] {
        assert_eq!(outcome(&app, name), ["failed", "FailedAfterRetries", why]);
    }
}
