//! Which charts of a repository are kept: the rule of an AppRepository (`spec.filterRule`), a program in jq that answers true
//! or false for each chart.
//!
//! ```text
//!  Rule ──compile, once a sync──► Filter ──keeps(chart), on a large stack──► true, false or why not
//! ```
//!
//! # What a rule sees
//! Its input is the chart's JSON as it is stored for readers (`name`, `repo`, `maintainers`, `keywords`, `category`,
//! `chartVersions`…), as in Kubeapps' syncer. Variables are strings, bound by the keys of `variables`, which hold the `$`.
//! Only the first output counts, and must be a boolean.
//!
//! # What differs from gojq, which Kubeapps runs rules with
//! - Regular expressions are Go's but for its rarest corners: `\d`, `\s`, `\w` and `\b` know ASCII only, a class may hold a plain
//!   `[`, `\Q…\E` quotes, `(?<name>…)` names; flags are `g`, `i` and `m` (which lets a dot match a line's end), any other is
//!   an error. An expression may not be longer than 16 KiB, nor grow above 256 KiB once compiled, where Go has its
//!   limit at 1000 repetitions, and no text above 256 KiB is searched.
//! - All numbers are 64-bit floats. gojq keeps whole numbers that are written in the rule exact beyond that.
//! - There are no dates (`now`, `fromdate`, `strftime`…), no streams (`tostream`…), no formats but `@text` and `@json`, no `?//`,
//!   no `limit` with a negative count, and fewer functions of mathematics. A rule that uses what is not there is an error that
//!   names it.
//! - `join` refuses lists and maps, and messages of errors have other words.
//!
//! What could reach outside the rule is not there at all: `env`, `$ENV`, `input`, `inputs`, `debug`, `stderr`,
//! `input_filename`, `$__loc__`, `halt`, `halt_error`, `import` and `include`.
//!
//! # What a rule may cost
//! Whoever may write an AppRepository may write a rule that never ends, so all of [`Limits`] hold: on the length of a rule and
//! its variables, on steps and memory for a chart, on the depth of calls and of values, and on the time that all charts of a
//! sync take together. Steps say the same everywhere; time does not, so it is only the last resort. Values are of our own
//! making, and ask for their memory before they take it (`.+.` forty times, `"a" * 1e12`).
//!
//! Not covered: the memory of the interpreter's own iterators and bindings, which is bound only by the steps that make them
//! (some hundred bytes each); and one search by a regular expression up to its next match, which may take some seconds beyond
//! its time at worst. Between matches the clock is looked at.

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

/// A rule as it is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The program.
    pub jq: String,
    /// What its variables are bound to, by their names with the `$`.
    pub variables: BTreeMap<String, String>,
}

impl Rule {
    /// Whether it says nothing, and so keeps every chart whatever its variables are. Such a rule is not compiled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jq.trim().is_empty()
    }
}

/// What a rule may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the program.
    pub rule_bytes: usize,
    /// Variables, whether they are used or not.
    pub variables: usize,
    /// Bytes of all variables, names and values.
    pub variable_bytes: usize,
    /// Steps of the interpreter for one chart, at most [`Limits::MOST_STEPS`]. To look at 64 bytes of a value counts as one, too.
    pub steps: u64,
    /// Time for all charts of a sync together.
    pub time: Duration,
    /// Bytes of one value, with all that is below it.
    pub value_bytes: u64,
    /// Bytes of all values that are made for one chart, those that are dropped meanwhile included.
    pub made_bytes: u64,
    /// How deep lists and maps may nest.
    pub depth: u32,
    /// How much stack calls within calls may take.
    pub stack_bytes: usize,
}

impl Limits {
    /// More steps than that are not given, since each may bind a variable, and a chain of bindings is dropped one within the
    /// other: this many fit on the stack.
    pub const MOST_STEPS: u64 = 1_000_000;
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            // The longest rule that the dashboard of Kubeapps makes, with 300 names, is half of that.
            rule_bytes: 16 * 1024,
            variables: 1_000,
            variable_bytes: 64 * 1024,
            // Forty for each version of a chart that has 25,000, far more than any that is known.
            steps: Self::MOST_STEPS,
            time: Duration::from_secs(30),
            value_bytes: 64 * MIB,
            made_bytes: 128 * MIB,
            depth: 256,
            stack_bytes: 4 * 1024 * 1024,
        }
    }
}

/// A compiled rule. Clones share what they have compiled, and their time.
#[derive(Clone)]
pub struct Filter {
    compiled: Arc<Compiled>,
    limits: Limits,
    /// Nanoseconds that evaluation has taken.
    taken: Arc<AtomicU64>,
}

impl Filter {
    /// Reads and compiles a rule, which is done once a sync. An empty one has nothing to compile: ask [`Rule::is_empty`] first.
    ///
    /// It runs on a large stack, for which it starts a thread where it is not called within [`on_large_stack`].
    ///
    /// # Errors
    /// [`FilterError::Invalid`], with the place and the cause, when the rule is none, uses what is not there, or is longer
    /// than the limits allow.
    pub fn compile(rule: &Rule, limits: Limits) -> Result<Self, FilterError> {
        let compiled = thread::ensure_large_stack(|| compile::compile(rule, &limits))??;
        Ok(Self {
            compiled: Arc::new(compiled),
            limits,
            taken: Arc::default(),
        })
    }

    /// The same rule, with all its time.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self {
            compiled: Arc::clone(&self.compiled),
            limits: self.limits,
            taken: Arc::default(),
        }
    }

    /// Whether the rule keeps a chart, given its JSON as it is stored.
    ///
    /// Meant to be called for all charts of a sync within one [`on_large_stack`]; elsewhere it starts a thread for each.
    ///
    /// # Errors
    /// [`FilterError::Failed`] when the rule fails, or its first output is no boolean; [`FilterError::TooCostly`] when one of the
    /// limits is reached.
    pub fn keeps(&self, chart: &serde_json::Value) -> Result<bool, FilterError> {
        let started = Instant::now();
        let taken = Duration::from_nanos(self.taken.load(Ordering::Relaxed));
        let deadline = started.checked_add(self.limits.time.saturating_sub(taken));
        let kept = thread::ensure_large_stack(|| evaluate::keeps(&self.compiled, chart, &self.limits, deadline))?;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.taken.fetch_add(took, Ordering::Relaxed);
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
