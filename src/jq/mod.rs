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
//! Rules are untrusted. They have no access to the environment, files, modules or further inputs, and [`Limits`]
//! bound size, steps, memory, nesting and time. Steps are deterministic; the time limit is the last resort.
//! Values are our own type, which charges memory before allocating it (`.+.` forty times, `"a" * 1e12`).
//! Not limited are the interpreter's own iterators and bindings (about a hundred bytes per step), and a single
//! regular expression search, which may exceed the deadline by seconds.

mod access;
mod budget;
mod compile;
mod error;
mod evaluate;
mod natives;
mod operators;
mod regex;
mod thread;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use error::FilterError;
pub use thread::on_large_stack;

use compile::Compiled;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub jq: String,
    /// Values by name, including the `$`.
    pub variables: BTreeMap<String, String>,
}

impl Rule {
    /// Returns true if the rule keeps every chart and need not be compiled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jq.trim().is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub rule_bytes: usize,
    pub variables: usize,
    pub variable_bytes: usize,
    /// Interpreter steps per chart, at most [`Limits::MAX_STEPS`]. Reading 64 bytes of a value also counts as one.
    pub steps: u64,
    pub time: Duration,
    pub value_bytes: u64,
    /// Size of all values allocated for one chart, including dropped ones.
    pub allocated_bytes: u64,
    /// Nesting of lists and maps.
    pub depth: u32,
    pub stack_bytes: usize,
}

impl Limits {
    /// Upper limit of steps. Each may bind a variable, a chain of bindings is dropped recursively, and more would
    /// overflow the stack.
    pub const MAX_STEPS: u64 = 1_000_000;
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            // The longest rule of Kubeapps' dashboard, with 300 names, has half of that.
            rule_bytes: 16 * 1024,
            variables: 1_000,
            variable_bytes: 64 * 1024,
            // Forty per version of a chart with 25,000 versions.
            steps: Self::MAX_STEPS,
            time: Duration::from_secs(30),
            value_bytes: 64 * MIB,
            allocated_bytes: 128 * MIB,
            depth: 256,
            stack_bytes: 4 * 1024 * 1024,
        }
    }
}

/// A compiled rule. Clones share the program and the time budget.
#[derive(Clone)]
pub struct Filter {
    compiled: Arc<Compiled>,
    limits: Limits,
    spent: Arc<AtomicU64>,
}

impl Filter {
    /// Compiles a rule, once per sync. Starts a thread unless called inside [`on_large_stack`].
    pub fn compile(rule: &Rule, limits: Limits) -> Result<Self, FilterError> {
        let compiled = thread::ensure_large_stack(|| compile::compile(rule, &limits))??;
        Ok(Self {
            compiled: Arc::new(compiled),
            limits,
            spent: Arc::default(),
        })
    }

    /// Returns the same rule with the full time budget.
    #[must_use]
    pub fn with_full_time_budget(&self) -> Self {
        Self {
            compiled: Arc::clone(&self.compiled),
            limits: self.limits,
            spent: Arc::default(),
        }
    }

    /// Returns true if the rule keeps the chart, given its JSON as stored. Call this inside one [`on_large_stack`] for
    /// all charts; otherwise each call starts a thread.
    pub fn keeps(&self, chart: &serde_json::Value) -> Result<bool, FilterError> {
        let started = Instant::now();
        let spent = Duration::from_nanos(self.spent.load(Ordering::Relaxed));
        let deadline = started.checked_add(self.limits.time.saturating_sub(spent));
        let kept = thread::ensure_large_stack(|| evaluate::keeps(&self.compiled, chart, &self.limits, deadline))?;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent.fetch_add(took, Ordering::Relaxed);
        kept
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
