//! Policies with a template, rendered and applied before the workflow, and the clusters that policies select: only the
//! controller's own is served.

use std::collections::BTreeSet;

use super::components::RenderError;
use super::conditions::{self, Failure, phase};
use super::dispatch::{Creator, ToApply};
use super::health::evaluator_failure;
use super::pass::{Pass, Stop};
use super::revision::Current;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::parse::{
    Parsed, ParsedPolicy, Unsupported, cluster_selections, may_select_joined, remote_clusters, unsupported_clusters,
};
use crate::controllers::oam::policies::{DEBUG, TOPOLOGY};
use crate::text::sanitize;

impl Pass<'_> {
    /// Names the policies that change nothing.
    pub(super) fn notice_policies_without_effect(&mut self, parsed: &Parsed) {
        let skipped = parsed.skipped_policies.iter().map(|skipped| {
            let AppPolicy { name, type_, .. } = &skipped.policy;
            let scope = &skipped.definition.spec.scope;
            format!(
                "policy {name} is skipped: PolicyDefinition {type_} has the scope {scope}, which is not supported yet"
            )
        });
        let debug = parsed.all_policies.iter().filter(|policy| policy.type_ == DEBUG);
        let debug = debug.map(|policy| format!("policy {} has no effect: values of debug are not kept", policy.name));
        let notes: BTreeSet<String> = skipped.chain(debug).collect();
        let notes: Vec<String> = notes.into_iter().collect();
        self.notices.insert("PolicySkipped", sanitize(&notes.join("; ")));
    }

    pub(super) async fn apply_policies(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let failed = |message: String| {
            let failure = Failure::new(conditions::POLICY, "FailedApply", format!("ApplyPolices: {message}"));
            failure.in_phase(phase::GENERATING_POLICY)
        };
        let mut batches = Vec::new();
        for policy in &parsed.policies {
            let objects = self.render_policy(current, policy).await.map_err(|error| match error {
                RenderError::Evaluator(error) => evaluator_failure(&error),
                RenderError::Template { message, .. } => failed(message).into(),
            })?;
            batches.push(objects);
        }
        for result in self.dispatch(current, &parsed.rules, batches, None).await? {
            result.map_err(failed)?;
        }
        self.set_true(conditions::POLICY, "PolicyGenerated", "Policy generated successfully");
        Ok(())
    }

    async fn render_policy(&self, current: &Current, policy: &ParsedPolicy) -> Result<Vec<ToApply>, RenderError> {
        let name = &policy.policy.name;
        let objects = current.release.policy(&self.evaluator(), policy).await;
        let objects = objects.map_err(|cause| {
            let message = format!("policy {name}: {cause}");
            RenderError::new(cause, message)
        })?;
        let to_apply = objects.into_iter().map(|object| ToApply {
            manifest: object.manifest,
            component: name.clone(),
            trait_: object.trait_,
            cluster: String::new(),
            creator: Creator::Policy,
        });
        Ok(to_apply.collect())
    }

    /// Finds clusters that policies and steps name or select and the controller does not serve.
    pub(super) async fn unsupported_clusters(&self, parsed: &Parsed) -> Result<Vec<Unsupported>, Failure> {
        let named = unsupported_clusters(parsed, &[]);
        let Some(place) = cluster_selections(parsed)
            .into_iter()
            .next()
            .filter(|_| named.is_empty())
        else {
            return Ok(named);
        };
        let failed = |error: String| {
            let failure = Failure::new(conditions::PARSED, "FailedParse", format!("{place}: {error}"));
            failure.in_phase(phase::RENDERING)
        };
        let clusters = &self.reconciler.clusters;
        let selected = unsupported_clusters(parsed, &clusters.list().await.map_err(failed)?);
        if selected.is_empty() {
            return Ok(selected);
        }
        // A cluster that is gone must not refuse an Application until its next change.
        Ok(unsupported_clusters(
            parsed,
            &clusters.list_again().await.map_err(failed)?,
        ))
    }

    /// Returns an error if policies that a step computes select a joined cluster.
    pub(super) async fn check_selected(&self, policies: &[AppPolicy]) -> Result<(), String> {
        let topologies = policies.iter().filter(|policy| policy.type_ == TOPOLOGY);
        let topologies = topologies.filter_map(|policy| policy.properties.as_ref());
        let selecting: Vec<_> = topologies.filter(|topology| may_select_joined(topology)).collect();
        if selecting.is_empty() {
            return Ok(());
        }
        let joined = self.reconciler.clusters.list().await?;
        let mut selected = selecting
            .into_iter()
            .flat_map(|topology| remote_clusters(topology, &joined));
        match selected.next() {
            Some(cluster) => Err(format!("cluster {cluster} is not supported by this controller")),
            None => Ok(()),
        }
    }
}
