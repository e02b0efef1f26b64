//! Inputs of steps: values of other steps, and fields of the context and of the step's properties.

use serde_json::{Map, Value, json};

use super::run::WorkflowRun;
use super::store::{ValueStore, check_path};
use crate::api::oam::WorkflowStep;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::source::tokens::{TokenKind, tokenize};

/// The properties of a step, in paths and conditions.
pub(super) const PARAMETER: &str = "parameter";
pub(super) const CONTEXT: &str = "context";
/// Size of all inputs of a step or component as JSON. Each may take the largest value.
const MAX_BYTES: usize = 1 << 20;
/// Size of the inputs of all components at their places.
const MAX_TOTAL_BYTES: usize = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("inputs exceed {} KiB", MAX_BYTES >> 10)]
pub struct InputsTooLarge;

/// The size of the inputs of all components that are held at once.
#[derive(Debug, Default)]
pub struct InputUsage(usize);

impl InputUsage {
    /// Counts the inputs of a component.
    ///
    /// # Errors
    /// All inputs are too large together.
    pub fn add<P>(&mut self, inputs: &[(P, Value)]) -> Result<(), String> {
        self.0 += inputs.iter().map(|(_, value)| value.to_string().len()).sum::<usize>();
        if self.0 <= MAX_TOTAL_BYTES {
            Ok(())
        } else {
            Err(format!("inputs of all components exceed {} MiB", MAX_TOTAL_BYTES >> 20))
        }
    }
}

/// The values that inputs of a step can take.
#[derive(Debug)]
pub struct InputScope<'s> {
    store: &'s ValueStore,
    context: Context,
    properties: Option<&'s Value>,
}

/// The value of an input, which may be large.
#[derive(Clone, Copy, Debug)]
pub enum InputValue<'s> {
    Value(&'s Value),
    Context(&'s Context),
    /// The step has no properties.
    Nothing,
}

impl<'s> InputScope<'s> {
    /// Adds to the context of a workflow what KubeVela adds for each step.
    #[must_use]
    pub fn new(
        store: &'s ValueStore,
        context: &Context,
        step: &'s WorkflowStep,
        id: &str,
        group: Option<&str>,
    ) -> Self {
        let fields = [("stepName", step.name.as_str()), ("stepSessionID", id), ("spanID", id)];
        let group = group.map(|group| ("stepGroupName", group));
        let fields = fields.into_iter().chain(group);
        let fields = fields.map(|(name, text)| (name.to_owned(), json!(text)));
        Self {
            store,
            context: context.with(&fields.collect()),
            properties: step.properties.as_ref(),
        }
    }

    /// Returns the value at a path: the output of a step, or else a field of the context or of the properties.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<InputValue<'_>> {
        match self.store.get(path) {
            Some(value) => Some(InputValue::Value(value)),
            None => self.field(&selectors(path)?),
        }
    }

    fn field(&self, selectors: &[Value]) -> Option<InputValue<'_>> {
        let (root, fields) = selectors.split_first()?;
        let (value, fields) = match (root.as_str()?, fields) {
            (CONTEXT, []) => return Some(InputValue::Context(&self.context)),
            (CONTEXT, [name, fields @ ..]) => (self.context.get(name.as_str()?)?, fields),
            (PARAMETER, []) if self.properties.is_none() => return Some(InputValue::Nothing),
            (PARAMETER, fields) => (self.properties?, fields),
            _ => return None,
        };
        Some(InputValue::Value(fields.iter().try_fold(value, select)?))
    }
}

fn select<'v>(value: &'v Value, selector: &Value) -> Option<&'v Value> {
    match selector {
        Value::Number(index) => value.get(usize::try_from(index.as_u64()?).ok()?),
        selector => value.get(selector.as_str()?),
    }
}

impl InputValue<'_> {
    fn to_value(self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Context(context) => {
                let fields = context.iter().map(|(name, value)| (name.to_owned(), value.clone()));
                Value::Object(fields.collect())
            }
            Self::Nothing => json!({}),
        }
    }
}

/// Copies the values of inputs, unless they are too large together.
///
/// # Errors
/// The values are too large.
pub fn copy_inputs<'v, P>(
    values: impl IntoIterator<Item = (P, InputValue<'v>)>,
) -> Result<Vec<(P, Value)>, InputsTooLarge> {
    let mut left = MAX_BYTES;
    let copy = |(path, value): (P, InputValue<'v>)| {
        let value = value.to_value();
        left = left.checked_sub(value.to_string().len()).ok_or(InputsTooLarge)?;
        Ok((path, value))
    };
    values.into_iter().map(copy).collect()
}

