//! Policies with a template, rendered and applied before the workflow, and the clusters that policies select: only the
//! controller's own is served.

use super::components::RenderError;
use super::conditions::{self, Failure, phase};
use super::dispatch::{Creator, ToApply};
use super::health::evaluator_failure;
use super::pass::{Pass, Stop};
use super::revision::Current;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::clusters::{JoinedCluster, joined_clusters};
use crate::controllers::oam::parse::{Parsed, ParsedPolicy, cluster_selections, may_select_joined, remote_clusters};
use crate::controllers::oam::policies::{DEBUG, TOPOLOGY};

impl Pass<'_> {
    /// Names the policies that change nothing.
    pub(super) fn warn_of_policies_without_effect(&mut self, parsed: &Parsed) {
        let skipped = parsed.skipped_policies.iter().map(|skipped| {
            let AppPolicy { name, type_, .. } = &skipped.policy;
            let scope = &skipped.definition.spec.scope;
            format!(
                "policy {name} is skipped: PolicyDefinition {type_} has the scope {scope}, which is not supported yet"
            )
        });
        let debug = parsed.all_policies.iter().filter(|policy| policy.type_ == DEBUG);
        let debug = debug.map(|policy| format!("policy {} has no effect: values of debug are not kept", policy.name));
        for note in skipped.chain(debug).collect::<Vec<_>>() {
            self.warn("PolicySkipped", &note);
        }
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

    /// Returns the joined clusters, if a policy or step may select them.
    pub(super) async fn selectable_clusters(&self, parsed: &Parsed) -> Result<Vec<JoinedCluster>, Failure> {
        let Some(place) = cluster_selections(parsed).into_iter().next() else {
            return Ok(Vec::new());
        };
        self.joined_clusters().await.map_err(|error| {
            let failure = Failure::new(conditions::PARSED, "FailedParse", format!("{place}: {error}"));
            failure.in_phase(phase::RENDERING)
        })
    }

    /// Returns an error if policies that a step computes select a joined cluster.
    pub(super) async fn check_selected(&self, policies: &[AppPolicy]) -> Result<(), String> {
        let topologies = policies.iter().filter(|policy| policy.type_ == TOPOLOGY);
        let topologies = topologies.filter_map(|policy| policy.properties.as_ref());
        let selecting: Vec<_> = topologies.filter(|topology| may_select_joined(topology)).collect();
        if selecting.is_empty() {
            return Ok(());
        }
        let joined = self.joined_clusters().await?;
        let mut selected = selecting
            .into_iter()
            .flat_map(|topology| remote_clusters(topology, &joined));
        match selected.next() {
            Some(cluster) => Err(format!("cluster {cluster} is not supported by this controller")),
            None => Ok(()),
        }
    }

    pub(super) async fn joined_clusters(&self) -> Result<Vec<JoinedCluster>, String> {
        let namespace = &self.reconciler.options.definition_namespace;
        let joined = joined_clusters(&self.reconciler.client, namespace).await;
        joined.map_err(|error| format!("failed to look for joined clusters in namespace {namespace}: {error}"))
    }
}
