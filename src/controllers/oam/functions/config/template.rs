//! Templates of configs: ConfigMaps with CUE text that renders a Secret, and objects beside it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Map, Value, json};

use super::ConfigStore;
use super::secret::{ConfigMetadata, SCOPE_LABEL, SENSITIVE};
use crate::controllers::oam::render::evaluate::{Cause, Evaluate, evaluate};
use crate::controllers::oam::source::{Role, scan};
use crate::cue::CueSource;
use crate::runtime::manifests::is_object_name;
use crate::text::{sanitize, truncate};

const NAME_PREFIX: &str = "config-template-";
const TEXT_KEY: &str = "template";
/// The settings of other destinations than a Secret, in YAML.
const WRITER_KEY: &str = "expanded-writer";
const MAX_MESSAGE: usize = 500;
/// Objects beside the Secret.
const MAX_OBJECTS: usize = 10;

/// A template as `name` or `namespace/name`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TemplateReference {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl TemplateReference {
    /// The name becomes the value of a label, and a part of a path. A text without a namespace means the default one.
    pub(super) fn parse(text: &str, default_namespace: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').unwrap_or((default_namespace, text));
        // Of labels.
        const MAX_NAME: usize = 63;
        if !is_object_name(namespace) || !is_object_name(name) || name.len() > MAX_NAME {
            return Err("$params.template is not the name of a config template, or its namespace/name".to_owned());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// The objects of a config.
#[derive(Default)]
pub(super) struct RenderedConfig {
    pub(super) secret: Secret,
    /// With version, kind, name and namespace.
    pub(super) objects: Vec<Value>,
}

pub(super) struct ConfigTemplate {
    pub(super) reference: TemplateReference,
    pub(super) scope: String,
    pub(super) is_sensitive: bool,
    text: String,
}

/// Reads a template.
///
/// # Errors
/// It does not exist, or it writes to other systems.
pub(super) async fn load(reference: &str, store: &impl ConfigStore) -> Result<ConfigTemplate, String> {
    let reference = TemplateReference::parse(reference, store.default_namespace())?;
    let TemplateReference { namespace, name } = &reference;
    let ConfigMap { metadata, data, .. } = store
        .template(namespace, &format!("{NAME_PREFIX}{name}"))
        .await
        .map_err(|error| format!("failed to read the config template {namespace}/{name}: {error}"))?
        .ok_or_else(|| format!("the config template {namespace}/{name} does not exist"))?;
    let mut data = data.unwrap_or_default();
    let writer = data.get(WRITER_KEY).map_or("", String::as_str);
    if has_writer(writer) {
        return Err(unsupported(name, "writes to other destinations than a Secret"));
    }
    let text_of = |map: &Option<BTreeMap<String, String>>, key: &str| {
        let value = map.as_ref().and_then(|map| map.get(key));
        value.cloned().unwrap_or_default()
    };
    Ok(ConfigTemplate {
        scope: text_of(&metadata.labels, SCOPE_LABEL),
        is_sensitive: text_of(&metadata.annotations, SENSITIVE) == "true",
        text: data.remove(TEXT_KEY).unwrap_or_default(),
        reference,
    })
}

/// Returns true if a writer is not null. The first such writer ends the decoder, which then expands no alias.
fn has_writer(yaml: &str) -> bool {
    serde_yaml::from_str::<Option<BTreeMap<String, ()>>>(yaml).is_err()
}

fn unsupported(name: &str, why: &str) -> String {
    format!("the config template {name} {why}, which this controller does not support yet")
}

impl ConfigTemplate {
    /// Renders the objects of a config.
    ///
    /// # Errors
    /// The template is invalid or not supported, or it refuses the properties.
    pub(super) async fn render<E: Evaluate>(
        &self,
        metadata: &ConfigMetadata,
        properties: &Map<String, Value>,
        evaluator: &E,
    ) -> Result<RenderedConfig, String> {
        let name = &self.reference.name;
        let source = self.source(metadata, properties)?;
        let mut rendered = match evaluate(evaluator, source).await {
            Ok(rendered) => rendered,
            // The rest of the message quotes properties.
            Err(Cause::Invalid(errors)) => {
                let field = field_of(errors.first()).map_or_else(String::new, |field| format!(": {field}"));
                return Err(format!(
                    "the config template {name} is invalid or refuses the config{field}"
                ));
            }
            Err(Cause::Stopped(limit)) => return Err(format!("the config template {name} was stopped: {limit}")),
            Err(other) => return Err(format!("failed to evaluate the config template {name}: {other}")),
        };
        let message = rendered.get("message").and_then(Value::as_str).unwrap_or_default();
        if !message.is_empty() {
            let message = truncate(&sanitize(&without_values(message, properties)), MAX_MESSAGE);
            return Err(format!("failed to validate config: {message}"));
        }
        let output = rendered.get_mut("output").map_or_else(|| json!({}), Value::take);
        let secret = serde_json::from_value(output)
            .map_err(|_| format!("the output of the config template {name} is not a Secret"))?;
        let outputs = rendered.get_mut("outputs").map_or(Value::Null, Value::take);
        let objects = objects(outputs, &metadata.namespace)
            .ok_or_else(|| format!("outputs of the config template {name} are not up to {MAX_OBJECTS} objects"))?;
        Ok(RenderedConfig { secret, objects })
    }

    /// Returns the text that exports the Secret.
    fn source(&self, metadata: &ConfigMetadata, properties: &Map<String, Value>) -> Result<CueSource, String> {
        let name = &self.reference.name;
        let scan = scan(&self.text, Role::Status, false)
            .map_err(|error| format!("the config template {name} is invalid: {error}"))?;
        if scan.imports.contains("\"vela/") || scan.imports.contains("\"ext/") {
            return Err(unsupported(name, "calls functions"));
        }
        let context = json!({"name": metadata.name, "namespace": metadata.namespace});
        let parameter = Value::Object(properties.clone());
        let mut source = CueSource::from(format!("{}\n_vela: {{\n", scan.imports));
        source.push_template(&scan.body);
        source.push_str(&format!(
            "\ncontext: _\n}}\n\
             _vela: context: {context}\n\
             _vela: template: parameter: {parameter}\n\
             if _vela.template.output != _|_ {{\"output\": _vela.template.output}}\n\
             if _vela.template.outputs != _|_ {{\"outputs\": _vela.template.outputs}}\n\
             if _vela.template.validation.$returns.message != _|_ \
             {{\"message\": _vela.template.validation.$returns.message}}\n"
        ));
        Ok(source.of_definition(name))
    }
}

/// Returns the objects of `outputs`, in the namespace of the config unless they name another. `None` if one is no object.
fn objects(outputs: Value, namespace: &str) -> Option<Vec<Value>> {
    let outputs = match outputs {
        Value::Null => Map::new(),
        Value::Object(outputs) if outputs.len() <= MAX_OBJECTS => outputs,
        _ => return None,
    };
    let complete = |mut object: Value| {
        let is_text = |path: &&str| {
            let text = object.pointer(path).and_then(Value::as_str);
            text.is_some_and(|text| !text.is_empty())
        };
        if !["/apiVersion", "/kind", "/metadata/name"].iter().all(is_text) {
            return None;
        }
        let slot = &mut object["metadata"]["namespace"];
        if slot.as_str().is_none_or(str::is_empty) {
            *slot = namespace.into();
        }
        Some(object)
    };
    outputs.into_iter().map(|(_, object)| complete(object)).collect()
}

/// Returns the field at the beginning of an error of CUE.
fn field_of(text: &str) -> Option<&str> {
    const MAX_FIELD: usize = 200;
    let (field, _) = text.split_once(": ")?;
    let is_label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    (field.len() <= MAX_FIELD && field.contains('.') && field.chars().all(is_label)).then_some(field)
}

/// Removes the texts of properties from a message of the template.
fn without_values(message: &str, properties: &Map<String, Value>) -> String {
    // Shorter texts occur in words.
    const MIN_TEXT: usize = 4;
    let mut clean = message.to_owned();
    let mut remaining: Vec<&Value> = properties.values().collect();
    while let Some(value) = remaining.pop() {
        match value {
            Value::String(text) if text.len() >= MIN_TEXT => clean = clean.replace(text.as_str(), "[redacted]"),
            Value::Array(items) => remaining.extend(items),
            Value::Object(fields) => remaining.extend(fields.values()),
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_namespace_or_the_default_one() {
        let reference = |text: &str| {
            let reference = TemplateReference::parse(text, "vela-system")?;
            Ok::<_, String>((reference.namespace, reference.name))
        };
        let pair = |namespace: &str, name: &str| Ok((namespace.to_owned(), name.to_owned()));
        assert_eq!(reference("a-b"), pair("vela-system", "a-b"));
        assert_eq!(reference("ns/a"), pair("ns", "a"));
        let long = "a".repeat(64);
        for hostile in ["", "/", "a/", "/a", "a/b/c", "a,b=c", "../a", "a\n", "A b", &long] {
            assert!(reference(hostile).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn only_a_path_is_quoted_from_an_error_of_cue() {
        let error = r#"template.parameter.url: conflicting values "hunter2" and int"#;
        assert_eq!(field_of(error), Some("template.parameter.url"));
        for error in [
            "conflicting values: hunter2",
            "\"hunter2\".a: b",
            "hunter2",
            "a hunter2.b: c",
        ] {
            assert_eq!(field_of(error), None, "{error}");
        }
    }

    #[test]
    fn a_writer_is_recognized_by_any_value() {
        for (yaml, expected) in [
            ("", false),
            ("{}\n", false),
            ("nacos: null", false),
            ("nacos:\nother: ~\n", false),
            ("[]", true),
            ("nacos: null\nother: 1", true),
            ("nacos:\n  a: b", true),
            ("a", true),
        ] {
            assert_eq!(has_writer(yaml), expected, "{yaml}");
        }
    }

    #[test]
    fn aliases_of_a_writer_are_not_expanded() {
        let mut yaml = "a0: &a0 null\n".to_owned();
        for level in 1..40 {
            let aliases = format!("*a{}, ", level - 1).repeat(1_000);
            yaml.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(has_writer(&yaml));
        let nulls: String = (0..10_000).map(|number| format!("b{number}: *a0\n")).collect();
        assert!(!has_writer(&format!("a0: &a0 null\n{nulls}")));
    }

    #[test]
    fn texts_of_properties_are_removed_from_a_message() {
        let properties = json!({"a": {"b": ["hunter2"]}, "user": "ab"});
        let clean = without_values("hunter2 is about as weak", properties.as_object().unwrap());
        assert_eq!(clean, "[redacted] is about as weak");
    }
}
