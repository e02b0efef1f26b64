//! Names the parts of a tenant's template that Jobs leave out without a refusal.

use serde_json::Value;

use super::{PROXIES, PodParts, RESERVED, TemplatePolicy, is_unset, texts};
use crate::api::jobs::{REPOSITORY_NAME, REPOSITORY_NAMESPACE};
use crate::text::{printable, truncate};

/// The maximum number of named fields, and bytes of a name.
const MAX_NAMES: usize = 5;
const MAX_NAME: usize = 100;

/// Returns a sentence about the labels, annotations and variables that `parts`, merged from the template, lack.
pub fn note(template: Option<&Value>, policy: TemplatePolicy, parts: &PodParts) -> Option<String> {
    let template = template?;
    if policy == TemplatePolicy::None {
        let is_used = ["metadata", "spec"].iter().any(|field| !is_unset(&template[*field]));
        let note = "Jobs use no part of spec.syncJobPodTemplate; ask the operator for --job-pod-template=limited, or remove it";
        return is_used.then(|| note.to_owned());
    }
    let fields = [
        missing(template, "labels", |key| parts.labels.contains_key(key)),
        missing(template, "annotations", |key| parts.annotations.contains_key(key)),
        variables(template, parts),
    ];
    let fields = fields.concat();
    if fields.is_empty() {
        return None;
    }
    let names: Vec<String> = fields.iter().take(MAX_NAMES).cloned().collect();
    let more = match fields.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let reason = match policy {
        TemplatePolicy::Full => "Kubernetes and Portolan reserve these names",
        TemplatePolicy::Limited | TemplatePolicy::None => "they need --job-pod-template=full",
    };
    let names = names.join(", ");
    Some(format!(
        "Jobs ignore {names}{more} of spec.syncJobPodTemplate: {reason}"
    ))
}

/// Returns the keys of a map of the metadata that are left out. Kubeapps' controller writes two labels itself.
fn missing(template: &Value, field: &str, is_used: impl Fn(&str) -> bool) -> Vec<String> {
    let keys = texts(&template["metadata"][field]).into_keys();
    keys.filter(|key| !is_used(key) && key != REPOSITORY_NAME && key != REPOSITORY_NAMESPACE)
        .map(|key| format!("metadata.{field}.{}", shown(&key)))
        .collect()
}

/// Returns the variables that are left out, but for proxies, which are flags, and variables of Kubeapps' controller.
fn variables(template: &Value, parts: &PodParts) -> Vec<String> {
    let variables = template["spec"]["containers"][0]["env"]
        .as_array()
        .into_iter()
        .flatten();
    let names = variables.filter_map(|variable| variable["name"].as_str());
    let is_used = |name: &str| parts.env.iter().any(|variable| variable["name"] == name);
    let is_known =
        |name: &str| RESERVED.contains(&name) || PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
    names
        .filter(|name| !is_used(name) && !is_known(name))
        .map(|name| format!("spec.containers[0].env.{}", shown(name)))
        .collect()
}

fn shown(name: &str) -> String {
    truncate(&printable(name), MAX_NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Resources, merge};
    use super::*;

    fn note_of(template: &Value, policy: TemplatePolicy) -> Option<String> {
        let parts = merge(Some(template), policy, &Resources::default()).unwrap();
        note(Some(template), policy, &parts)
    }

    #[test]
    fn labels_annotations_and_variables_that_are_left_out_are_named() {
        let template = json!({
            "metadata": {
                "labels": { "team": "a", "app.kubernetes.io/name": "b", REPOSITORY_NAME: "c" },
                "annotations": { "sidecar.istio.io/inject": "false" },
            },
            "spec": { "containers": [{ "env": [
                { "name": "https_proxy", "value": "http://proxy" },
                { "name": "AUTHORIZATION_HEADER", "value": "x" },
                { "name": "TZ", "value": "UTC" },
                { "name": "PORTOLAN_ICONS", "value": "true" },
            ] }] },
        });
        let limited = "Jobs ignore metadata.labels.app.kubernetes.io/name, metadata.labels.team, \
                       metadata.annotations.sidecar.istio.io/inject, spec.containers[0].env.TZ, \
                       spec.containers[0].env.PORTOLAN_ICONS of spec.syncJobPodTemplate: they need --job-pod-template=full";
        assert_eq!(note_of(&template, TemplatePolicy::Limited).as_deref(), Some(limited));
        let full = "Jobs ignore metadata.labels.app.kubernetes.io/name, spec.containers[0].env.PORTOLAN_ICONS of \
                    spec.syncJobPodTemplate: Kubernetes and Portolan reserve these names";
        assert_eq!(note_of(&template, TemplatePolicy::Full).as_deref(), Some(full));
        let none = note_of(&template, TemplatePolicy::None).unwrap();
        assert!(none.contains("no part of spec.syncJobPodTemplate"), "{none}");
    }

    #[test]
    fn a_template_of_which_all_is_used_has_no_note() {
        let template = json!({ "spec": { "nodeSelector": { "disk": "ssd" } } });
        assert_eq!(note_of(&template, TemplatePolicy::Limited), None);
        assert_eq!(note_of(&json!({}), TemplatePolicy::None), None);
        assert_eq!(note(None, TemplatePolicy::None, &PodParts::default()), None);
    }

    #[test]
    fn a_note_is_bounded_however_many_labels_there_are() {
        let labels: serde_json::Map<String, Value> = (0..9)
            .map(|n| (format!("{n}{}", "x".repeat(1000)), json!("")))
            .collect();
        let note = note_of(&json!({ "metadata": { "labels": labels } }), TemplatePolicy::Limited).unwrap();
        assert!(note.len() < 1024 && note.contains(" and 4 more of "), "{note}");
    }
}
