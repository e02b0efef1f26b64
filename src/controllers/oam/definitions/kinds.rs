use std::fmt::Debug;

use kube::Resource;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cached::RevisionFields;
use super::caches::{Cache, DefinitionCaches};
use crate::api::oam::{
    ComponentDefinition, Definition, DefinitionKind, DefinitionRevision, DefinitionRevisionSpec, DefinitionStatus,
    Policy, PolicyDefinition, TraitDefinition, Workflow, WorkflowStepDefinition, WorkloadDefinition, labels,
};

/// Kinds that Applications use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangedKind {
    /// A definition, a revision of it, or the WorkloadDefinition that stands in for a ComponentDefinition.
    Definition(DefinitionKind),
    Policy,
    Workflow,
}

/// A definition, Policy or Workflow that was created or deleted, or whose contents changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChange {
    pub kind: ChangedKind,
    pub namespace: String,
    pub name: String,
}

pub(super) trait CachedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Returns what Applications use of an object, by kind and name.
    fn used_as(meta: &ObjectMeta, revision: &RevisionFields) -> Option<(ChangedKind, String)>;

    fn shrink(&mut self) {
        shrink(self.meta_mut());
    }
}

pub(super) fn shrink(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(labels::KUBECTL_LAST_APPLIED);
    }
}

macro_rules! impl_cached_kind {
    ($($kind:ty => $used_as:expr,)*) => {$(
        impl CachedKind for $kind {
            fn used_as(meta: &ObjectMeta, _: &RevisionFields) -> Option<(ChangedKind, String)> {
                Some(($used_as, meta.name.clone()?))
            }
        }
    )*};
}

impl_cached_kind! {
    ComponentDefinition => ChangedKind::Definition(DefinitionKind::Component),
    WorkloadDefinition => ChangedKind::Definition(DefinitionKind::Component),
    TraitDefinition => ChangedKind::Definition(DefinitionKind::Trait),
    PolicyDefinition => ChangedKind::Definition(DefinitionKind::Policy),
    WorkflowStepDefinition => ChangedKind::Definition(DefinitionKind::WorkflowStep),
    Policy => ChangedKind::Policy,
    Workflow => ChangedKind::Workflow,
}

impl CachedKind for DefinitionRevision {
    fn used_as(meta: &ObjectMeta, revision: &RevisionFields) -> Option<(ChangedKind, String)> {
        let (kind, definition) = definition_of(meta, &revision.definition_type)?;
        Some((ChangedKind::Definition(kind), definition.to_owned()))
    }

    fn shrink(&mut self) {
        shrink(&mut self.metadata);
        let spec = &mut self.spec;
        let recorded = [
            spec.component_definition.as_mut().map(Resource::meta_mut),
            spec.trait_definition.as_mut().map(Resource::meta_mut),
            spec.policy_definition.as_mut().map(Resource::meta_mut),
            spec.workflow_step_definition.as_mut().map(Resource::meta_mut),
        ];
        recorded.into_iter().flatten().for_each(shrink);
    }
}

/// A kind of definitions that revisions record.
pub trait RecordedKind: Definition + Resource<DynamicType = ()> + PartialEq + Serialize {
    const DEFINITION: DefinitionKind;

    fn version(&self) -> &str;
    fn recorded_in(revision: &DefinitionRevisionSpec) -> Option<&Self>;
    fn record_in(self, revision: &mut DefinitionRevisionSpec);
}

pub(super) trait ReconciledKind: CachedKind + RecordedKind {
    fn status(&self) -> Option<&DefinitionStatus>;
    fn cache(caches: &DefinitionCaches) -> &Cache<Self>;

    /// Returns the kinds of workloads that a trait fits; nothing for other definitions.
    fn applied_workloads(&self) -> &[String] {
        &[]
    }
}

macro_rules! impl_reconciled_kind {
    ($($kind:ident: $definition:ident, $cache:ident, $field:ident $(, $workloads:ident)?;)*) => {$(
        impl RecordedKind for $kind {
            const DEFINITION: DefinitionKind = DefinitionKind::$definition;

            fn version(&self) -> &str {
                &self.spec.version
            }

            fn recorded_in(revision: &DefinitionRevisionSpec) -> Option<&Self> {
                revision.$field.as_ref()
            }

            fn record_in(self, revision: &mut DefinitionRevisionSpec) {
                revision.$field = Some(self);
            }
        }

        impl ReconciledKind for $kind {
            fn status(&self) -> Option<&DefinitionStatus> {
                self.status.as_ref()
            }

            fn cache(caches: &DefinitionCaches) -> &Cache<Self> {
                &caches.$cache
            }

            $(
                fn applied_workloads(&self) -> &[String] {
                    &self.spec.$workloads
                }
            )?
        }
    )*};
}

impl_reconciled_kind! {
    ComponentDefinition: Component, components, component_definition;
    TraitDefinition: Trait, traits, trait_definition, applies_to_workloads;
    PolicyDefinition: Policy, policies, policy_definition;
    WorkflowStepDefinition: WorkflowStep, steps, workflow_step_definition;
}

/// Returns kind and name of the definition that a revision of this type is labeled with.
pub(super) fn definition_of<'a>(meta: &'a ObjectMeta, definition_type: &str) -> Option<(DefinitionKind, &'a str)> {
    let mut kinds = DefinitionKind::ALL.into_iter();
    let kind = kinds.find(|kind| kind.type_name() == definition_type)?;
    let name = meta.labels.as_ref()?.get(kind.name_label())?;
    Some((kind, name))
}
