use rstest::rstest;
use serde_json::{Value, json};

use super::super::mutate::Mutation;
use super::super::settings::ApplicationWebhookSettings;
use super::{objects, request, settings};
use crate::api::oam::labels::{GROUP_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, SHARD_ID, USER_ANNOTATION};
use crate::controllers::oam::ReviewOptions;
use crate::controllers::oam::webhooks::review::Verdict;

fn mutated(object: &Value, old: &Value, settings: &ApplicationWebhookSettings, shard: Option<&str>) -> Verdict {
    let request = request(&json!({
        "uid": "7", "operation": "UPDATE", "namespace": "team",
        "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
        "userInfo": { "username": "alice", "groups": ["kubevela:dev", "system:authenticated"] },
        "object": object, "oldObject": old,
    }));
    match Mutation::parse(&request) {
        Ok(mutation) => mutation.verdict(&request, settings, shard),
        Err(verdict) => verdict,
    }
}

/// Returns the operations, after it has checked that they can be applied.
fn patch(object: &Value, old: &Value, settings: &ApplicationWebhookSettings, shard: Option<&str>) -> Value {
    let Verdict::Allowed { patch, warnings } = mutated(object, old, settings, shard) else {
        panic!("refused")
    };
    assert!(warnings.is_empty());
    json_patch::patch(&mut object.clone(), &patch).unwrap();
    json!(patch)
}

fn add(path: &str, value: impl Into<Value>) -> Value {
    json!({ "op": "add", "path": path, "value": value.into() })
}

#[rstest]
#[case::missing(json!([{ "type": "a" }, { "name": "b" }, {}]), &[("0", "step-0"), ("2", "step-2")])]
#[case::empty(json!([{ "name": "" }, { "name": null }]), &[("0", "step-0"), ("1", "step-1")])]
#[case::of_sub_steps(
    json!([{ "name": "a", "subSteps": [{}, { "name": "b" }, {}] }, { "subSteps": [{}] }]),
    &[("0/subSteps/0", "step-0-0"), ("0/subSteps/2", "step-0-2"), ("1", "step-1"), ("1/subSteps/0", "step-1-0")]
)]
#[case::of_sub_steps_only_two_levels_deep(json!([{ "name": "a", "subSteps": [{ "name": "b", "subSteps": [{}] }] }]), &[])]
#[case::after_null(json!([null, {}]), &[("1", "step-1")])]
#[case::none(json!(null), &[])]
fn steps_without_a_name_get_one(#[case] steps: Value, #[case] names: &[(&str, &str)]) {
    let object = json!({ "metadata": { "name": "a" }, "spec": { "workflow": { "steps": steps } } });
    let expected = names
        .iter()
        .map(|(path, name)| add(&format!("/spec/workflow/steps/{path}/name"), *name));
    let expected: Vec<Value> = expected.collect();
    assert_eq!(patch(&object, &Value::Null, &settings(), None), json!(expected));
}

#[rstest]
#[case(json!({ "metadata": {} }))]
#[case(json!({ "metadata": null, "spec": null }))]
#[case(json!({ "spec": { "workflow": null, "components": "anything" } }))]
#[case(json!({ "spec": { "workflow": { "steps": [] } } }))]
fn an_application_that_needs_no_change_gets_none(#[case] object: Value) {
    assert_eq!(patch(&object, &Value::Null, &settings(), None), json!([]));
}

#[rstest]
#[case(json!({ "spec": { "workflow": { "steps": "a" } } }))]
#[case(json!({ "metadata": { "labels": [] } }))]
#[case(json!(null))]
fn an_object_that_is_no_application_is_refused(#[case] object: Value) {
    let verdict = mutated(&object, &Value::Null, &settings(), None);
    let is_refused = matches!(&verdict, Verdict::Invalid(message) if message.starts_with("failed to decode: "));
    assert!(is_refused, "{verdict:?}");
}

#[test]
fn an_object_that_takes_too_much_memory_is_refused_unless_it_shrinks() {
    let large = json!({ "metadata": {}, "spec": { "workflow": { "steps": objects(30_000) } } });
    let verdict = mutated(&large, &Value::Null, &settings(), None);
    let is_refused = matches!(&verdict, Verdict::Invalid(message) if message.starts_with("failed to decode: takes "));
    assert!(is_refused, "{verdict:?}");
    let small = json!({ "metadata": {} });
    assert_eq!(patch(&small, &large, &settings(), None), json!([]));
}

fn authenticated(records_user: bool) -> ApplicationWebhookSettings {
    ApplicationWebhookSettings {
        is_authenticated: true,
        reviews: ReviewOptions {
            records_user,
            group_pattern: "kubevela:*".to_owned(),
            ..ReviewOptions::default()
        },
        ..settings()
    }
}

const GROUP_PATH: &str = "/metadata/annotations/app.oam.dev~1group";
const USER_PATH: &str = "/metadata/annotations/app.oam.dev~1username";

