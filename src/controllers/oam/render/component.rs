//! Renders a component with its traits.
//!
//! ```text
//!  component template ─► output, outputs ─► trait 1 ─► … ─► trait n ─► workload and outputs
//!                                            │ patch of the workload, patches of outputs, outputs of its own
//! ```
//! A Terraform module takes the place of the component template.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::evaluate::{CallingTemplate, Cause, ComponentError, Evaluate, TemplateAnswers, TemplateSubject, evaluate};
use super::identity::AUXILIARY_WORKLOAD;
use super::limits::MAX_OUTPUTS;
use super::patch::{self, PatchError};
use super::terraform::Terraform;
use super::wrap;
use crate::api::oam::DefinitionKind;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::source::{Role, function_imports, scan};

/// A template with the values of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionTemplate<'a> {
    /// The type that an Application names.
    pub name: &'a str,
    pub source: &'a str,
    pub properties: Option<&'a Value>,
    /// Rejects properties that the template does not declare.
    pub is_strict: bool,
    /// Shows the status of the live workload.
    pub has_status: bool,
}

/// The source of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    Template(DefinitionTemplate<'a>),
    Terraform(Terraform<'a>),
}

/// A component, its traits in order, and the context of their templates.
#[derive(Clone, Copy, Debug)]
pub struct TemplatedComponent<'a> {
    pub name: &'a str,
    pub base: Base<'a>,
    pub traits: &'a [DefinitionTemplate<'a>],
    pub context: &'a Context,
    /// The status of the live workload, which traits of the default stage see in `context.output`.
    pub output_status: Option<&'a Value>,
}

/// The objects of a component.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub workload: Map<String, Value>,
    /// Further objects in the order of their traits. Two may have one key.
    pub outputs: Vec<Output>,
}

/// An object of `outputs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    pub key: String,
    /// The type of the trait, or [`AUXILIARY_WORKLOAD`].
    pub trait_type: String,
    pub object: Map<String, Value>,
}

/// Renders a component with its traits.
///
/// # Errors
///
/// The first template that fails, with the names of component and trait.
pub async fn render<V: Evaluate>(
    evaluator: &V,
    component: &TemplatedComponent<'_>,
) -> Result<Rendered, ComponentError<V::Error>> {
    let error = |subject, cause| ComponentError {
        component: component.name.to_owned(),
        subject,
        cause,
    };
    let (type_, rendered) = match component.base {
        Base::Template(template) => (
            template.name,
            render_template(evaluator, template, component.context).await,
        ),
        Base::Terraform(terraform) => (terraform.name, render_terraform(component.name, terraform)),
    };
    let mut rendered = rendered.map_err(|cause| error(TemplateSubject::Component(type_.to_owned()), cause))?;
    for template in component.traits {
        rendered = apply_trait(
            evaluator,
            rendered,
            *template,
            component.context,
            component.output_status.filter(|_| template.has_status),
        )
        .await
        .map_err(|cause| error(TemplateSubject::Trait(template.name.to_owned()), cause))?;
    }
    Ok(rendered)
}

fn render_terraform<E>(component: &str, terraform: Terraform<'_>) -> Result<Rendered, Cause<E>> {
    let workload = terraform.configuration().map_err(|cause| Cause::Terraform {
        component: component.to_owned(),
        cause,
    })?;
    let rendered = Rendered {
        workload,
        outputs: Vec::new(),
    };
    rendered.check_size()?;
    Ok(rendered)
}

/// Renders the template of a component, or of a policy.
///
/// # Errors
///
/// Templates that the evaluator rejects, and results that are no objects.
pub async fn render_template<V: Evaluate>(
    evaluator: &V,
    template: DefinitionTemplate<'_>,
    context: &Context,
) -> Result<Rendered, Cause<V::Error>> {
    let scan = scan(template.source, Role::Component, template.is_strict)?;
    let context = wrap::context(&scan, context, None);
    let answers = answer_calls(evaluator, DefinitionKind::Component, template, &context).await?;
    let source = wrap::component(&scan, properties(template), &context, answers.as_ref());
    let source = source
        .of_definition(template.name)
        .of_kind(DefinitionKind::Component.type_name());
    let mut result = fields(evaluate(evaluator, source).await?, "the result")?;
    let Some(workload) = result.remove("output") else {
        return Err(Cause::NoOutput);
    };
    let mut rendered = Rendered {
        workload: fields(workload, "output")?,
        outputs: Vec::new(),
    };
    rendered.add_outputs(result.remove("outputs"), AUXILIARY_WORKLOAD)?;
    rendered.check_size()?;
    Ok(rendered)
}

