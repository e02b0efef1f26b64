//! An evaluator with prepared answers, for tests.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde_json::Value;

use crate::controllers::oam::render::evaluate::Evaluate;
use crate::cue::{CueSource, TextErrors};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FakeError {
    #[error("more than 10s")]
    Stopped,
    #[error("{0}")]
    Invalid(&'static str),
    #[error("no CUE evaluator")]
    Missing,
}

/// Answers in order, and records the sources.
#[derive(Default)]
pub struct FakeEvaluator {
    answers: Mutex<VecDeque<Result<Value, FakeError>>>,
    sources: Mutex<Vec<String>>,
}

impl FakeEvaluator {
    pub fn new(answers: impl IntoIterator<Item = Result<Value, FakeError>>) -> Self {
        Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        }
    }

    pub fn sources(&self) -> Vec<String> {
        self.sources.lock().unwrap().clone()
    }
}

impl Evaluate for FakeEvaluator {
    type Error = FakeError;

    async fn evaluate(&self, source: CueSource) -> Result<Value, FakeError> {
        self.sources.lock().unwrap().push(source.text().to_owned());
        self.answers
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Err(FakeError::Missing))
    }

    fn is_stopped(error: &FakeError) -> bool {
        *error == FakeError::Stopped
    }

    fn text_errors(error: &FakeError) -> Option<TextErrors> {
        match error {
            FakeError::Invalid(text) if text.contains("incomplete") => Some(TextErrors::from_text(*text).incomplete()),
            FakeError::Invalid(text) => Some(TextErrors::from_text(*text)),
            _ => None,
        }
    }
}
