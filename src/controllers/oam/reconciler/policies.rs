//! Policies with a template: rendered and applied before the workflow.

use serde_json::{Map, Value};

use super::components::RenderError;
use super::conditions::{self, Failure, phase};
use super::dispatch::ToApply;
use super::health::evaluator_failure;
use super::pass::{Pass, Stop, fields};
use super::revision::Current;
use crate::api::oam::Definition;
use crate::controllers::oam::parse::{Parsed, ParsedPolicy, type_label};
use crate::controllers::oam::render::component::{Template, render_template};
use crate::controllers::oam::render::evaluate::Cause;
use crate::controllers::oam::render::identity::{Owner, Part, identify};

const CREATOR: &str = "policy";

impl Pass<'_> {
    pub(super) async fn apply_policies(&mut self, current: &Current, parsed: &Parsed) -> Result<(), Stop> {
        let failed = |message: String| {
            let failure = Failure::new(conditions::POLICY, "FailedApply", format!("ApplyPolices: {message}"));
            failure.in_phase(phase::GENERATING_POLICY)
        };
        let mut batches = Vec::new();
        for policy in &parsed.policies {
            let objects = self.render_policy(current, policy).await.map_err(|error| match error {
                RenderError::Evaluator(error) => evaluator_failure(&error),
                RenderError::Template { message, .. } => failed(message),
            })?;
            batches.push(objects);
        }
        for result in self.dispatch(current, &parsed.rules, batches).await? {
            result.map_err(failed)?;
        }
        self.set_true(conditions::POLICY, "PolicyGenerated", "Policy generated successfully");
        Ok(())
    }

    async fn render_policy(&self, current: &Current, policy: &ParsedPolicy) -> Result<Vec<ToApply>, RenderError> {
        let Some(source) = policy.definition.template() else {
            return Ok(Vec::new());
        };
        let template = Template {
            name: &policy.policy.type_,
            source,
            properties: policy.policy.properties.as_ref(),
            is_strict: self.reconciler.options.is_strict,
        };
        let context = fields(&serde_json::json!({
            "name": policy.policy.name,
            "appName": self.name.name,
            "namespace": self.name.namespace,
            "appRevision": current.name(),
            "appRevisionNum": self.status.latest_revision.as_ref().map_or(0, |latest| latest.revision),
            "appLabels": current.app.metadata.labels,
            "appAnnotations": current.app.metadata.annotations,
            "clusterVersion": self.reconciler.cluster_version().await,
        }));
        let rendered = render_template(&self.evaluator(), template, &context).await;
        let rendered = rendered.map_err(|cause| match cause {
            Cause::Evaluator(error) => RenderError::Evaluator(error),
            cause => RenderError::Template {
                is_stopped: matches!(cause, Cause::Stopped(_)),
                message: format!("policy {}: {cause}", policy.policy.name),
            },
        })?;
        let (labels, annotations) = (
            fields(&current.app.metadata.labels),
            fields(&current.app.metadata.annotations),
        );
        let revision = current.name();
        let owner = Owner {
            app: &self.name.name,
            namespace: &self.name.namespace,
            labels: &labels,
            annotations: &annotations,
            component: &policy.policy.name,
            revision: &revision,
            revision_hash: current.hash(),
            replica_key: None,
            cluster: "",
        };
        let type_ = type_label(&policy.policy.type_);
        let apply = |mut object: Map<String, Value>, part: Part<'_>, trait_: &str| {
            identify(&mut object, &owner, part);
            ToApply {
                manifest: Value::Object(object),
                component: policy.policy.name.clone(),
                trait_: trait_.to_owned(),
                creator: CREATOR,
            }
        };
        let workload = Part::Workload { component_type: &type_ };
        let mut objects = vec![apply(rendered.workload, workload, "")];
        for output in rendered.outputs {
            let part = Part::Trait {
                trait_type: &output.trait_type,
                resource: &output.key,
            };
            objects.push(apply(output.object, part, &output.trait_type));
        }
        Ok(objects)
    }
}
