//! Objects that an Application may have, by `--allow-cross-namespace-resource` and `--allow-resource-types`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::decide::ObjectIdentity;
use crate::api::oam::labels::SERVICE_ACCOUNT_ANNOTATION;
use crate::controllers::oam::parse::release_of;

/// `whitelist:Kind.version.group,…` or `blacklist:…`. The core group is left out: `ConfigMap.v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResourceTypes {
    #[default]
    All,
    Only(BTreeSet<String>),
    AllBut(BTreeSet<String>),
}

impl ResourceTypes {
    /// Rejects other forms. KubeVela then forbids no type; a typo in a security setting must not pass.
    pub fn parse(text: &str) -> Result<Self, String> {
        let kinds = |list: &str| list.split(',').map(|kind| kind.trim().to_owned()).collect();
        match text.trim().split_once(':') {
            None if text.trim().is_empty() => Ok(Self::All),
            Some(("whitelist", list)) => Ok(Self::Only(kinds(list))),
            Some(("blacklist", list)) => Ok(Self::AllBut(kinds(list))),
            _ => Err("expected whitelist:Kind.version.group,... or blacklist:Kind.version.group,...".to_owned()),
        }
    }

    fn admits(&self, api_version: &str, kind: &str) -> bool {
        let name = match api_version.split_once('/') {
            Some((group, version)) => format!("{kind}.{version}.{group}"),
            None => format!("{kind}.{api_version}"),
        };
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.contains(&name),
            Self::AllBut(kinds) => !kinds.contains(&name),
        }
    }
}

/// Kinds in which this controller records what Applications consist of.
const RECORDS: [&str; 2] = ["ResourceTracker", "ApplicationRevision"];

/// Groups whose objects make this program act, with its own rights or with the rights of their namespace.
const CONTROL_GROUPS: [&str; 3] = ["core.oam.dev", "kubeapps.com", "app.k8s.io"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    pub allow_cross_namespace: bool,
    pub resource_types: ResourceTypes,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("forbidden resource: {kind} {namespace}/{name} is outside the namespace of application")]
    OtherNamespace {
        kind: String,
        namespace: String,
        name: String,
    },
    /// It decides what this controller deletes and restores for any Application.
    #[error("forbidden resource: {kind} {name} is a record of this controller")]
    Record { kind: String, name: String },
    /// In its namespace, it may get privileges that the Application does not have.
    #[error(
        "forbidden resource: {kind} {namespace}/{name} is outside the namespace of application and controls this program; \
         set the annotation {SERVICE_ACCOUNT_ANNOTATION}, or add the namespace of the application to --privileged-namespaces"
    )]
    Control {
        kind: String,
        namespace: String,
        name: String,
    },
    #[error("forbidden resource: Secrets of Helm releases are not deployed: {namespace}/{name}")]
    HelmRelease { namespace: String, name: String },
    #[error("forbidden resource: type ({kind}) of resource {namespace}/{name} is not allowed")]
    Type {
        kind: String,
        namespace: String,
        name: String,
    },
}

impl Admission {
    /// Fails at the first object that is forbidden to an Application in `namespace`.
    pub fn check<'a>(
        &self,
        namespace: &str,
        manifests: impl IntoIterator<Item = &'a Value> + Clone,
    ) -> Result<(), Forbidden> {
        let identities = || manifests.clone().into_iter().map(ObjectIdentity::of);
        if let Some(object) = identities().find(is_record) {
            return Err(Forbidden::Record {
                kind: object.kind.to_owned(),
                name: object.name.to_owned(),
            });
        }
        let is_outside = |object: &ObjectIdentity<'_>| !self.allow_cross_namespace && object.namespace != namespace;
        if let Some(object) = identities().find(is_outside) {
            return Err(Forbidden::OtherNamespace {
                kind: object.kind.to_owned(),
                namespace: object.namespace.to_owned(),
                name: object.name.to_owned(),
            });
        }
        match identities().find(|object| !self.resource_types.admits(object.api_version, object.kind)) {
            Some(object) => Err(Forbidden::Type {
                kind: object.kind.to_owned(),
                namespace: object.namespace.to_owned(),
                name: object.name.to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// Checks that an Application without identity creates nothing by which this program acts in another namespace.
pub fn check_control(namespace: &str, object: &ObjectIdentity<'_>) -> Result<(), Forbidden> {
    if controls_elsewhere(namespace, object.api_version, object.namespace) {
        Err(Forbidden::Control {
            kind: object.kind.to_owned(),
            namespace: object.namespace.to_owned(),
            name: object.name.to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Checks that an object is no Secret of a Helm release. An Application with a record of one is not supported.
pub fn check_release(object: &ObjectIdentity<'_>) -> Result<(), Forbidden> {
    match release_of(object.api_version, object.kind, object.name) {
        Some(_) => Err(Forbidden::HelmRelease {
            namespace: object.namespace.to_owned(),
            name: object.name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Returns true for an object in another namespace than `namespace` by which this program would act.
#[must_use]
pub fn controls_elsewhere(namespace: &str, api_version: &str, object_namespace: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    CONTROL_GROUPS.contains(&group) && object_namespace != namespace
}

fn is_record(object: &ObjectIdentity<'_>) -> bool {
    object.api_version.starts_with("core.oam.dev/") && RECORDS.contains(&object.kind)
}
