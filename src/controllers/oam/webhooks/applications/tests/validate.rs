use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::settings::ApplicationWebhookSettings;
use super::super::validate::Validator;
use super::permissions::FakeReviews;
use super::{FakeDefinitions, objects, request, settings};
use crate::api::oam::labels;
use crate::controllers::oam::ReviewOptions;
use crate::controllers::oam::parse::tests::{Cluster, template};
use crate::controllers::oam::render::tests::fake::{FakeError, FakeEvaluator};
use crate::controllers::oam::webhooks::review::Verdict;

const OWN: &str = "system:serviceaccount:vela-system:portolan";

struct Fixture {
    settings: ApplicationWebhookSettings,
    definitions: FakeDefinitions,
    evaluator: FakeEvaluator,
    reviews: FakeReviews,
    user: &'static str,
}

impl Default for Fixture {
    fn default() -> Self {
        Self {
            settings: settings(),
            definitions: FakeDefinitions::of(Cluster::with_definitions()),
            evaluator: FakeEvaluator::default(),
            reviews: FakeReviews::default(),
            user: "alice",
        }
    }
}

impl Fixture {
    fn with_permissions() -> Self {
        Self {
            settings: ApplicationWebhookSettings {
                reviews: ReviewOptions {
                    checks_definition_rights: true,
                    ..ReviewOptions::default()
                },
                ..settings()
            },
            ..Self::default()
        }
    }

    async fn validate(&self, operation: &str, object: &Value, old: &Value) -> Verdict {
        let request = request(&json!({
            "uid": "7", "operation": operation, "namespace": "team", "object": object, "oldObject": old,
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
            "userInfo": { "username": self.user, "groups": ["dev"] },
        }));
        let validator = Validator {
            settings: &self.settings,
            definitions: &self.definitions,
            evaluator: &self.evaluator,
            inspector: &self.evaluator,
            reviews: &self.reviews,
        };
        validator.validate(&request).await
    }

    async fn create(&self, object: &Value) -> Verdict {
        self.validate("CREATE", object, &Value::Null).await
    }
}

/// An Application of a type that does not exist.
fn invalid() -> Value {
    json!({ "metadata": { "name": "shop" }, "spec": { "components": [{ "name": "a", "type": "gone" }] } })
}

fn valid() -> Value {
    json!({ "metadata": { "name": "shop" }, "spec": { "components": [{ "name": "a", "type": "worker" }] } })
}

fn is_refused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Invalid(_))
}

#[tokio::test]
async fn all_errors_are_listed_in_the_order_of_kubevela() {
    let mut fixture = Fixture::with_permissions();
    fixture
        .definitions
        .cluster
        .add("ComponentDefinition", "team", "fixed", &template("// +immutable"));
    fixture.evaluator = FakeEvaluator::new([Err(FakeError::Invalid("conflicting values"))]);
    let of = |image: &str| {
        json!({
            "metadata": {
                "name": "shop",
                "annotations": { labels::AUTO_UPDATE: "true", labels::PUBLISH_VERSION: format!("v-{image}") },
            },
            "spec": {
                "components": [{ "name": "a", "type": "fixed", "properties": { "image": image } }],
                "workflow": { "steps": [{ "name": "s", "type": "suspend", "timeout": "1d" }] },
            },
        })
    };
    let Verdict::Invalid(message) = fixture.validate("UPDATE", &of("b"), &of("a")).await else {
        panic!("allowed")
    };
    let fields: Vec<_> = message
        .lines()
        .skip(1)
        .map(|line| line.split('"').nth(1).unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "metadata.annotations",
            "spec.components[0].type",
            "spec.workflow.steps[0].type",
            "spec.workflow.steps.timeout",
            "schematic",
            "spec.components[0].properties[image]",
        ]
    );
    assert!(
        message.starts_with("\n  1) ") && message.ends_with(" (requestUID=7)"),
        "{message}"
    );
}

#[tokio::test]
async fn the_namespace_is_that_of_the_request() {
    let mut fixture = Fixture::default();
    let definition = template("output: {}");
    fixture
        .definitions
        .cluster
        .add("ComponentDefinition", "team", "gone", &definition);
    let rendered = || Ok(json!({ "output": {} }));
    fixture.evaluator = FakeEvaluator::new([rendered()]);
    assert_eq!(fixture.create(&invalid()).await, Verdict::allowed());
}

/// Its deletion may not wait for a type that is gone, or for a spec that can be decoded.
fn deleted(spec: &Value) -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec })
}

#[rstest]
#[case::once_it_is_deleted("UPDATE", deleted(&invalid()["spec"]), true)]
#[case::once_it_is_deleted_whatever_it_is("UPDATE", deleted(&json!("a")), true)]
#[case::before_that("UPDATE", invalid(), false)]
#[case::when_it_is_new("CREATE", invalid(), false)]
#[tokio::test]
async fn an_application_that_goes_is_not_reviewed(
    #[case] operation: &str,
    #[case] object: Value,
    #[case] is_allowed: bool,
) {
    let verdict = Fixture::default().validate(operation, &object, &valid()).await;
    assert_eq!(verdict == Verdict::allowed(), is_allowed, "{verdict:?}");
}

