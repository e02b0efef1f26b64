//! Renders and applies policies with a template, before the workflow.

use std::collections::BTreeSet;

use super::apply::{AppObjects, Creator, ToApply};
use super::conditions::phase;
use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::revise::Current;
use super::rollout::render::RenderError;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::parse::{Parsed, ParsedPolicy};
use crate::controllers::oam::policies::DEBUG;
use crate::text::sanitize;

pub(super) fn policies_without_effect(parsed: &Parsed) -> String {
    let skipped = parsed.skipped_policies.iter().map(|skipped| {
        let AppPolicy { name, type_, .. } = &skipped.policy;
        let scope = &skipped.definition.spec.scope;
        format!("policy {name} is skipped: PolicyDefinition {type_} has the scope {scope}, which is not supported yet")
    });
    let debug = parsed.all_policies.iter().filter(|policy| policy.type_ == DEBUG);
    let debug = debug.map(|policy| format!("policy {} has no effect: values of debug are not kept", policy.name));
    let notes: BTreeSet<String> = skipped.chain(debug).collect();
    let notes: Vec<String> = notes.into_iter().collect();
    sanitize(&notes.join("; "))
}

pub(super) async fn apply_policies(
    objects: &mut AppObjects<'_>,
    current: &Current,
    parsed: &Parsed,
) -> Result<(), Stop> {
    let failed = |message: String| {
        let failure = Failure::new(FailureKind::Policies, format!("ApplyPolices: {message}"));
        failure.in_phase(phase::GENERATING_POLICY)
    };
    let mut batches = Vec::new();
    for policy in &parsed.policies {
        let rendered = render_policy(objects.env, current, policy).await;
        batches.push(rendered.map_err(|error| error.into_stop(failed))?);
    }
    for result in objects.apply(&current.name(), &parsed.rules, batches, None).await? {
        result.map_err(failed)?;
    }
    Ok(())
}

async fn render_policy(env: &Env<'_>, current: &Current, policy: &ParsedPolicy) -> Result<Vec<ToApply>, RenderError> {
    let name = &policy.policy.name;
    let rendered = current
        .release
        .policy(&env.evaluator(), policy)
        .await
        .map_err(|cause| {
            let message = format!("policy {name}: {cause}");
            RenderError::new(cause, message)
        })?;
    let to_apply = rendered.into_iter().map(|object| ToApply {
        manifest: object.manifest,
        component: name.clone(),
        trait_: object.trait_,
        cluster: String::new(),
        creator: Creator::Policy,
    });
    Ok(to_apply.collect())
}
