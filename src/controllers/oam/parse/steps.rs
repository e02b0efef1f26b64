use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::definitions::{DefinitionError, Definitions};
use crate::api::oam::{ApplicationSpec, Component, Workflow, WorkflowStep, WorkflowStepDefinition};
use crate::controllers::oam::policies::{OVERRIDE, TOPOLOGY};
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::workflow::{
    APPLY_COMPONENT, BUILTIN_APPLY_COMPONENT, PathTooLong, check_path, is_apply_component,
};
use crate::text::truncate;

/// Types that need no WorkflowStepDefinition.
const BUILT_IN: [&str; 4] = [APPLY_COMPONENT, BUILTIN_APPLY_COMPONENT, "step-group", "suspend"];

const DAG: &str = "DAG";
const STEP_BY_STEP: &str = "StepByStep";

/// Maximum number of steps with their sub-steps.
const MAX_STEPS: usize = 1000;
/// Maximum number of inputs, and of outputs, of a step with those of its component.
const MAX_VALUES: usize = 100;
/// Longest name of a step, as of an object in Kubernetes.
const MAX_NAME_BYTES: usize = 253;
/// Bytes of a name in an error.
const MAX_SHOWN: usize = 64;

#[derive(Clone, Debug)]
pub struct ParsedWorkflow {
    /// Modes of steps and sub-steps as in the status: `DAG-DAG`.
    pub mode: String,
    pub steps: Vec<WorkflowStep>,
    pub external: Option<Arc<Workflow>>,
    /// Definitions of the types that are not built in, by type.
    pub definitions: BTreeMap<String, Arc<WorkflowStepDefinition>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StepsError {
    #[error("cannot set steps and ref in workflow at the same time")]
    StepsAndReference,
    #[error("Workflow.core.oam.dev {0:?} not found")]
    WorkflowNotFound(String),
    #[error("failed to get workflow step definition {type_}: {cause}")]
    Definition { type_: String, cause: DefinitionError },
    #[error("{0} steps exceed the limit of {MAX_STEPS}")]
    TooMany(usize),
    #[error("name of step {} exceeds {MAX_NAME_BYTES} bytes", truncate(.0, MAX_SHOWN))]
    LongName(String),
    #[error(transparent)]
    Values(#[from] TooManyValues),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {} has {count} {field}, more than {MAX_VALUES}", truncate(step, MAX_SHOWN))]
pub struct TooManyValues {
    step: String,
    field: &'static str,
    count: usize,
}

#[must_use]
pub fn is_built_in_step(type_: &str) -> bool {
    BUILT_IN.contains(&type_)
}

pub(super) fn parse_steps(
    namespace: &str,
    spec: &ApplicationSpec,
    definitions: &Definitions<'_>,
) -> Result<ParsedWorkflow, StepsError> {
    let external = external_workflow(namespace, spec, definitions)?;
    let mode = mode(spec, external.as_deref());
    let steps = workflow_steps(spec, external.as_deref());
    let count = steps.len() + steps.iter().map(|step| step.sub_steps.len()).sum::<usize>();
    if count > MAX_STEPS {
        return Err(StepsError::TooMany(count));
    }
    let mut by_type = BTreeMap::new();
    for step in steps
        .iter()
        .flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
    {
        if step.name.len() > MAX_NAME_BYTES {
            return Err(StepsError::LongName(step.name.clone()));
        }
        check_values(step)?;
        if !is_built_in_step(&step.type_) && !by_type.contains_key(&step.type_) {
            let definition = definitions.step(&step.type_).map_err(|cause| StepsError::Definition {
                type_: step.type_.clone(),
                cause,
            })?;
            by_type.insert(step.type_.clone(), definition);
        }
    }
    Ok(ParsedWorkflow {
        mode,
        steps,
        external,
        definitions: by_type,
    })
}

fn check_values(step: &WorkflowStep) -> Result<(), TooManyValues> {
    for (field, count) in [("inputs", step.inputs.len()), ("outputs", step.outputs.len())] {
        if count > MAX_VALUES {
            return Err(TooManyValues {
                step: step.name.clone(),
                field,
                count,
            });
        }
    }
    Ok(())
}

/// Returns the steps of a spec, or of the Workflow that it refers to, or else generated steps.
#[must_use]
pub fn workflow_steps(spec: &ApplicationSpec, external: Option<&Workflow>) -> Vec<WorkflowStep> {
    match (external, &spec.workflow) {
        (Some(external), _) if !external.spec.steps.is_empty() => external.spec.steps.clone(),
        (None, Some(workflow)) if !workflow.steps.is_empty() => workflow.steps.clone(),
        _ => generate_steps(spec),
    }
}

fn external_workflow(
    namespace: &str,
    spec: &ApplicationSpec,
    definitions: &Definitions<'_>,
) -> Result<Option<Arc<Workflow>>, StepsError> {
    let Some(workflow) = spec.workflow.as_ref().filter(|workflow| !workflow.reference.is_empty()) else {
        return Ok(None);
    };
    if !workflow.steps.is_empty() {
        return Err(StepsError::StepsAndReference);
    }
    let recorded = definitions.contents().filter(|_| definitions.is_frozen());
    let recorded = recorded.and_then(|contents| contents.workflow.clone()).map(Arc::new);
    let live = || definitions.lookup()?.workflow(namespace, &workflow.reference);
    let external = recorded.or_else(live);
    external
        .map(Some)
        .ok_or_else(|| StepsError::WorkflowNotFound(workflow.reference.clone()))
}

/// Returns the modes of steps and sub-steps. The spec's own mode wins over the mode of a referenced Workflow.
fn mode(spec: &ApplicationSpec, external: Option<&Workflow>) -> String {
    let Some(workflow) = &spec.workflow else {
        return format!("{DAG}-{DAG}");
    };
    let mode = workflow.mode.as_ref().or_else(|| external?.spec.mode.as_ref());
    let steps = mode.map_or("", |mode| &mode.steps);
    let sub_steps = mode.map_or("", |mode| &mode.sub_steps);
    let or = |mode: &str, default: &str| {
        if mode.is_empty() {
            default.to_owned()
        } else {
            mode.to_owned()
        }
    };
    format!("{}-{}", or(steps, STEP_BY_STEP), or(sub_steps, DAG))
}

/// Generates steps: a deploy step for each topology, or else a step for each component.
fn generate_steps(spec: &ApplicationSpec) -> Vec<WorkflowStep> {
    let of_type = |type_: &'static str| {
        let policies = spec.policies.iter().filter(move |policy| policy.type_ == type_);
        policies.map(|policy| policy.name.as_str())
    };
    let overrides: Vec<_> = of_type(OVERRIDE).collect();
    let deploy = |name: String, policies: &[&str]| WorkflowStep {
        name,
        type_: "deploy".to_owned(),
        properties: Some(json!({ "policies": policies })),
        ..WorkflowStep::default()
    };
    let topologies: Vec<_> = of_type(TOPOLOGY)
        .map(|topology| deploy(format!("deploy-{topology}"), &[&overrides[..], &[topology]].concat()))
        .collect();
    let refers = spec.components.iter().any(|component| component.type_ == REF_OBJECTS);
    if !topologies.is_empty() {
        topologies
    } else if refers || !overrides.is_empty() {
        vec![deploy("deploy".to_owned(), &overrides)]
    } else {
        spec.components.iter().map(apply_component).collect()
    }
}

fn apply_component(component: &Component) -> WorkflowStep {
    WorkflowStep {
        name: component.name.clone(),
        type_: APPLY_COMPONENT.to_owned(),
        properties: Some(json!({ "component": component.name })),
        ..WorkflowStep::default()
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentStepError {
    #[error("component {0} not found")]
    ComponentNotFound(String),
    #[error("component {dependency} not found, which is depended by {component}")]
    DependencyNotFound { dependency: String, component: String },
    #[error("{field} of an input of component {component} is invalid: {cause}")]
    InputPath {
        field: &'static str,
        component: String,
        cause: PathTooLong,
    },
    #[error(transparent)]
    Values(#[from] TooManyValues),
}

/// Adds the component's inputs, outputs and dependencies. Other steps are returned as they are.
pub fn component_step(step: &WorkflowStep, components: &[Component]) -> Result<WorkflowStep, ComponentStepError> {
    let mut step = step.clone();
    if !is_apply_component(&step) {
        return Ok(step);
    }
    let name = step
        .properties
        .as_ref()
        .and_then(|properties| properties["component"].as_str());
    let name = name.unwrap_or_default();
    let component = components.iter().find(|component| component.name == name);
    let component = component.ok_or_else(|| ComponentStepError::ComponentNotFound(name.to_owned()))?;
    let is_missing = |name: &&String| !components.iter().any(|component| component.name == **name);
    if let Some(dependency) = component.depends_on.iter().find(is_missing) {
        return Err(ComponentStepError::DependencyNotFound {
            dependency: dependency.clone(),
            component: component.name.clone(),
        });
    }
    step.depends_on.extend(component.depends_on.iter().cloned());
    step.inputs.extend(component.inputs.iter().cloned());
    step.outputs.extend(component.outputs.iter().cloned());
    check_values(&step)?;
    for input in &mut step.inputs {
        for (field, path) in [("parameterKey", &input.parameter_key), ("from", &input.from)] {
            check_path(path).map_err(|cause| ComponentStepError::InputPath {
                field,
                component: component.name.clone(),
                cause,
            })?;
        }
        input.parameter_key = parameter_path(&input.parameter_key);
    }
    Ok(step)
}

/// Returns the path of a component's parameter within the step. An input without a path only waits for its value.
fn parameter_path(key: &str) -> String {
    let key = key.trim();
    match key {
        "" => String::new(),
        _ if key.starts_with("properties") || key.starts_with("traits[") => format!("value.{key}"),
        _ => format!("value.properties.{key}"),
    }
}
