use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::definitions::{DefinitionError, Definitions, Workload};
use super::overrides::OverrideDefinitions;
use super::policies::{self, ParsedPolicy, PoliciesError, recorded_policy};
use super::steps::{self, ParsedWorkflow, StepsError};
use super::type_name::type_label;
use crate::api::oam::{
    AppPolicy, Application, ApplicationRevisionSpec, ApplicationSpec, Component, Definition, Policy, Trait,
    TraitDefinition, labels,
};

use crate::controllers::oam::policies::Policies;

const MAX_COMPONENTS: usize = 1000;

#[derive(Clone, Debug)]
pub struct ParsedComponent {
    pub component: Component,
    pub type_label: String,
    pub definition: Workload,
    pub traits: Vec<ParsedTrait>,
}

#[derive(Clone, Debug)]
pub struct ParsedTrait {
    pub trait_: Trait,
    pub type_label: String,
    pub definition: Arc<TraitDefinition>,
}

/// An application with all that its revision records.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The spec, in which all policies have names.
    pub spec: ApplicationSpec,
    pub components: Vec<ParsedComponent>,
    pub workflow: ParsedWorkflow,
    pub policies: Vec<ParsedPolicy>,
    /// Policies that are skipped, because their definition has a scope.
    pub skipped_policies: Vec<ParsedPolicy>,
    pub rules: Policies,
    /// All policies, with those that the workflow names.
    pub all_policies: Vec<AppPolicy>,
    pub external_policies: BTreeMap<String, Policy>,
    pub overrides: OverrideDefinitions,
    /// Objects of ref-objects components, as a revision records them. Empty for a new revision until they are fetched.
    pub referred_objects: Vec<Value>,
}

/// A failure to parse an application, with the text of the condition Parsed.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("failed to parseComponents{}: {cause}", from_revision(*.is_frozen))]
    Components { is_frozen: bool, cause: ComponentsError },
    #[error("failed to parseWorkflowSteps{}: {cause}", from_revision(*.is_frozen))]
    Steps { is_frozen: bool, cause: StepsError },
    #[error("failed to parsePolicies: {0}")]
    Policies(#[from] PoliciesError),
}

const fn from_revision(is_frozen: bool) -> &'static str {
    if is_frozen { "FromRevision" } else { "" }
}

#[derive(Debug, thiserror::Error)]
pub enum ComponentsError {
    #[error("duplicated component name {0}")]
    Duplicate(String),
    #[error("{0} components exceed the limit of {MAX_COMPONENTS}; split the application")]
    TooMany(usize),
    #[error("component {component}: {cause}")]
    Component { component: String, cause: DefinitionError },
    #[error("component {component}: trait {type_}: {cause}")]
    Trait {
        component: String,
        type_: String,
        cause: DefinitionError,
    },
    #[error("types {one} and {two} are versions of one definition, which can't be used in one application")]
    Versions { one: String, two: String },
}

pub fn parse(application: &Application, definitions: &Definitions<'_>) -> Result<Parsed, ParseError> {
    let is_frozen = definitions.is_frozen();
    let mut spec = application.spec.clone();
    policies::name_policies(&mut spec.policies);
    let components =
        parse_components(&spec, definitions).map_err(|cause| ParseError::Components { is_frozen, cause })?;
    let namespace = application.namespace().unwrap_or_default();
    let workflow =
        steps::parse_steps(&namespace, &spec, definitions).map_err(|cause| ParseError::Steps { is_frozen, cause })?;
    let policies = policies::parse_policies(&namespace, &spec, &workflow.steps, definitions)?;
    let versions = check_versions(&components, &policies.overrides);
    versions.map_err(|cause| ParseError::Components { is_frozen, cause })?;
    // Policies that only the workflow names don't decide about objects.
    let is_addon = application.labels().contains_key(labels::ADDON_NAME);
    let effective = policies::without_skipped(&spec.policies, &policies.skipped);
    let rules = Policies::parse(&effective, is_addon).map_err(PoliciesError::from)?;
    Ok(Parsed {
        spec,
        components,
        workflow,
        policies: policies.rendered,
        skipped_policies: policies.skipped,
        rules,
        all_policies: policies.all,
        external_policies: policies.external,
        overrides: policies.overrides,
        referred_objects: definitions
            .contents()
            .map(|contents| contents.referred_objects.clone())
            .unwrap_or_default(),
    })
}

fn parse_components(
    spec: &ApplicationSpec,
    definitions: &Definitions<'_>,
) -> Result<Vec<ParsedComponent>, ComponentsError> {
    if spec.components.len() > MAX_COMPONENTS {
        return Err(ComponentsError::TooMany(spec.components.len()));
    }
    let mut names = HashSet::new();
    if let Some(duplicate) = spec.components.iter().find(|component| !names.insert(&component.name)) {
        return Err(ComponentsError::Duplicate(duplicate.name.clone()));
    }
    spec.components
        .iter()
        .map(|component| parse_component(component, definitions))
        .collect()
}

