//! Kinds that are always ready, compared with the OpenAPI schema of Kubernetes and with the generic rule.

use std::collections::BTreeSet;

use k8s_openapi::Resource;
use k8s_openapi::api::{
    admissionregistration::v1 as admission, apps::v1 as apps, autoscaling::v2 as autoscaling, batch::v1 as batch,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery, events::v1 as events,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource,
    scheduling::v1 as scheduling, storage::v1 as storage,
};
use rstest::rstest;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::check;
use crate::controllers::application::readiness::*;

/// Returns a kind of the API and true if its schema has `status.conditions`.
fn kind<K: Resource + JsonSchema>() -> ((&'static str, &'static str), bool) {
    let schema = schema::<K>();
    let conditions = schema.pointer("/properties/status/properties/conditions");
    ((K::GROUP, K::KIND), conditions.is_some())
}

fn schema<K: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    SchemaGenerator::new(settings).into_root_schema_for::<K>().to_value()
}

#[test]
fn kinds_that_are_always_ready_have_no_conditions_in_the_api() {
    let kinds = [
        kind::<core::ConfigMap>(),
        kind::<core::Endpoints>(),
        kind::<core::Event>(),
        kind::<core::LimitRange>(),
        kind::<core::PersistentVolume>(),
        kind::<core::PodTemplate>(),
        kind::<core::ResourceQuota>(),
        kind::<core::Secret>(),
        kind::<core::ServiceAccount>(),
        kind::<admission::MutatingWebhookConfiguration>(),
        kind::<admission::ValidatingAdmissionPolicyBinding>(),
        kind::<admission::ValidatingWebhookConfiguration>(),
        kind::<apps::ControllerRevision>(),
        kind::<batch::CronJob>(),
        kind::<coordination::Lease>(),
        kind::<discovery::EndpointSlice>(),
        kind::<events::Event>(),
        kind::<networking::IPAddress>(),
        kind::<networking::Ingress>(),
        kind::<networking::IngressClass>(),
        kind::<networking::NetworkPolicy>(),
        kind::<node::RuntimeClass>(),
        kind::<rbac::ClusterRole>(),
        kind::<rbac::ClusterRoleBinding>(),
        kind::<rbac::Role>(),
        kind::<rbac::RoleBinding>(),
        kind::<resource::DeviceClass>(),
        kind::<resource::ResourceClaimTemplate>(),
        kind::<resource::ResourceSlice>(),
        kind::<scheduling::PriorityClass>(),
        kind::<storage::CSIDriver>(),
        kind::<storage::CSINode>(),
        kind::<storage::CSIStorageCapacity>(),
        kind::<storage::StorageClass>(),
        kind::<storage::VolumeAttachment>(),
        kind::<storage::VolumeAttributesClass>(),
    ];
    for (kind, has_conditions) in kinds {
        assert!(!has_conditions, "{kind:?} has conditions");
    }
    let expected: BTreeSet<_> = kinds.iter().map(|(kind, _)| *kind).collect();
    let listed: BTreeSet<_> = AlwaysReady::KINDS.iter().copied().collect();
    assert_eq!(expected, listed);
}

#[test]
fn kinds_with_conditions_in_the_api_are_not_always_ready() {
    for (kind, has_conditions) in [
        kind::<core::Node>(),
        kind::<core::Namespace>(),
        kind::<networking::ServiceCIDR>(),
        kind::<autoscaling::HorizontalPodAutoscaler>(),
        kind::<policy::PodDisruptionBudget>(),
    ] {
        assert!(has_conditions, "{kind:?}");
        assert!(!AlwaysReady::covers(kind.0, kind.1), "{kind:?}");
    }
}

#[rstest]
#[case::ingress(json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } }))]
#[case::ingress_without_an_address(json!({ "loadBalancer": {} }))]
#[case::cron_job(json!({ "active": [{ "kind": "Job", "name": "nightly-1" }], "lastScheduleTime": "2026-01-01T00:00:00Z" }))]
#[case::quota(json!({ "hard": { "pods": "4" }, "used": { "pods": "4" } }))]
#[case::volume(json!({ "phase": "Failed", "reason": "RecycleFailed", "message": "no" }))]
#[case::attachment(json!({ "attached": false, "attachError": { "message": "no", "time": "2026-01-01T00:00:00Z" } }))]
#[case::without_a_status(Value::Null)]
fn the_generic_rule_gives_the_same_result(#[case] status: Value) {
    assert_eq!(check::<AlwaysReady>(1, &Value::Null, &status), Readiness::READY);
    assert_eq!(check::<Generic>(1, &Value::Null, &status), Readiness::READY);
}
