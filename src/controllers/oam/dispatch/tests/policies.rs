use rstest::rstest;
use serde_json::{Value, json};

use super::super::decide::{
    DispatchDecision, DispatchRefusal, DispatchRequest, DispatchSettings, ObjectPolicy, Occasion, UpdateMethod, decide,
};
use super::ownership::of_other_application;
use super::{LAST_APPLIED, after, annotation, created, live, manifest, merge, of_kind, over, refusal};

pub(super) fn recreate(fields: &[String]) -> ObjectPolicy<'_> {
    ObjectPolicy {
        recreate_fields: fields,
        ..ObjectPolicy::default()
    }
}

#[test]
fn an_object_is_recreated_when_a_field_differs() {
    let manifest = manifest();
    let fields = ["spec.replicas".to_owned()];
    let same = live();
    assert_eq!(
        decide(&DispatchRequest {
            policy: recreate(&fields),
            ..over(&same, &manifest)
        }),
        Ok(DispatchDecision::Nothing)
    );
    let other = merge(live(), json!({"spec": {"replicas": 9}}));
    let decision = decide(&DispatchRequest {
        policy: recreate(&fields),
        ..over(&other, &manifest)
    })
    .unwrap();
    let DispatchDecision::Recreate { uid, object } = decision else {
        panic!("unexpected {decision:?}");
    };
    assert_eq!(uid, "uid-1");
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object["metadata"].get("resourceVersion"), None);
    assert!(annotation(&object, LAST_APPLIED).is_some());
}

#[rstest]
#[case(
    "spec.none",
    "unable to get path spec.none from existing object: spec.none: no such field"
)]
#[case(
    "status.phase",
    "unable to get path status.phase from desired object: status.phase: no such field"
)]
#[case("spec[", "invalid path spec[: missing a closing bracket")]
fn a_recreate_field_must_exist(#[case] field: &str, #[case] cause: &str) {
    let manifest = manifest();
    let live = merge(live(), json!({"status": {"phase": "x"}}));
    let fields = [field.to_owned()];
    let request = DispatchRequest {
        policy: recreate(&fields),
        ..over(&live, &manifest)
    };
    assert_eq!(refusal(&request), format!("failed to evaluate recreateFields: {cause}"));
}

pub(super) fn replace() -> ObjectPolicy<'static> {
    ObjectPolicy {
        update: Some(UpdateMethod::Replace),
        ..ObjectPolicy::default()
    }
}

#[test]
fn a_replacement_has_the_live_resource_version() {
    let manifest = manifest();
    let metadata = json!({"finalizers": ["theirs"], "ownerReferences": [{"uid": "o"}]});
    let live = merge(
        live(),
        json!({"metadata": metadata, "spec": {"replicas": 9, "theirs": 1}}),
    );
    let decision = decide(&DispatchRequest {
        policy: replace(),
        ..over(&live, &manifest)
    })
    .unwrap();
    let DispatchDecision::Replace(object) = &decision else {
        panic!("unexpected {decision:?}");
    };
    assert_eq!(object["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(object["metadata"]["resourceVersion"], "7");
    assert_eq!(object["metadata"]["finalizers"], json!(["theirs"]));
    assert_eq!(object["metadata"]["ownerReferences"], json!([{"uid": "o"}]));
    let settings = DispatchSettings {
        update: UpdateMethod::Replace,
        ..DispatchSettings::default()
    };
    assert_eq!(
        decide(&DispatchRequest {
            settings,
            ..over(&live, &manifest)
        }),
        Ok(decision),
        "by the feature gate"
    );
}

#[test]
fn an_object_as_wanted_is_not_replaced() {
    let manifest = manifest();
    let live = live();
    assert_eq!(
        decide(&DispatchRequest {
            policy: replace(),
            ..over(&live, &manifest)
        }),
        Ok(DispatchDecision::Nothing)
    );
}

#[test]
fn a_service_is_never_replaced() {
    let manifest = of_kind("v1", "Service");
    let live = merge(
        created(&manifest),
        json!({"metadata": {"labels": {"app.oam.dev/component": "x"}}}),
    );
    let changed = merge(
        manifest,
        json!({"metadata": {"labels": {"app.oam.dev/component": "y"}}}),
    );
    let decision = decide(&DispatchRequest {
        policy: replace(),
        ..over(&live, &changed)
    });
    assert!(matches!(decision, Ok(DispatchDecision::Patch(_))), "{decision:?}");
}

#[test]
fn the_replicas_of_an_autoscaled_object_stay() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"replicas": 9}}));
    let request = DispatchRequest {
        is_autoscaled: true,
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&request), Ok(DispatchDecision::Nothing));
    let without = merge(manifest.clone(), json!({"spec": {"replicas": null, "paused": false}}));
    let object = after(&DispatchRequest {
        is_autoscaled: true,
        recorded: std::slice::from_ref(&manifest),
        ..over(&live, &without)
    });
    assert_eq!(
        object["spec"],
        json!({"replicas": 9, "paused": false}),
        "the manifest had replicas before"
    );
    let decision = decide(&DispatchRequest {
        is_autoscaled: true,
        policy: replace(),
        ..over(&live, &without)
    });
    let Ok(DispatchDecision::Replace(object)) = decision else {
        panic!("unexpected {decision:?}");
    };
    assert_eq!(object["spec"]["replicas"], 9);
}

