//! The loop of evaluations and calls.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};

use super::builtin::{self, StepState};
use super::expression::evaluate_text;
use super::scan::{ScanError, ScannedTemplate};
use super::support::{is_supported, resolve_op, unsupported_function, unsupported_import, unsupported_type};
use super::types::{
    Answer, Call, Caller, Functions, MAX_CALLS, MAX_OUTPUT_BYTES, MAX_OUTPUTS, MAX_RUN_BYTES, MAX_VALUE_BYTES,
    StepError, StepTemplate,
};
use super::values::{answer_fields, arguments, within_returns};
use super::wrap::{self, CallPosition, WrappedStep, declaration};
use crate::api::oam::DefinitionKind;
use crate::controllers::oam::render::evaluate::{Evaluate, without_literals};
use crate::controllers::oam::render::patch::without_markers;
use crate::controllers::oam::workflow::{FailureReason, StepResult, VALUES_TOO_LARGE};
use crate::cue::{CueSource, TextErrors};
use crate::text::sanitize;

/// The provider of all functions of `vela/op`, whose arguments and results are fields of the call.
const OP: &str = "op";
/// As KubeVela's messages begin for a field that is not there.
const NOT_FOUND: &str = "failed to lookup value";

/// Runs the template of a step: does its calls until there is none, or one waits, suspends or fails.
///
/// # Errors
///
/// The evaluator is missing or failed, or was stopped at a limit.
pub async fn run<V: Evaluate, F: Functions>(
    evaluator: &V,
    functions: &mut F,
    step: &StepTemplate<'_>,
) -> Result<StepResult, StepError<V::Error>> {
    if let Some(message) = unsupported_type(step.type_name) {
        return Ok(failed(FailureReason::Rendering, &message));
    }
    let template = match ScannedTemplate::scan(step.source) {
        Ok(template) => template,
        Err(error @ ScanError::Syntax(_)) => return Ok(failed(FailureReason::Execute, &error.to_string())),
        Err(error) => return Ok(failed(FailureReason::Rendering, &error.to_string())),
    };
    if let Some(message) = template
        .imports
        .iter()
        .find_map(|import| unsupported_import(&import.path))
    {
        return Ok(failed(FailureReason::Rendering, &message));
    }
    let parameter = step.properties.filter(|properties| !properties.is_null());
    let parameter = parameter.map_or_else(|| "{}".to_owned(), Value::to_string);
    let context = json!(step.context).to_string();
    let mut run = StepRun::new(
        evaluator,
        (DefinitionKind::WorkflowStep, step.type_name),
        Caller::Step,
        &template,
        &parameter,
        &context,
    );
    run.state.resumptions = step.resumptions;
    if let Some(end) = run.answer_calls(functions).await? {
        return Ok(end);
    }
    let mut outputs = Vec::new();
    for (index, output) in step.outputs.iter().enumerate() {
        outputs.push(if index < MAX_OUTPUTS {
            run.output(&output.value_from).await?
        } else {
            Err(format!("the step has more than {MAX_OUTPUTS} outputs"))
        });
    }
    Ok(StepResult::Succeeded {
        outputs,
        message: sanitize(&run.state.message),
    })
}

/// The first call that is not done.
struct Pending {
    position: CallPosition,
    is_op: bool,
    call: Call,
    /// Returns true if the arguments are concrete.
    is_ready: bool,
}

pub(super) struct StepRun<'a, V> {
    evaluator: &'a V,
    /// The definition of the template.
    type_: (DefinitionKind, &'a str),
    pub(super) step: WrappedStep<'a>,
    state: StepState,
    calls: usize,
    /// Size of all parameters, answers and outputs.
    bytes: usize,
}

