//! An evaluator and functions with prepared answers.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde_json::Value;

use super::super::{Answer, Call, Functions};
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::workflow::FailureReason;

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
pub struct FakeEvaluator {
    answers: Mutex<VecDeque<Result<Value, FakeError>>>,
    sources: Mutex<Vec<String>>,
}

impl FakeEvaluator {
    pub fn new(answers: impl IntoIterator<Item = Result<Value, FakeError>>) -> Self {
        Self {
            answers: Mutex::new(answers.into_iter().collect()),
            sources: Mutex::default(),
        }
    }

    pub fn sources(&self) -> Vec<String> {
        self.sources.lock().unwrap().clone()
    }
}

impl Evaluate for FakeEvaluator {
    type Error = FakeError;

    async fn evaluate(&self, source: String) -> Result<Value, FakeError> {
        self.sources.lock().unwrap().push(source);
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or(Err(FakeError::Missing))
    }

    fn is_stopped(error: &FakeError) -> bool {
        *error == FakeError::Stopped
    }

    fn is_invalid(error: &FakeError) -> bool {
        matches!(error, FakeError::Invalid(_))
    }
}

/// Answers in order, and records the calls.
pub struct FakeFunctions {
    answers: VecDeque<Answer>,
    pub calls: Vec<Call>,
}

impl FakeFunctions {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            calls: Vec::new(),
        }
    }
}

impl Functions for FakeFunctions {
    async fn call(&mut self, call: &Call) -> Answer {
        self.calls.push(call.clone());
        self.answers.pop_front().unwrap_or(Answer::Failed {
            reason: FailureReason::Execute,
            message: "no answer is prepared".to_owned(),
        })
    }
}
