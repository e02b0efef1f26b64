//! Marks of the objects that Portolan creates for an AppRepository: CronJobs, Jobs, copies of Secrets; and of its Leases.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::NamespacedName;

/// Label: the program that manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The value of [`MANAGED_BY`] on objects of Portolan.
pub const MANAGER: &str = "portolan";

/// Label: the name of the AppRepository, as in Kubeapps; hashed if it is longer than a label.
pub const REPOSITORY_NAME: &str = "apprepositories.kubeapps.com/repo-name";

/// Label: the namespace of the AppRepository, as in Kubeapps.
pub const REPOSITORY_NAMESPACE: &str = "apprepositories.kubeapps.com/repo-namespace";

/// Annotation: the AppRepository as `namespace/name`.
pub const REPOSITORY: &str = "portolan.dev/repository";

/// Annotation: the UID of the AppRepository that an object was created for. Without it, an object is never collected.
pub const REPOSITORY_UID: &str = "portolan.dev/repository-uid";

/// Annotation: the generation of the AppRepository that an object was written for.
pub const REPOSITORY_GENERATION: &str = "portolan.dev/repository-generation";

/// Annotation: the seconds after a tick in which the Job of a CronJob waits, so that Jobs do not start all at once.
pub const START_DELAY: &str = "portolan.dev/start-delay-seconds";

/// Annotation: the reason why a Job was suspended again, as JSON.
pub const NOT_STARTED: &str = "portolan.dev/not-started";

/// Label: the name of a Lease, without the number of the shard.
pub const LEASE: &str = "portolan.dev/lease";

/// Returns the selector of the objects that Portolan created for AppRepositories.
#[must_use]
pub fn selector() -> String {
    format!("{MANAGED_BY}={MANAGER},{REPOSITORY_NAME}")
}

#[must_use]
pub fn repository_name(meta: &ObjectMeta) -> Option<NamespacedName> {
    let (namespace, name) = meta.annotations.as_ref()?.get(REPOSITORY)?.split_once('/')?;
    Some(NamespacedName::new(namespace, name))
}

/// Returns the AppRepository that an object was created for, and its UID.
#[must_use]
pub fn repository_of(meta: &ObjectMeta) -> Option<(NamespacedName, String)> {
    let uid = meta.annotations.as_ref()?.get(REPOSITORY_UID)?;
    let uid = Some(uid).filter(|uid| !uid.is_empty())?;
    Some((repository_name(meta)?, uid.clone()))
}

/// Returns true for a Lease with a mark of ours. The Lease of a single leader of an earlier release may have none.
#[must_use]
pub fn is_lease(meta: &ObjectMeta) -> bool {
    let label = |key| meta.labels.as_ref().and_then(|labels| labels.get(key));
    label(MANAGED_BY).is_some_and(|manager| manager == MANAGER) || label(LEASE).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_without_the_uid_of_a_repository_has_none() {
        let meta = |annotations: Value| serde_json::from_value(json!({ "annotations": annotations })).unwrap();
        let both = json!({ REPOSITORY: "team/a", REPOSITORY_UID: "u" });
        let found = repository_of(&meta(both)).unwrap();
        assert_eq!(found, (NamespacedName::new("team", "a"), "u".to_owned()));
        let name = repository_name(&meta(json!({ REPOSITORY: "team/a" })));
        assert_eq!(name, Some(NamespacedName::new("team", "a")));
        for annotations in [
            json!({ REPOSITORY: "team/a" }),
            json!({ REPOSITORY: "team/a", REPOSITORY_UID: "" }),
            json!({ REPOSITORY: "a", REPOSITORY_UID: "u" }),
            Value::Null,
        ] {
            assert!(repository_of(&meta(annotations)).is_none());
        }
    }

    #[test]
    fn leases_of_others_are_not_ours() {
        let meta = |labels: Value| serde_json::from_value(json!({ "labels": labels })).unwrap();
        assert!(is_lease(&meta(json!({ LEASE: "portolan" }))));
        assert!(is_lease(&meta(json!({ MANAGED_BY: MANAGER }))));
        assert!(!is_lease(&meta(json!({ MANAGED_BY: "Helm" }))));
        assert!(!is_lease(&meta(Value::Null)));
    }
}
