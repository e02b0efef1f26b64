use k8s_openapi::api::core::v1::ConfigMap;
use rstest::rstest;
use serde_json::{Value, json};

use super::decide::{Naming, RecordedDefinition, RevisionDecision, decide, expendable, naming};
use super::record::{is_owned_by, is_recorded_in, revision_of};
use super::schema::{CurrentRevision, NotStored, config_map_name, config_maps, reason_to_keep};
use super::status;
use crate::api::oam::{
    ComponentDefinition, DefinitionKind, DefinitionRevision, LatestRevision, PolicyDefinition, TraitDefinition,
};
use crate::cue::{Error, TextErrorKind, TextErrors};

fn named(name: &str) -> Naming {
    Naming::Named(name.to_owned())
}

#[rstest]
#[case("", None, Naming::Numbered)]
#[case("", Some(""), Naming::Numbered)]
#[case("", Some("stable"), named("web-vstable"))]
#[case("1.2.3", None, named("web-v1.2.3"))]
#[case("v1.2", None, named("web-v1.2.0"))]
#[case("1-alpha.1", None, named("web-v1.0.0-alpha.1"))]
#[case("1.2.3", Some("stable"), named("web-v1.2.3"))]
fn a_revision_is_named_by_version_annotation_or_number(
    #[case] version: &str,
    #[case] annotation: Option<&str>,
    #[case] expected: Naming,
) {
    assert_eq!(naming("web", version, annotation), Ok(expected));
}

#[rstest]
#[case("latest", None, "\"latest\" is no semantic version")]
#[case("1.2.3.4", None, "\"1.2.3.4\" is no semantic version")]
#[case("1.2.3+build", None, "\"web-v1.2.3+build\" is no name")]
#[case("", Some("../../secrets/x"), "is no name")]
#[case("", Some("Stable"), "is no name")]
#[case("", Some("x."), "is no name")]
fn a_version_or_name_that_no_object_can_have_is_refused(
    #[case] version: &str,
    #[case] annotation: Option<&str>,
    #[case] message: &str,
) {
    let error = naming("web", version, annotation).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
    let long = "x".repeat(300);
    assert!(naming("web", "", Some(&long)).is_err());
}

fn latest(name: &str, revision: i64) -> LatestRevision {
    LatestRevision {
        name: name.to_owned(),
        revision,
        ..LatestRevision::default()
    }
}

fn recorded(name: &str, number: i64, is_current: bool) -> RecordedDefinition<'_> {
    RecordedDefinition {
        name,
        number,
        is_current,
    }
}