pub(super) fn apply_once(fields: &[String]) -> ObjectPolicy<'_> {
    ObjectPolicy {
        live_fields: fields,
        ..ObjectPolicy::default()
    }
}

#[test]
fn live_values_win_at_the_paths_of_apply_once() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"replicas": 9, "paused": false}}));
    let fields = ["spec.replicas".to_owned(), "spec.none.x".to_owned()];
    let object = after(&DispatchRequest {
        policy: apply_once(&fields),
        ..over(&live, &manifest)
    });
    assert_eq!(object["spec"], json!({"replicas": 9, "paused": true}));
}

#[test]
fn a_field_that_others_removed_stays_absent_with_apply_once() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"paused": null}}));
    let fields = ["spec.paused".to_owned()];
    let object = after(&DispatchRequest {
        policy: apply_once(&fields),
        ..over(&live, &manifest)
    });
    assert_eq!(object["spec"], json!({"replicas": 2}));
    assert_eq!(applied(&object)["spec"], json!({"replicas": 2}));
}

/// Returns the manifest in the annotation of an object.
fn applied(object: &Value) -> Value {
    serde_json::from_str(annotation(object, LAST_APPLIED).unwrap()).unwrap()
}

#[rstest]
#[case::an_update(Occasion::Dispatch, json!({"spec": {"paused": false}}), "changed")]
#[case::an_update_of_another_object(Occasion::Dispatch, json!({}), "hash")]
#[case::state_keep(Occasion::StateKeep, json!({}), "hash")]
fn the_live_value_of_apply_once_is_recorded_as_applied(
    #[case] occasion: Occasion,
    #[case] change: Value,
    #[case] render_hash: &str,
) {
    let (manifest, live) = (
        merge(manifest(), change),
        merge(live(), json!({"spec": {"replicas": 9}})),
    );
    let fields = ["spec.replicas".to_owned()];
    let request = |live| DispatchRequest {
        policy: apply_once(&fields),
        occasion,
        render_hash,
        ..over(live, &manifest)
    };
    let object = after(&request(&live));
    let expected = json!({"replicas": 9, "paused": manifest["spec"]["paused"]});
    assert_eq!(object["spec"], expected);
    assert_eq!(applied(&object)["spec"], expected);
    assert_eq!(decide(&request(&object)), Ok(DispatchDecision::Nothing), "once");
}

#[test]
fn replicas_of_an_autoscaler_stay_when_live_values_are_recorded() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"replicas": 9, "paused": false}}));
    let fields = ["spec.paused".to_owned()];
    let request = DispatchRequest {
        policy: apply_once(&fields),
        occasion: Occasion::Dispatch,
        ..over(&live, &manifest)
    };
    assert!(
        decide(&request).unwrap().changes_replicas(),
        "the autoscaler is looked for"
    );
    let object = after(&DispatchRequest {
        is_autoscaled: true,
        ..request
    });
    assert_eq!(object["spec"], json!({"replicas": 9, "paused": false}));
}

#[test]
fn the_live_value_is_not_recorded_in_an_object_without_a_record() {
    let manifest = merge(of_kind("v1", "ConfigMap"), json!({"data": {"key": "one"}}));
    let live = merge(created(&manifest), json!({"data": {"key": "two"}}));
    let fields = ["data.key".to_owned()];
    let request = DispatchRequest {
        policy: apply_once(&fields),
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&request), Ok(DispatchDecision::Nothing));
}

#[test]
fn the_whole_live_object_wins_with_an_asterisk() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"replicas": 9}}));
    let fields = ["*".to_owned()];
    let request = DispatchRequest {
        policy: apply_once(&fields),
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&request), Ok(DispatchDecision::Nothing));
    let foreign = of_other_application(json!({}));
    let request = DispatchRequest {
        policy: apply_once(&fields),
        ..over(&foreign, &manifest)
    };
    assert!(
        matches!(decide(&request), Err(DispatchRefusal::OtherApplication { .. })),
        "the owner is checked first"
    );
}

#[test]
fn an_invalid_path_of_apply_once_is_refused() {
    let (manifest, live) = (manifest(), live());
    let fields = ["spec.containers[*]".to_owned()];
    assert_eq!(
        refusal(&DispatchRequest {
            policy: apply_once(&fields),
            ..over(&live, &manifest)
        }),
        "failed to evaluate apply-once: invalid path spec.containers[*]: wildcards are not supported"
    );
}
