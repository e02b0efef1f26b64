//! Steps, calls and results, and the limits on them.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::oam::StepOutput;
use crate::controllers::oam::workflow::FailureReason;

/// Calls of one run.
pub(super) const MAX_CALLS: usize = 100;
/// Outputs of one step, each of which takes an evaluation.
pub(super) const MAX_OUTPUTS: usize = 100;
/// Fields of a template that may be calls.
pub(super) const MAX_FIELDS: usize = 500;
/// Labels from the top of a template to a call, and their size.
pub(super) const MAX_LABELS: usize = 64;
pub(super) const MAX_PATH_BYTES: usize = 1024;
/// Size of all conditions of a template, which are repeated in front of them.
pub(super) const MAX_CONDITION_BYTES: usize = 256 * 1024;
/// Imports of a template.
pub(super) const MAX_IMPORTS: usize = 32;
/// Size of one output as JSON: all values of a workflow are stored in as much.
pub(super) const MAX_OUTPUT_BYTES: usize = 512 * 1024;
/// Size of the parameters of one call, and of its answer, as JSON.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// Size of all parameters, answers and outputs of one run.
pub(super) const MAX_RUN_BYTES: usize = 4 * 1024 * 1024;

/// The kind of a template. It decides which functions the template may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A component or a trait, which may be rendered at any time: its calls change nothing.
    Component,
    Step,
}

/// The template of a WorkflowStepDefinition with the values of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepTemplate<'a> {
    /// The type that the step names, with or without a version.
    pub type_name: &'a str,
    pub source: &'a str,
    /// The properties, with the inputs of the step.
    pub properties: Option<&'a Value>,
    /// The fields of `context` that the template and the outputs name.
    pub context: &'a Map<String, Value>,
    pub outputs: &'a [StepOutput],
    /// The number of times that a user or a duration has resumed the step. As many calls that suspend return.
    pub resumptions: u32,
}

/// A call of a function outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The field of the template, such as `load.configMap`.
    pub path: String,
    /// A package such as `kube` or `http`, also for functions of `vela/op`.
    pub provider: String,
    /// The name that KubeVela gives the function: `read` for `kube.#Read`.
    pub function: String,
    /// The arguments. The arguments of `patch` keep the markers of [`super::patch_object`].
    pub params: Value,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The fields of `$returns`.
    Returned(Value),
    /// Nothing was done; the same call may succeed later.
    Waiting(String),
    Suspended {
        message: String,
        duration: Option<Duration>,
    },
    /// The step ends the workflow.
    Terminated(String),
    Failed {
        reason: FailureReason,
        message: String,
    },
}

impl Answer {
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            reason: FailureReason::Execute,
            message: message.into(),
        }
    }
}

/// A call fails with a message.
impl From<Result<Value, String>> for Answer {
    fn from(result: Result<Value, String>) -> Self {
        result.map_or_else(Self::failed, Self::Returned)
    }
}

/// Does the calls that reach outside.
pub trait Functions: Send {
    fn call(&mut self, call: &Call) -> impl Future<Output = Answer> + Send;
}

/// The reason why nothing is known about a step or an expression. Errors of templates are results.
#[derive(Debug)]
pub enum StepError<E> {
    /// The evaluation was stopped at a limit: another attempt will probably be stopped too.
    Stopped { subject: String, limit: E },
    /// The evaluator is missing or failed; another attempt may succeed.
    Evaluator(E),
}

impl<E: fmt::Display> fmt::Display for StepError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped { subject, limit } => write!(formatter, "{subject} was stopped: {limit}"),
            Self::Evaluator(error) => error.fmt(formatter),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for StepError<E> {}