/// Policies may have changed the component.
pub(super) fn parse_placed(
    component: &Component,
    definitions: &Definitions<'_>,
) -> Result<ParsedComponent, ComponentsError> {
    let parsed = parse_component(component, definitions)?;
    check_versions(std::slice::from_ref(&parsed), &OverrideDefinitions::default())?;
    Ok(parsed)
}

fn parse_component(component: &Component, definitions: &Definitions<'_>) -> Result<ParsedComponent, ComponentsError> {
    let definition = definitions
        .component(&component.type_)
        .map_err(|cause| ComponentsError::Component {
            component: component.name.clone(),
            cause,
        })?;
    let traits = component.traits.iter().map(|trait_| {
        let definition = definitions
            .trait_(&trait_.type_)
            .map_err(|cause| ComponentsError::Trait {
                component: component.name.clone(),
                type_: trait_.type_.clone(),
                cause,
            })?;
        Ok(ParsedTrait {
            trait_: trait_.clone(),
            type_label: type_label(&trait_.type_),
            definition,
        })
    });
    Ok(ParsedComponent {
        component: component.clone(),
        type_label: type_label(&component.type_),
        definition,
        traits: traits.collect::<Result<_, _>>()?,
    })
}

/// Checks that the revision, which records definitions by name, can hold all that the components and overrides use.
fn check_versions(components: &[ParsedComponent], overrides: &OverrideDefinitions) -> Result<(), ComponentsError> {
    let of_components = components.iter().map(|one| (&one.component.type_, &one.definition));
    let of_overrides = overrides
        .components
        .iter()
        .map(|(type_, definition)| (type_, definition));
    let mut versions = BTreeMap::new();
    for (type_, definition) in of_components.chain(of_overrides) {
        if let Workload::Component(definition) = definition {
            check_version(&mut versions, type_, &**definition)?;
        }
    }
    let traits = components.iter().flat_map(|component| &component.traits);
    let of_components = traits.map(|trait_| (&trait_.trait_.type_, &trait_.definition));
    let of_overrides = overrides.traits.iter().map(|(type_, definition)| (type_, definition));
    let mut versions = BTreeMap::new();
    for (type_, definition) in of_components.chain(of_overrides) {
        check_version(&mut versions, type_, &**definition)?;
    }
    Ok(())
}

fn check_version<'a, D: Definition>(
    versions: &mut BTreeMap<String, (&'a str, &'a D)>,
    type_: &'a str,
    definition: &'a D,
) -> Result<(), ComponentsError> {
    let name = definition.metadata().name.clone().unwrap_or_default();
    let (first, recorded) = *versions.entry(name).or_insert((type_, definition));
    if first == type_ || recorded.spec() == definition.spec() {
        Ok(())
    } else {
        Err(ComponentsError::Versions {
            one: first.to_owned(),
            two: type_.to_owned(),
        })
    }
}

impl Parsed {
    #[must_use]
    pub fn contents(&self, application: &Application) -> ApplicationRevisionSpec {
        let namespace = application.namespace().unwrap_or_default();
        let policies = self.external_policies.iter();
        let mut contents = ApplicationRevisionSpec {
            application: recorded(application, self.spec.clone()),
            policies: policies
                .map(|(name, policy)| (recorded_policy(&namespace, name), policy.clone()))
                .collect(),
            workflow: self.workflow.external.as_deref().cloned(),
            referred_objects: self.referred_objects.clone(),
            ..ApplicationRevisionSpec::default()
        };
        for (_, definition) in &self.overrides.components {
            insert_workload(&mut contents, definition);
        }
        for (_, definition) in &self.overrides.traits {
            insert(&mut contents.trait_definitions, &**definition);
        }
        for component in &self.components {
            insert_workload(&mut contents, &component.definition);
            for trait_ in &component.traits {
                insert(&mut contents.trait_definitions, &*trait_.definition);
            }
        }
        for policy in self.policies.iter().chain(&self.skipped_policies) {
            insert(&mut contents.policy_definitions, &*policy.definition);
        }
        for definition in self.workflow.definitions.values() {
            insert(&mut contents.workflow_step_definitions, &**definition);
        }
        contents
    }
}

fn insert_workload(contents: &mut ApplicationRevisionSpec, definition: &Workload) {
    match definition {
        Workload::Component(definition) => insert(&mut contents.component_definitions, &**definition),
        Workload::Workload(definition) => {
            let mut definition = (**definition).clone();
            definition.metadata.managed_fields = None;
            contents.workload_definitions.insert(definition.name_any(), definition);
        }
    }
}

fn insert<D: Definition>(definitions: &mut BTreeMap<String, D>, definition: &D) {
    let name = definition.metadata().name.clone().unwrap_or_default();
    definitions.insert(name, definition.recorded());
}

/// Returns the application as revisions record it, without status and what the API server maintains.
fn recorded(application: &Application, spec: ApplicationSpec) -> Application {
    let metadata = application.metadata.clone();
    Application {
        metadata: ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