/// Decides with no other names than those of the recorded revisions.
fn decided(naming: Naming, latest: Option<&LatestRevision>, revisions: &[RecordedDefinition<'_>]) -> RevisionDecision {
    decide("web", naming, latest, revisions, |name| {
        revisions.iter().any(|revision| revision.name == name)
    })
}

fn create(name: &str, number: i64) -> RevisionDecision {
    RevisionDecision::Create {
        name: name.to_owned(),
        number,
    }
}

fn keep(name: &str) -> RevisionDecision {
    RevisionDecision::Keep(name.to_owned())
}

#[test]
fn an_edit_makes_the_next_number_and_nothing_else_does() {
    let one = latest("web-v1", 1);
    assert_eq!(decided(Naming::Numbered, None, &[]), create("web-v1", 1));
    let same = [recorded("web-v1", 1, true)];
    assert_eq!(decided(Naming::Numbered, Some(&one), &same), keep("web-v1"));
    let edited = [recorded("web-v1", 1, false)];
    assert_eq!(decided(Naming::Numbered, Some(&one), &edited), create("web-v2", 2));
    // The contents of an older revision are new again, as in KubeVela.
    let back = [recorded("web-v1", 1, true), recorded("web-v2", 2, false)];
    let two = latest("web-v2", 2);
    assert_eq!(decided(Naming::Numbered, Some(&two), &back), create("web-v3", 3));
}

#[test]
fn a_revision_that_the_status_does_not_name_yet_is_not_made_again() {
    let revisions = [recorded("web-v1", 1, false), recorded("web-v2", 2, true)];
    for status in [None, Some(latest("web-v1", 1))] {
        assert_eq!(decided(Naming::Numbered, status.as_ref(), &revisions), keep("web-v2"));
    }
}

#[test]
fn numbers_are_never_used_twice() {
    // The last revision was deleted.
    assert_eq!(
        decided(Naming::Numbered, Some(&latest("web-v7", 7)), &[]),
        create("web-v8", 8)
    );
    // A trait of the same name has revisions too.
    let is_taken = |name: &str| matches!(name, "web-v1" | "web-v2");
    assert_eq!(
        decide("web", Naming::Numbered, None, &[], is_taken),
        create("web-v3", 3)
    );
    let last = decide("web", Naming::Numbered, Some(&latest("x", i64::MAX)), &[], |_| true);
    assert_eq!(last, RevisionDecision::Conflict(format!("web-v{}", i64::MAX)));
}

#[test]
fn a_named_revision_never_changes() {
    let revisions = [recorded("web-v1.0.0", 1, true), recorded("web-v1.1.0", 2, false)];
    let two = latest("web-v1.1.0", 2);
    let decided = |name: &str| decided(named(name), Some(&two), &revisions);
    assert_eq!(decided("web-v1.0.0"), keep("web-v1.0.0"));
    assert_eq!(
        decided("web-v1.1.0"),
        RevisionDecision::Conflict("web-v1.1.0".to_owned())
    );
    assert_eq!(decided("web-v2.0.0"), create("web-v2.0.0", 3));
    let foreign = decide("web", named("web-v3"), None, &[], |name| name == "web-v3");
    assert_eq!(foreign, RevisionDecision::Conflict("web-v3".to_owned()));
}

#[test]
fn the_oldest_revisions_beyond_the_limit_are_expendable_unless_in_use() {
    let names = ["web-v10", "web-v9", "web-v1", "web-v2", "web-v3"];
    let numbers = [10, 9, 1, 2, 3];
    let revisions: Vec<_> = names
        .iter()
        .zip(numbers)
        .map(|(name, number)| recorded(name, number, false))
        .collect();
    let is_in_use = |name: &str| matches!(name, "web-v10" | "web-v1");
    assert_eq!(expendable(&revisions, is_in_use, 1), ["web-v2", "web-v3"]);
    assert_eq!(expendable(&revisions, is_in_use, 0), ["web-v2", "web-v3", "web-v9"]);
    assert!(expendable(&revisions, is_in_use, 3).is_empty());
}

fn trait_definition(spec: Value) -> TraitDefinition {
    let metadata = json!({ "name": "scaler", "namespace": "team", "uid": "u", "labels": { "a": "b" },
        "resourceVersion": "7", "managedFields": [{ "manager": "m" }] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": { "configMapRef": "x" } })).unwrap()
}

fn template(text: &str) -> Value {
    json!({ "schematic": { "cue": { "template": text } } })
}

#[test]
fn a_revision_holds_the_definition_with_labels_owner_and_hash() {
    let definition = trait_definition(template("a"));
    let revision = revision_of(&definition, "scaler-v3", 3).unwrap();
    let expected = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "DefinitionRevision",
        "metadata": {
            "name": "scaler-v3", "namespace": "team",
            "labels": { "a": "b", "trait.oam.dev/name": "scaler" },
            "ownerReferences": [{ "apiVersion": "core.oam.dev/v1beta1", "kind": "TraitDefinition", "name": "scaler",
                "uid": "u", "controller": true }],
        },
        "spec": {
            "revision": 3, "revisionHash": revision.spec.revision_hash, "definitionType": "Trait",
            "traitDefinition": {
                "apiVersion": "core.oam.dev/v1beta1", "kind": "TraitDefinition",
                "metadata": { "name": "scaler", "namespace": "team", "uid": "u", "labels": { "a": "b" },
                    "resourceVersion": "7" },
                "spec": template("a"),
            },
        },
    });
    assert_eq!(json!(revision), expected);
    let hash = |spec| revision_of(&trait_definition(spec), "n", 1).unwrap().spec.revision_hash;
    assert!(hash(template("a")).starts_with('p') && hash(template("a")).len() == 17);
    assert_eq!(hash(template("a")), revision.spec.revision_hash);
    assert_ne!(hash(template("b")), revision.spec.revision_hash);
    assert!(is_owned_by(&revision, &definition));
    let recreated: TraitDefinition = serde_json::from_value(json!({ "metadata": { "uid": "other" } })).unwrap();
    assert!(!is_owned_by(&revision, &recreated));
    assert!(
        is_owned_by(&DefinitionRevision::default(), &recreated),
        "restored without owners"
    );
}

#[rstest]
#[case::same(json!({}), json!({}), true)]
#[case::template(json!({}), template("b"), false)]
#[case::dropped_by_go(json!({ "podDisruptive": false }), json!({}), true)]
#[case::written_by_go(json!({}), json!({ "definitionRef": { "name": "" }, "conflictsWith": null }), true)]
#[case::field(json!({ "podDisruptive": true }), json!({}), false)]
#[case::extension(json!({ "extension": { "a": false } }), json!({ "extension": {} }), false)]
fn contents_are_compared_without_what_kubevela_drops(
    #[case] new: Value,
    #[case] recorded: Value,
    #[case] expected: bool,
) {
    let with = |more: Value| {
        let mut spec = template("a");
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec
    };
    let revision: DefinitionRevision = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "revision": 1, "revisionHash": "4f3d", "definitionType": "Trait",
            "componentDefinition": { "metadata": { "creationTimestamp": null }, "spec": { "workload": {} } },
            "traitDefinition": { "metadata": { "creationTimestamp": null }, "spec": with(recorded), "status": {} },
        },
    }))
    .unwrap();
    assert_eq!(is_recorded_in(&trait_definition(with(new)), &revision), expected);
    assert!(
        !is_recorded_in(&ComponentDefinition::default(), &revision),
        "a revision of another kind"
    );
}

