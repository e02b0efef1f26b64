//! The evaluator as the renderer needs it, and its errors as a user reads them.

use std::fmt;
use std::future::Future;

use serde_json::Value;

use super::limits::{MAX_ERROR_BYTES, MAX_OUTPUTS};
use super::patch::PatchError;
use super::terraform::TerraformError;
use super::wrap;
use crate::controllers::oam::source::SyntaxError;
use crate::cue::{self, CueSource, TextErrors};
use crate::text::truncate;

/// A template of a component or trait that calls functions.
#[derive(Clone, Copy, Debug)]
pub struct CallingTemplate<'a> {
    /// The type that an Application names.
    pub name: &'a str,
    pub source: &'a str,
    /// As JSON.
    pub parameter: &'a str,
    /// As CUE.
    pub context: &'a str,
}

/// The text that a template needs to be evaluated with the answers to its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The imports of packages of CUE.
    pub imports: String,
    /// The declarations of the packages with functions.
    pub packages: String,
    /// The declarations of the answers, beside the fields of the template.
    pub fields: String,
}

/// Evaluates CUE text: compiles it, checks that it is valid and exports it as JSON.
pub trait Evaluate: Sync {
    type Error: fmt::Display + Send;

    /// Answers the calls of functions in a template. By default, it refuses templates with calls: functions need a cluster
    /// and the rights of an Application.
    fn answer_calls(
        &self,
        _template: CallingTemplate<'_>,
    ) -> impl Future<Output = Result<Answers, Cause<Self::Error>>> + Send {
        std::future::ready(Err(Cause::NeedsAnswers))
    }

    fn evaluate(&self, source: CueSource) -> impl Future<Output = Result<Value, Self::Error>> + Send;

    /// Returns true if the evaluation was stopped at a limit.
    fn is_stopped(error: &Self::Error) -> bool;

    /// Returns the errors of an invalid text, or of an invalid result.
    fn text_errors(error: &Self::Error) -> Option<TextErrors>;
}

/// A pool of evaluators, for the templates of one namespace.
#[derive(Clone, Copy)]
pub struct NamespaceEvaluator<'a> {
    pub pool: &'a cue::Evaluator,
    pub namespace: &'a str,
}

impl Evaluate for NamespaceEvaluator<'_> {
    type Error = cue::Error;

    async fn evaluate(&self, source: CueSource) -> Result<Value, cue::Error> {
        self.pool.evaluate(self.namespace, source).await
    }

    fn is_stopped(error: &cue::Error) -> bool {
        error.is_stopped()
    }

    fn text_errors(error: &cue::Error) -> Option<TextErrors> {
        match error {
            cue::Error::Failed { errors, .. } => Some(errors.clone()),
            _ => None,
        }
    }
}

/// The template that failed, by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Component(String),
    Trait(String),
}

/// The reason why a component can't be rendered.
#[derive(Debug)]
pub struct Error<E> {
    pub component: String,
    pub subject: Subject,
    pub cause: Cause<E>,
}

#[derive(Debug, thiserror::Error)]
pub enum Cause<E> {
    #[error("invalid template: {0}")]
    Syntax(#[from] SyntaxError),
    #[error("{0}")]
    Patch(#[from] PatchError),
    /// The evaluation was stopped at a limit.
    #[error("stopped: {0}")]
    Stopped(E),
    /// The evaluator rejects the template or its parameters.
    #[error("{0}")]
    Invalid(TextErrors),
    /// The evaluator is missing or failed; another attempt may succeed.
    #[error("{0}")]
    Evaluator(E),
    /// In KubeVela's words.
    #[error("failed to generate Terraform Configuration workload for workload {component}: {cause}")]
    Terraform { component: String, cause: TerraformError },
    #[error("{0} is not an object")]
    NotAnObject(String),
    #[error("the template has no output")]
    NoOutput,
    #[error("the component has more than {MAX_OUTPUTS} outputs")]
    TooManyOutputs,
    /// The lines of `errs`.
    #[error("{}", .0.join("; "))]
    User(Vec<String>),
    /// A call fails, or the template has one that is not supported.
    #[error("{0}")]
    Call(String),
    /// A call can't be done now; another attempt may succeed.
    #[error("{0}")]
    Waiting(String),
    #[error("functions are called in deployed components and traits only")]
    NeedsAnswers,
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "component {}: ", self.component)?;
        let (kind, name) = match &self.subject {
            Subject::Component(name) => ("ComponentDefinition", name),
            Subject::Trait(name) => {
                write!(formatter, "trait {name}: ")?;
                ("TraitDefinition", name)
            }
        };
        match &self.cause {
            Cause::Stopped(limit) => write!(formatter, "template of {kind} {name} was stopped: {limit}"),
            cause => formatter.write_str(&truncate(&cause.to_string(), MAX_ERROR_BYTES)),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for Error<E> {}

/// Evaluates a wrapped template.
///
/// # Errors
///
/// The error of the evaluator, without the paths of the wrapping.
pub async fn evaluate<V: Evaluate>(evaluator: &V, source: impl Into<CueSource>) -> Result<Value, Cause<V::Error>> {
    evaluator.evaluate(source.into()).await.map_err(|error| {
        if V::is_stopped(&error) {
            return Cause::Stopped(error);
        }
        match V::text_errors(&error) {
            Some(errors) => Cause::Invalid(wrap::clean_errors(&errors)),
            None => Cause::Evaluator(error),
        }
    })
}
