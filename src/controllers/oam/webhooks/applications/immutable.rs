//! Parameters that templates mark as `// +immutable`: an update can't change or remove them.

use std::collections::HashMap;

use kube::ResourceExt;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::definitions::ReviewDefinitions;
use super::findings::Findings;
use crate::api::oam::{Application, Component, Definition, DefinitionKind, Trait};
use crate::controllers::oam::parse::{Definitions, Lookup};
use crate::controllers::oam::webhooks::inspect::InspectTemplate;
use crate::text::{go_json, truncate};

/// Annotation: immutable parameters may change.
const FORCE: &str = "app.oam.dev/force-param-mutations";
/// A template without this text has no immutable parameters.
const MARKER: &str = "+immutable";
/// Templates of one review that the evaluator parses.
const MAX_TEMPLATES: usize = 50;
/// Bytes of a value in an error.
const MAX_SHOWN: usize = 256;

pub struct ImmutableChecks<'a, D, E> {
    pub app: &'a Application,
    pub old: &'a Application,
    pub definition_namespace: &'a str,
    pub definitions: &'a D,
    pub evaluator: &'a E,
    pub deadline: Instant,
}

/// Properties before and after an update, of the same type.
#[derive(Clone, Copy)]
struct PropertiesChange<'a> {
    kind: DefinitionKind,
    type_: &'a str,
    old: &'a Value,
    new: &'a Value,
}

/// The templates with markers among the types of some changes.
#[derive(Default)]
struct Templates {
    texts: Vec<String>,
    /// Positions of texts; `None` for a type without markers.
    positions: HashMap<(DefinitionKind, String), Option<usize>>,
}

impl<D: ReviewDefinitions, E: InspectTemplate> ImmutableChecks<'_, D, E> {
    pub async fn run(&self) -> Findings {
        let mut findings = Findings::default();
        if self.app.annotations().get(FORCE).is_some_and(|value| value == "true") {
            return findings;
        }
        let Changes(changes) = Changes::of(self.app, self.old);
        if changes.is_empty() {
            return findings;
        }
        let namespace = self.app.namespace().unwrap_or_default();
        let resolve = |lookup: &dyn Lookup| {
            let definitions = Definitions::live_for(self.app, lookup, &namespace, self.definition_namespace);
            Templates::of(&changes, &definitions)
        };
        let templates = match timeout_at(self.deadline, self.definitions.resolve(resolve)).await {
            Ok(Ok(templates)) => templates,
            Ok(Err(cause)) => {
                findings.warn(&format!("immutable parameters were not checked: {cause}"));
                return findings;
            }
            Err(_) => {
                findings.warn("immutable parameters were not checked: definitions were not read in time");
                return findings;
            }
        };
        let paths = self.read_paths(&namespace, &templates, &mut findings).await;
        for (field, change) in &changes {
            let position = templates.positions.get(&(change.kind, change.type_.to_owned()));
            let paths = position.copied().flatten().and_then(|position| paths.get(position));
            for path in paths.into_iter().flatten() {
                if let Some(detail) = violation(change, path) {
                    findings.error(&format!("{field}[{path}]"), &detail);
                }
            }
        }
        findings
    }

    async fn read_paths(&self, namespace: &str, templates: &Templates, findings: &mut Findings) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        for template in &templates.texts {
            let unchecked = |cause: &str| format!("some immutable parameters were not checked: {cause}");
            if paths.len() == MAX_TEMPLATES {
                findings.warn(&unchecked("too many templates mark parameters"));
                break;
            }
            match timeout_at(self.deadline, self.evaluator.inspect(namespace, template, false)).await {
                Ok(Ok(inspection)) => paths.push(inspection.immutable),
                Ok(Err(error)) => {
                    findings.warn(&unchecked(&error.to_string()));
                    break;
                }
                Err(_) => {
                    findings.warn(&unchecked("the evaluator did not answer in time"));
                    break;
                }
            }
        }
        paths
    }
}

/// The properties that an update changes, with their fields.
struct Changes<'a>(Vec<(String, PropertiesChange<'a>)>);

/// The type and the properties of a component, trait, policy or step.
type ComparedPart<'a> = (&'a str, Option<&'a Value>);