fn policy(status: Value) -> PolicyDefinition {
    let metadata = json!({ "name": "p", "uid": "u", "resourceVersion": "3" });
    let mut policy: PolicyDefinition = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    policy.status = Some(serde_json::from_value(status).unwrap());
    policy
}

fn synced(status: &str, message: &str) -> Value {
    json!({ "type": "Synced", "status": status, "reason": "r", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn recorded_status(conditions: &[Value]) -> Value {
    let one = json!({ "name": "p-v1", "revision": 1, "revisionHash": "4f3d" });
    json!({ "latestRevision": one, "configMapRef": "policy-schema-p", "conditions": conditions })
}

#[rstest]
#[case::as_kubevela_leaves_it(recorded_status(&[]), true)]
#[case::after_success(recorded_status(&[synced("True", "")]), true)]
#[case::after_failure(recorded_status(&[synced("False", "why")]), false)]
#[case::without_schema(json!({ "latestRevision": { "name": "p-v1" } }), false)]
#[case::of_another_revision(json!({ "latestRevision": { "name": "p-v0" }, "configMapRef": "policy-schema-p" }), false)]
#[case::recorded_again(
    json!({ "latestRevision": { "name": "p-v1", "revision": 2 }, "configMapRef": "policy-schema-p" }),
    false
)]
#[case::empty(json!({}), false)]
fn a_definition_is_complete_with_its_revision_and_its_schema(#[case] status: Value, #[case] expected: bool) {
    let is_complete = status::is_complete(&policy(status), &latest("p-v1", 1), "policy-schema-p");
    assert_eq!(is_complete, expected);
}

#[test]
fn a_status_is_written_only_for_news() {
    let after_failure = recorded_status(&[synced("False", "why")]);
    let patch = status::recorded(&policy(after_failure.clone()), &latest("p-v1", 1), "policy-schema-p");
    assert_eq!(patch["status"]["conditions"][0]["reason"], "ReconcileSuccess");
    assert_eq!(patch["status"]["configMapRef"], "policy-schema-p");
    assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "3" }));

    let without_schema = |status: &Value, message: &str| {
        let policy = policy(status.clone());
        status::recorded_without_schema(&policy, &latest("p-v1", 1), message)
    };
    assert_eq!(without_schema(&after_failure, "why"), None);
    let patch = without_schema(&json!({ "conditions": [synced("False", "why")] }), "why").unwrap();
    assert_eq!(patch["status"]["latestRevision"]["name"], "p-v1");
    assert_eq!(patch["status"]["conditions"][0]["reason"], "ReconcileError");
    assert_eq!(patch["status"].get("configMapRef"), None, "it stays");

    let has_failed = |status: &Value| status::failed(&policy(status.clone()), "why");
    assert_eq!(has_failed(&after_failure), None);
    let other = json!({ "type": "Ready", "status": "True", "reason": "", "message": "" });
    let patch = has_failed(&json!({ "conditions": [synced("False", "before"), other] })).unwrap();
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
    assert_eq!(
        (&conditions[0]["message"], &conditions[1]["type"]),
        (&json!("why"), &json!("Ready"))
    );
    assert_eq!(
        conditions[0]["lastTransitionTime"], "2026-01-01T00:00:00Z",
        "its status is unchanged"
    );
}

