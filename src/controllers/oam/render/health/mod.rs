//! Health, message and details of a component or trait, from the `status` templates of its definition.
//!
//! The order is details, health, message: each sees the results of the templates before it in `context.status`.

mod cue_text;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::evaluate::{Cause, Evaluate, evaluate};
use super::wrap;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::source::{Role, Scan, scan};
use crate::cue::CueSource;
use crate::text::sanitize;
use cue_text::cue_text;

/// Labels of details have fewer bytes.
const MAX_LABEL_BYTES: usize = 32;
const MAX_DETAILS: usize = 64;
/// The text for a detail without a value, as CUE prints it.
const NO_VALUE: &str = "_|_";

/// The templates in `spec.status` of a definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct HealthTemplates<'a> {
    /// The name of the definition, for logs.
    pub definition: &'a str,
    pub details: Option<&'a str>,
    pub health_policy: Option<&'a str>,
    pub custom_status: Option<&'a str>,
}

/// Texts are sanitized: templates may copy them from live objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub is_healthy: bool,
    pub message: String,
    pub details: BTreeMap<String, String>,
}

impl Health {
    /// The health of a component whose object does not exist.
    #[must_use]
    pub fn not_found(kind: &str, name: &str) -> Self {
        Self {
            message: sanitize(&format!("{kind} {name} not found")),
            ..Self::default()
        }
    }
}

/// Evaluates the templates with the live objects as `output` and `outputs` of `context`.
///
/// A health policy that fails makes the component unhealthy, and says so in the message. Details and custom status that
/// fail are left out, as in the original.
///
/// # Errors
///
/// The evaluator is missing or failed.
pub async fn evaluate_health<V: Evaluate>(
    evaluator: &V,
    templates: HealthTemplates<'_>,
    properties: Option<&Value>,
    context: &Context,
) -> Result<Health, V::Error> {
    let status = Status {
        evaluator,
        definition: templates.definition,
        properties: properties.filter(|properties| !properties.is_null()),
    };
    let mut context = context.clone();
    context.insert("parameter", properties.cloned().unwrap_or_else(|| json!({})));
    let (details, values) = match templates.details {
        Some(template) => status.details(template, &context).await?.unwrap_or_default(),
        None => Default::default(),
    };
    set_status(&mut context, "details", Value::Object(values));
    let health = match templates.health_policy {
        Some(template) => status.field(template, "isHealth", &context).await?,
        None => Ok(Value::Bool(true)),
    };
    let health = health.and_then(|value| value.as_bool().ok_or_else(|| "isHealth is not a boolean".to_owned()));
    set_status(&mut context, "healthy", json!(matches!(health, Ok(true))));
    let message = match templates.custom_status {
        Some(template) => status.field(template, "message", &context).await?.ok(),
        None => None,
    };
    let message = message.as_ref().and_then(Value::as_str).unwrap_or_default();
    Ok(Health {
        is_healthy: matches!(health, Ok(true)),
        message: match health {
            Ok(_) => sanitize(message),
            Err(error) => sanitize(&format!("health check: {error}")),
        },
        details,
    })
}

fn set_status(context: &mut Context, field: &str, value: Value) {
    let mut status = context.get("status").cloned().unwrap_or_else(|| json!({}));
    if let Some(status) = status.as_object_mut() {
        status.insert(field.to_owned(), value);
    }
    context.insert("status", status);
}

struct Status<'a, V> {
    evaluator: &'a V,
    definition: &'a str,
    properties: Option<&'a Value>,
}

impl<V: Evaluate> Status<'_, V> {
    /// Returns a field that the template sets, or why it has none.
    async fn field(&self, template: &str, field: &str, context: &Context) -> Result<Result<Value, String>, V::Error> {
        let source = |scan: &Scan| wrap::status(scan, field, self.properties, context);
        let result = self.evaluate(template, source).await?;
        Ok(result.map(|(_, mut result)| result.get_mut(field).map(Value::take).unwrap_or_default()))
    }

    /// Returns details as texts, and their values for the next templates.
    async fn details(
        &self,
        template: &str,
        context: &Context,
    ) -> Result<Option<(BTreeMap<String, String>, Map<String, Value>)>, V::Error> {
        let source = |scan: &Scan| wrap::details(scan, self.properties, context);
        let Ok((scan, result)) = self.evaluate(template, source).await? else {
            return Ok(None);
        };
        let labels = result.get(wrap::LABELS).and_then(Value::as_array).into_iter().flatten();
        let mut details = BTreeMap::new();
        let mut values = Map::new();
        for label in labels.filter_map(Value::as_str) {
            let is_own = !matches!(label, "context" | "parameter");
            let is_private = !label.starts_with('$') && scan.private.iter().any(|private| private == label);
            if !is_own || is_private || label.len() >= MAX_LABEL_BYTES {
                continue;
            }
            let value = result.get(wrap::VALUES).and_then(|values| values.get(label));
            if let Some(value) = value {
                values.insert(label.to_owned(), value.clone());
            }
            if !label.starts_with('$') && details.len() < MAX_DETAILS {
                let text = value.map_or_else(|| NO_VALUE.to_owned(), cue_text);
                details.insert(sanitize(label), sanitize(&text));
            }
        }
        Ok(Some((details, values)))
    }

    /// Evaluates a template. The inner error comes from the template.
    async fn evaluate(
        &self,
        template: &str,
        source: impl Fn(&Scan) -> CueSource,
    ) -> Result<Result<(Scan, Value), String>, V::Error> {
        let scan = match scan(template, Role::Status, false) {
            Ok(scan) => scan,
            Err(error) => return Ok(Err(error.to_string())),
        };
        match evaluate(self.evaluator, source(&scan).of_definition(self.definition)).await {
            Ok(result) => Ok(Ok((scan, result))),
            Err(Cause::Evaluator(error)) => Err(error),
            Err(Cause::Stopped(error)) => Ok(Err(format!("stopped: {error}"))),
            Err(cause) => Ok(Err(cause.to_string())),
        }
    }
}
