//! Configs of KubeVela: Secrets with a label, which `config.#CreateConfig` and its variants write, read, list and delete.
//!
//! Messages never contain a property of a config, nor what the API server or the evaluator quotes.

mod secret;
mod template;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::objects::Items;
use super::params::{decode, object_name, required};
use super::secrets::Secrets;
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::steps::Answer;
use crate::runtime::kube_client::ApiError;
use crate::runtime::manifests::is_object_name;
pub use secret::{CATALOG, CATALOG_LABEL, TYPE_LABEL};
use secret::{ConfigMetadata, is_config, is_sensitive};
use template::RenderedConfig;

/// Of the properties of a config, in bytes. The API server accepts Secrets of 1 MiB.
const MAX_PROPERTIES: usize = 700 * 1024;

/// Secrets of one page. Each may have 1 MiB.
pub const PAGE: u32 = 20;
/// Pages of one list.
const MAX_PAGES: usize = 50;

/// A part of a list of Secrets.
#[derive(Clone, Debug, Default)]
pub struct SecretPage {
    pub secrets: Vec<Secret>,
    /// Names the next page; `None` in the last one.
    pub next: Option<String>,
}

/// Configs as the functions read and write them, with the rights of the Application.
pub trait ConfigStore: Secrets {
    /// Returns a page of at most [`PAGE`] Secrets of a namespace with all labels. `next` comes from the page before.
    fn list(
        &self,
        namespace: &str,
        labels: &[(&str, &str)],
        next: Option<&str>,
    ) -> impl Future<Output = Result<SecretPage, ApiError>> + Send;

    /// Creates or updates a Secret, and objects beside it, as objects of the Application, recorded in its current tracker.
    /// An unchanged Secret is recorded too, or garbage collection would delete it with the tracker of the last generation.
    fn apply(&self, secret: &Secret, objects: Vec<Value>) -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Deletes the Secret, which was read before. A Secret that is gone, or has another UID, is no error.
    fn delete(&self, namespace: &str, name: &str, secret: &Secret)
    -> impl Future<Output = Result<(), ApiError>> + Send;

    /// Returns the namespace of templates that are named without one.
    fn default_namespace(&self) -> &str;

    /// Returns the ConfigMap of a template, `None` if it does not exist.
    fn template(&self, namespace: &str, name: &str)
    -> impl Future<Output = Result<Option<ConfigMap>, ApiError>> + Send;
}

#[derive(Deserialize)]
struct Params {
    name: Option<String>,
    namespace: Option<String>,
    template: Option<String>,
    config: Option<Map<String, Value>>,
}

impl Params {
    /// Returns namespace and name.
    fn id(&mut self) -> Result<(String, String), String> {
        let name = object_name(self.name.take(), "name")?;
        Ok((object_name(self.namespace.take(), "namespace")?, name))
    }
}

/// Creates or updates a config.
pub async fn create(params: &Value, store: &impl ConfigStore, evaluator: &impl Evaluate) -> Answer {
    try_create(params, store, evaluator).await.into()
}

/// Reads the properties of a config.
pub async fn read(params: &Value, store: &impl ConfigStore) -> Answer {
    try_read(params, store).await.into()
}

/// Lists the configs of a template in a namespace.
pub async fn list(params: &Value, store: &impl ConfigStore) -> Answer {
    try_list(params, store).await.into()
}

/// Deletes a config.
pub async fn delete(params: &Value, store: &impl ConfigStore) -> Answer {
    try_delete(params, store).await.into()
}

