//! Keys under which a rendered component or a health is cached: a hash of all that it depends on.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::component::{Base, DefinitionTemplate, TemplatedComponent};
use super::health::HealthTemplates;
use super::terraform::Terraform;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::source::{ContextNames, context_names};

pub type CacheKey = [u8; 32];

/// Returns the key of a rendered component: its templates and properties, and the parts of the context that they name.
///
/// The objects that a trait sees follow from them, so nothing is evaluated to compute the key.
#[must_use]
pub fn component_key(component: &TemplatedComponent<'_>) -> CacheKey {
    let mut hash = KeyHash::default();
    let base = match &component.base {
        Base::Template(template) => Some(template),
        Base::Terraform(terraform) => {
            hash.add_terraform(component.name, terraform);
            None
        }
    };
    let templates = || base.into_iter().chain(component.traits);
    templates().for_each(|template| hash.add_template(template));
    hash.add_context(component.context.iter(), templates().map(|template| template.source));
    hash.add_value(component.output_status);
    hash.finish()
}

/// Returns the key of traits of the last stage: the key of their component, their templates and properties, the parts
/// of the context that they name, and of each live object what a template may read.
#[must_use]
pub fn post_dispatch_key(
    component: CacheKey,
    traits: &[DefinitionTemplate<'_>],
    context: &Context,
    live: &Map<String, Value>,
) -> CacheKey {
    let mut hash = KeyHash::default();
    hash.add(&component);
    traits.iter().for_each(|template| hash.add_template(template));
    hash.add_context(context.iter(), traits.iter().map(|template| template.source));
    if let Some(workload) = live.get("output") {
        hash.add_live(workload);
    }
    let outputs = live.get("outputs").and_then(Value::as_object);
    for (key, object) in outputs.into_iter().flatten() {
        hash.add(key.as_bytes());
        hash.add_live(object);
    }
    hash.finish()
}

/// Returns the key of what holds for one round of calls only.
#[must_use]
pub fn key_in_round(key: CacheKey, round: u64) -> CacheKey {
    let mut hash = KeyHash::default();
    hash.add(&key);
    hash.add(&round.to_le_bytes());
    hash.finish()
}

/// Returns the key of a health: its templates and properties, the parts of the context that they name, and of each live
/// object what a template may read.
#[must_use]
pub fn health_key<'a>(
    templates: HealthTemplates<'_>,
    properties: Option<&Value>,
    context: &Context,
    live: impl IntoIterator<Item = &'a Value>,
) -> CacheKey {
    let mut hash = KeyHash::default();
    let sources = [templates.details, templates.health_policy, templates.custom_status];
    for source in sources {
        hash.add(&[u8::from(source.is_some())]);
        hash.add(source.unwrap_or_default().as_bytes());
    }
    hash.add_value(properties);
    let context = context
        .iter()
        .filter(|(name, _)| !matches!(*name, "output" | "outputs"));
    hash.add_context(context, sources.into_iter().flatten());
    for object in live {
        hash.add_live(object);
    }
    hash.finish()
}

#[derive(Default)]
struct KeyHash(Sha256);

impl KeyHash {
    /// Adds a part with its length, so that parts can't be confused.
    fn add(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    fn add_template(&mut self, template: &DefinitionTemplate<'_>) {
        self.add(template.name.as_bytes());
        self.add(&[u8::from(template.is_strict)]);
        self.add(template.source.as_bytes());
        self.add_value(template.properties);
    }

    fn add_terraform(&mut self, component: &str, terraform: &Terraform<'_>) {
        // Errors name both.
        self.add(component.as_bytes());
        self.add(terraform.name.as_bytes());
        self.add_value(terraform.definition.terraform_module());
        self.add_value(Some(&json!(terraform.definition.metadata.annotations)));
        self.add_value(terraform.properties);
        self.add(terraform.namespace.as_bytes());
    }

    fn add_value(&mut self, value: Option<&Value>) {
        self.add(value.map(Value::to_string).unwrap_or_default().as_bytes());
    }

    fn add_context<'a>(
        &mut self,
        context: impl Iterator<Item = (&'a str, &'a Value)>,
        templates: impl Iterator<Item = &'a str>,
    ) {
        let names: Vec<ContextNames> = templates.map(context_names).collect();
        let is_named = |field: &str| names.iter().any(|names| names.contains(field));
        for (field, value) in context.filter(|(field, _)| is_named(field)) {
            self.add(field.as_bytes());
            self.add_value(Some(value));
        }
    }

    /// Adds metadata and status; also the rest of an object that has no generation to tell that it changed.
    fn add_live(&mut self, object: &Value) {
        let has_generation = object.pointer("/metadata/generation").is_some();
        for (field, value) in object.as_object().into_iter().flatten() {
            if field == "metadata" {
                let fields = value.as_object().into_iter().flatten();
                for (field, value) in
                    fields.filter(|(field, _)| !matches!(field.as_str(), "managedFields" | "resourceVersion"))
                {
                    self.add(field.as_bytes());
                    self.add_value(Some(value));
                }
            } else if !has_generation || matches!(field.as_str(), "status" | "kind" | "apiVersion") {
                self.add(field.as_bytes());
                self.add_value(Some(value));
            }
        }
        self.add(&[]);
    }

    fn finish(self) -> CacheKey {
        self.0.finalize().into()
    }
}