#[test]
fn the_config_maps_of_a_definition_and_its_revision_hold_the_schema() {
    let current = CurrentRevision {
        latest: latest("scaler-v3", 3),
        uid: "r".to_owned(),
    };
    let config_map = |described: &str, kind: &str, uid: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("trait-schema-{described}"), "namespace": "team",
                "labels": { "a": "b", "definition.oam.dev": "schema", "definition.oam.dev/name": described },
                "annotations": { "definition.oam.dev/appliedWorkloads": "deployments.apps,web" },
                "ownerReferences": [{ "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "name": described, "uid": uid }],
            },
            "data": { "openapi-v3-json-schema": "{}" },
        })
    };
    let expected = json!([
        config_map("scaler", "TraitDefinition", "u"),
        config_map("scaler-v3", "DefinitionRevision", "r"),
    ]);
    let [for_any_workload, _] = config_maps(&trait_definition(template("a")), &current, "{}");
    assert_eq!(for_any_workload.metadata.annotations, None);
    let mut spec = template("a");
    spec["appliesToWorkloads"] = json!(["deployments.apps", "web"]);
    assert_eq!(json!(config_maps(&trait_definition(spec), &current, "{}")), expected);
    let kinds = [
        DefinitionKind::Component,
        DefinitionKind::Trait,
        DefinitionKind::Policy,
        DefinitionKind::WorkflowStep,
    ];
    assert_eq!(
        kinds.map(|kind| config_map_name(kind, "x")),
        [
            "component-schema-x",
            "trait-schema-x",
            "policy-schema-x",
            "workflowstep-schema-x"
        ]
    );
}

#[test]
fn a_config_map_without_a_schema_or_of_another_object_stays() {
    let current = CurrentRevision {
        latest: latest("scaler-v3", 3),
        uid: "r".to_owned(),
    };
    let [config_map, _] = config_maps(&trait_definition(template("a")), &current, "{}");
    let reason = |label: &str, owners: &[&str]| {
        let owner = |kind: &&str| json!({ "apiVersion": "v1", "kind": kind, "name": "scaler", "uid": "other" });
        let owners: Vec<_> = owners.iter().map(owner).collect();
        let metadata = json!({ "labels": { "definition.oam.dev": label }, "ownerReferences": owners });
        let existing: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        reason_to_keep(&existing, &config_map)
    };
    for owners in [&["TraitDefinition"][..], &["Deployment", "TraitDefinition"], &[]] {
        assert_eq!(reason("schema", owners), None);
    }
    let holds_no_schema = Some("ConfigMap trait-schema-scaler exists and holds no schema".to_owned());
    assert_eq!(reason("other", &["TraitDefinition"]), holds_no_schema);
    let is_foreign = Some("ConfigMap trait-schema-scaler belongs to another object".to_owned());
    assert_eq!(reason("schema", &["DefinitionRevision"]), is_foreign);
}

#[test]
fn reasons_in_templates_are_printable() {
    let error = Error::Failed {
        kind: TextErrorKind::Conflict,
        errors: TextErrors::from_text("a\u{1b}[31m\nb"),
    };
    let expected = NotStored::Reported {
        message: "a [31m b".to_owned(),
        may_pass: false,
    };
    assert_eq!(NotStored::of_template(&error), expected);
    let expected = NotStored::Transient("failed to make a schema: waiting for a CUE evaluator".to_owned());
    assert_eq!(NotStored::of_template(&Error::Deferred), expected);
}
