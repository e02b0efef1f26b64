use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::definitions::{DefinitionError, Definitions};
use super::overrides::{OverrideDefinitions, parse_overrides};
use crate::api::oam::{AppPolicy, ApplicationSpec, Policy, PolicyDefinition, WorkflowStep};
use crate::controllers::oam::policies::{Policies, PolicyError, is_built_in};
use crate::controllers::oam::workflow::DEPLOY;

#[derive(Clone, Debug)]
pub struct ParsedPolicy {
    pub policy: AppPolicy,
    pub definition: Arc<PolicyDefinition>,
}

pub(super) struct ParsedPolicies {
    pub all: Vec<AppPolicy>,
    /// Policies of `all` that would change the application before it is parsed.
    pub skipped: Vec<ParsedPolicy>,
    pub rendered: Vec<ParsedPolicy>,
    pub external: BTreeMap<String, Policy>,
    pub overrides: OverrideDefinitions,
}

#[derive(Debug, thiserror::Error)]
pub enum PoliciesError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("policy {name}: {cause}")]
    Definition { name: String, cause: DefinitionError },
    #[error("external policy {name} not found, which step {step} names")]
    NotFound { name: String, step: String },
    #[error("failed to get {kind} definition {type_} for override policy {policy}: {cause}")]
    Override {
        kind: &'static str,
        type_: String,
        policy: String,
        cause: Box<DefinitionError>,
    },
}

/// Names policies without a name by type and position.
pub(super) fn name_policies(policies: &mut [AppPolicy]) {
    for (index, policy) in policies.iter_mut().enumerate() {
        if policy.name.is_empty() {
            policy.name = format!("{}-auto-gen-{index}", policy.type_);
        }
    }
}

pub(super) fn parse_policies(
    namespace: &str,
    spec: &ApplicationSpec,
    steps: &[WorkflowStep],
    definitions: &Definitions<'_>,
) -> Result<ParsedPolicies, PoliciesError> {
    let external = external_policies(namespace, spec, steps, definitions)?;
    let mut all = spec.policies.clone();
    all.extend(external.iter().map(|(name, policy)| AppPolicy {
        name: name.clone(),
        type_: policy.spec.type_.clone(),
        properties: policy.spec.properties.clone(),
        ..AppPolicy::default()
    }));
    let skipped = find_scoped(&all, definitions);
    let with_effect = without_skipped(&all, &skipped);
    // Policies of the workflow are checked too.
    Policies::parse(&with_effect, false)?;
    let rendered = with_effect.iter().filter(|policy| !is_built_in(&policy.type_));
    let rendered = rendered.map(|policy| {
        let definition = definitions
            .policy(&policy.type_)
            .map_err(|cause| PoliciesError::Definition {
                name: policy.name.clone(),
                cause,
            })?;
        Ok(ParsedPolicy {
            policy: policy.clone(),
            definition,
        })
    });
    let rendered = rendered.collect::<Result<_, PoliciesError>>()?;
    Ok(ParsedPolicies {
        overrides: parse_overrides(&all, definitions)?,
        all,
        skipped,
        rendered,
        external,
    })
}

/// Finds the policies whose definition has a scope. KubeVela applies them only with a feature gate.
fn find_scoped(policies: &[AppPolicy], definitions: &Definitions<'_>) -> Vec<ParsedPolicy> {
    let policies = policies.iter().filter(|policy| !is_built_in(&policy.type_));
    let scoped = policies.filter_map(|policy| {
        let definition = definitions.policy(&policy.type_).ok()?;
        let is_scoped = !definition.spec.scope.is_empty();
        is_scoped.then(|| ParsedPolicy {
            policy: policy.clone(),
            definition,
        })
    });
    scoped.collect()
}

/// Returns the policies of types that are not skipped. Another policy may have the name of a skipped policy.
pub(super) fn without_skipped(policies: &[AppPolicy], skipped: &[ParsedPolicy]) -> Vec<AppPolicy> {
    let skipped: HashSet<&str> = skipped.iter().map(|parsed| parsed.policy.type_.as_str()).collect();
    let policies = policies.iter();
    let policies = policies.filter(|policy| !skipped.contains(policy.type_.as_str()));
    policies.cloned().collect()
}

pub(super) fn recorded_policy(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

fn external_policies(
    namespace: &str,
    spec: &ApplicationSpec,
    steps: &[WorkflowStep],
    definitions: &Definitions<'_>,
) -> Result<BTreeMap<String, Policy>, PoliciesError> {
    let mut external = BTreeMap::new();
    let steps = steps
        .iter()
        .flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
    for step in steps.filter(|step| step.type_ == DEPLOY) {
        let names = step.properties.as_ref().map(|properties| &properties["policies"]);
        let names = names
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for name in names.filter(|name| !spec.policies.iter().any(|policy| policy.name == *name)) {
            let recorded = definitions.contents().and_then(|contents| {
                let policy = contents.policies.get(&recorded_policy(namespace, name));
                // Revisions of earlier versions record it by its name alone.
                policy.or_else(|| contents.policies.get(name)).cloned()
            });
            let live = || Some((*definitions.lookup()?.policy(namespace, name)?).clone());
            let policy = recorded.or_else(live).ok_or_else(|| PoliciesError::NotFound {
                name: name.to_owned(),
                step: step.name.clone(),
            })?;
            external.insert(name.to_owned(), policy);
        }
    }
    Ok(external)
}
