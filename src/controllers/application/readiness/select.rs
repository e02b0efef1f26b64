use super::{
    AlwaysReady, DaemonSet, Deployment, Generic, Job, PersistentVolumeClaim, Pod, PodDisruptionBudget, ReadinessRule,
    ReplicaSet, ReplicationController, Service, StatefulSet,
};

/// Receives the rule as a type parameter: each rule has a watch of its own type.
pub trait Visitor {
    type Output;

    fn visit<R: ReadinessRule>(self) -> Self::Output;
}

/// Calls `visitor` with the rule of a kind. The version is irrelevant; the match is case-sensitive, as in the API.
pub fn with_rule<V: Visitor>(group: &str, kind: &str, visitor: V) -> V::Output {
    match (group, kind) {
        ("", "PersistentVolumeClaim") => visitor.visit::<PersistentVolumeClaim>(),
        ("", "Pod") => visitor.visit::<Pod>(),
        ("", "ReplicationController") => visitor.visit::<ReplicationController>(),
        ("", "Service") => visitor.visit::<Service>(),
        ("apps", "DaemonSet") => visitor.visit::<DaemonSet>(),
        ("apps", "Deployment") => visitor.visit::<Deployment>(),
        ("apps", "ReplicaSet") => visitor.visit::<ReplicaSet>(),
        ("apps", "StatefulSet") => visitor.visit::<StatefulSet>(),
        ("batch", "Job") => visitor.visit::<Job>(),
        ("policy", "PodDisruptionBudget") => visitor.visit::<PodDisruptionBudget>(),
        _ if AlwaysReady::covers(group, kind) => visitor.visit::<AlwaysReady>(),
        _ => visitor.visit::<Generic>(),
    }
}