impl<'a> Changes<'a> {
    fn of(app: &'a Application, old: &'a Application) -> Self {
        let mut changes = Self(Vec::new());
        changes.add_components(&app.spec.components, &old.spec.components);
        let old_policies = by_name(&old.spec.policies, |policy| &policy.name);
        for (index, policy) in app.spec.policies.iter().enumerate() {
            if let Some(old) = old_policies.get(policy.name.as_str()) {
                let [old, new] = [old, policy].map(|policy| (policy.type_.as_str(), policy.properties.as_ref()));
                let field = format!("spec.policies[{index}].properties");
                changes.add(field, DefinitionKind::Policy, old, new);
            }
        }
        if let (Some(workflow), Some(old)) = (&app.spec.workflow, &old.spec.workflow) {
            let old_steps = by_name(&old.steps, |step| &step.name);
            for (index, step) in workflow.steps.iter().enumerate() {
                if let Some(old) = old_steps.get(step.name.as_str()) {
                    let [old, new] = [old, step].map(|step| (step.type_.as_str(), step.properties.as_ref()));
                    let field = format!("spec.workflow.steps[{index}].properties");
                    changes.add(field, DefinitionKind::WorkflowStep, old, new);
                }
            }
        }
        changes
    }

    fn add_components(&mut self, components: &'a [Component], old: &'a [Component]) {
        let old_components = by_name(old, |component| &component.name);
        for (index, component) in components.iter().enumerate() {
            let old = old_components.get(component.name.as_str());
            let Some(old) = old.filter(|old| old.type_ == component.type_) else {
                continue;
            };
            let path = format!("spec.components[{index}]");
            let [before, new] =
                [old, component].map(|component| (component.type_.as_str(), component.properties.as_ref()));
            self.add(format!("{path}.properties"), DefinitionKind::Component, before, new);
            // A trait has no name.
            for (at, traits) in old.traits.iter().zip(&component.traits).enumerate() {
                let traits: [&Trait; 2] = traits.into();
                let [before, new] = traits.map(|trait_| (trait_.type_.as_str(), trait_.properties.as_ref()));
                self.add(
                    format!("{path}.traits[{at}].properties"),
                    DefinitionKind::Trait,
                    before,
                    new,
                );
            }
        }
    }

    /// Parts of two types have nothing in common.
    fn add(&mut self, field: String, kind: DefinitionKind, old: ComparedPart<'a>, new: ComparedPart<'a>) {
        let [old_properties, new_properties] = [old, new].map(|(_, properties)| properties.unwrap_or(&Value::Null));
        let (old_type, type_) = (old.0, new.0);
        if old_type == type_ && old_properties != new_properties {
            let change = PropertiesChange {
                kind,
                type_,
                old: old_properties,
                new: new_properties,
            };
            self.0.push((field, change));
        }
    }
}

/// Of two with one name, the later counts.
fn by_name<'a, T>(list: &'a [T], name: impl Fn(&'a T) -> &'a str) -> HashMap<&'a str, &'a T> {
    list.iter().map(|element| (name(element), element)).collect()
}

impl Templates {
    /// A type without a definition has no markers.
    fn of(changes: &[(String, PropertiesChange<'_>)], definitions: &Definitions<'_>) -> Self {
        let mut templates = Self::default();
        for (_, change) in changes {
            let key = (change.kind, change.type_.to_owned());
            if templates.positions.contains_key(&key) {
                continue;
            }
            let marked = template(change, definitions).filter(|text| text.contains(MARKER));
            let position = marked.map(|text| {
                templates.texts.push(text);
                templates.texts.len() - 1
            });
            templates.positions.insert(key, position);
        }
        templates
    }
}

fn template(change: &PropertiesChange<'_>, definitions: &Definitions<'_>) -> Option<String> {
    let type_ = change.type_;
    match change.kind {
        DefinitionKind::Component => definitions.component(type_).ok()?.template().map(str::to_owned),
        DefinitionKind::Trait => definitions.trait_(type_).ok()?.template().map(str::to_owned),
        DefinitionKind::Policy => definitions.policy(type_).ok()?.template().map(str::to_owned),
        DefinitionKind::WorkflowStep => definitions.step(type_).ok()?.template().map(str::to_owned),
    }
}

/// A parameter may be set once.
fn violation(change: &PropertiesChange<'_>, path: &str) -> Option<String> {
    let shown = |value: &Value| truncate(&go_json(value), MAX_SHOWN);
    let old = find(change.old, path)?;
    match find(change.new, path) {
        None => Some(format!("immutable field cannot be removed (current: {})", shown(old))),
        Some(new) if is_equal(old, new) => None,
        Some(new) => Some(format!(
            "immutable field cannot be changed (current: {}, new: {})",
            shown(old),
            shown(new)
        )),
    }
}

/// Finds the value at a path such as `storage.class`.
fn find<'a>(properties: &'a Value, path: &str) -> Option<&'a Value> {
    let mut fields = path.split('.');
    fields.try_fold(properties, |value, field| value.as_object()?.get(field))
}

/// Compares numbers by value: `1` and `1.0` are equal.
fn is_equal(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(_), Value::Number(_)) => old == new || old.as_f64() == new.as_f64(),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_equal(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            let mut fields = old.iter();
            old.len() == new.len() && fields.all(|(name, old)| new.get(name).is_some_and(|new| is_equal(old, new)))
        }
        _ => old == new,
    }
}
