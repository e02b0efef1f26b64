use std::fmt;
use std::io;
use std::time::Duration;

use serde::Deserialize;

use super::protocol::TextErrorKind;
use crate::runtime::worker_process::WorkerError;

const MIB: u64 = 1024 * 1024;

/// The reason why a text has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "no CUE evaluator: put portolan-cue beside portolan or into PATH (make evaluator builds it), or set --cue-evaluator"
    )]
    Missing,
    /// The evaluation was stopped.
    #[error("more than {0:?}")]
    Timeout(Duration),
    /// The evaluation was stopped; the limit in bytes.
    #[error("more than {}MiB", .0 / MIB)]
    Memory(u64),
    /// The text, or its result, is invalid.
    #[error("{errors}")]
    Failed { kind: TextErrorKind, errors: TextErrors },
    /// The process of the evaluator failed. Another attempt may succeed.
    #[error("CUE evaluator failed: {0}")]
    Crashed(String),
    /// The turn of the caller is over. The evaluation ends with it, or goes on in the background.
    #[error("waiting for a CUE evaluator")]
    Deferred,
}

/// The first errors of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextErrors {
    errors: Vec<TextError>,
    /// The number of others.
    more: usize,
    is_incomplete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TextError {
    pub text: String,
    /// The line of the template; `None` outside of it.
    pub line: Option<u32>,
}

impl TextErrors {
    #[must_use]
    pub const fn new(errors: Vec<TextError>, more: usize) -> Self {
        Self {
            errors,
            more,
            is_incomplete: false,
        }
    }

    /// Marks the errors as values that are missing or not concrete.
    #[must_use]
    pub fn incomplete(self) -> Self {
        Self {
            is_incomplete: true,
            ..self
        }
    }

    /// Returns true if values are missing or not concrete, and none exclude each other.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let error = TextError {
            text: text.into(),
            line: None,
        };
        Self::new(vec![error], 0)
    }

    #[must_use]
    pub fn first(&self) -> &str {
        self.errors.first().map_or("", |error| &error.text)
    }

    /// Returns the errors with other texts, and each text once.
    #[must_use]
    pub fn map(&self, mut text: impl FnMut(&str) -> String) -> Self {
        let mut errors: Vec<TextError> = Vec::new();
        for error in &self.errors {
            let text = text(&error.text);
            if errors.iter().all(|other| other.text != text) {
                errors.push(TextError { text, ..*error });
            }
        }
        Self {
            errors,
            more: self.more,
            is_incomplete: self.is_incomplete,
        }
    }
}

impl fmt::Display for TextErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{}", error.text)?;
            if let Some(line) = error.line {
                write!(formatter, " (line {line})")?;
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(formatter, " (and {more} more errors)"),
        }
    }
}

impl Error {
    pub(super) fn user(text: impl Into<String>) -> Self {
        Self::Failed {
            kind: TextErrorKind::User,
            errors: TextErrors::from_text(text),
        }
    }

    /// Returns true if the evaluation was stopped at a limit: another attempt will probably be stopped too.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Memory(_))
    }

    pub(super) const fn result(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Timeout(_) => "timeout",
            Self::Memory(_) => "memory",
            Self::Failed { kind, .. } => kind.name(),
            Self::Crashed(_) => "crashed",
            Self::Deferred => "deferred",
        }
    }

    /// `None` for a canceled call.
    pub(super) fn of_worker(error: WorkerError, timeout: Duration, memory: u64) -> Option<Self> {
        Some(match error {
            WorkerError::Canceled => return None,
            WorkerError::Deadline | WorkerError::Cpu => Self::Timeout(timeout),
            // The stack of an evaluation grows on the heap.
            WorkerError::Memory | WorkerError::Stack => Self::Memory(memory),
            WorkerError::Start(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            WorkerError::Failed(cause) => Self::Crashed(cause),
            start @ WorkerError::Start(_) => Self::Crashed(start.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_listed_once_with_their_lines() {
        let error = |text: &str, line| TextError {
            text: text.to_owned(),
            line,
        };
        let errors = TextErrors::new(
            vec![error("a: x", Some(2)), error("_b.a: x", None), error("b: y", None)],
            3,
        );
        assert_eq!(errors.to_string(), "a: x (line 2); _b.a: x; b: y (and 3 more errors)");
        let mapped = errors.map(|text| text.trim_start_matches("_b.").to_owned());
        assert_eq!(mapped.to_string(), "a: x (line 2); b: y (and 3 more errors)");
    }
}
