use serde_json::{Value, json};

use super::super::decide::{DispatchDecision, DispatchRequest, DispatchSettings, ObjectPolicy, decide};
use super::{after, annotation, created, live, manifest, merge, over, refusal, request};

#[test]
fn a_read_only_object_must_exist() {
    let manifest = manifest();
    let policy = ObjectPolicy {
        is_read_only: true,
        ..ObjectPolicy::default()
    };
    assert_eq!(
        refusal(&DispatchRequest {
            policy,
            ..request(&manifest)
        }),
        "Deployment (web) is marked as read-only but does not exist. You should check the existence of the resource or \
         remove the read-only policy"
    );
}

#[test]
fn a_read_only_object_is_not_written() {
    let manifest = manifest();
    let live = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}});
    let policy = ObjectPolicy {
        is_read_only: true,
        ..ObjectPolicy::default()
    };
    assert_eq!(
        decide(&DispatchRequest {
            policy,
            ..over(&live, &manifest)
        }),
        Ok(DispatchDecision::Nothing)
    );
}

#[test]
fn an_object_without_application_is_refused() {
    let manifest = manifest();
    for labels in [
        json!(null),
        json!({"app.oam.dev/name": "app", "app.oam.dev/namespace": null}),
    ] {
        let live = merge(live(), json!({"metadata": {"labels": labels}}));
        let expected = "Deployment shop/web exists but not managed by any application now";
        assert_eq!(refusal(&over(&live, &manifest)), expected);
    }
}

#[test]
fn an_object_without_application_can_be_taken_over() {
    let manifest = manifest();
    let live = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1", "labels": {"theirs": "x"}},
        "spec": {"replicas": 5, "minReadySeconds": 3},
    });
    let policy = ObjectPolicy {
        can_take_over: true,
        ..ObjectPolicy::default()
    };
    let object = after(&DispatchRequest {
        policy,
        ..over(&live, &manifest)
    });
    assert_eq!(
        object["spec"],
        json!({"replicas": 2, "paused": true, "minReadySeconds": 3})
    );
    assert_eq!(object["metadata"]["labels"]["theirs"], "x");
    assert_eq!(object["metadata"]["labels"]["app.oam.dev/name"], "app");
    let settings = DispatchSettings {
        can_take_over: true,
        ..DispatchSettings::default()
    };
    assert_eq!(
        after(&DispatchRequest {
            settings,
            ..over(&live, &manifest)
        }),
        object,
        "by the feature gate"
    );
}

pub(super) fn of_other_application(annotations: Value) -> Value {
    let labels = json!({"app.oam.dev/name": "other", "app.oam.dev/namespace": "ns"});
    merge(
        live(),
        json!({"metadata": {"labels": labels, "annotations": annotations}}),
    )
}

#[test]
fn an_object_of_another_application_is_refused() {
    let manifest = manifest();
    let live = of_other_application(json!({}));
    let policy = ObjectPolicy {
        can_take_over: true,
        ..ObjectPolicy::default()
    };
    let expected = "existing object Deployment shop/web is managed by other application ns/other";
    assert_eq!(
        refusal(&DispatchRequest {
            policy,
            ..over(&live, &manifest)
        }),
        expected
    );
}

pub(super) fn shared() -> ObjectPolicy<'static> {
    ObjectPolicy {
        is_shared: true,
        ..ObjectPolicy::default()
    }
}

#[test]
fn an_object_that_its_owner_does_not_share_is_refused() {
    let manifest = manifest();
    let live = of_other_application(json!({}));
    let expected = "application is controlled by ns/other but is not sharable";
    assert_eq!(
        refusal(&DispatchRequest {
            policy: shared(),
            ..over(&live, &manifest)
        }),
        expected
    );
}

#[test]
fn a_sharer_writes_the_annotation_only() {
    let manifest = manifest();
    let live = of_other_application(json!({"app.oam.dev/shared-by": "ns/other"}));
    let request = DispatchRequest {
        policy: shared(),
        ..over(&live, &manifest)
    };
    let annotations = json!({"app.oam.dev/shared-by": "ns/other,shop/app"});
    let patch = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
    assert_eq!(decide(&request), Ok(DispatchDecision::Share(patch)));
    let live = after(&request);
    let again = DispatchRequest {
        policy: shared(),
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&again), Ok(DispatchDecision::Nothing), "listed already");
}

#[test]
fn the_owner_of_a_shared_object_is_the_first_sharer() {
    let manifest = manifest();
    let object = match decide(&DispatchRequest {
        policy: shared(),
        ..request(&manifest)
    }) {
        Ok(DispatchDecision::Create(object)) => object,
        decision => panic!("unexpected {decision:?}"),
    };
    assert_eq!(annotation(&object, "app.oam.dev/shared-by"), Some("shop/app"));
    let live = live();
    let object = after(&DispatchRequest {
        policy: shared(),
        ..over(&live, &manifest)
    });
    assert_eq!(
        annotation(&object, "app.oam.dev/shared-by"),
        Some("shop/app"),
        "shared later"
    );
}

#[test]
fn sharers_stay_when_the_owner_no_longer_shares() {
    let manifest = manifest();
    let shared_manifest = merge(
        manifest.clone(),
        json!({"metadata": {"annotations": {"app.oam.dev/shared-by": "shop/app"}}}),
    );
    let sharers = json!({"metadata": {"annotations": {"app.oam.dev/shared-by": "shop/app,ns/other"}}});
    let live = merge(created(&shared_manifest), sharers);
    assert_eq!(decide(&over(&live, &manifest)), Ok(DispatchDecision::Nothing));
}