#[rstest]
#[case::the_object("CREATE", json!({ "spec": "a" }), Value::Null)]
#[case::no_object("CREATE", Value::Null, Value::Null)]
#[case::no_old_object("UPDATE", valid(), Value::Null)]
#[tokio::test]
async fn what_can_not_be_decoded_is_refused(#[case] operation: &str, #[case] object: Value, #[case] old: Value) {
    match Fixture::default().validate(operation, &object, &old).await {
        Verdict::Invalid(message) => {
            assert!(
                message.starts_with("failed to decode: ") && message.ends_with(" (requestUID=7)"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_application_that_takes_too_much_memory_may_only_shrink_or_go() {
    let mut large = valid();
    large["spec"]["components"][0]["properties"] = json!({ "a": objects(30_000) });
    let mut fixture = Fixture::default();
    let refused = fixture.create(&large).await;
    assert!(
        matches!(&refused, Verdict::Invalid(message) if message.starts_with("failed to decode: takes ")),
        "{refused:?}"
    );
    fixture.evaluator = FakeEvaluator::new([Ok(json!({ "output": {} }))]);
    assert_eq!(fixture.validate("UPDATE", &valid(), &large).await, Verdict::allowed());
    large["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(fixture.validate("UPDATE", &large, &large).await, Verdict::allowed());
}

/// Its definitions may be gone since, and the controller has to add and remove its finalizer.
#[tokio::test]
async fn an_unchanged_spec_is_not_checked_again() {
    let fixture = Fixture::default();
    let mut labeled = invalid();
    labeled["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(
        fixture.validate("UPDATE", &labeled, &invalid()).await,
        Verdict::allowed()
    );
    labeled["metadata"]["annotations"] = json!({ labels::AUTO_UPDATE: "true", labels::PUBLISH_VERSION: "v1" });
    assert!(is_refused(&fixture.validate("UPDATE", &labeled, &invalid()).await));
    let controller = Fixture {
        user: OWN,
        ..Fixture::default()
    };
    assert_eq!(
        controller.validate("UPDATE", &labeled, &invalid()).await,
        Verdict::allowed()
    );
    assert!(is_refused(&controller.validate("UPDATE", &invalid(), &valid()).await));
}

#[rstest]
#[case::published("v1", "v1", true, true)]
#[case::not_released_yet("v1", "v1", false, false)]
#[case::newly_published("v2", "v1", true, false)]
#[case::not_published("", "", true, false)]
#[tokio::test]
async fn components_of_a_published_version_come_from_its_revision(
    #[case] version: &str,
    #[case] old_version: &str,
    #[case] is_released: bool,
    #[case] is_allowed: bool,
) {
    let (mut new, mut old) = (invalid(), valid());
    new["metadata"]["annotations"] = json!({ labels::PUBLISH_VERSION: version });
    old["metadata"]["annotations"] = json!({ labels::PUBLISH_VERSION: old_version });
    if is_released {
        old["status"] = json!({ "latestRevision": { "name": "shop-v1", "revision": 1 } });
    }
    let verdict = Fixture::default().validate("UPDATE", &new, &old).await;
    assert_eq!(!is_refused(&verdict), is_allowed, "{verdict:?}");
}

#[tokio::test]
async fn components_of_shards_are_checked_on_request_only() {
    let mut fixture = Fixture {
        settings: ApplicationWebhookSettings {
            is_sharded: true,
            ..settings()
        },
        ..Fixture::default()
    };
    assert_eq!(fixture.create(&invalid()).await, Verdict::allowed());
    let mut steps = invalid();
    steps["spec"]["workflow"] = json!({ "steps": [{}, {}] });
    assert!(is_refused(&fixture.create(&steps).await));
    fixture.settings.reviews.checks_components_of_shards = true;
    assert!(is_refused(&fixture.create(&invalid()).await));
}

#[tokio::test(start_paused = true)]
async fn rights_that_can_not_be_checked_are_refused() {
    let mut fixture = Fixture::with_permissions();
    fixture.definitions.is_pending = true;
    let start = Instant::now();
    let expected = |cause: &str| {
        let line = format!("\n  1) \"spec\": unable to verify permissions, try again: {cause}. (requestUID=7)");
        Verdict::Invalid(line)
    };
    let refused = fixture.create(&valid()).await;
    assert_eq!(refused, expected("definitions were not read in time"));
    assert!(start.elapsed() < Duration::from_millis(3100));
    let mut fixture = Fixture::with_permissions();
    let definition = template("");
    fixture
        .definitions
        .cluster
        .add("ComponentDefinition", "team", "error", &definition);
    let error = json!({ "metadata": {}, "spec": { "components": [{ "name": "a", "type": "error" }] } });
    let refused = fixture.create(&error).await;
    assert!(
        matches!(&refused, Verdict::Invalid(message) if message.contains("try again: ") && message.contains("no response")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn rights_are_checked_after_each_change_by_another_than_the_controller() {
    let rendered = || Ok(json!({ "output": {} }));
    let mut labeled = valid();
    labeled["metadata"]["labels"] = json!({ "a": "b" });
    for (user, is_allowed) in [("alice", false), (OWN, true)] {
        let fixture = Fixture {
            user,
            evaluator: FakeEvaluator::new([rendered()]),
            ..Fixture::with_permissions()
        };
        assert_eq!(!is_refused(&fixture.create(&valid()).await), is_allowed);
        assert_eq!(
            !is_refused(&fixture.validate("UPDATE", &labeled, &valid()).await),
            is_allowed
        );
        assert_eq!(fixture.reviews.asked().is_empty(), is_allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_waits_for_a_definition_that_is_not_cached_yet() {
    let start = Instant::now();
    assert!(is_refused(&Fixture::default().create(&invalid()).await));
    assert!((300..310).contains(&start.elapsed().as_millis()));
    let built_in = json!({
        "metadata": {},
        "spec": {
            "components": [],
            "policies": [{ "name": "p", "type": "topology", "properties": { "clusters": ["local"] } }],
            "workflow": { "steps": [{ "name": "s", "type": "suspend" }] },
        },
    });
    let start = Instant::now();
    assert_eq!(Fixture::default().create(&built_in).await, Verdict::allowed());
    assert_eq!(start.elapsed(), Duration::ZERO);
}