/// Applies a trait to what is rendered so far.
///
/// `output` and `outputs` of `context`, if it has them, take the place of the rendered objects in the template's context.
/// The rendered workload is shown there with `output_status`.
///
/// # Errors
///
/// Templates that the evaluator rejects, patches that conflict, and lines of `errs`.
pub async fn apply_trait<V: Evaluate>(
    evaluator: &V,
    mut rendered: Rendered,
    template: DefinitionTemplate<'_>,
    context: &Context,
    output_status: Option<&Value>,
) -> Result<Rendered, Cause<V::Error>> {
    let scan = scan(template.source, Role::Trait, template.is_strict)?;
    let context = wrap::context(&scan, context, Some((&rendered, output_status)));
    let answers = answer_calls(evaluator, DefinitionKind::Trait, template, &context).await?;
    let source = wrap::trait_source(&scan, properties(template), &context, answers.as_ref(), &rendered);
    let source = source
        .of_definition(template.name)
        .of_kind(DefinitionKind::Trait.type_name());
    let mut result = fields(evaluate(evaluator, source).await?, "the result")?;
    reject_errors(result.get("errs"))?;
    let mut workload = match result.remove(wrap::RESULT) {
        Some(workload) => workload,
        None => Value::Object(rendered.workload),
    };
    if let Some(change) = result.get("patch").filter(|_| scan.has_markers) {
        patch::apply_patch(&mut workload, change, &result)?;
    }
    rendered.workload = fields(workload, "output")?;
    rendered.add_outputs(result.remove("outputs"), template.name)?;
    if let Some(changes) = result.get("patchOutputs") {
        patch_outputs(&mut rendered.outputs, changes)?;
    }
    rendered.check_size()?;
    Ok(rendered)
}

/// Answers the calls of a template that has any.
async fn answer_calls<V: Evaluate>(
    evaluator: &V,
    kind: DefinitionKind,
    template: DefinitionTemplate<'_>,
    context: &str,
) -> Result<Option<TemplateAnswers>, Cause<V::Error>> {
    if function_imports(template.source).is_empty() {
        return Ok(None);
    }
    let parameter = properties(template).map_or_else(|| "{}".to_owned(), Value::to_string);
    let template = CallingTemplate {
        kind,
        name: template.name,
        source: template.source,
        parameter: &parameter,
        context,
    };
    evaluator.answer_calls(template).await.map(Some)
}

/// Patches the outputs that have a patch under their key.
fn patch_outputs(outputs: &mut [Output], changes: &Value) -> Result<(), PatchError> {
    for output in outputs {
        if let Some(change) = changes.get(&output.key).filter(|change| change.is_object()) {
            let mut object = Value::Object(std::mem::take(&mut output.object));
            patch::merge(&mut object, change).map_err(|error| error.below(&output.key))?;
            if let Value::Object(object) = object {
                output.object = object;
            }
        }
    }
    Ok(())
}

impl Rendered {
    fn add_outputs<E>(&mut self, outputs: Option<Value>, trait_type: &str) -> Result<(), Cause<E>> {
        let Some(outputs) = outputs else {
            return Ok(());
        };
        let outputs = fields(outputs, "outputs")?;
        if self.outputs.len() + outputs.len() > MAX_OUTPUTS {
            return Err(Cause::TooManyOutputs);
        }
        for (key, object) in outputs {
            let object = fields(object, &format!("outputs.{key}"))?;
            self.outputs.push(Output {
                object: patch::clean_fields(&object),
                key,
                trait_type: trait_type.to_owned(),
            });
        }
        Ok(())
    }

    /// Checks the limits of all objects together.
    fn check_size(&self) -> Result<(), PatchError> {
        let objects = self.outputs.iter().map(|output| &output.object);
        patch::check_size(std::iter::once(&self.workload).chain(objects))
    }

    /// Returns the outputs by key, as templates see them: of two with one key, the later.
    #[must_use]
    pub fn outputs_by_key(&self) -> BTreeMap<&str, &Map<String, Value>> {
        let outputs = self.outputs.iter();
        outputs.map(|output| (output.key.as_str(), &output.object)).collect()
    }
}

/// Returns the properties, unless they are null.
fn properties(template: DefinitionTemplate<'_>) -> Option<&Value> {
    template.properties.filter(|properties| !properties.is_null())
}

fn fields<E>(value: Value, name: &str) -> Result<Map<String, Value>, Cause<E>> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(Cause::NotAnObject(name.to_owned())),
    }
}

fn reject_errors<E>(errors: Option<&Value>) -> Result<(), Cause<E>> {
    let lines = errors.and_then(Value::as_array).into_iter().flatten();
    let lines: Vec<String> = lines
        .filter_map(Value::as_str)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if lines.is_empty() {
        Ok(())
    } else {
        Err(Cause::User(lines))
    }
}
