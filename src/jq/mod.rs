//! Evaluates `spec.filterRule` of an AppRepository, a jq program that returns true for each chart to keep.
//!
//! The input is the chart's JSON as stored in the catalog, as in Kubeapps. Only the first output counts and must be
//! a boolean. Variables are strings, and their names include the `$`. gojq, which Kubeapps uses, differs:
//!
//! - Regular expressions are Rust's with Go's syntax, and have size limits.
//! - Numbers are 64-bit floats.
//! - There are no dates, streams, formats other than `@text` and `@json`, and fewer mathematical functions.
//! - `join` rejects lists and maps, and error messages differ.
//!
//! Rules are untrusted. They have no access to the environment, files, modules or further inputs. [`FilterLimits`] bound
//! size and steps; nothing here bounds memory, nesting of values, or the time of one step (`"a" * 1e9`). So rules are compiled and
//! evaluated in a child process ([`FilterEvaluator`]) that bounds those, and whose end is an exceeded limit of the rule.

mod access;
mod compile;
mod error;
mod evaluate;
mod natives;
mod operators;
mod protocol;
mod regex;
mod steps;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use error::FilterError;
pub use protocol::{FilterEvaluator, charts_request, decode_answer, is_load_request, load_request};

use compile::Compiled;
use value::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JqRule {
    pub jq: String,
    /// Values by name, including the `$`.
    pub variables: BTreeMap<String, String>,
}

impl JqRule {
    /// Returns true if the rule keeps every chart and need not be compiled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jq.trim().is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterLimits {
    pub rule_bytes: usize,
    pub variables: usize,
    pub variable_bytes: usize,
    /// Interpreter steps per chart.
    pub steps: u64,
    /// CPU time of all charts of a sync together.
    pub cpu_seconds: u64,
}

impl Default for FilterLimits {
    fn default() -> Self {
        Self {
            // The longest rule of Kubeapps' dashboard, with 300 names, has half of that.
            rule_bytes: 16 * 1024,
            variables: 1_000,
            variable_bytes: 64 * 1024,
            // Forty per version of a chart with 25,000 versions.
            steps: 1_000_000,
            cpu_seconds: 10,
        }
    }
}

/// A compiled rule. Clones share the program.
#[derive(Clone)]
pub struct Filter {
    compiled: Arc<Compiled>,
    limits: FilterLimits,
}

impl Filter {
    /// Compiles a rule. The parser is recursive.
    pub fn compile(rule: &JqRule, limits: FilterLimits) -> Result<Self, FilterError> {
        Ok(Self {
            compiled: Arc::new(compile::compile(rule, &limits)?),
            limits,
        })
    }

    /// Returns true if the rule keeps the chart, given its JSON as stored.
    pub fn keeps(&self, chart: &serde_json::Value) -> Result<bool, FilterError> {
        let invalid = |error: serde_json::Error| FilterError::Process(error.to_string());
        self.keeps_value(Value::deserialize(chart).map_err(invalid)?)
    }

    fn keeps_value(&self, chart: Value) -> Result<bool, FilterError> {
        evaluate::keeps(&self.compiled, chart, self.limits.steps)
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
