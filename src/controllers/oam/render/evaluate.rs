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

/// Evaluates CUE text: compiles it, checks that it is valid and exports it as JSON.
pub trait Evaluate: Sync {
    type Error: fmt::Display + Send;

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
