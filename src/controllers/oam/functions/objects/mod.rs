//! The functions of the packages `vela/kube` that read, list, delete and patch objects: requests decoded from parameters, and
//! the values that they return. The caller sends the requests, with the rights of the Application.

mod answer;
mod items;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::params::{cluster_name, decode, required};
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::trackers::LOCAL;
use crate::text::{sanitize, truncate};
pub use answer::{deleted, desired, list_result, listed, object_result, patched, read_result};
pub use items::Items;

/// The namespace of objects that name none, as in KubeVela: not the Application's. Ignored for cluster-scoped kinds.
pub const DEFAULT_NAMESPACE: &str = "default";
const MAX_LABELS: usize = 100;

/// Objects of a kind by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSelection {
    /// As in the parameters: empty for the controller's own.
    cluster: String,
    pub api_version: String,
    pub kind: String,
    /// All namespaces if empty.
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectDeletion {
    One(ObjectId),
    /// Has a namespace and at least one label.
    Matching(ObjectSelection),
}

#[derive(Deserialize)]
struct Params {
    value: Option<Map<String, Value>>,
    /// The object to get, or the kind to list.
    resource: Option<ObjectParams>,
    filter: Option<FilterParams>,
    cluster: Option<String>,
    patch: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct ObjectParams {
    #[serde(flatten)]
    type_: TypeParams,
    metadata: Option<MetadataParams>,
}

#[derive(Deserialize)]
struct TypeParams {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    kind: Option<String>,
}

#[derive(Default, Deserialize)]
struct MetadataParams {
    name: Option<String>,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
struct FilterParams {
    namespace: Option<String>,
    #[serde(rename = "matchingLabels")]
    matching_labels: Option<BTreeMap<String, String>>,
}

/// Decodes the parameters of `#Read`.
///
/// # Errors
/// The parameters are not valid.
pub fn read(params: &Value) -> Result<ObjectId, String> {
    let (params, cluster) = Params::of(params)?;
    object(params.value, &cluster)
}

/// Decodes the parameters of `#Get`, for an object of `namespace` unless they name another.
///
/// # Errors
/// The parameters are not valid.
pub fn get(params: &Value, namespace: &str) -> Result<ObjectId, String> {
    let (params, cluster) = Params::of(params)?;
    let resource = params.resource.ok_or("$params.resource is required")?;
    Ok(resource.id("resource.", namespace)?.in_cluster(&cluster))
}

/// Decodes the parameters of `#List`.
///
/// # Errors
/// The parameters are not valid.
pub fn list(params: &Value) -> Result<ObjectSelection, String> {
    let (params, cluster) = Params::of(params)?;
    let type_ = match (params.resource, params.value) {
        (Some(resource), _) => resource.type_,
        // Before `resource` had a meaning, KubeVela read `value`.
        (None, Some(value)) => decode(&Value::Object(value)).map_err(locate_in_value)?,
        (None, None) => return Err("$params.resource is required".to_owned()),
    };
    let filter = params.filter.unwrap_or_default();
    let namespace = filter.namespace.unwrap_or_default();
    selection(cluster, type_, namespace, filter.matching_labels, "resource.")
}

/// Decodes the parameters of `#Delete`.
///
/// # Errors
/// The parameters are not valid, or select objects without a label.
pub fn delete(params: &Value) -> Result<ObjectDeletion, String> {
    let (params, cluster) = Params::of(params)?;
    let Some(filter) = params.filter else {
        return object(params.value, &cluster).map(ObjectDeletion::One);
    };
    let ObjectParams { type_, metadata } = object_params(params.value)?;
    let namespaces = [filter.namespace, metadata.unwrap_or_default().namespace];
    let namespace = namespaces.into_iter().flatten().find(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let selection = selection(cluster, type_, namespace, filter.matching_labels, "value.")?;
    if selection.labels.is_empty() {
        return Err(format!(
            "$params.filter.matchingLabels is required: without a label, every {} in namespace {} would be deleted",
            short(&selection.kind),
            short(&selection.namespace)
        ));
    }
    Ok(ObjectDeletion::Matching(selection))
}

/// Decodes the parameters of `#Patch`. The patch keeps its markers in the parameters.
///
/// # Errors
/// The parameters are not valid.
pub fn patch(params: &Value) -> Result<ObjectId, String> {
    let (params, cluster) = Params::of(params)?;
    let id = object(params.value, &cluster)?;
    match params.patch {
        Some(patch) if patch.contains_key("status") => {
            Err("$params.patch.status is not supported: the status of an object belongs to its controller".to_owned())
        }
        Some(_) => Ok(id),
        None => Err("$params.patch is required".to_owned()),
    }
}

impl Params {
    /// Decodes parameters. The cluster that they name is beside them.
    fn of(params: &Value) -> Result<(Self, String), String> {
        let mut params: Self = decode(params)?;
        let cluster = cluster_name(params.cluster.take())?;
        Ok((params, cluster))
    }
}

fn object(value: Option<Map<String, Value>>, cluster: &str) -> Result<ObjectId, String> {
    let id = object_params(value)?.id("value.", DEFAULT_NAMESPACE)?;
    Ok(id.in_cluster(cluster))
}

impl ObjectParams {
    /// Returns the ID in the controller's own cluster.
    fn id(self, parent: &str, default_namespace: &str) -> Result<ObjectId, String> {
        let Self { type_, metadata } = self;
        let MetadataParams { name, namespace } = metadata.unwrap_or_default();
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        Ok(ObjectId {
            cluster: LOCAL.to_owned(),
            api_version: required(type_.api_version, &format!("{parent}apiVersion"))?,
            kind: required(type_.kind, &format!("{parent}kind"))?,
            namespace: namespace.unwrap_or_else(|| default_namespace.to_owned()),
            name: required(name, &format!("{parent}metadata.name"))?,
        })
    }
}

fn object_params(value: Option<Map<String, Value>>) -> Result<ObjectParams, String> {
    let value = value.ok_or("$params.value is required")?;
    decode(&Value::Object(value)).map_err(locate_in_value)
}

fn locate_in_value(error: String) -> String {
    error.replacen("$params", "$params.value", 1)
}

fn selection(
    cluster: String,
    type_: TypeParams,
    namespace: String,
    labels: Option<BTreeMap<String, String>>,
    parent: &str,
) -> Result<ObjectSelection, String> {
    let labels = labels.unwrap_or_default();
    if labels.len() > MAX_LABELS {
        return Err(format!(
            "$params.filter.matchingLabels has more than {MAX_LABELS} labels"
        ));
    }
    // Separators would add requirements to the selector, or remove them.
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| is_word(c) || c == '/');
    if !labels
        .iter()
        .all(|(name, value)| is_name(name) && value.chars().all(is_word))
    {
        return Err("$params.filter.matchingLabels is not a map of valid labels".to_owned());
    }
    let is_segment = namespace.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if !is_segment {
        return Err("$params.filter.namespace is not a valid name".to_owned());
    }
    Ok(ObjectSelection {
        cluster,
        api_version: required(type_.api_version, &format!("{parent}apiVersion"))?,
        kind: required(type_.kind, &format!("{parent}kind"))?,
        namespace,
        labels,
    })
}

impl ObjectSelection {
    /// Returns the kind, namespace and cluster, without a name.
    #[must_use]
    pub fn target(&self) -> ObjectId {
        let id = ObjectId {
            cluster: LOCAL.to_owned(),
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: String::new(),
        };
        id.in_cluster(&self.cluster)
    }

    /// Returns the label selector as text.
    #[must_use]
    pub fn selector(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        labels.join(",")
    }
}

/// Returns a name from parameters for a message.
fn short(text: &str) -> String {
    const MAX_BYTES: usize = 100;
    truncate(&sanitize(text), MAX_BYTES)
}
