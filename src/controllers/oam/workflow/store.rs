//! Values that steps pass to each other, and counters of attempts, in the format of KubeVela's context ConfigMap.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::backoff::MAX_WAITS;

/// Key of the values: fields of a CUE struct.
const VALUES: &str = "vars";
/// Key of the counters. KubeVela keeps its own in memory, and leaves other keys alone.
const ATTEMPTS: &str = "portolan.attempts";
/// Waits that are not stored: the delays after them are at most 6 s.
const FIRST_WAITS: u32 = 7;
/// Largest size of all values. The API server limits a ConfigMap to 1 MiB.
const MAX_BYTES: usize = 512 << 10;
const MAX_PATH_BYTES: usize = 1024;
const MAX_PATH_FIELDS: usize = 64;

/// Values and counters of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    values: Map<String, Value>,
    attempts: Attempts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Attempts {
    /// Time of the next turn, unless an event comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Timestamp>,
    /// By id of the step.
    steps: BTreeMap<String, StepAttempts>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StepAttempts {
    failures: u32,
    waits: u32,
    message: String,
}

impl StepAttempts {
    /// Returns true if a restart must not forget it: after few waits, the delay is short anyway.
    fn is_worth_storing(&self) -> bool {
        self.failures > 0 || self.waits > FIRST_WAITS
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStore {
    /// The values were written by KubeVela. The evaluator exports them as JSON.
    #[error("workflow context is CUE, not one JSON value per line")]
    Cue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path exceeds {MAX_PATH_BYTES} bytes or {MAX_PATH_FIELDS} fields")]
pub struct PathTooLong;

/// Checks the length of a path such as `a.b[0]`. Each field is a level of a value.
///
/// # Errors
/// If the path has too many bytes or fields.
pub fn check_path(path: &str) -> Result<(), PathTooLong> {
    let is_short = path.len() <= MAX_PATH_BYTES && path.split(['.', '[']).count() <= MAX_PATH_FIELDS;
    if is_short { Ok(()) } else { Err(PathTooLong) }
}

impl Store {
    /// Decodes the data of the ConfigMap. Invalid counters are ignored.
    ///
    /// # Errors
    /// The values are CUE that needs the evaluator; [`Store::with_values`] takes its result.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, InvalidStore> {
        let text = data.get(VALUES).map_or("", String::as_str);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let values: Option<Map<_, _>> = lines.map(parse_line).collect();
        Ok(Self::with_values(values.ok_or(InvalidStore::Cue)?, data))
    }

    /// Combines evaluated values with the counters of the ConfigMap.
    #[must_use]
    pub fn with_values(values: Map<String, Value>, data: &BTreeMap<String, String>) -> Self {
        let attempts = data.get(ATTEMPTS).and_then(|text| serde_json::from_str(text).ok());
        Self {
            values,
            attempts: attempts.unwrap_or_default(),
        }
    }

    /// Encodes the data of the ConfigMap, without counters that are small.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, String> {
        self.encode(StepAttempts::is_worth_storing)
    }

    /// Encodes the data of the ConfigMap with all counters, for a process that can't keep them in memory.
    #[must_use]
    pub fn to_data_with_counters(&self) -> BTreeMap<String, String> {
        self.encode(|_| true)
    }

    fn encode(&self, is_stored: fn(&StepAttempts) -> bool) -> BTreeMap<String, String> {
        let lines = self
            .values
            .iter()
            .map(|(name, value)| format!("{}: {value}\n", label(name)));
        let values: String = lines.collect();
        // KubeVela writes a line break if there are no values.
        let values = if values.is_empty() { "\n".to_owned() } else { values };
        let mut data = BTreeMap::from([(VALUES.to_owned(), values)]);
        let mut attempts = self.attempts.clone();
        attempts.steps.retain(|_, step| is_stored(step));
        if !attempts.steps.is_empty()
            && let Ok(text) = serde_json::to_string(&attempts)
        {
            data.insert(ATTEMPTS.to_owned(), text);
        }
        data
    }

    /// Returns the value at a dotted path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        let (first, fields) = path.split_once('.').unwrap_or((path, ""));
        let value = self.values.get(first)?;
        fields
            .split('.')
            .filter(|field| !field.is_empty())
            .try_fold(value, |value, field| value.get(field))
    }

    /// Adds a value under a dotted path. A value can't change: steps may have used it.
    pub(super) fn add(&mut self, path: &str, value: &Value) -> Result<(), String> {
        check_path(path).map_err(|error| error.to_string())?;
        let mut values = self.values.clone();
        add(&mut values, path, value)?;
        let size: usize = values
            .iter()
            .map(|(name, value)| name.len() + value.to_string().len())
            .sum();
        if size > MAX_BYTES {
            return Err(format!("values of the workflow exceed {} KiB", MAX_BYTES >> 10));
        }
        self.values = values;
        Ok(())
    }

    pub(super) fn waits(&self, id: &str) -> u32 {
        self.attempts.steps.get(id).map_or(0, |step| step.waits)
    }

    /// Returns true if the scheduled time has come. A time further away than `longest` is not one that a turn has set, or
    /// the clock was changed.
    pub(super) fn is_due(&self, now: Timestamp, longest: Duration) -> bool {
        let next = self.attempts.next.map(|next| until(next, now));
        next.is_none_or(|wait| wait.is_zero() || wait > longest)
    }

    /// Returns the time left until the next turn, if one is scheduled in the future.
    pub(super) fn next_in(&self, now: Timestamp) -> Option<Duration> {
        let wait = until(self.attempts.next?, now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a wait or failed attempt, from zero if the message differs from the one before. Turns that an event has
    /// started early, which are not due, are not counted.
    pub(super) fn count_wait(&mut self, id: &str, message: &str, is_due: bool) {
        match self.attempts.steps.get_mut(id) {
            Some(step) if step.message == message => {
                if is_due {
                    step.waits = (step.waits + 1).min(MAX_WAITS);
                }
            }
            Some(step) => {
                step.waits = 0;
                message.clone_into(&mut step.message);
            }
            None => {
                let step = StepAttempts {
                    message: message.to_owned(),
                    ..StepAttempts::default()
                };
                self.attempts.steps.insert(id.to_owned(), step);
            }
        }
    }

    /// Counts a failure and returns the number of failures so far.
    pub(super) fn count_failure(&mut self, id: &str) -> u32 {
        let step = self.attempts.steps.entry(id.to_owned()).or_default();
        step.failures = step.failures.saturating_add(1);
        step.failures
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.attempts.steps.remove(id);
    }

    pub(super) fn forget_all(&mut self) {
        self.attempts = Attempts::default();
    }

    /// Sets the time of the next turn. It changes only with the counters, so that a turn without news writes nothing. A turn
    /// that is not due doesn't put it off: events of one step must not delay the attempts of another.
    pub(super) fn schedule(&mut self, next: Timestamp, is_due: bool, before: &Self) {
        if self.attempts.steps.is_empty() {
            self.attempts.next = None;
        } else if self.attempts.steps != before.attempts.steps || self.attempts.next.is_none() {
            let scheduled = self.attempts.next.filter(|_| !is_due);
            self.attempts.next = Some(scheduled.map_or(next, |scheduled| scheduled.min(next)));
        }
    }
}

/// Returns the time from `now` to `next`, zero if it has passed.
fn until(next: Timestamp, now: Timestamp) -> Duration {
    next.duration_since(now).try_into().unwrap_or_default()
}

/// Adds a value. The length of the path, which [`check_path`] limits, bounds the recursion.
fn add(values: &mut Map<String, Value>, path: &str, value: &Value) -> Result<(), String> {
    const CONFLICT: &str = "conflicting values";
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    match (values.get_mut(name), rest) {
        (None, None) => {
            values.insert(name.to_owned(), value.clone());
            Ok(())
        }
        (Some(existing), None) if existing == value => Ok(()),
        (Some(Value::Object(fields)), Some(rest)) => add(fields, rest, value),
        (None, Some(rest)) => {
            let mut fields = Map::new();
            add(&mut fields, rest, value)?;
            values.insert(name.to_owned(), fields.into());
            Ok(())
        }
        (Some(_), _) => Err(CONFLICT.to_owned()),
    }
}

/// Returns the name as a CUE label.
fn label(name: &str) -> String {
    let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !["true", "false", "null"].contains(&name);
    if is_identifier {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

fn parse_line(line: &str) -> Option<(String, Value)> {
    let (name, value) = if line.starts_with('"') {
        let mut names = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let name = names.next()?.ok()?;
        (name, line.get(names.byte_offset()..)?.strip_prefix(':')?)
    } else {
        let (name, value) = line.split_once(':')?;
        (name.to_owned(), value)
    };
    Some((name, serde_json::from_str(value).ok()?))
}
