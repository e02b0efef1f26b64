//! Evaluates texts and tells errors of templates from errors of the evaluator.

use serde_json::{Map, Value};

use super::types::StepError;
use super::wrap::{self, clean_error};
use crate::controllers::oam::render::evaluate::{Cause, Evaluate, evaluate};
use crate::controllers::oam::source::tokens::tokenize;
use crate::cue::{CueSource, TextErrors};
use crate::text::sanitize;

/// Evaluates the `if` of a step over `scope`: `status`, `inputs` and `context`. The inner error is the condition's.
///
/// # Errors
///
/// The evaluator is missing or failed, or was stopped at a limit.
pub async fn condition<V: Evaluate>(
    evaluator: &V,
    expression: &str,
    scope: &Map<String, Value>,
) -> Result<Result<bool, String>, StepError<V::Error>> {
    if let Err(error) = tokenize(expression) {
        return Ok(Err(sanitize(&error.to_string())));
    }
    let source = wrap::scope(scope, expression);
    let result = evaluate_text(evaluator, source, "condition of a step").await?;
    let result = result.map_err(|errors| sanitize(&errors.to_string()));
    Ok(result.and_then(|mut result| {
        let value = result.as_object_mut().map(wrap::value).unwrap_or_default();
        value
            .as_bool()
            .ok_or_else(|| "the condition is neither true nor false".to_owned())
    }))
}

/// Evaluates a text. The inner error comes from the text.
pub(super) async fn evaluate_text<V: Evaluate>(
    evaluator: &V,
    source: impl Into<CueSource>,
    subject: &str,
) -> Result<Result<Value, TextErrors>, StepError<V::Error>> {
    match evaluate(evaluator, source).await {
        Ok(result) => Ok(Ok(result)),
        Err(Cause::Stopped(limit)) => Err(StepError::Stopped {
            subject: sanitize(subject),
            limit,
        }),
        Err(Cause::Evaluator(error)) => Err(StepError::Evaluator(error)),
        Err(Cause::Invalid(errors)) => Ok(Err(errors.map(clean_error))),
        Err(cause) => Ok(Err(TextErrors::from_text(cause.to_string()))),
    }
}