impl<'a, V: Evaluate> StepRun<'a, V> {
    /// Begins with the first call. `parameter` and `context` are CUE.
    pub(super) fn new(
        evaluator: &'a V,
        type_: (DefinitionKind, &'a str),
        caller: Caller,
        template: &'a ScannedTemplate,
        parameter: &'a str,
        context: &'a str,
    ) -> Self {
        Self {
            evaluator,
            type_,
            step: WrappedStep {
                caller,
                template,
                parameter,
                context,
                done: BTreeSet::new(),
                answers: String::new(),
            },
            state: StepState {
                message: String::new(),
                resumptions: 0,
            },
            calls: 0,
            bytes: 0,
        }
    }

    /// Does calls until there is none. Returns the end of the step, if a call waits, suspends or fails.
    pub(super) async fn answer_calls<F: Functions>(
        &mut self,
        functions: &mut F,
    ) -> Result<Option<StepResult>, StepError<V::Error>> {
        loop {
            match self.find_pending().await? {
                Ok(Some(pending)) => {
                    if let Some(end) = self.call(functions, pending).await? {
                        return Ok(Some(end));
                    }
                }
                Ok(None) => return Ok(None),
                Err(message) => return Ok(Some(failed(FailureReason::Execute, &message))),
            }
        }
    }

    async fn evaluate(&self, source: CueSource) -> Result<Result<Map<String, Value>, TextErrors>, StepError<V::Error>> {
        let (kind, type_name) = self.type_;
        let kind = kind.type_name();
        let source = source.of_definition(type_name).of_kind(kind);
        let subject = format!("template of {kind}Definition {type_name}");
        let mut result = evaluate_text(self.evaluator, source, &subject).await?;
        if self.step.caller == Caller::Component {
            // Errors quote values, and those of answers may come from Secrets.
            result = result.map_err(|errors| errors.map(without_literals));
        }
        Ok(result.map(|result| match result {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }))
    }

    async fn find_pending(&self) -> Result<Result<Option<Pending>, String>, StepError<V::Error>> {
        let result = self.evaluate(self.step.pending()).await?;
        if let Ok(result) = &result
            && let Some(fault) = self.fault(result).await?
        {
            return Ok(Err(fault));
        }
        let result = result.map_err(|errors| errors.to_string());
        Ok(result.and_then(|mut result| match result.remove("call") {
            Some(call) => self
                .read(call)
                .map(Some)
                .ok_or_else(|| "the template has an invalid call".to_owned()),
            None => Ok(None),
        }))
    }

    /// Returns why the template can't be evaluated. A wrong parameter could change the conditions of calls silently, and
    /// behind an unknown condition no call is found.
    async fn fault(&self, result: &Map<String, Value>) -> Result<Option<String>, StepError<V::Error>> {
        let faults = result.get("faults").and_then(Value::as_array);
        let Some(input) = faults.and_then(|faults| faults.first()?.as_str()) else {
            return Ok(None);
        };
        let cause = self.evaluate(self.step.input(input)).await?.err();
        Ok(Some(cause.map_or_else(
            || format!("{input} can't be read"),
            |errors| errors.to_string(),
        )))
    }

    /// Reads what the evaluator exports of a call.
    fn read(&self, mut call: Value) -> Option<Pending> {
        let text = |field: &str| call.get(field).and_then(Value::as_str).map(str::to_owned);
        let (key, provider, function) = (text("key")?, text("provider")?, text("function")?);
        let index = usize::try_from(call.get("index")?.as_u64()?).ok()?;
        let is_op = provider == OP;
        let (provider, function) = if is_op {
            let (provider, function) = resolve_op(&function);
            (provider.to_owned(), function.to_owned())
        } else {
            (provider, function)
        };
        let params = call.get_mut("params").map(Value::take);
        let field = *self.step.template.last.get(index)?;
        Some(Pending {
            is_op,
            is_ready: params.is_some(),
            call: Call {
                path: self.step.template.fields.get(field)?.path(&key),
                params: params
                    .map(|params| arguments(params, is_op, &provider, &function))
                    .unwrap_or_default(),
                provider,
                function,
            },
            position: CallPosition { field, key },
        })
    }

    /// Does a call. Returns the end of the step, unless the call returns.
    async fn call<F: Functions>(
        &mut self,
        functions: &mut F,
        mut pending: Pending,
    ) -> Result<Option<StepResult>, StepError<V::Error>> {
        let call = &pending.call;
        let caller = self.step.caller;
        let is_builtin = builtin::is_builtin(caller, &call.provider, &call.function);
        if !is_builtin && !is_supported(caller, &call.provider, &call.function) {
            let message = unsupported_function(caller, &call.provider, &call.function);
            return Ok(Some(failed(FailureReason::Rendering, &message)));
        }
        if !pending.is_ready {
            match self.read_arguments(&pending).await? {
                ControlFlow::Continue(params) => pending.call.params = params,
                ControlFlow::Break(end) => return Ok(Some(end)),
            }
        }
        let call = &pending.call;
        if let Err(message) = self.count_call(call) {
            return Ok(Some(failed(FailureReason::Rendering, &message)));
        }
        let answer = if is_builtin {
            builtin::answer(call, &mut self.state)
        } else {
            functions.call(call).await
        };
        Ok(self.take(pending, answer))
    }

    /// Takes the answer of a call.
    fn take(&mut self, pending: Pending, answer: Answer) -> Option<StepResult> {
        let path = pending.call.path.clone();
        match answer {
            Answer::Returned(value) => match self.count(&format!("answer of {path}"), &value) {
                Ok(()) => {
                    self.add(pending, value);
                    None
                }
                Err(message) => Some(failed(FailureReason::Rendering, &message)),
            },
            Answer::Waiting(message) => Some(StepResult::Waiting {
                message: sanitize(if message.is_empty() {
                    &self.state.message
                } else {
                    &message
                }),
            }),
            Answer::Suspended { message, duration } => Some(StepResult::Suspended {
                message: sanitize(&message),
                duration,
            }),
            Answer::Terminated(message) => Some(StepResult::Terminated {
                message: sanitize(&message),
            }),
            Answer::Failed {
                reason: FailureReason::Action,
                message,
            } => Some(failed(FailureReason::Action, &message)),
            Answer::Failed { reason, message } => Some(failed(reason, &format!("{path}: {message}"))),
        }
    }

    fn add(&mut self, pending: Pending, value: Value) {
        let value = answer_fields(&pending.call, pending.is_op, value);
        if let (Some(value), Some(field)) = (value, self.step.template.fields.get(pending.position.field)) {
            let answer = declaration(field, &pending.position.key, &value);
            self.step.answers.push_str(&answer);
        }
        self.step.done.insert(pending.position);
    }

    /// Reads the arguments of the first call, which did not seem to be concrete. They may be: a comparison hides the errors
    /// for which the evaluator rewrites a template for an older CUE. Otherwise the step ends, and no later call is done
    /// instead. A wait for a field that an object doesn't have yet goes on waiting.
    async fn read_arguments(&self, pending: &Pending) -> Result<ControlFlow<StepResult, Value>, StepError<V::Error>> {
        let Pending {
            position, is_op, call, ..
        } = pending;
        let errors = match self.evaluate(self.step.arguments(position, *is_op)).await? {
            Ok(mut result) => {
                let params = wrap::value(&mut result);
                let params = arguments(params, *is_op, &call.provider, &call.function);
                return Ok(ControlFlow::Continue(params));
            }
            Err(errors) => errors,
        };
        let with_path = |text: &str| {
            let path = if text.starts_with('$') {
                format!("{}.", call.path)
            } else {
                String::new()
            };
            path + text
        };
        let cause = errors.map(with_path).to_string();
        Ok(ControlFlow::Break(
            match (call.provider.as_str(), call.function.as_str()) {
                ("builtin", "wait") => StepResult::Waiting {
                    message: sanitize(&cause),
                },
                _ => failed(FailureReason::Execute, &cause),
            },
        ))
    }

    /// Evaluates the expression of an output. As in KubeVela, answers of calls are searched if it has no value.
    async fn output(&mut self, expression: &str) -> Result<Result<Value, String>, StepError<V::Error>> {
        if expression.trim().is_empty() {
            return Ok(Err("valueFrom is empty".to_owned()));
        }
        let value = self.evaluate_output(expression).await?;
        let Err(cause) = &value else {
            return Ok(value);
        };
        if cause == VALUES_TOO_LARGE {
            return Ok(value);
        }
        let is_missing = cause.starts_with(NOT_FOUND);
        let Some(fallback) = within_returns(expression) else {
            return Ok(value);
        };
        let returned = self.evaluate_output(&fallback).await?;
        // The error of the former names what the user has written.
        let is_better = returned.is_ok() || is_missing;
        Ok(if is_better { returned } else { value })
    }

    async fn evaluate_output(&mut self, expression: &str) -> Result<Result<Value, String>, StepError<V::Error>> {
        let source = match self.step.expression(expression) {
            Ok(source) => source,
            Err(error) => return Ok(Err(sanitize(&error.to_string()))),
        };
        let result = self.evaluate(source).await?;
        Ok(match result {
            Ok(mut result) => self.take_output(without_markers(&wrap::value(&mut result))),
            // In KubeVela's words.
            Err(errors) if errors.first().contains("undefined field") => {
                Err(sanitize(&format!("{NOT_FOUND}: var(path={expression}) not exist")))
            }
            Err(errors) => Err(sanitize(&errors.to_string())),
        })
    }

    /// Counts the size of an output: a step may have many of the largest values of the evaluator.
    fn take_output(&mut self, value: Value) -> Result<Value, String> {
        let bytes = value.to_string().len();
        let sum = self.bytes.saturating_add(bytes);
        if bytes > MAX_OUTPUT_BYTES || sum > MAX_RUN_BYTES {
            return Err(VALUES_TOO_LARGE.to_owned());
        }
        self.bytes = sum;
        Ok(value)
    }

    fn count_call(&mut self, call: &Call) -> Result<(), String> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(format!("the template makes more than {MAX_CALLS} calls"));
        }
        self.count(&format!("arguments of {}", call.path), &call.params)
    }

    /// Counts the size of a value.
    fn count(&mut self, subject: &str, value: &Value) -> Result<(), String> {
        let bytes = value.to_string().len();
        self.bytes = self.bytes.saturating_add(bytes);
        if bytes > MAX_VALUE_BYTES {
            return Err(format!("{subject}: more than {} KiB", MAX_VALUE_BYTES >> 10));
        }
        if self.bytes > MAX_RUN_BYTES {
            let limit = MAX_RUN_BYTES >> 20;
            return Err(format!("arguments and answers of all calls: more than {limit} MiB"));
        }
        Ok(())
    }
}

fn failed(reason: FailureReason, message: &str) -> StepResult {
    StepResult::Failed {
        reason,
        message: sanitize(message),
    }
}
