//! Checks that KubeVela's command line does and its controller does not.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::application::{Parsed, ParsedComponent, ParsedTrait};
use super::definitions::Workload;
use crate::api::oam::TraitDefinition;
use crate::controllers::oam::policies::unknown_keys;

/// Finds traits that don't fit their component or each other, and unknown keys of policies.
#[must_use]
pub fn strict_violations(parsed: &Parsed) -> Vec<String> {
    let mut violations = Vec::new();
    for component in &parsed.components {
        let name = &component.component.name;
        for (index, trait_) in component.traits.iter().enumerate() {
            let type_ = &trait_.trait_.type_;
            if !applies_to(&trait_.definition, &component.definition) {
                violations.push(format!(
                    "component {name}: trait {type_} does not apply to its workload"
                ));
            }
            if let Some(other) = find_conflict(component, index) {
                violations.push(format!("component {name}: trait {type_} conflicts with trait {other}"));
            }
        }
    }
    for policy in &parsed.all_policies {
        let properties = policy.properties.as_ref().unwrap_or(&serde_json::Value::Null);
        let keys = unknown_keys(&policy.type_, properties);
        violations.extend(
            keys.iter()
                .map(|key| format!("policy {}: unknown key {key}", policy.name)),
        );
    }
    violations
}

/// Returns the type of another trait of the component that a trait rules out.
fn find_conflict(component: &ParsedComponent, index: usize) -> Option<&str> {
    let rules = &component.traits.get(index)?.definition.spec.conflicts_with;
    let others = component.traits.iter().enumerate().filter(|(at, _)| *at != index);
    let mut others = others.map(|(_, other)| other);
    let other = others.find(|other| rules.iter().any(|rule| rules_out(rule, other)))?;
    Some(&other.trait_.type_)
}

/// Returns true if a rule names a trait: by its definition, its CRD, the group of its CRD, or labels of its definition.
fn rules_out(rule: &str, other: &ParsedTrait) -> bool {
    let crd = &other.definition.spec.definition_ref.name;
    if let Some(selector) = rule.strip_prefix("labelSelector:") {
        return matches_labels(selector, other.definition.labels());
    }
    match rule.strip_prefix("*.") {
        Some(group) => crd.split_once('.').is_some_and(|(_, of_crd)| of_crd == group),
        None => rule == other.definition.name_any() || (!crd.is_empty() && rule == crd),
    }
}

/// Matches a list of equalities such as `a=b,c=d`. Other selectors match nothing.
fn matches_labels(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.split(',').all(|requirement| {
        let equality = requirement.split_once('=');
        equality.is_some_and(|(name, value)| {
            let value = value.strip_prefix('=').unwrap_or(value).trim();
            labels.get(name.trim()).is_some_and(|label| label == value)
        })
    })
}

/// A trait names the definition of the workload, its kind, or the group of its kind. Workloads of unknown kinds fit.
fn applies_to(definition: &TraitDefinition, workload: &Workload) -> bool {
    let rules = &definition.spec.applies_to_workloads;
    let Some((plural, group)) = resource(workload) else {
        return true;
    };
    let kind = format!("{plural}.{group}");
    rules.is_empty()
        || rules.iter().any(|rule| {
            let names_group = rule.strip_prefix("*.").is_some_and(|named| named == group);
            rule == "*"
                || names_group
                || *rule == workload.name()
                || rule.split('/').next() == Some(kind.trim_end_matches('.'))
        })
}

/// Returns the plural and group of a workload's kind, if its definition names them.
fn resource(workload: &Workload) -> Option<(String, String)> {
    let split = |name: &str| {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        (plural.to_owned(), group.to_owned())
    };
    match workload {
        Workload::Workload(definition) => Some(split(&definition.spec.definition_ref.name)),
        Workload::Component(definition) => {
            let descriptor = &definition.spec.workload;
            if descriptor.definition.kind.is_empty() {
                let type_ = descriptor.type_.as_str();
                return (!type_.is_empty() && type_ != "autodetects.core.oam.dev").then(|| split(type_));
            }
            let group = descriptor.definition.api_version.split_once('/');
            Some((
                plural_of(&descriptor.definition.kind),
                group.map_or_else(String::new, |(group, _)| group.to_owned()),
            ))
        }
    }
}

/// Returns the plural of a kind by the rules of English that the API's names follow.
fn plural_of(kind: &str) -> String {
    let name = kind.to_lowercase();
    let has_ending = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    match name.strip_suffix('y') {
        Some(stem) if !has_ending(&["ay", "ey", "oy", "uy"]) => format!("{stem}ies"),
        _ if has_ending(&["s", "x", "ch", "sh"]) => format!("{name}es"),
        _ => format!("{name}s"),
    }
}
