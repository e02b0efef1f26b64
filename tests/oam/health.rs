//! Health policies, custom status and details, evaluated.

use portolan::controllers::oam::context::Context;
use portolan::controllers::oam::render::health::{Health, HealthTemplates, evaluate_health};
use serde_json::{Value, json};

use super::{evaluator, starter_text};

async fn health(templates: HealthTemplates<'_>, output: Value) -> Health {
    let context = json!({"name": "web", "output": output});
    evaluate_health(
        &evaluator(),
        templates,
        Some(&json!({"min": 2})),
        &Context::from(context.as_object().unwrap().clone()),
    )
    .await
    .unwrap()
}

const DEPLOYMENT: HealthTemplates<'_> = HealthTemplates {
    definition: "webservice",
    details: None,
    health_policy: Some(
        r#"
ready: {
	updated: *0 | int
} & {
	if context.output.status.updatedReplicas != _|_ {
		updated: context.output.status.updatedReplicas
	}
}
isHealth: ready.updated >= parameter.min
"#,
    ),
    custom_status: Some(
        r#"
import "strconv"

ready: *0 | int
if context.output.status.updatedReplicas != _|_ {
	ready: context.output.status.updatedReplicas
}
message: "Ready:" + strconv.FormatInt(ready, 10) + "/\(context.output.spec.replicas)"
"#,
    ),
};

#[tokio::test]
async fn health_and_message_follow_the_live_object() {
    let live = |status: Value| json!({"spec": {"replicas": 3}, "status": status});
    let starting = health(DEPLOYMENT, live(json!({}))).await;
    assert_eq!((starting.is_healthy, starting.message.as_str()), (false, "Ready:0/3"));
    let ready = health(DEPLOYMENT, live(json!({"updatedReplicas": 2}))).await;
    assert_eq!((ready.is_healthy, ready.message.as_str()), (true, "Ready:2/3"));
}

#[tokio::test]
async fn a_health_policy_that_can_not_be_evaluated_is_unhealthy_and_says_why() {
    let templates = HealthTemplates {
        custom_status: None,
        ..DEPLOYMENT
    };
    let broken = health(templates, json!({"status": {"updatedReplicas": "many"}})).await;
    assert!(!broken.is_healthy);
    assert!(broken.message.starts_with("health check: "), "{}", broken.message);
    assert!(!broken.message.contains("_vela"), "{}", broken.message);
}

#[tokio::test]
async fn details_are_texts_and_known_to_health_and_message() {
    let templates = HealthTemplates {
        definition: "webservice",
        details: Some(
            r#"
replicas: context.output.spec.replicas
name:     context.output.metadata.name
missing:  context.output.status.absent
kind:     string
ports:    [80, 443]
$secret:  "for the message"
hidden:   1 @private()
local:    1 @local()
if replicas > 1 {
	scaled: true
}
"#,
        ),
        health_policy: Some("isHealth: context.status.details.replicas == 3"),
        custom_status: Some(
            "message: \"\\(context.status.details.$secret) \\(context.status.healthy) \\(context.status.details.scaled)\"",
        ),
    };
    let live = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3}});
    let health = health(templates, live).await;
    assert!(health.is_healthy);
    assert_eq!(health.message, "for the message true true");
    let details = [
        ("replicas", "3"),
        ("name", "web"),
        ("missing", "_|_"),
        ("kind", "_|_"),
        ("ports", "[80, 443]"),
        ("scaled", "true"),
    ];
    let expected = details.map(|(label, text)| (label.to_owned(), text.to_owned()));
    assert_eq!(health.details, expected.into());
}

#[tokio::test]
async fn an_annotation_makes_a_workload_healthy() {
    for component in ["statefulset", "webservice"] {
        let policy = starter_text(&format!("components/{component}"), "/spec/status/healthPolicy");
        let templates = HealthTemplates {
            definition: component,
            health_policy: Some(&policy),
            ..HealthTemplates::default()
        };
        let live = |annotations: Value| {
            json!({
                "metadata": { "name": "web", "generation": 1, "annotations": annotations },
                "spec": { "replicas": 2 }, "status": { "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1 },
            })
        };
        let starting = health(templates, live(json!({ "other": "true" }))).await;
        assert!(!starting.is_healthy, "{component}: {starting:?}");
        let disabled = json!({ "app.oam.dev/disable-health-check": "true" });
        let health = health(templates, live(disabled)).await;
        assert!(health.is_healthy, "{component}: {health:?}");
    }
}
