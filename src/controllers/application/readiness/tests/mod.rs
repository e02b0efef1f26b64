mod always;
mod generic;
mod odd;
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

/// Judges by values; a null `spec` or `status` is handed in as such, so that it is tested to be the same as none.
fn judge<R: Rule>(generation: i64, spec: &Value, status: &Value) -> Readiness {
    let (spec, status) = (to_raw_value(spec).unwrap(), to_raw_value(status).unwrap());
    R::judge(generation, Some(&spec), Some(&status))
}

fn in_progress(why: &str) -> Readiness {
    Readiness {
        state: ComponentState::InProgress,
        why: Some(why.into()),
    }
}

fn unknown(why: &str) -> Readiness {
    Readiness {
        state: ComponentState::Unknown,
        why: Some(why.into()),
    }
}

/// `object` with one field, at any depth, set to a value.
fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

/// `object` without one of its outermost fields.
fn without(object: &Value, field: &str) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove(field).unwrap();
    object
}

/// The name of the rule, and what it reads.
struct Named;

impl Visitor for Named {
    type Output = (&'static str, Reads);

    fn visit<R: Rule>(self) -> Self::Output {
        (type_name::<R>().rsplit("::").next().unwrap(), R::READS)
    }
}

/// Judges by the rule of a kind.
struct Judging<'a>(i64, Option<&'a RawValue>, Option<&'a RawValue>);

impl Visitor for Judging<'_> {
    type Output = Readiness;

    fn visit<R: Rule>(self) -> Readiness {
        R::judge(self.0, self.1, self.2)
    }
}

/// A kind for each rule.
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
#[case("apps", "StatefulSet", "StatefulSet", Reads::SpecAndStatus)]
#[case("apps", "Deployment", "Deployment", Reads::SpecAndStatus)]
#[case("apps", "ReplicaSet", "ReplicaSet", Reads::SpecAndStatus)]
#[case("apps", "DaemonSet", "DaemonSet", Reads::Status)]
#[case("", "PersistentVolumeClaim", "PersistentVolumeClaim", Reads::Status)]
#[case("", "Service", "Service", Reads::SpecAndStatus)]
#[case("", "Pod", "Pod", Reads::Status)]
#[case("policy", "PodDisruptionBudget", "PodDisruptionBudget", Reads::Status)]
#[case("", "ReplicationController", "ReplicationController", Reads::SpecAndStatus)]
#[case("batch", "Job", "Job", Reads::Status)]
#[case("", "Secret", "AlwaysReady", Reads::Metadata)]
#[case("rbac.authorization.k8s.io", "Role", "AlwaysReady", Reads::Metadata)]
#[case("networking.k8s.io", "Ingress", "AlwaysReady", Reads::Metadata)]
#[case("batch", "CronJob", "AlwaysReady", Reads::Metadata)]
// Kinds whose status has conditions.
#[case("", "Namespace", "Generic", Reads::Status)]
#[case("", "Node", "Generic", Reads::Status)]
#[case("autoscaling", "HorizontalPodAutoscaler", "Generic", Reads::Status)]
#[case("networking.k8s.io", "ServiceCIDR", "Generic", Reads::Status)]
#[case(
    "admissionregistration.k8s.io",
    "ValidatingAdmissionPolicy",
    "Generic",
    Reads::Status
)]
#[case("apiextensions.k8s.io", "CustomResourceDefinition", "Generic", Reads::Status)]
#[case("app.k8s.io", "Application", "Generic", Reads::Status)]
// Custom resources may have the name of a kind of Kubernetes, but not its group.
#[case("example.com", "Deployment", "Generic", Reads::Status)]
#[case("serving.knative.dev", "Service", "Generic", Reads::Status)]
#[case("batch.volcano.sh", "Job", "Generic", Reads::Status)]
#[case("example.com", "Secret", "Generic", Reads::Status)]
#[case("extensions", "Deployment", "Generic", Reads::Status)]
#[case("apps", "deployment", "Generic", Reads::Status)]
#[case("Apps", "Deployment", "Generic", Reads::Status)]
#[case("", "", "Generic", Reads::Status)]
fn a_kind_is_judged_by_its_rule(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] rule: &'static str,
    #[case] reads: Reads,
) {
    assert_eq!(with_rule(group, kind, Named), (rule, reads));
}

#[test]
fn the_words_of_the_status_are_the_peers() {
    let words = [
        ComponentState::Ready,
        ComponentState::InProgress,
        ComponentState::Unknown,
    ]
    .map(|state| state.to_string());
    assert_eq!(words, ["Ready", "InProgress", "Unknown"]);
}
