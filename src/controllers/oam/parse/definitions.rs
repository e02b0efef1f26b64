use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use semver::Version;

use super::lookup::Lookup;
use super::type_name::{InvalidType, TypeName};
use crate::api::oam::{
    Application, ApplicationRevisionSpec, ComponentDefinition, Definition, DefinitionKind, DefinitionRevision,
    PolicyDefinition, StatusTemplates, TraitDefinition, WorkflowStepDefinition, WorkloadDefinition, labels,
};

/// Sources of definitions, in order: a revision, the namespace of the application, and the definition namespace.
#[derive(Clone, Copy)]
pub struct Definitions<'a> {
    /// Contents of the revision that definitions are taken from first, with its name.
    recorded: Option<(&'a str, &'a ApplicationRevisionSpec)>,
    lookup: Option<&'a dyn Lookup>,
    namespaces: [&'a str; 2],
    auto_update: bool,
}

/// The template of a component, from a ComponentDefinition or an old WorkloadDefinition.
#[derive(Clone, Debug)]
pub enum Workload {
    Component(Arc<ComponentDefinition>),
    Workload(Arc<WorkloadDefinition>),
}

impl Workload {
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Component(definition) => definition.name_any(),
            Self::Workload(definition) => definition.name_any(),
        }
    }

    #[must_use]
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::Component(definition) => definition.template(),
            Self::Workload(definition) => {
                let schematic = definition
                    .spec
                    .schematic
                    .as_ref()
                    .and_then(|schematic| schematic.cue.as_ref());
                let template = schematic
                    .map(|cue| cue.template.as_str())
                    .filter(|text| !text.is_empty());
                template.or_else(|| definition.spec.extension.as_ref()?.get("template")?.as_str())
            }
        }
    }

    /// Returns the definition of components that terraform-controller makes.
    #[must_use]
    pub fn terraform(&self) -> Option<&ComponentDefinition> {
        match self {
            Self::Component(definition) => Some(&**definition).filter(|definition| definition.is_terraform()),
            Self::Workload(_) => None,
        }
    }

    #[must_use]
    pub fn status_templates(&self) -> Option<&StatusTemplates> {
        match self {
            Self::Component(definition) => definition.status_templates(),
            Self::Workload(definition) => definition.spec.status.as_ref(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error(transparent)]
    InvalidType(#[from] InvalidType),
    #[error("{kind} {name} not found in {}", namespaces.join(", "))]
    NotFound {
        kind: &'static str,
        name: String,
        namespaces: Vec<String>,
    },
    #[error("{kind} {name} not found in revision {revision}")]
    NotRecorded {
        kind: &'static str,
        name: String,
        revision: String,
    },
    #[error("DefinitionRevision {name} holds no {kind}")]
    WrongKind { kind: &'static str, name: String },
}

impl<'a> Definitions<'a> {
    /// Definitions of the cluster: first from the application's namespace, then from the definition namespace.
    #[must_use]
    pub fn live(lookup: &'a dyn Lookup, namespace: &'a str, definition_namespace: &'a str, auto_update: bool) -> Self {
        Self {
            recorded: None,
            lookup: Some(lookup),
            namespaces: [namespace, definition_namespace],
            auto_update,
        }
    }

    /// Same as [`Self::live`] for an Application, whose annotation may ask for later revisions of its definitions.
    #[must_use]
    pub fn live_for(
        app: &Application,
        lookup: &'a dyn Lookup,
        namespace: &'a str,
        definition_namespace: &'a str,
    ) -> Self {
        let auto_update = app.annotations().get(labels::AUTO_UPDATE);
        let auto_update = auto_update.is_some_and(|value| value == "true");
        Self::live(lookup, namespace, definition_namespace, auto_update)
    }

    /// Definitions of a revision, then of the cluster.
    #[must_use]
    pub fn recorded_first(self, revision: &'a str, contents: &'a ApplicationRevisionSpec) -> Self {
        Self {
            recorded: Some((revision, contents)),
            ..self
        }
    }

    /// Definitions of a revision only, as a published version uses them.
    #[must_use]
    pub fn frozen(revision: &'a str, contents: &'a ApplicationRevisionSpec) -> Self {
        Self {
            recorded: Some((revision, contents)),
            lookup: None,
            namespaces: ["", ""],
            auto_update: false,
        }
    }

    /// Resolves the type of a component. A WorkloadDefinition replaces a missing ComponentDefinition.
    pub fn component(&self, type_: &str) -> Result<Workload, DefinitionError> {
        match self.resolve(
            DefinitionKind::Component,
            type_,
            |contents| &contents.component_definitions,
            |lookup, namespace, name| lookup.component_definition(namespace, name),
            |revision| revision.spec.component_definition.clone(),
        ) {
            Ok(definition) => Ok(Workload::Component(definition)),
            Err(error) => self.workload(type_).map(Workload::Workload).ok_or(error),
        }
    }

    fn workload(&self, type_: &str) -> Option<Arc<WorkloadDefinition>> {
        if let Some((_, contents)) = self.recorded
            && let Some(definition) = recorded_as(&contents.workload_definitions, type_)
        {
            return Some(Arc::new(definition.clone()));
        }
        let lookup = self.lookup?;
        let mut namespaces = self.namespaces.into_iter();
        namespaces.find_map(|namespace| lookup.workload_definition(namespace, type_))
    }

    pub fn trait_(&self, type_: &str) -> Result<Arc<TraitDefinition>, DefinitionError> {
        self.resolve(
            DefinitionKind::Trait,
            type_,
            |contents| &contents.trait_definitions,
            |lookup, namespace, name| lookup.trait_definition(namespace, name),
            |revision| revision.spec.trait_definition.clone(),
        )
    }

    pub fn policy(&self, type_: &str) -> Result<Arc<PolicyDefinition>, DefinitionError> {
        self.resolve(
            DefinitionKind::Policy,
            type_,
            |contents| &contents.policy_definitions,
            |lookup, namespace, name| lookup.policy_definition(namespace, name),
            |revision| revision.spec.policy_definition.clone(),
        )
    }

    pub fn step(&self, type_: &str) -> Result<Arc<WorkflowStepDefinition>, DefinitionError> {
        self.resolve(
            DefinitionKind::WorkflowStep,
            type_,
            |contents| &contents.workflow_step_definitions,
            |lookup, namespace, name| lookup.workflow_step_definition(namespace, name),
            |revision| revision.spec.workflow_step_definition.clone(),
        )
    }

    /// Returns the namespace with the definition that a type stands for in the cluster.
    #[must_use]
    pub fn namespace_of(&self, kind: DefinitionKind, type_: &str) -> Option<&'a str> {
        let lookup = self.lookup?;
        let parsed = TypeName::parse(type_).ok()?;
        if let Some(name) = parsed.revision_name() {
            return Some(self.find_revision(lookup, kind, parsed.name, &name)?.0);
        }
        let is_defined = |namespace: &&'a str| match kind {
            DefinitionKind::Component => lookup.component_definition(namespace, type_).is_some(),
            DefinitionKind::Trait => lookup.trait_definition(namespace, type_).is_some(),
            DefinitionKind::Policy => lookup.policy_definition(namespace, type_).is_some(),
            DefinitionKind::WorkflowStep => lookup.workflow_step_definition(namespace, type_).is_some(),
        };
        let has_workload = |namespace: &&'a str| {
            kind == DefinitionKind::Component && lookup.workload_definition(namespace, type_).is_some()
        };
        let defined = self.namespaces.into_iter().find(is_defined);
        defined.or_else(|| self.namespaces.into_iter().find(has_workload))
    }

    pub(super) fn lookup(&self) -> Option<&'a dyn Lookup> {
        self.lookup
    }

    pub(super) fn contents(&self) -> Option<&'a ApplicationRevisionSpec> {
        self.recorded.map(|(_, contents)| contents)
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.lookup.is_none()
    }

    fn resolve<D: Definition + 'a>(
        &self,
        kind: DefinitionKind,
        type_: &str,
        recorded: impl Fn(&'a ApplicationRevisionSpec) -> &'a BTreeMap<String, D>,
        live: impl Fn(&dyn Lookup, &str, &str) -> Option<Arc<D>>,
        of_revision: impl Fn(&DefinitionRevision) -> Option<D>,
    ) -> Result<Arc<D>, DefinitionError> {
        if let Some((_, contents)) = self.recorded
            && let Some(definition) = recorded_as(recorded(contents), type_)
        {
            return Ok(Arc::new(definition.clone()));
        }
        let Some(lookup) = self.lookup else {
            return Err(DefinitionError::NotRecorded {
                kind: D::KIND,
                name: type_.to_owned(),
                revision: self.recorded.map(|(name, _)| name.to_owned()).unwrap_or_default(),
            });
        };
        let parsed = TypeName::parse(type_)?;
        let Some(name) = parsed.revision_name() else {
            let mut namespaces = self.namespaces.into_iter();
            let definition = namespaces.find_map(|namespace| live(lookup, namespace, type_));
            return definition.ok_or_else(|| self.not_found(D::KIND, type_));
        };
        let revision = self
            .find_revision(lookup, kind, parsed.name, &name)
            .and_then(|(namespace, revision)| lookup.definition_revision(namespace, &revision))
            .ok_or_else(|| self.not_found("DefinitionRevision", &name))?;
        of_revision(&revision)
            .map(Arc::new)
            .ok_or_else(|| DefinitionError::WrongKind {
                kind: D::KIND,
                name: revision.name_any(),
            })
    }

    /// Finds the revision of a definition with this name, or else, with autoUpdate, the newest revision of the version.
    fn find_revision(
        &self,
        lookup: &dyn Lookup,
        kind: DefinitionKind,
        definition: &str,
        name: &str,
    ) -> Option<(&'a str, String)> {
        let named = |namespace: &'a str| {
            let names = lookup.definition_revisions(namespace, kind, definition);
            names.into_iter().map(move |name| (namespace, name))
        };
        let all = || self.namespaces.into_iter().flat_map(named);
        let exact = all().find(|(_, revision)| revision == name);
        if exact.is_some() || !self.auto_update {
            return exact;
        }
        let version = |name_of_revision: &str| {
            name_of_revision.strip_prefix(name)?.strip_prefix('.')?;
            semantic_version(name_of_revision.strip_prefix(definition)?.strip_prefix("-v")?)
        };
        let versions = all().filter_map(|(namespace, name)| Some((version(&name)?, (namespace, name))));
        let newest = versions.max_by(|(left, _), (right, _)| left.cmp(right));
        newest.map(|(_, newest)| newest)
    }

    fn not_found(&self, kind: &'static str, name: &str) -> DefinitionError {
        let mut namespaces = self
            .namespaces
            .map(|namespace| format!("namespace {namespace}"))
            .to_vec();
        namespaces.dedup();
        DefinitionError::NotFound {
            kind,
            name: name.to_owned(),
            namespaces,
        }
    }
}

/// Finds a definition that a revision records by its type, or by the name of its definition.
fn recorded_as<'a, D>(definitions: &'a BTreeMap<String, D>, type_: &str) -> Option<&'a D> {
    let name = || type_.rsplit_once('@').map(|(name, _)| name);
    definitions.get(type_).or_else(|| definitions.get(name()?))
}

/// Parses a semantic version, which may lack its last numbers.
fn semantic_version(text: &str) -> Option<Version> {
    let missing = 2_usize.saturating_sub(text.matches('.').count());
    Version::parse(&format!("{text}{}", ".0".repeat(missing))).ok()
}
