//! Answers the calls of components and traits while they are rendered.

use super::run::StepRun;
use super::scan::ScannedTemplate;
use super::types::{Caller, Functions, StepError};
use crate::controllers::oam::render::evaluate::{CallingTemplate, Cause, Evaluate, TemplateAnswers};
use crate::controllers::oam::workflow::StepResult;
use crate::cue::{CueSource, TextErrors};
use crate::text::sanitize;

/// An evaluator of components and traits whose templates may call functions.
pub struct CallingEvaluator<V, N> {
    pub evaluator: V,
    /// Returns the functions for one template.
    pub functions: N,
}

impl<V, N, F> Evaluate for CallingEvaluator<V, N>
where
    V: Evaluate,
    N: Fn() -> F + Sync,
    F: Functions,
{
    type Error = V::Error;

    async fn evaluate(&self, source: CueSource) -> Result<serde_json::Value, V::Error> {
        self.evaluator.evaluate(source).await
    }

    fn is_stopped(error: &V::Error) -> bool {
        V::is_stopped(error)
    }

    fn text_errors(error: &V::Error) -> Option<TextErrors> {
        V::text_errors(error)
    }

    async fn answer_calls(&self, template: CallingTemplate<'_>) -> Result<TemplateAnswers, Cause<V::Error>> {
        let CallingTemplate {
            kind,
            name,
            source,
            parameter,
            context,
        } = template;
        let scanned = ScannedTemplate::scan(source).map_err(|error| Cause::Call(sanitize(&error.to_string())))?;
        let mut run = StepRun::new(
            &self.evaluator,
            (kind, name),
            Caller::Component,
            &scanned,
            parameter,
            context,
        );
        let mut functions = (self.functions)();
        match run.answer_calls(&mut functions).await {
            Ok(None) => Ok(run.step.answers()),
            Ok(Some(StepResult::Failed { message, .. })) => Err(Cause::Call(message)),
            Ok(Some(StepResult::Waiting { message })) => Err(Cause::Waiting(message)),
            Ok(Some(_)) => Err(Cause::Call("a call can't end a component".to_owned())),
            Err(StepError::Stopped { limit, .. }) => Err(Cause::Stopped(limit)),
            Err(StepError::Evaluator(error)) => Err(Cause::Evaluator(error)),
        }
    }
}
