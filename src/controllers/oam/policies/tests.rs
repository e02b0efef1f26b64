use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn parse(policies: &Value) -> Result<Policies, String> {
    let policies: Vec<AppPolicy> = serde_json::from_value(policies.clone()).unwrap();
    Policies::parse(&policies, false).map_err(|error| error.to_string())
}

fn policy(type_: &str, properties: &Value) -> Value {
    json!({ "name": "p", "type": type_, "properties": properties })
}

fn of(type_: &str, properties: &Value) -> Policies {
    parse(&json!([policy(type_, properties)])).unwrap()
}

const WEB: PolicyTarget<'_> = PolicyTarget {
    component: "web",
    component_type: "webservice",
    oam_type: "WORKLOAD",
    trait_type: "",
    kind: "Deployment",
    name: "web-1",
};

const EXPOSE: PolicyTarget<'_> = PolicyTarget {
    component: "web",
    component_type: "",
    oam_type: "TRAIT",
    trait_type: "expose",
    kind: "Service",
    name: "web-1",
};

#[test]
fn targets_are_read_from_labels_kind_and_name() {
    let manifest = json!({
        "kind": "Deployment",
        "metadata": { "name": "web-1", "labels": {
            "app.oam.dev/component": "web", "workload.oam.dev/type": "webservice", "app.oam.dev/resourceType": "WORKLOAD",
        } },
    });
    assert_eq!(PolicyTarget::of(&manifest), WEB);
    assert_eq!(
        PolicyTarget::of(&json!({ "metadata": { "labels": 7 } })),
        PolicyTarget::default()
    );
    assert_eq!(PolicyTarget::of(&Value::Null), PolicyTarget::default());
}

#[rstest]
#[case::nothing(json!({}), false, false)]
#[case::empty_lists(json!({ "componentNames": [], "traitTypes": null }), false, false)]
#[case::component_names(json!({ "componentNames": ["db", "web"] }), true, true)]
#[case::component_types(json!({ "componentTypes": ["webservice"] }), true, false)]
#[case::oam_types(json!({ "oamTypes": ["TRAIT"] }), false, true)]
#[case::trait_types(json!({ "traitTypes": ["expose"] }), false, true)]
#[case::resource_types(json!({ "resourceTypes": ["Service", "Deployment"] }), true, true)]
#[case::resource_names(json!({ "resourceNames": ["web-1"] }), true, true)]
#[case::all_lists_must_match(json!({ "componentNames": ["web"], "resourceTypes": ["Service"] }), false, true)]
#[case::an_absent_value_never_matches(json!({ "traitTypes": [""], "componentNames": ["web"] }), false, false)]
fn a_value_of_each_list_must_match(#[case] selector: Value, #[case] web: bool, #[case] expose: bool) {
    let selector: Selector = serde_json::from_value(selector).unwrap();
    assert_eq!((selector.matches(&WEB), selector.matches(&EXPOSE)), (web, expose));
}

#[test]
fn the_first_rule_that_selects_an_object_decides() {
    let policies = of(
        GARBAGE_COLLECT,
        &json!({ "rules": [
            { "selector": { "resourceTypes": ["Job"] }, "strategy": "onAppDelete" },
            { "selector": { "traitTypes": ["expose"] }, "strategy": "never", "propagation": "orphan" },
            { "selector": { "componentNames": ["web"] }, "strategy": "onAppDelete", "propagation": "cascading" },
        ] }),
    );
    let collect = &policies.garbage_collect;
    assert_eq!(collect.strategy(&EXPOSE), GarbageCollectStrategy::Never);
    assert!(collect.is_orphaned(&EXPOSE));
    assert_eq!(collect.strategy(&WEB), GarbageCollectStrategy::OnAppDelete);
    assert!(!collect.is_orphaned(&WEB));
    assert_eq!(
        collect.strategy(&PolicyTarget::default()),
        GarbageCollectStrategy::OnAppUpdate
    );
    assert!(!collect.is_orphaned(&PolicyTarget::default()));
}

#[test]
fn policies_of_one_type_are_merged_in_order() {
    let policies = parse(&json!([
        policy(
            GARBAGE_COLLECT,
            &json!({
                "order": "dependency", "keepLegacyResource": false, "applicationRevisionLimit": 3,
                "rules": [{ "selector": { "componentNames": ["web"] }, "strategy": "never" }],
            })
        ),
        policy(
            READ_ONLY,
            &json!({ "rules": [{ "selector": { "resourceTypes": ["Service"] } }] })
        ),
        policy(
            GARBAGE_COLLECT,
            &json!({
                "order": "another", "keepLegacyResource": true, "continueOnFailure": true, "applicationRevisionLimit": 9,
                "rules": [
                    { "selector": { "componentNames": ["web"] }, "strategy": "onAppDelete" },
                    { "selector": { "resourceTypes": ["Job"] }, "strategy": "onAppDelete" },
                ],
            })
        ),
    ]));
    let policies = policies.unwrap();
    let collect = &policies.garbage_collect;
    assert!(collect.keep_legacy_resource && collect.continue_on_failure && collect.is_ordered_by_dependency());
    assert_eq!(collect.revision_limit(), Some(3));
    assert_eq!(collect.strategy(&WEB), GarbageCollectStrategy::Never);
    let job = PolicyTarget {
        kind: "Job",
        ..PolicyTarget::default()
    };
    assert_eq!(collect.strategy(&job), GarbageCollectStrategy::OnAppDelete);
    assert!(policies.read_only.contains(&EXPOSE) && !policies.read_only.contains(&WEB));
    assert!(!policies.take_over.contains(&EXPOSE) && !policies.shared_resource.contains(&EXPOSE));
}

