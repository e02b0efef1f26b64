//! Kinds that are ready by being there.

use serde_json::value::RawValue;

use super::{NotReady, Reads, Rule};

/// The kinds of Kubernetes 1.35 whose status has no conditions, or that have no status: whatever else a client may write
/// there, the API server drops it, so the generic rule could never find them anything but ready. Of these the metadata is
/// enough, and of a Secret nothing else is ever asked for.
///
/// A kind that is not in the list is judged by [`Generic`](super::Generic) and comes to the same; it only costs more.
/// Not in it are kinds with conditions of any type, also those that never are `Ready` in this version, and kinds that
/// can't be watched.
const KINDS: [(&str, &str); 36] = [
    ("", "ConfigMap"),
    ("", "Endpoints"),
    ("", "Event"),
    ("", "LimitRange"),
    ("", "PersistentVolume"),
    ("", "PodTemplate"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "ServiceAccount"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apps", "ControllerRevision"),
    ("batch", "CronJob"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("events.k8s.io", "Event"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
    ("resource.k8s.io", "ResourceSlice"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];

/// A kind without conditions: ready by being there.
#[derive(Debug)]
pub struct AlwaysReady;

impl AlwaysReady {
    /// Whether objects of this kind can't be anything but ready.
    pub(super) fn covers(group: &str, kind: &str) -> bool {
        KINDS.contains(&(group, kind))
    }

    #[cfg(test)]
    pub(super) const KINDS: &[(&str, &str)] = &KINDS;
}

impl Rule for AlwaysReady {
    const READS: Reads = Reads::Metadata;

    fn check(_: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Result<(), NotReady> {
        Ok(())
    }
}
