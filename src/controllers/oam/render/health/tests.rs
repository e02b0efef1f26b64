use super::*;
use crate::controllers::oam::render::tests::fake::{FakeError, FakeEvaluator};

const ALL: HealthTemplates<'_> = HealthTemplates {
    definition: "webservice",
    details: Some("a: 1\nb: 2 @local()"),
    health_policy: Some("isHealth: context.status.details.a == 1"),
    custom_status: Some("message: \"\\(context.status.healthy)\""),
};

async fn health(templates: HealthTemplates<'_>, evaluator: &FakeEvaluator) -> Result<Health, FakeError> {
    evaluate_health(evaluator, templates, None, &Context::default()).await
}

#[tokio::test]
async fn details_and_health_are_handed_to_the_templates_after_them() {
    let evaluator = FakeEvaluator::new([
        Ok(json!({"labels": ["a", "b", "$c", "d", "context", "x".repeat(32)],
            "values": {"a": "text", "b": 1, "$c": [1], "x".repeat(32): 1}})),
        Ok(json!({"isHealth": true})),
        Ok(json!({"message": "Ready:1/1"})),
    ]);
    let health = health(ALL, &evaluator).await.unwrap();
    let details = [("a".to_owned(), "text".to_owned()), ("d".to_owned(), "_|_".to_owned())];
    let expected = Health {
        is_healthy: true,
        message: "Ready:1/1".to_owned(),
        details: details.into(),
    };
    assert_eq!(health, expected);
    let sources = evaluator.sources();
    assert!(
        sources[1].contains(r#""status": {"details":{"$c":[1],"a":"text"}}"#),
        "{}",
        sources[1]
    );
    assert!(sources[2].contains(r#""healthy":true"#), "{}", sources[2]);
}

#[tokio::test]
async fn status_templates_see_the_parameters_in_their_context() {
    for (properties, expected) in [(Some(json!({ "replicas": 2 })), r#"{"replicas":2}"#), (None, "{}")] {
        let answers = ["isHealth", "message"].map(|field| Ok(json!({ (field): true })));
        let evaluator = FakeEvaluator::new([Ok(json!({}))].into_iter().chain(answers));
        let templates = HealthTemplates {
            definition: "webservice",
            details: Some("a: context.parameter"),
            health_policy: Some("isHealth: context.parameter.replicas == 2"),
            custom_status: Some("message: \"\\(context.parameter.replicas)\""),
        };
        let health = evaluate_health(&evaluator, templates, properties.as_ref(), &Context::default()).await;
        assert!(health.unwrap().is_healthy);
        let expected = format!(r#"context: {{"parameter": {expected}"#);
        let sources = evaluator.sources();
        assert_eq!(sources.len(), 3);
        for source in sources {
            assert!(source.contains(&expected), "{source}");
        }
    }
}

#[tokio::test]
async fn without_templates_nothing_is_evaluated() {
    let evaluator = FakeEvaluator::default();
    let health = health(HealthTemplates::default(), &evaluator).await.unwrap();
    assert!(health.is_healthy && health.message.is_empty() && health.details.is_empty());
    assert!(evaluator.sources().is_empty());
}

#[tokio::test]
async fn a_health_policy_that_fails_is_unhealthy_and_named() {
    let templates = HealthTemplates { details: None, ..ALL };
    for (answer, expected) in [
        (
            Err(FakeError::Invalid("_vela.isHealth: no")),
            "health check: isHealth: no",
        ),
        (Err(FakeError::Stopped), "health check: stopped: more than 10s"),
        (Ok(json!({"isHealth": 1})), "health check: isHealth is not a boolean"),
        (Ok(json!({})), "health check: isHealth is not a boolean"),
    ] {
        let evaluator = FakeEvaluator::new([answer, Ok(json!({"message": "m"}))]);
        let health = health(templates, &evaluator).await.unwrap();
        assert!(!health.is_healthy);
        assert_eq!(health.message, expected);
    }
    let broken = HealthTemplates {
        health_policy: Some("isHealth: {"),
        ..HealthTemplates::default()
    };
    let health = health(broken, &FakeEvaluator::default()).await.unwrap();
    assert_eq!(health.message, "health check: line 1: a bracket is not closed");
}

#[tokio::test]
async fn details_and_messages_that_fail_are_left_out() {
    let invalid = || Err(FakeError::Invalid("no"));
    let evaluator = FakeEvaluator::new([invalid(), Ok(json!({"isHealth": true})), invalid()]);
    let health = health(ALL, &evaluator).await.unwrap();
    assert!(health.is_healthy && health.message.is_empty() && health.details.is_empty());
}

#[tokio::test]
async fn texts_are_printable_short_and_few() {
    let hostile = format!("\u{1b}[31m\u{202e}{}", "x".repeat(5_000));
    let names: Vec<String> = (0..100).map(|number| format!("\u{202e}d{number:03}")).collect();
    let values: Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), json!({ "a": hostile.as_str() })))
        .collect();
    let evaluator = FakeEvaluator::new([
        Ok(json!({ "labels": names, "values": values })),
        Ok(json!({"isHealth": true})),
        Ok(json!({ "message": hostile.as_str() })),
    ]);
    let health = health(ALL, &evaluator).await.unwrap();
    assert_eq!(health.details.len(), 64);
    assert_eq!(health.details.keys().next().unwrap(), "d000");
    for text in health.details.values().chain([&health.message]) {
        assert!(text.len() <= 1024 && text.contains("[31m"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\n', '\t']), "{text}");
    }

    let evaluator = FakeEvaluator::new([Err(FakeError::Invalid("\u{1b}[2Jno"))]);
    let templates = HealthTemplates {
        health_policy: ALL.health_policy,
        ..HealthTemplates::default()
    };
    let health = super::evaluate_health(&evaluator, templates, None, &Context::default()).await;
    assert_eq!(health.unwrap().message, "health check:  [2Jno");
}

#[tokio::test]
async fn a_missing_evaluator_says_nothing_about_the_health() {
    assert_eq!(health(ALL, &FakeEvaluator::default()).await, Err(FakeError::Missing));
}

#[test]
fn a_missing_object_is_named() {
    let health = Health::not_found("Deployment", "web");
    assert!(!health.is_healthy);
    assert_eq!(health.message, "Deployment web not found");
}

#[test]
fn values_are_printed_as_formatted_cue() {
    for (value, expected) in [
        (json!("a \"b\""), "a \"b\""),
        (json!(1.5), "1.5"),
        (json!(null), "null"),
        (json!([1, "a"]), "[1, \"a\"]"),
        (json!({}), "{}"),
        (json!([{"a": 1}]), "[{\n\ta: 1\n}]"),
        (
            json!({"a": 1, "long": true, "x-y": "z"}),
            "{\n\ta:     1\n\tlong:  true\n\t\"x-y\": \"z\"\n}",
        ),
        (
            json!({"a": {"b": 1}, "long": 2}),
            "{\n\ta: {\n\t\tb: 1\n\t}\n\tlong: 2\n}",
        ),
    ] {
        assert_eq!(cue_text::cue_text(&value), expected);
    }
}
