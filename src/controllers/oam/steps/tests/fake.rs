//! Functions with prepared answers.

use std::collections::VecDeque;

use super::super::{Answer, Call, Functions};
use crate::controllers::oam::workflow::FailureReason;

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
