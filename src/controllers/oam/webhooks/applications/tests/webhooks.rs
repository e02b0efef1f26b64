//! The webhooks with a client, caches and an evaluator.

use std::convert::Infallible;

use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::super::ApplicationWebhooks;
use super::super::settings::ApplicationWebhookSettings;
use super::{SYSTEM, request, settings};
use crate::api::oam::labels::SHARD_ID;
use crate::budget::{Budget, Budgets, ResourceMetrics};
use crate::controllers::oam::ReviewOptions;
use crate::controllers::oam::definitions::{DefinitionBudgets, DefinitionCaches};
use crate::controllers::oam::webhooks::review::{AdmissionRequest, Verdict};
use crate::cue::{self, Evaluator};

/// Webhooks whose API server answers with these pods, and whose caches are never complete.
fn webhooks(pods: &Value, settings: ApplicationWebhookSettings) -> ApplicationWebhooks {
    let list = json!({ "metadata": {}, "items": pods }).to_string();
    let service = tower::service_fn(move |request: Request<Body>| {
        assert_eq!(request.uri().path(), "/api/v1/namespaces/portolan/pods");
        let list = list.clone();
        async move { Ok::<_, Infallible>(Response::new(Body::from(list.into_bytes()))) }
    });
    let definition_budgets = DefinitionBudgets {
        tenants: Budget::new("test", 1 << 20),
        shared: Budget::new("test", 1 << 20),
        definition_namespace: SYSTEM.into(),
    };
    ApplicationWebhooks::new(
        Client::new(service, "home"),
        DefinitionCaches::new(None, definition_budgets),
        Evaluator::new(cue::EvaluatorOptions::default(), ResourceMetrics::unregistered()),
        Budgets::default(),
        settings,
    )
}

fn review(operation: &str, object: &Value) -> AdmissionRequest {
    request(&json!({
        "uid": "7", "operation": operation, "namespace": "team", "object": object,
        "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
    }))
}

fn scheduled() -> ApplicationWebhookSettings {
    ApplicationWebhookSettings {
        is_sharded: true,
        reviews: ReviewOptions {
            schedules_shards: true,
            ..ReviewOptions::default()
        },
        ..settings()
    }
}

#[tokio::test]
async fn the_shard_of_a_ready_pod_is_assigned() {
    let pod = json!({
        "metadata": { "name": "p", "labels": { "controller.core.oam.dev/shard-id": "a" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let webhooks = webhooks(&json!([pod]), scheduled());
    let Verdict::Allowed { patch, warnings } = webhooks.mutate(&review("CREATE", &json!({ "metadata": {} }))).await
    else {
        panic!("refused")
    };
    let expected = json!([{ "op": "add", "path": "/metadata/labels", "value": { SHARD_ID: "a" } }]);
    assert_eq!((json!(patch), warnings.len()), (expected, 0));
}

#[tokio::test]
async fn an_application_without_a_shard_is_allowed_with_a_warning() {
    let webhooks = webhooks(&json!([]), scheduled());
    let Verdict::Allowed { patch, warnings } = webhooks.mutate(&review("CREATE", &json!({ "metadata": {} }))).await
    else {
        panic!("refused")
    };
    let expected =
        format!("no label {SHARD_ID} is set, so the master reconciles the application: no pod of a shard is ready");
    assert_eq!((patch.len(), warnings), (0, vec![expected]));
    let deleted = webhooks.mutate(&review("DELETE", &Value::Null)).await;
    assert_eq!(deleted, Verdict::allowed());
}

#[tokio::test]
async fn the_controller_may_write_what_can_not_be_read() {
    let webhooks = webhooks(&json!([]), settings());
    let by = |user: &str| {
        request(&json!({
            "uid": "7", "operation": "UPDATE", "namespace": "team", "object": { "metadata": { "labels": [] } },
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
            "userInfo": { "username": user },
        }))
    };
    let own = settings().own_user;
    assert_eq!(webhooks.mutate(&by(&own)).await, Verdict::allowed());
    assert!(matches!(webhooks.mutate(&by("alice")).await, Verdict::Invalid(_)));
}

#[tokio::test]
async fn an_application_of_a_namespace_that_is_not_watched_is_allowed() {
    let limited = ApplicationWebhookSettings {
        watched_namespace: Some("other".to_owned()),
        ..settings()
    };
    let webhooks = webhooks(&json!([]), limited);
    assert_eq!(
        webhooks.validate(&review("CREATE", &json!({}))).await,
        Verdict::allowed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_review_ends_although_the_caches_are_not_complete() {
    let webhooks = webhooks(&json!([]), settings());
    let app = json!({ "metadata": { "name": "a" }, "spec": { "components": [{ "name": "a", "type": "web" }] } });
    let Verdict::Allowed { warnings, .. } = webhooks.validate(&review("CREATE", &app)).await else {
        panic!("refused")
    };
    assert_eq!(
        warnings,
        ["components were not checked: their definitions were not read in time"]
    );
    assert_eq!(
        webhooks.validate(&review("DELETE", &Value::Null)).await,
        Verdict::allowed()
    );
}
