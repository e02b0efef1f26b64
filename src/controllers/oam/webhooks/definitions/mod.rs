//! Reviews of definitions.
//!
//! ```text
//!  validate ─► object ─► kind of workload, reference of a trait ─► template ─► version ─► revision ─► allowed, warnings
//!                                                                  │   │                    │
//!                                                        evaluator ┘   └─ discovery         └─ DefinitionRevision
//!  mutate_component ─► object ─► discovery ─► WorkloadDefinition, created if it is missing ─► patch
//! ```
//! A broken rule denies the object. A review that fails for another reason says so, and may succeed later.

mod object;
mod revision;
mod rules;
mod served_kinds;
mod template;
#[cfg(test)]
mod tests;
mod workload;

use std::future::ready;

use json_patch::Patch;
use kube::Client;
use serde::de::DeserializeOwned;

use self::object::object_of;
use self::revision::check_revision;
use self::served_kinds::ServedResources;
use self::template::InspectionOutcome;
use self::workload::{WorkloadDefaults, check_workload};
use super::inspect::InspectTemplate;
use super::review::{AdmissionRequest, Verdict};
use crate::api::oam::{ComponentDefinition, DefinitionKind, PolicyDefinition, TraitDefinition, WorkflowStepDefinition};
use crate::budget::Budgets;
use crate::controllers::oam::definitions::RecordedKind;
use crate::text::sanitize;

/// The webhooks of definitions.
pub struct DefinitionWebhooks<E> {
    /// Creates WorkloadDefinitions on each replica, so it must not be limited to the leader.
    pub client: Client,
    pub evaluator: E,
    pub budgets: Budgets,
    /// Creates the WorkloadDefinition that a ComponentDefinition names (`--autogen-workload-definition`).
    pub creates_workload_definitions: bool,
    /// Refuses templates of kinds that are not installed (gate `ValidateResourcesExist`).
    pub requires_kinds: bool,
}

impl<E: InspectTemplate> DefinitionWebhooks<E> {
    /// Reviews a definition of this kind.
    pub async fn validate(&self, kind: DefinitionKind, request: &AdmissionRequest) -> Verdict {
        let reviewed = match kind {
            DefinitionKind::Component => self.review::<ComponentDefinition>(request).await,
            DefinitionKind::Trait => self.review::<TraitDefinition>(request).await,
            DefinitionKind::Policy => self.review::<PolicyDefinition>(request).await,
            DefinitionKind::WorkflowStep => self.review::<WorkflowStepDefinition>(request).await,
        };
        match reviewed {
            Ok(warnings) => Verdict::Allowed {
                patch: Patch::default(),
                warnings,
            },
            // As in KubeVela.
            Err(refusal) => with_text(refusal, |text| {
                format!("{} (requestUID={})", sanitize(text), sanitize(&request.uid))
            }),
        }
    }

    /// Completes the workload of a ComponentDefinition.
    pub async fn mutate_component(&self, request: &AdmissionRequest) -> Verdict {
        match self.complete(request).await {
            Ok(patch) => Verdict::Allowed {
                patch,
                warnings: Vec::new(),
            },
            Err(refusal) => with_text(refusal, sanitize),
        }
    }

    async fn complete(&self, request: &AdmissionRequest) -> Result<Patch, Verdict> {
        let Some(definition) = object_of::<ComponentDefinition>(request)? else {
            return Ok(Patch::default());
        };
        let defaults = WorkloadDefaults {
            client: &self.client,
            request,
            creates_definitions: self.creates_workload_definitions,
        };
        defaults.apply(&definition).await
    }

    /// Returns warnings.
    async fn review<D: ReviewedKind>(&self, request: &AdmissionRequest) -> Result<Vec<String>, Verdict> {
        let Some(definition) = object_of::<D>(request)? else {
            return Ok(Vec::new());
        };
        let (definition, namespace) = (&definition, request.namespace.as_str());
        let mut served = ServedResources::new(&self.client);
        definition.check(&mut served).await?;
        let warnings = self.check_template(definition, namespace, &mut served).await?;
        rules::check_version(definition.version()).map_err(Verdict::Denied)?;
        rules::check_naming(definition).map_err(Verdict::Denied)?;
        check_revision(definition, namespace, &self.client, &self.budgets).await?;
        Ok(warnings)
    }

    /// Returns warnings.
    async fn check_template<D: ReviewedKind>(
        &self,
        definition: &D,
        namespace: &str,
        served: &mut ServedResources,
    ) -> Result<Vec<String>, Verdict> {
        let cue = definition.schematic().and_then(|schematic| schematic.cue.as_ref());
        let Some(text) = cue.map(|cue| cue.template.as_str()).filter(|text| !text.is_empty()) else {
            return Ok(Vec::new());
        };
        let outcome = if D::IS_COMPILED {
            template::compile(&self.evaluator, namespace, text).await?
        } else {
            template::parse(&self.evaluator, namespace, text).await
        };
        let inspection = match outcome {
            InspectionOutcome::Inspected(inspection) => inspection,
            InspectionOutcome::Unchecked(warning) => return Ok(vec![warning]),
        };
        if self.requires_kinds && !rules::is_of_addon(definition) {
            template::check_kinds(&inspection, served).await?;
        }
        Ok(template::warning(&inspection).into_iter().collect())
    }
}

/// A kind of definitions with the rules that others don't have.
trait ReviewedKind: RecordedKind + DeserializeOwned + Send + Sync + 'static {
    /// Templates are compiled, and not only parsed.
    const IS_COMPILED: bool = true;

    fn check(&self, _served: &mut ServedResources) -> impl Future<Output = Result<(), Verdict>> + Send {
        ready(Ok(()))
    }
}

impl ReviewedKind for ComponentDefinition {
    async fn check(&self, served: &mut ServedResources) -> Result<(), Verdict> {
        check_workload(self, served).await
    }
}

impl ReviewedKind for TraitDefinition {
    async fn check(&self, _: &mut ServedResources) -> Result<(), Verdict> {
        rules::check_trait(self).map_err(Verdict::Denied)
    }
}

impl ReviewedKind for PolicyDefinition {}

impl ReviewedKind for WorkflowStepDefinition {
    /// They import packages of functions, which the evaluator does not have.
    const IS_COMPILED: bool = false;
}

fn with_text(refusal: Verdict, text: impl Fn(&str) -> String) -> Verdict {
    match refusal {
        Verdict::Allowed { .. } => refusal,
        Verdict::Invalid(message) => Verdict::Invalid(text(&message)),
        Verdict::Denied(message) => Verdict::Denied(text(&message)),
        Verdict::Failed(message) => Verdict::Failed(text(&message)),
    }
}
