//! Decides what a Job takes from `spec.syncJobPodTemplate`, which a tenant writes.
//!
//! The pod runs in Portolan's namespace with the password of the database. So only an allowlist is merged, and a field
//! that could reach other workloads, nodes or Secrets is refused by name. Fields that Kubeapps' own controller wrote into
//! the object (image, command, arguments, its variables and volumes) are ignored: they are not the user's.

pub(super) mod ignored;
mod quantity;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::expansion::escape;
use crate::api::jobs::{REPOSITORY_NAME, REPOSITORY_NAMESPACE};
use quantity::milli;

/// The part of the template that Jobs take, by `--job-pod-template`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TemplatePolicy {
    None,
    /// Proxies, resources within the limits, the node selector, and user and group IDs.
    #[default]
    Limited,
    /// Also labels, annotations, other literal variables, and scheduling: tolerations, affinity, priority.
    Full,
}

/// Requests and limits of the container, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub requests: BTreeMap<String, String>,
    pub limits: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodParts {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Map<String, Value>,
    pub security_context: Map<String, Value>,
    pub env: Vec<Value>,
    pub resources: Resources,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.syncJobPodTemplate.{field} is not allowed: {reason}")]
pub struct RefusedField {
    field: String,
    reason: &'static str,
}

const NEVER: &str = "sync pods run in Portolan's namespace; remove the field";
const FULL_ONLY: &str = "remove the field, or ask the operator for --job-pod-template=full";

/// Fields of the pod's spec that are merged with [`TemplatePolicy::Full`] only.
const SCHEDULING: [&str; 6] = [
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
];
/// Fields that Portolan sets, or whose value does not matter. Kubeapps' controller and API server set most of them.
const IGNORED: [&str; 13] = [
    "containers",
    "volumes",
    "restartPolicy",
    "dnsPolicy",
    "imagePullSecrets",
    "terminationGracePeriodSeconds",
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "preemptionPolicy",
    "nodeSelector",
    "securityContext",
    "hostname",
];
const ID_FIELDS: [&str; 4] = ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"];
pub(super) const PROXIES: [&str; 3] = ["http_proxy", "https_proxy", "no_proxy"];
pub(super) const RESERVED: [&str; 4] = [
    "DB_PASSWORD",
    "AUTHORIZATION_HEADER",
    "DOCKER_CONFIG_JSON",
    "OCI_CATALOG_URL",
];

/// `defaults` are the resources without a template; their limits are the maximum. Fails at the first refused field.
pub fn merge(template: Option<&Value>, policy: TemplatePolicy, defaults: &Resources) -> Result<PodParts, RefusedField> {
    let mut parts = PodParts {
        resources: defaults.clone(),
        ..PodParts::default()
    };
    let Some(template) = template.filter(|_| policy != TemplatePolicy::None) else {
        return Ok(parts);
    };
    let is_full = policy == TemplatePolicy::Full;
    if is_full {
        parts.labels = texts(&template["metadata"]["labels"]);
        parts.annotations = texts(&template["metadata"]["annotations"]);
        // Labels of Kubernetes and our own select pods for Services, policies and Jobs.
        for texts in [&mut parts.labels, &mut parts.annotations] {
            texts.retain(|key, _| !is_reserved_key(key));
        }
    }
    let empty = Map::new();
    let spec = template["spec"].as_object().unwrap_or(&empty);
    for (field, value) in spec.iter().filter(|(_, value)| !is_unset(value)) {
        let path = || format!("spec.{field}");
        let is_default_account = field.starts_with("serviceAccount") && value == "default";
        if SCHEDULING.contains(&field.as_str()) {
            if field == "schedulerName" && value == "default-scheduler" {
                continue;
            }
            if !is_full {
                return Err(refused(path(), FULL_ONLY));
            }
            parts.spec.insert(field.clone(), value.clone());
        } else if !IGNORED.contains(&field.as_str()) && !is_default_account {
            return Err(refused(path(), NEVER));
        }
    }
    if let Some(selector) = spec.get("nodeSelector").filter(|selector| !is_unset(selector)) {
        parts.spec.insert("nodeSelector".to_owned(), json!(texts(selector)));
    }
    check_volumes(spec.get("volumes"))?;
    parts.security_context = ids(spec.get("securityContext"), "spec.securityContext")?;
    let containers = (spec.get("containers").and_then(Value::as_array)).map_or(&[][..], Vec::as_slice);
    if containers.len() > 1 {
        return Err(refused("spec.containers[1]".to_owned(), NEVER));
    }
    if let Some(container) = containers.first() {
        let of_container = ids(container.get("securityContext"), "spec.containers[0].securityContext")?;
        parts.security_context.extend(of_container);
        parts.env = env(&container["env"], is_full);
        merge_resources(&container["resources"], defaults, is_full, &mut parts.resources)?;
        for field in ["envFrom", "lifecycle", "volumeDevices"] {
            if container.get(field).is_some_and(|value| !is_unset(value)) {
                return Err(refused(format!("spec.containers[0].{field}"), NEVER));
            }
        }
    }
    Ok(parts)
}

fn refused(field: String, reason: &'static str) -> RefusedField {
    RefusedField { field, reason }
}

/// Returns true for values that Go clients write instead of omitting them.
pub(super) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn is_reserved_key(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_below = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    is_below("kubernetes.io")
        || is_below("k8s.io")
        || is_below("portolan.dev")
        || key == REPOSITORY_NAME
        || key == REPOSITORY_NAMESPACE
        || matches!(key, "job-name" | "controller-uid")
}

pub(super) fn texts(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Refuses volumes other than those of the CA certificate, which Kubeapps' controller adds, and ignores these.
fn check_volumes(volumes: Option<&Value>) -> Result<(), RefusedField> {
    let volumes = volumes.and_then(Value::as_array).into_iter().flatten();
    for (at, volume) in volumes.enumerate() {
        let fields = volume.as_object().into_iter().flatten();
        for (kind, _) in fields.filter(|(kind, value)| *kind != "name" && !is_unset(value)) {
            if kind != "secret" {
                return Err(refused(format!("spec.volumes[{at}].{kind}"), NEVER));
            }
        }
    }
    Ok(())
}

/// Returns user and group IDs, none of them root's. Settings that restrict are Portolan's own.
fn ids(context: Option<&Value>, path: &str) -> Result<Map<String, Value>, RefusedField> {
    let mut ids = Map::new();
    let fields = context.and_then(Value::as_object).into_iter().flatten();
    for (field, value) in fields.filter(|(_, value)| !is_unset(value)) {
        let is_root = *value == json!(0) || value.as_array().is_some_and(|all| all.contains(&json!(0)));
        let is_restriction = matches!(field.as_str(), "runAsNonRoot" | "readOnlyRootFilesystem")
            || (field == "seccompProfile" && value["type"] == "RuntimeDefault")
            || (field == "capabilities" && value.get("add").is_none_or(is_unset))
            || field == "fsGroupChangePolicy";
        if ID_FIELDS.contains(&field.as_str()) && !is_root {
            ids.insert(field.clone(), value.clone());
        } else if !is_restriction {
            return Err(refused(format!("{path}.{field}"), NEVER));
        }
    }
    Ok(ids)
}

/// Returns the literal variables that are allowed; references to Secrets and ConfigMaps are not the tenant's to make.
fn env(variables: &Value, is_full: bool) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for variable in variables.as_array().into_iter().flatten() {
        let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) else {
            continue;
        };
        // Proxies of the repository are flags; see `objects`.
        let is_proxy = PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name));
        // They change the settings of the operator, the trusted authorities of the database, or the code that runs.
        let is_own = RESERVED.contains(&name)
            || ["PORTOLAN_", "LD_", "PG", "SSL_", "GLIBC_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
        if is_full && !is_proxy && !is_own && !value.is_empty() {
            // The last of several wins, as in a pod.
            merged.retain(|other| other["name"] != name);
            merged.push(json!({ "name": name, "value": escape(value) }));
        }
    }
    merged
}

