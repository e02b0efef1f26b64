//! The Secret of a config.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

use super::MAX_PROPERTIES;
use super::template::{ConfigTemplate, RenderedConfig};
use crate::controllers::oam::functions::secrets::value;
use crate::text::go_json;

/// The label of configs, and of the ConfigMaps of their templates.
pub const CATALOG_LABEL: &str = "config.oam.dev/catalog";
pub const CATALOG: &str = "velacore-config";
/// The label with the name of the template.
pub const TYPE_LABEL: &str = "config.oam.dev/type";
pub(super) const SCOPE_LABEL: &str = "config.oam.dev/scope";
pub(super) const SENSITIVE: &str = "config.oam.dev/sensitive";
const TEMPLATE_NAMESPACE: &str = "config.oam.dev/template-namespace";
const ALIAS: &str = "config.oam.dev/alias";
const DESCRIPTION: &str = "config.oam.dev/description";

const PROPERTIES_KEY: &str = "input-properties";
const OBJECTS_KEY: &str = "objects-reference";

/// The type that the API server gives to a Secret without one.
const DEFAULT_TYPE: &str = "Opaque";

pub(super) struct ConfigMetadata {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Completes what a template rendered, or an empty Secret without a template.
pub(super) fn build(
    metadata: &ConfigMetadata,
    properties: &Map<String, Value>,
    template: Option<&ConfigTemplate>,
    RenderedConfig { mut secret, objects }: RenderedConfig,
) -> Result<(Secret, Vec<Value>), String> {
    let encoded = go_json(&Value::Object(properties.clone()));
    if encoded.len() > MAX_PROPERTIES {
        return Err(format!("$params.config is larger than {MAX_PROPERTIES} bytes"));
    }
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert(CATALOG_LABEL.to_owned(), CATALOG.to_owned());
    let name = template.map_or("", |template| &template.reference.name);
    labels.insert(TYPE_LABEL.to_owned(), name.to_owned());
    let annotations = secret.metadata.annotations.get_or_insert_default();
    for name in [ALIAS, DESCRIPTION] {
        annotations.insert(name.to_owned(), String::new());
    }
    if let Some(template) = template {
        labels.insert(SCOPE_LABEL.to_owned(), template.scope.clone());
        annotations.insert(SENSITIVE.to_owned(), template.is_sensitive.to_string());
        let namespace = template.reference.namespace.clone();
        annotations.insert(TEMPLATE_NAMESPACE.to_owned(), namespace);
        secret.type_.get_or_insert_with(|| format!("/{name}"));
    }
    secret.metadata.namespace = Some(metadata.namespace.clone());
    secret.metadata.name.get_or_insert_with(|| metadata.name.clone());
    let data = secret.data.get_or_insert_default();
    data.insert(PROPERTIES_KEY.to_owned(), ByteString(encoded.into_bytes()));
    if !objects.is_empty() {
        // KubeVela deletes them with the config.
        let references = go_json(&objects.iter().map(reference).collect());
        data.insert(OBJECTS_KEY.to_owned(), ByteString(references.into_bytes()));
    }
    Ok((secret, objects))
}

fn reference(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({
        "kind": object["kind"], "namespace": metadata["namespace"], "name": metadata["name"],
        "apiVersion": object["apiVersion"],
    })
}

pub(super) fn name(secret: &Secret) -> &str {
    secret.metadata.name.as_deref().unwrap_or_default()
}

/// Checks that a Secret may become `new`.
pub(super) fn check_update(existing: &Secret, new: &Secret) -> Result<(), String> {
    // KubeVela would overwrite another Secret of the same type.
    if !is_config(existing) {
        return Err(format!("the Secret {} exists and is not a config", name(new)));
    }
    if label(existing, TYPE_LABEL) != label(new, TYPE_LABEL) {
        return Err("the template of the config can not be changed".to_owned());
    }
    if type_of(existing) != type_of(new) {
        return Err("the secret type of the config can not be changed".to_owned());
    }
    Ok(())
}

/// Returns an entry of the list of configs; `None` if the Secret is undecodable. Sensitive configs have no properties.
pub(super) fn list_entry(secret: &Secret) -> Option<Value> {
    let has_properties = value(secret, PROPERTIES_KEY).is_some_and(|bytes| !bytes.is_empty());
    let config = if is_sensitive(secret) || !has_properties {
        Value::Null
    } else {
        Value::Object(properties(secret)?)
    };
    let annotation = |name| annotation(secret, name).unwrap_or_default();
    Some(json!({
        "name": name(secret),
        "alias": annotation(ALIAS),
        "description": annotation(DESCRIPTION),
        "config": config,
    }))
}

pub(super) fn properties(secret: &Secret) -> Option<Map<String, Value>> {
    let bytes = value(secret, PROPERTIES_KEY)?;
    // A message of the parser could quote a value.
    serde_json::from_slice(bytes).ok()
}

pub(super) fn is_config(secret: &Secret) -> bool {
    label(secret, CATALOG_LABEL) == CATALOG
}

pub(super) fn is_sensitive(secret: &Secret) -> bool {
    annotation(secret, SENSITIVE) == Some("true")
}

/// Returns true if the template of the config created other objects.
pub(super) fn has_objects(secret: &Secret) -> bool {
    value(secret, OBJECTS_KEY).is_some_and(|bytes| !matches!(bytes.trim_ascii(), b"" | b"[]" | b"null"))
}

fn label<'a>(secret: &'a Secret, name: &str) -> &'a str {
    let labels = secret.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(name)).map_or("", String::as_str)
}

fn annotation<'a>(secret: &'a Secret, name: &str) -> Option<&'a str> {
    Some(secret.metadata.annotations.as_ref()?.get(name)?.as_str())
}

fn type_of(secret: &Secret) -> &str {
    let type_ = secret.type_.as_deref();
    type_.filter(|type_| !type_.is_empty()).unwrap_or(DEFAULT_TYPE)
}
