//! The evaluator as the renderer needs it, and its errors as a user reads them.

use std::fmt;
use std::future::Future;

use serde_json::Value;

use super::limits::{MAX_ERROR_BYTES, MAX_OUTPUTS};
use super::patch::PatchError;
use super::terraform::TerraformError;
use super::wrap;
use crate::api::oam::DefinitionKind;
use crate::controllers::oam::source::SyntaxError;
use crate::cue::{self, CueSource, TextErrors};
use crate::text::truncate;

/// A template of a component or trait that calls functions.
#[derive(Clone, Copy, Debug)]
pub struct CallingTemplate<'a> {
    pub kind: DefinitionKind,
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
pub struct TemplateAnswers {
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
    ) -> impl Future<Output = Result<TemplateAnswers, Cause<Self::Error>>> + Send {
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
pub enum TemplateSubject {
    Component(String),
    Trait(String),
}

/// The reason why a component can't be rendered.
#[derive(Debug)]
pub struct ComponentError<E> {
    pub component: String,
    pub subject: TemplateSubject,
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

impl<E> ComponentError<E> {
    /// Hides values in errors of the evaluator and of patches: those of answers may come from Secrets.
    #[must_use]
    pub fn without_values(self) -> Self {
        let cause = match self.cause {
            Cause::Invalid(errors) => Cause::Invalid(errors.map(without_literals)),
            Cause::Patch(error) => Cause::Invalid(TextErrors::from_text(without_literals(&error.to_string()))),
            cause => cause,
        };
        Self { cause, ..self }
    }
}

/// Replaces the literals of strings and bytes in an error.
#[must_use]
pub fn without_literals(error: &str) -> String {
    let mut shown = String::with_capacity(error.len());
    let mut rest = error;
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, literal) = rest.split_at(start);
        shown.push_str(before);
        let is_apostrophe = literal.starts_with('\'') && shown.ends_with(char::is_alphanumeric);
        if is_apostrophe {
            shown.push('\'');
            rest = literal.get(1..).unwrap_or_default();
        } else {
            let hashes = before.len() - before.trim_end_matches('#').len();
            shown.push_str("\"…\"");
            rest = after_literal(literal, hashes);
        }
    }
    shown + rest
}

/// Returns the text behind a literal; nothing if it is not closed.
fn after_literal(text: &str, hashes: usize) -> &str {
    let several = text.get(..3).filter(|quote| matches!(*quote, "\"\"\"" | "'''"));
    let quote = several.or_else(|| text.get(..1)).unwrap_or_default();
    let end = format!("{quote}{}", "#".repeat(hashes));
    let mut is_escaped = false;
    for (index, char) in text.char_indices().skip(quote.len()) {
        let rest = text.get(index..).unwrap_or_default();
        if is_escaped {
            is_escaped = false;
        } else if char == '\\' && hashes == 0 {
            is_escaped = true;
        } else if let Some(rest) = rest.strip_prefix(&*end) {
            return rest;
        }
    }
    ""
}

impl<E: fmt::Display> fmt::Display for ComponentError<E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "component {}: ", self.component)?;
        let (kind, name) = match &self.subject {
            TemplateSubject::Component(name) => ("ComponentDefinition", name),
            TemplateSubject::Trait(name) => {
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

impl<E: fmt::Display + fmt::Debug> std::error::Error for ComponentError<E> {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_without_the_values_that_they_quote() {
        for (error, expected) in [
            (
                r#"output.a: invalid value "aHVudGVyMg==" (line 2)"#,
                r#"output.a: invalid value "…" (line 2)"#,
            ),
            (
                r#"conflicting values "hun\"ter2" and 1"#,
                r#"conflicting values "…" and 1"#,
            ),
            (
                "invalid bytes 'hunter2', can't decode",
                "invalid bytes \"…\", can't decode",
            ),
            ("a: \"\"\"\n  hunter \"2\"\n  \"\"\" is wrong", "a: \"…\" is wrong"),
            (r##"a: #"hunter"2"# is wrong"##, r##"a: #"…" is wrong"##),
            (r#"empty "" and "hunter2 is cut"#, r#"empty "…" and "…""#),
            ("undefined field: x", "undefined field: x"),
        ] {
            assert_eq!(without_literals(error), expected);
        }
    }

    #[test]
    fn errors_of_patches_are_shown_without_values_and_failed_calls_with_their_names() {
        let shown = |cause: Cause<String>| {
            let error = ComponentError {
                component: "web".to_owned(),
                subject: TemplateSubject::Component("reader".to_owned()),
                cause,
            };
            error.without_values().to_string()
        };
        let patch = PatchError::Conflict {
            path: "data.key".to_owned(),
            values: r#""hunter2" and "x""#.to_owned(),
        };
        assert_eq!(
            shown(patch.into()),
            r#"component web: data.key: conflicting values "…" and "…""#
        );
        let invalid = Cause::Invalid(TextErrors::from_text(r#"invalid value "hunter2""#));
        assert_eq!(shown(invalid), r#"component web: invalid value "…""#);
        let call = Cause::Call(r#"read: ConfigMap "original" not found"#.to_owned());
        assert_eq!(shown(call), r#"component web: read: ConfigMap "original" not found"#);
    }
}
