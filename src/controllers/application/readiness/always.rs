//! Kinds that are ready as soon as they exist.

use serde_json::value::RawValue;

use super::{FieldSet, NotReady, ReadinessRule};

/// Kinds of Kubernetes 1.35 without status conditions. The API server drops conditions that clients write there, so the
/// generic rule would always report ready. Fetching the metadata is enough; Secrets are never fetched in full.
/// Other kinds use [`Generic`](super::Generic), with the same result at a higher cost. Excluded are kinds with
/// conditions of any type and kinds that cannot be watched.
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

#[derive(Debug)]
pub struct AlwaysReady;

impl AlwaysReady {
    pub(super) fn covers(group: &str, kind: &str) -> bool {
        KINDS.contains(&(group, kind))
    }

    #[cfg(test)]
    pub(super) const KINDS: &[(&str, &str)] = &KINDS;
}

impl ReadinessRule for AlwaysReady {
    const FIELDS: FieldSet = FieldSet::Metadata;

    fn check(_: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Result<(), NotReady> {
        Ok(())
    }
}