#[rstest]
#[case(json!({ "applicationRevisionLimit": 0 }), Some(0))]
#[case(json!({ "applicationRevisionLimit": -1 }), None)]
#[case(json!({ "applicationRevisionLimit": null }), None)]
#[case(json!({}), None)]
fn a_negative_revision_limit_means_the_default(#[case] properties: Value, #[case] limit: Option<usize>) {
    assert_eq!(of(GARBAGE_COLLECT, &properties).garbage_collect.revision_limit(), limit);
}

#[rstest]
#[case::disabled(json!({ "enable": false }), false)]
#[case::without_rules(json!({ "enable": true }), true)]
#[case::null_rules(json!({ "enable": true, "rules": null }), true)]
#[case::with_rules(json!({ "enable": true, "rules": [] }), false)]
fn apply_once_without_rules_omits_manifests(#[case] properties: Value, #[case] omits: bool) {
    let policies = of(APPLY_ONCE, &properties);
    assert_eq!(policies.apply_once.omits_manifests(), omits);
    assert_eq!(policies.apply_once.strategy(&WEB), None);
}

#[rstest]
#[case(json!(null), true, true)]
#[case(json!(""), true, true)]
#[case(json!("always"), true, true)]
#[case(json!("onUpdate"), true, false)]
#[case(json!("onStateKeep"), false, true)]
#[case(json!("never-heard-of"), false, false)]
fn apply_once_affects_the_stages_that_it_names(#[case] affect: Value, #[case] update: bool, #[case] state_keep: bool) {
    let rules = json!([{
        "selector": { "resourceTypes": ["Deployment"] }, "strategy": { "path": ["spec.replicas"], "affect": affect },
    }]);
    let policies = of(APPLY_ONCE, &json!({ "enable": true, "rules": rules }));
    let strategy = policies.apply_once.strategy(&WEB).unwrap();
    assert_eq!(strategy.paths, ["spec.replicas"]);
    assert_eq!(
        (
            strategy.affects(ApplyOnceStage::Update),
            strategy.affects(ApplyOnceStage::StateKeep)
        ),
        (update, state_keep)
    );
    assert_eq!(policies.apply_once.strategy(&EXPOSE), None);
    let disabled = of(APPLY_ONCE, &json!({ "enable": false, "rules": rules }));
    assert_eq!(disabled.apply_once.strategy(&WEB), None);
}

#[test]
fn addons_are_applied_once_unless_a_policy_says_otherwise() {
    assert!(Policies::parse(&[], true).unwrap().apply_once.omits_manifests());
    assert!(!Policies::parse(&[], false).unwrap().apply_once.omits_manifests());
    let disabled = serde_json::from_value(json!([policy(APPLY_ONCE, &json!({ "enable": false }))])).unwrap();
    let disabled: Vec<AppPolicy> = disabled;
    assert!(!Policies::parse(&disabled, true).unwrap().apply_once.omits_manifests());
}

#[test]
fn objects_are_replaced_or_recreated_by_rule() {
    let policies = of(
        RESOURCE_UPDATE,
        &json!({ "rules": [
            { "selector": { "resourceTypes": ["Service"] }, "strategy": { "op": "replace" } },
            { "selector": { "resourceTypes": ["Deployment"] }, "strategy": { "recreateFields": ["spec.selector"] } },
        ] }),
    );
    let update = &policies.resource_update;
    assert!(update.strategy(&EXPOSE).unwrap().replaces());
    let web = update.strategy(&WEB).unwrap();
    assert!(!web.replaces());
    assert_eq!(web.recreate_fields, ["spec.selector"]);
    assert_eq!(update.strategy(&PolicyTarget::default()), None);
}

#[test]
fn a_policy_without_properties_is_an_error() {
    let policies = json!([{ "name": "once", "type": "apply-once" }]);
    let error = parse(&policies).unwrap_err();
    assert_eq!(error, "policy apply-once named once must not have empty properties");
    let error = parse(&json!([{ "name": "mine", "type": "of-a-definition", "properties": null }])).unwrap_err();
    assert_eq!(
        error,
        "policy of-a-definition named mine must not have empty properties"
    );
    assert!(parse(&json!([{ "name": "d", "type": "debug" }])).is_ok());
    assert!(parse(&json!([policy("apply-once", &json!({}))])).is_ok());
}

#[test]
fn an_invalid_policy_is_named_with_its_field() {
    let error = parse(&json!([policy(
        TAKE_OVER,
        &json!({ "rules": [{ "selector": { "resourceTypes": "Pod" } }] })
    )]));
    let error = error.unwrap_err();
    assert!(
        error.starts_with("failed to parse take-over policy: rules[0].selector.resourceTypes: invalid type"),
        "{error}"
    );
}

#[test]
fn only_policies_of_other_types_need_a_definition() {
    assert!(is_built_in("garbage-collect") && is_built_in("debug"));
    assert!(!is_built_in("health") && !is_built_in(""));
}

#[test]
fn unknown_keys_are_found_by_path() {
    let properties = json!({
        "rules": [{ "selector": { "componentNames": ["a"], "names": [] }, "strategy": { "op": "patch", "force": true } }],
        "rule": [],
    });
    assert_eq!(
        unknown_keys(RESOURCE_UPDATE, &properties),
        ["rule", "rules[0].selector.names", "rules[0].strategy.force"]
    );
    assert!(unknown_keys("of-a-definition", &properties).is_empty());
    let collect = json!({ "rules": [{ "selector": {}, "strategy": "never" }] });
    assert!(unknown_keys(GARBAGE_COLLECT, &collect).is_empty());
}