fn merge_resources(
    template: &Value,
    defaults: &Resources,
    is_full: bool,
    merged: &mut Resources,
) -> Result<(), RefusedField> {
    for (kind, merged) in [("limits", &mut merged.limits), ("requests", &mut merged.requests)] {
        for (resource, quantity) in texts(&template[kind]) {
            let path = || format!("spec.containers[0].resources.{kind}.{resource}");
            let maximum = defaults.limits.get(&resource).and_then(|limit| milli(limit));
            let quantity_milli = milli(&quantity);
            // The kubelet takes a limit of 0 for none.
            let is_unlimited = kind == "limits" && quantity_milli == Some(0);
            let is_within = match (quantity_milli, maximum) {
                (Some(quantity), Some(maximum)) => quantity <= maximum && !is_unlimited,
                (Some(_), None) => !is_unlimited && matches!(resource.as_str(), "cpu" | "memory"),
                (None, _) => false,
            };
            if !is_full && !is_within {
                return Err(refused(
                    path(),
                    "it exceeds the limit of the operator, or is not a quantity",
                ));
            }
            merged.insert(resource, quantity);
        }
    }
    // A default request above a lower limit would be refused by the API server.
    for (resource, limit) in &merged.limits {
        if let Some(request) = merged.requests.get_mut(resource)
            && milli(request) > milli(limit)
        {
            request.clone_from(limit);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
