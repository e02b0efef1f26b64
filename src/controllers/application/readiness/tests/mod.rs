mod always;
mod generic;
mod malformed;
mod rules;
mod workloads;

use std::any::type_name;

use rstest::rstest;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::*;

fn raw(json: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(json.into()).unwrap()
}

/// Evaluates a rule. Passes a null `spec` or `status` on as null, which must count as absent.
fn check<R: ReadinessRule>(generation: i64, spec: &Value, status: &Value) -> Readiness {
    let (spec, status) = (to_raw_value(spec).unwrap(), to_raw_value(status).unwrap());
    R::readiness(generation, Some(&spec), Some(&status))
}

fn in_progress(message: &str) -> Readiness {
    Readiness {
        state: ComponentState::InProgress,
        message: Some(message.into()),
    }
}

fn unknown(message: &str) -> Readiness {
    Readiness {
        state: ComponentState::Unknown,
        message: Some(message.into()),
    }
}

/// Returns `object` with the field at `pointer` set.
fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

/// Returns `object` without a top-level field.
fn without(object: &Value, field: &str) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove(field).unwrap();
    object
}

/// Returns the name and the fields of a rule.
struct NameAndFields;

impl Visitor for NameAndFields {
    type Output = (&'static str, FieldSet);

    fn visit<R: ReadinessRule>(self) -> Self::Output {
        (type_name::<R>().rsplit("::").next().unwrap(), R::FIELDS)
    }
}

/// Evaluates the rule of a kind.
struct ReadinessVisitor<'a>(i64, Option<&'a RawValue>, Option<&'a RawValue>);

impl Visitor for ReadinessVisitor<'_> {
    type Output = Readiness;

    fn visit<R: ReadinessRule>(self) -> Readiness {
        R::readiness(self.0, self.1, self.2)
    }
}

/// One kind for each rule.
const ONE_OF_EACH: [(&str, &str); 12] = [
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "ReplicationController"),
    ("", "Service"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
    ("policy", "PodDisruptionBudget"),
    ("", "ConfigMap"),
    ("example.com", "Widget"),
];

#[rstest]
#[case("apps", "StatefulSet", "StatefulSet", FieldSet::SpecAndStatus)]
#[case("apps", "Deployment", "Deployment", FieldSet::SpecAndStatus)]
#[case("apps", "ReplicaSet", "ReplicaSet", FieldSet::SpecAndStatus)]
#[case("apps", "DaemonSet", "DaemonSet", FieldSet::Status)]
#[case("", "PersistentVolumeClaim", "PersistentVolumeClaim", FieldSet::Status)]
#[case("", "Service", "Service", FieldSet::SpecAndStatus)]
#[case("", "Pod", "Pod", FieldSet::Status)]
#[case("policy", "PodDisruptionBudget", "PodDisruptionBudget", FieldSet::Status)]
#[case("", "ReplicationController", "ReplicationController", FieldSet::SpecAndStatus)]
#[case("batch", "Job", "Job", FieldSet::Status)]
#[case("", "Secret", "AlwaysReady", FieldSet::Metadata)]
#[case("rbac.authorization.k8s.io", "Role", "AlwaysReady", FieldSet::Metadata)]
#[case("networking.k8s.io", "Ingress", "AlwaysReady", FieldSet::Metadata)]
#[case("batch", "CronJob", "AlwaysReady", FieldSet::Metadata)]
// Kinds whose status has conditions.
#[case("", "Namespace", "Generic", FieldSet::Status)]
#[case("", "Node", "Generic", FieldSet::Status)]
#[case("autoscaling", "HorizontalPodAutoscaler", "Generic", FieldSet::Status)]
#[case("networking.k8s.io", "ServiceCIDR", "Generic", FieldSet::Status)]
#[case(
    "admissionregistration.k8s.io",
    "ValidatingAdmissionPolicy",
    "Generic",
    FieldSet::Status
)]
#[case("apiextensions.k8s.io", "CustomResourceDefinition", "Generic", FieldSet::Status)]
#[case("app.k8s.io", "Application", "Generic", FieldSet::Status)]
// Custom resources may have the kind of a built-in one in another group.
#[case("example.com", "Deployment", "Generic", FieldSet::Status)]
#[case("serving.knative.dev", "Service", "Generic", FieldSet::Status)]
#[case("batch.volcano.sh", "Job", "Generic", FieldSet::Status)]
#[case("example.com", "Secret", "Generic", FieldSet::Status)]
#[case("extensions", "Deployment", "Generic", FieldSet::Status)]
#[case("apps", "deployment", "Generic", FieldSet::Status)]
#[case("Apps", "Deployment", "Generic", FieldSet::Status)]
#[case("", "", "Generic", FieldSet::Status)]
fn each_kind_uses_its_rule(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] rule: &'static str,
    #[case] fields: FieldSet,
) {
    assert_eq!(with_rule(group, kind, NameAndFields), (rule, fields));
}

#[test]
fn component_states_match_kubernetes_sigs_application() {
    let words = [
        ComponentState::Ready,
        ComponentState::InProgress,
        ComponentState::Unknown,
    ]
    .map(|state| state.to_string());
    assert_eq!(words, ["Ready", "InProgress", "Unknown"]);
}