async fn try_create(params: &Value, store: &impl ConfigStore, evaluator: &impl Evaluate) -> Result<Value, String> {
    let mut params: Params = decode(params)?;
    let (namespace, name) = params.id()?;
    let properties = params.config.unwrap_or_default();
    let metadata = ConfigMetadata { namespace, name };
    let template = match params.template.filter(|template| !template.is_empty()) {
        None => None,
        Some(reference) => Some(template::load(&reference, store).await?),
    };
    let rendered = match &template {
        None => RenderedConfig::default(),
        Some(template) => template.render(&metadata, &properties, evaluator).await?,
    };
    let (secret, objects) = secret::build(&metadata, &properties, template.as_ref(), rendered)?;
    // Templates are written by tenants, and the name becomes a part of a path.
    if !is_object_name(secret::name(&secret)) {
        return Err("the name of the Secret that the config template renders is not valid".to_owned());
    }
    if let Some(existing) = get(store, &metadata.namespace, secret::name(&secret)).await? {
        secret::check_update(&existing, &secret)?;
    }
    let applied = store.apply(&secret, objects).await;
    applied.map_err(|error| api_message("apply", &metadata.name, &metadata.namespace, &error))?;
    Ok(json!({}))
}

async fn try_read(params: &Value, store: &impl ConfigStore) -> Result<Value, String> {
    let (namespace, name) = decode::<Params>(params)?.id()?;
    let secret = existing_config(store, &namespace, &name).await?;
    if is_sensitive(&secret) {
        return Err(format!("the config {name} is sensitive"));
    }
    let properties = secret::properties(&secret);
    let properties = properties.ok_or_else(|| format!("the config {name} has no valid properties"))?;
    Ok(json!({ "config": properties }))
}

async fn try_list(params: &Value, store: &impl ConfigStore) -> Result<Value, String> {
    let mut params: Params = decode(params)?;
    let namespace = object_name(params.namespace.take(), "namespace")?;
    let template =
        template::TemplateReference::parse(&required(params.template, "template")?, store.default_namespace())?;
    let labels = [(CATALOG_LABEL, CATALOG), (TYPE_LABEL, template.name.as_str())];
    let mut items = Items::new("configs");
    let mut next = None;
    for _ in 0..MAX_PAGES {
        let page = store
            .list(&namespace, &labels, next.as_deref())
            .await
            .map_err(|error| format!("failed to list configs in namespace {namespace}: {error}"))?;
        // KubeVela skips configs that it can't decode, too.
        for config in page.secrets.iter().filter_map(secret::list_entry) {
            items.push(config)?;
        }
        next = page.next;
        if next.is_none() {
            let mut configs = items.into_values();
            configs.sort_by(|left, right| left["name"].as_str().cmp(&right["name"].as_str()));
            return Ok(json!({ "configs": configs }));
        }
    }
    Err(format!(
        "namespace {namespace} has more than {} configs of the template {}; delete unused ones",
        MAX_PAGES * PAGE as usize,
        template.name
    ))
}

async fn try_delete(params: &Value, store: &impl ConfigStore) -> Result<Value, String> {
    let (namespace, name) = decode::<Params>(params)?.id()?;
    let secret = existing_config(store, &namespace, &name).await?;
    if secret::has_objects(&secret) {
        return Err(format!(
            "the config {name} has further objects, which this controller does not delete; use vela config delete"
        ));
    }
    let deleted = store.delete(&namespace, &name, &secret).await;
    deleted.map_err(|error| api_message("delete", &name, &namespace, &error))?;
    Ok(json!({}))
}

async fn get(store: &impl ConfigStore, namespace: &str, name: &str) -> Result<Option<Secret>, String> {
    let secret = store.get(namespace, name).await;
    secret.map_err(|error| api_message("read", name, namespace, &error))
}

async fn existing_config(store: &impl ConfigStore, namespace: &str, name: &str) -> Result<Secret, String> {
    match get(store, namespace, name).await? {
        None => Err(format!("the config {name} not found in namespace {namespace}")),
        Some(secret) if !is_config(&secret) => Err(format!(
            "the Secret {name} in namespace {namespace} is not a config: it has no label {CATALOG_LABEL}={CATALOG}"
        )),
        Some(secret) => Ok(secret),
    }
}

/// Returns the message of a failed request. The API server may quote values of an object that it refuses as invalid.
fn api_message(verb: &str, name: &str, namespace: &str, error: &ApiError) -> String {
    let what = format!("failed to {verb} the Secret {name} in namespace {namespace}");
    match error.code {
        Some(code @ (400 | 422)) => format!("{what}: the API server refuses it as invalid ({code})"),
        _ => format!("{what}: {error}"),
    }
}