#[rstest]
#[case::first_annotation(json!({}), false, json!([add("/metadata/annotations", json!({ GROUP_ANNOTATION: "kubevela:dev" }))]))]
#[case::both(
    json!({ "annotations": null }),
    true,
    json!([add("/metadata/annotations", json!({ GROUP_ANNOTATION: "kubevela:dev", USER_ANNOTATION: "alice" }))])
)]
#[case::beside_others(
    json!({ "annotations": { "a": "b" } }),
    true,
    json!([add(USER_PATH, "alice"), add(GROUP_PATH, "kubevela:dev")])
)]
#[case::forged(
    json!({ "annotations": { USER_ANNOTATION: "admin", GROUP_ANNOTATION: "system:masters" } }),
    true,
    json!([add(USER_PATH, "alice"), add(GROUP_PATH, "kubevela:dev")])
)]
#[case::forged_user_without_the_flag(
    json!({ "annotations": { USER_ANNOTATION: "admin", GROUP_ANNOTATION: "system:masters" } }),
    false,
    json!([{ "op": "remove", "path": USER_PATH }, add(GROUP_PATH, "kubevela:dev")])
)]
#[case::same(json!({ "annotations": { USER_ANNOTATION: "alice", GROUP_ANNOTATION: "kubevela:dev" } }), true, json!([]))]
fn annotations_record_the_author(#[case] metadata: Value, #[case] records_user: bool, #[case] expected: Value) {
    let object = json!({ "metadata": metadata, "spec": {} });
    assert_eq!(
        patch(&object, &Value::Null, &authenticated(records_user), None),
        expected
    );
}

#[test]
fn an_author_without_groups_leaves_no_group_of_another() {
    let mut settings = authenticated(false);
    "none:*".clone_into(&mut settings.reviews.group_pattern);
    let object = json!({ "metadata": { "annotations": { GROUP_ANNOTATION: "system:masters" } } });
    assert_eq!(
        patch(&object, &Value::Null, &settings, None),
        json!([add(GROUP_PATH, "")])
    );
}

#[rstest]
fn a_service_account_is_refused_with_the_gate_only(#[values("a", "")] account: &str) {
    let object = json!({ "metadata": { "annotations": { SERVICE_ACCOUNT_ANNOTATION: account } } });
    assert_eq!(patch(&object, &Value::Null, &settings(), None), json!([]));
    let refused = "service-account annotation is not permitted when authentication enabled";
    let verdict = mutated(&object, &Value::Null, &authenticated(true), None);
    assert_eq!(verdict, Verdict::Invalid(refused.to_owned()));
}

#[test]
fn writes_of_the_controller_keep_the_author() {
    let mut settings = authenticated(true);
    settings.own_user = "alice".to_owned();
    let annotations = json!({ USER_ANNOTATION: "bob", SERVICE_ACCOUNT_ANNOTATION: "a" });
    let object = json!({ "metadata": { "annotations": annotations } });
    assert_eq!(patch(&object, &Value::Null, &settings, None), json!([]));
}

const SHARD_PATH: &str = "/metadata/labels/controller.core.oam.dev~1scheduled-shard-id";

fn scheduled(shards: &[&str]) -> ApplicationWebhookSettings {
    let shards = shards.iter().map(|shard| (*shard).to_owned()).collect();
    ApplicationWebhookSettings {
        is_sharded: true,
        reviews: ReviewOptions {
            schedules_shards: true,
            schedulable_shards: shards,
            ..ReviewOptions::default()
        },
        ..settings()
    }
}

fn labeled(shard: &str) -> Value {
    json!({ "metadata": { "name": "app", "labels": { SHARD_ID: shard } } })
}

#[rstest]
#[case::its_own(labeled("b"), labeled("a"), json!([]))]
#[case::of_the_old_object(json!({ "metadata": {} }), labeled("a"), json!([add("/metadata/labels", json!({ SHARD_ID: "a" }))]))]
#[case::in_the_place_of_an_empty_label(labeled(""), labeled("a"), json!([add(SHARD_PATH, "a")]))]
#[case::configured(labeled(""), labeled(""), json!([add(SHARD_PATH, "s")]))]
#[case::for_a_new_application(labeled(""), Value::Null, json!([add(SHARD_PATH, "s")]))]
fn an_application_keeps_its_shard_or_gets_one(#[case] object: Value, #[case] old: Value, #[case] expected: Value) {
    assert_eq!(patch(&object, &old, &scheduled(&["s"]), Some("ready")), expected);
    assert_eq!(
        patch(&object, &old, &settings(), Some("ready")),
        json!([]),
        "without sharding"
    );
}

#[test]
fn without_configured_shards_a_ready_one_is_assigned() {
    let object = json!({ "metadata": { "labels": {} } });
    let settings = scheduled(&[]);
    assert_eq!(
        patch(&object, &Value::Null, &settings, Some("ready")),
        json!([add(SHARD_PATH, "ready")])
    );
    assert_eq!(patch(&object, &Value::Null, &settings, None), json!([]));
}

#[test]
fn changes_have_the_order_of_kubevela() {
    let mut settings = authenticated(true);
    settings.is_sharded = true;
    settings.reviews.schedules_shards = true;
    settings.reviews.schedulable_shards = vec!["s".to_owned()];
    let object = json!({ "metadata": { "labels": {}, "annotations": {} }, "spec": { "workflow": { "steps": [{}] } } });
    let expected = [
        add(USER_PATH, "alice"),
        add(GROUP_PATH, "kubevela:dev"),
        add(SHARD_PATH, "s"),
        add("/spec/workflow/steps/0/name", "step-0"),
    ];
    assert_eq!(patch(&object, &Value::Null, &settings, None), json!(expected));
}