impl<'a> WorkflowRun<'a> {
    /// Returns the values of a step's inputs, with the paths of their parameters.
    ///
    /// # Errors
    /// The values are too large together.
    pub fn inputs(&self, step: usize) -> Result<Vec<(&'a str, Value)>, InputsTooLarge> {
        let Some(scope) = input_scope(self, step) else {
            return Ok(Vec::new());
        };
        let inputs = self.step(step).into_iter().flat_map(|step| &step.inputs);
        copy_inputs(inputs.map(|input| {
            let value = scope.get(&input.from).unwrap_or(InputValue::Value(&Value::Null));
            (input.parameter_key.as_str(), value)
        }))
    }

    /// Returns the context of a step.
    #[must_use]
    pub fn context(&self, step: usize) -> Context {
        let scope = input_scope(self, step);
        scope.map_or_else(|| self.context.clone(), |scope| scope.context)
    }
}

/// Returns the values of a step's inputs by the paths that they come from.
pub(super) fn inputs_by_origin(run: &WorkflowRun<'_>, step: usize) -> Result<Map<String, Value>, InputsTooLarge> {
    let Some(scope) = input_scope(run, step) else {
        return Ok(Map::new());
    };
    let inputs = run.step(step).into_iter().flat_map(|step| &step.inputs);
    let values = inputs.filter_map(|input| Some((input.from.clone(), scope.get(&input.from)?)));
    Ok(copy_inputs(values)?.into_iter().collect())
}

pub(super) fn input_scope<'s>(run: &'s WorkflowRun<'_>, step: usize) -> Option<InputScope<'s>> {
    let planned = run.plan.get(step)?;
    let group = planned.group.and_then(|group| run.step(group));
    let group = group.map(|group| group.name.as_str());
    let (context, id) = (run.context, run.id(step));
    Some(InputScope::new(&run.store, context, planned.step, id, group))
}

/// Returns the selectors of a CUE path such as `context.appLabels["app.kubernetes.io/name"]`: names and indexes.
fn selectors(path: &str) -> Option<Vec<Value>> {
    check_path(path).ok()?;
    let tokens = tokenize(path).ok()?.tokens;
    let text = |at: usize| tokens.get(at).and_then(|token| path.get(token.start..token.end));
    let kind = |at: usize| tokens.get(at).map(|token| token.kind);
    let mut selectors = vec![json!(text(0).filter(|_| kind(0) == Some(TokenKind::Word))?)];
    let mut at = 1;
    // A line end implies a comma.
    while kind(at).is_some_and(|kind| kind != TokenKind::Comma) {
        let (selector, next) = match (text(at)?, kind(at + 1)?) {
            (".", TokenKind::Word) => (json!(text(at + 1)?), at + 2),
            (".", TokenKind::Text) => (serde_json::from_str(text(at + 1)?).ok()?, at + 2),
            ("[", TokenKind::Text | TokenKind::Number) if text(at + 2) == Some("]") => {
                (serde_json::from_str(text(at + 1)?).ok()?, at + 3)
            }
            _ => return None,
        };
        selectors.push(selector);
        at = next;
    }
    Some(selectors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_cue() {
        let all = |path: &str| selectors(path).map(Value::from);
        assert_eq!(all("context"), Some(json!(["context"])));
        let labels = json!(["context", "appLabels", "a.b/c"]);
        assert_eq!(all("context.appLabels[\"a.b/c\"]"), Some(labels.clone()));
        assert_eq!(all(" context.appLabels.\"a.b/c\""), Some(labels));
        assert_eq!(all("parameter.list[1].x"), Some(json!(["parameter", "list", 1, "x"])));
        for invalid in ["", "a-b", "a.", "a[", "a[b]", "a[1", "a b", "\"a\"", "a.b[1]]"] {
            assert_eq!(all(invalid), None, "{invalid}");
        }
        assert_eq!(all(&["a"; 100].join(".")), None);
    }

    #[test]
    fn inputs_that_take_one_value_many_times_are_limited_together() {
        let value = json!("x".repeat(MAX_BYTES / 2 - 2));
        let inputs = |count: usize| (0..count).map(|at| (at, InputValue::Value(&value)));
        assert_eq!(copy_inputs(inputs(2)).map(|inputs| inputs.len()), Ok(2));
        assert_eq!(copy_inputs(inputs(3)), Err(InputsTooLarge));
        let (mut usage, large) = (InputUsage::default(), copy_inputs(inputs(2)).unwrap());
        let counted = (0..40).take_while(|_| usage.add(&large).is_ok()).count();
        assert_eq!(counted, 32);
    }
}
