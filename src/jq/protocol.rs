//! Messages to and from the process that evaluates filters.

use serde::{Deserialize, Serialize};

use super::value::Value;
use super::{Filter, FilterError, FilterLimits, JqRule};

const LOAD: u8 = b'L';
const CHARTS: u8 = b'C';

#[derive(Serialize, Deserialize)]
struct Load<T> {
    rule: T,
    limits: FilterLimits,
}

type FilterAnswer = Result<Vec<bool>, FilterError>;

/// Returns the request that compiles a rule. Its answer is an empty list.
#[must_use]
pub fn load_request(rule: &JqRule, limits: FilterLimits) -> Vec<u8> {
    let mut request = vec![LOAD];
    // A rule holds string keys and finite numbers only, so that JSON can't fail.
    request.extend(serde_json::to_vec(&Load { rule, limits }).unwrap_or_default());
    request
}

#[must_use]
pub fn is_load_request(request: &[u8]) -> bool {
    request.first() == Some(&LOAD)
}

/// Returns the beginning of a request that evaluates charts. Their JSON follows, each ended by a line break.
#[must_use]
pub fn charts_request() -> Vec<u8> {
    vec![CHARTS]
}

/// Decodes the answer to a request with this number of charts: true for each chart to keep.
pub fn decode_answer(answer: &[u8], charts: usize) -> Result<Vec<bool>, FilterError> {
    let invalid = || FilterError::Process("invalid response of the child process".to_owned());
    let answer: FilterAnswer = serde_json::from_slice(answer).map_err(|_| invalid())?;
    answer.and_then(|kept| if kept.len() == charts { Ok(kept) } else { Err(invalid()) })
}

#[derive(Default)]
pub struct FilterEvaluator {
    filter: Option<Filter>,
}

impl FilterEvaluator {
    pub fn answer(&mut self, request: Vec<u8>) -> Vec<u8> {
        let answer: FilterAnswer = match request.split_first() {
            Some((&LOAD, rule)) => self.load(rule).map(|()| Vec::new()),
            Some((&CHARTS, charts)) => parse(charts).and_then(|charts| {
                // Not in memory together with the values of the evaluation.
                drop(request);
                self.evaluate(charts)
            }),
            _ => Err(invalid("an unknown request")),
        };
        serde_json::to_vec(&answer).unwrap_or_default()
    }

    fn load(&mut self, request: &[u8]) -> Result<(), FilterError> {
        // Dropped first, so that both are never in memory.
        self.filter = None;
        let Load::<JqRule> { rule, limits } = serde_json::from_slice(request).map_err(invalid)?;
        self.filter = Some(Filter::compile(&rule, limits)?);
        Ok(())
    }

    fn evaluate(&self, charts: Vec<Value>) -> FilterAnswer {
        let filter = self.filter.as_ref().ok_or_else(|| invalid("no filter is loaded"))?;
        charts.into_iter().map(|chart| filter.keeps_value(chart)).collect()
    }
}

fn parse(charts: &[u8]) -> Result<Vec<Value>, FilterError> {
    let lines = charts.split_inclusive(|byte| *byte == b'\n');
    lines
        .map(|chart| serde_json::from_slice(chart).map_err(invalid))
        .collect()
}

fn invalid(error: impl std::fmt::Display) -> FilterError {
    FilterError::Process(format!("invalid request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(jq: &str) -> Vec<u8> {
        let rule = JqRule {
            jq: jq.to_owned(),
            variables: [("$v".to_owned(), "b".to_owned())].into(),
        };
        load_request(&rule, FilterLimits::default())
    }

    fn charts(names: &[&str]) -> Vec<u8> {
        let mut request = charts_request();
        for name in names {
            request.extend(format!("{{\"name\":\"{name}\"}}\n").as_bytes());
        }
        request
    }

    #[test]
    fn a_batch_is_answered_chart_by_chart() {
        let mut evaluator = FilterEvaluator::default();
        let loaded = evaluator.answer(rule(".name == $v"));
        assert_eq!(decode_answer(&loaded, 0), Ok(Vec::new()));
        let answer = evaluator.answer(charts(&["a", "b", "c"]));
        assert_eq!(decode_answer(&answer, 3), Ok(vec![false, true, false]));
        assert!(decode_answer(&answer, 2).unwrap_err().is_transient());
    }

    #[test]
    fn errors_keep_their_reason_and_name_the_chart() {
        let mut evaluator = FilterEvaluator::default();
        let unloaded = evaluator.answer(charts(&["a"]));
        assert!(decode_answer(&unloaded, 1).unwrap_err().is_transient());
        let invalid = decode_answer(&evaluator.answer(rule("(")), 0).unwrap_err();
        assert_eq!(invalid.reason(), "InvalidFilter");
        evaluator.answer(rule(".name == \"a\" or error"));
        let failed = decode_answer(&evaluator.answer(charts(&["a", "b"])), 2).unwrap_err();
        assert!(
            failed.to_string().starts_with("spec.filterRule failed for chart b: "),
            "{failed}"
        );
        evaluator.answer(rule("last(repeat(0))"));
        let stopped = decode_answer(&evaluator.answer(charts(&["a"])), 1).unwrap_err();
        assert_eq!(
            stopped.to_string(),
            "spec.filterRule was stopped at chart a: it takes more than 1000000 steps; simplify the rule"
        );
    }

    #[test]
    fn a_broken_response_is_a_transient_error() {
        for response in [&b""[..], b"{", b"{\"Ok\":[1]}"] {
            assert!(decode_answer(response, 1).unwrap_err().is_transient());
        }
    }
}
