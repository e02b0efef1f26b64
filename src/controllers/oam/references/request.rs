//! References as components write them, and the requests for their objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{MAX_REFERENCES, MAX_URLS, ObjectKind, ObjectRequest, ObjectSelector, ReferenceError, ReferenceScope};
use crate::api::lenient::{list, null_as_default};
use crate::api::oam::Component;
use crate::controllers::oam::trackers::{LOCAL, is_local};
use crate::runtime::manifests::is_object_name;
use crate::text;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Properties {
    #[serde(deserialize_with = "list")]
    objects: Vec<Reference>,
    #[serde(deserialize_with = "list")]
    urls: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Reference {
    /// Name of a kind in the path of its API, in singular or plural.
    #[serde(deserialize_with = "null_as_default")]
    resource: String,
    #[serde(deserialize_with = "null_as_default")]
    group: String,
    #[serde(deserialize_with = "null_as_default")]
    api_version: String,
    #[serde(deserialize_with = "null_as_default")]
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "null_as_default")]
    namespace: String,
    #[serde(deserialize_with = "null_as_default")]
    cluster: String,
    label_selector: Option<BTreeMap<String, String>>,
    /// The former name of `labelSelector`, which KubeVela ignores unless a feature gate is on.
    #[serde(rename = "selector")]
    _selector: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    pub(super) requests: Vec<ObjectRequest>,
    pub(super) urls: Vec<String>,
}

/// Returns the requests for the objects of a component, and the URLs of others.
pub(super) fn sources(
    component: &Component,
    namespace: &str,
    scope: ReferenceScope,
    kind_of: &impl Fn(&str, &str) -> Option<ObjectKind>,
) -> Result<Sources, ReferenceError> {
    let properties = parse(component)?;
    if properties.urls.len() > MAX_URLS {
        return Err(ReferenceError::TooManyUrls(properties.urls.len()));
    }
    if properties.objects.len() > MAX_REFERENCES {
        return Err(ReferenceError::TooManyReferences(properties.objects.len()));
    }
    let references = properties.objects.into_iter();
    let requests = references.map(|reference| reference.request(component, namespace, scope, kind_of));
    Ok(Sources {
        requests: requests.collect::<Result<_, _>>()?,
        urls: properties.urls,
    })
}

/// Returns groups and names of the resources that a component refers to. Invalid properties are reported elsewhere.
pub(super) fn resources(component: &Component) -> Vec<(String, String)> {
    let references = parse(component).unwrap_or_default().objects.into_iter();
    let named = references.filter(|reference| !reference.resource.is_empty());
    named.map(|reference| (reference.group, reference.resource)).collect()
}

fn parse(component: &Component) -> Result<Properties, ReferenceError> {
    let Some(properties) = component.properties.as_ref().filter(|properties| !properties.is_null()) else {
        return Ok(Properties::default());
    };
    serde_path_to_error::deserialize(properties).map_err(|error| ReferenceError::Invalid {
        component: component.name.clone(),
        cause: text::sanitize(&error.to_string()),
    })
}

impl Reference {
    fn request(
        self,
        component: &Component,
        namespace: &str,
        scope: ReferenceScope,
        kind_of: &impl Fn(&str, &str) -> Option<ObjectKind>,
    ) -> Result<ObjectRequest, ReferenceError> {
        if self.label_selector.is_some() && !self.name.is_empty() {
            return Err(ReferenceError::NameAndLabels);
        }
        let is_outside = !self.namespace.is_empty() && self.namespace != namespace;
        if is_outside && scope == ReferenceScope::Namespace {
            return Err(ReferenceError::OtherNamespace);
        }
        let cluster = if is_local(&self.cluster) {
            LOCAL.to_owned()
        } else if scope != ReferenceScope::Global {
            return Err(ReferenceError::OtherCluster);
        } else if is_object_name(&self.cluster) {
            self.cluster
        } else {
            return Err(ReferenceError::ClusterName(component.name.clone()));
        };
        let kind = if !self.resource.is_empty() {
            kind_of(&self.group, &self.resource).ok_or(ReferenceError::UnknownResource {
                group: self.group,
                resource: self.resource,
            })?
        } else if self.api_version.is_empty() || self.kind.is_empty() {
            return Err(ReferenceError::NoKind);
        } else {
            ObjectKind {
                api_version: self.api_version,
                kind: self.kind,
            }
        };
        let selector = match self.label_selector {
            Some(labels) => ObjectSelector::Labels(labels),
            None if self.name.is_empty() => ObjectSelector::Name(component.name.clone()),
            None => ObjectSelector::Name(self.name),
        };
        let namespace = if is_outside {
            self.namespace
        } else {
            namespace.to_owned()
        };
        Ok(ObjectRequest {
            cluster,
            kind,
            namespace,
            selector,
        })
    }
}
