//! Values that steps pass to each other, and counters of attempts, in the format of KubeVela's context ConfigMap.

mod attempts;
mod checks;
mod suspensions;

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

pub(super) use attempts::{Attempts, until};
use checks::Checks;
pub use checks::Streak;
use suspensions::Suspensions;

/// Key of the values: fields of a CUE struct.
pub(super) const VALUES: &str = "vars";
/// Key of the counters. KubeVela keeps its own in memory, and leaves other keys alone.
pub(super) const ATTEMPTS: &str = "portolan.attempts";
/// Largest size of all values. The API server limits a ConfigMap to 1 MiB.
const MAX_BYTES: usize = 512 << 10;
const MAX_PATH_BYTES: usize = 1024;
const MAX_PATH_FIELDS: usize = 64;
/// Levels of a value with the fields of its path. JSON of more than 127 can't be parsed again.
const MAX_LEVELS: usize = 64;

/// The error of a value that can't be stored besides the others.
pub const VALUES_TOO_LARGE: &str = "values of the workflow exceed 512 KiB";

/// Values, counters, suspensions and checks of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueStore {
    values: Map<String, Value>,
    /// Bytes of the values.
    size: usize,
    pub(super) attempts: Attempts,
    pub(super) suspensions: Suspensions,
    checks: Checks,
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

impl ValueStore {
    /// Decodes the data of the ConfigMap. Invalid counters are ignored.
    ///
    /// # Errors
    /// The values are CUE that needs the evaluator; [`ValueStore::with_values`] takes its result.
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
            size: size(&values),
            values,
            attempts: attempts.unwrap_or_default(),
            suspensions: Suspensions::parse(data),
            checks: Checks::parse(data),
        }
    }

    /// Encodes the data of the ConfigMap, without counters that are small.
    #[must_use]
    pub fn to_data(&self) -> BTreeMap<String, String> {
        self.encode(self.attempts.worth_storing())
    }

    /// Encodes the data of the ConfigMap with all counters, for a process that can't keep them in memory.
    #[must_use]
    pub fn to_data_with_counters(&self) -> BTreeMap<String, String> {
        self.encode(self.attempts.non_empty())
    }

    fn encode(&self, attempts: Option<Attempts>) -> BTreeMap<String, String> {
        let lines = self
            .values
            .iter()
            .map(|(name, value)| format!("{}: {value}\n", label(name)));
        let values: String = lines.collect();
        // KubeVela writes a line break if there are no values.
        let values = if values.is_empty() { "\n".to_owned() } else { values };
        let mut data = BTreeMap::from([(VALUES.to_owned(), values)]);
        if let Some(attempts) = attempts
            && let Ok(text) = serde_json::to_string(&attempts)
        {
            data.insert(ATTEMPTS.to_owned(), text);
        }
        data.extend(self.suspensions.to_data());
        data.extend(self.checks.to_data());
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

    /// Returns the results of a step's check that are all the same.
    #[must_use]
    pub fn streak(&self, id: &str) -> Option<Streak> {
        self.checks.get(id)
    }

    pub fn set_streak(&mut self, id: &str, streak: Streak) {
        self.checks.set(id, streak);
    }

    /// Removes the values at dotted paths, and structs that become empty.
    pub(super) fn remove<'a>(&mut self, paths: impl IntoIterator<Item = &'a str>) {
        // No value has a longer path.
        for path in paths.into_iter().filter(|path| check_path(path).is_ok()) {
            let removed = remove(&mut self.values, path, true);
            self.size = self.size.saturating_sub(removed);
        }
    }

    /// Forgets how often a step was tried, and that it was suspended.
    pub(super) fn forget(&mut self, id: &str) {
        self.attempts.forget(id);
        self.suspensions.forget(id);
        self.checks.forget(id);
    }

    pub(super) fn forget_all(&mut self) {
        self.attempts = Attempts::default();
        self.suspensions = Suspensions::default();
        self.checks = Checks::default();
    }

    /// Forgets steps that don't exist.
    pub(super) fn retain(&mut self, ids: &[String]) {
        let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
        self.attempts.retain(&ids);
        self.suspensions.retain(&ids);
        self.checks.retain(&ids);
    }

    /// Adds a value under a dotted path. A value can't change: steps may have used it.
    ///
    /// # Errors
    /// There is another value, or a limit is exceeded.
    pub fn add(&mut self, path: &str, value: &Value) -> Result<(), String> {
        check_path(path).map_err(|error| error.to_string())?;
        let fields = path.split('.').count();
        if !is_within(value, MAX_LEVELS.saturating_sub(fields)) {
            return Err(format!("value exceeds {MAX_LEVELS} levels with its path"));
        }
        let mut fields = &mut self.values;
        let mut is_top = true;
        let mut names = path.split('.');
        while let Some(name) = names.next() {
            if !fields.contains_key(name) {
                let value = names.rev().fold(value.clone(), |value, name| json!({ name: value }));
                let size = self.size + entry_size(name, &value, is_top, fields.is_empty());
                if size > MAX_BYTES {
                    return Err(VALUES_TOO_LARGE.to_owned());
                }
                fields.insert(name.to_owned(), value);
                self.size = size;
                return Ok(());
            }
            match fields.get_mut(name) {
                Some(existing) if *existing == *value && names.clone().next().is_none() => return Ok(()),
                Some(Value::Object(existing)) if names.clone().next().is_some() => fields = existing,
                _ => break,
            }
            is_top = false;
        }
        Err("conflicting values".to_owned())
    }
}

/// Returns the bytes that an entry adds to the values.
fn entry_size(name: &str, value: &Value, is_top: bool, is_first: bool) -> usize {
    let value = value.to_string().len();
    if is_top {
        name.len() + value
    } else {
        // With a colon, and a comma before it.
        Value::from(name).to_string().len() + 1 + value + usize::from(!is_first)
    }
}

fn size(values: &Map<String, Value>) -> usize {
    let entries = values.iter();
    entries.map(|(name, value)| entry_size(name, value, true, true)).sum()
}

/// Returns true if a value has at most this many levels of structs and lists. They bound the recursion.
fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

/// Removes a value. Returns the bytes of it and of structs that become empty. The path's length bounds the recursion.
fn remove(values: &mut Map<String, Value>, path: &str, is_top: bool) -> usize {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut removed = 0;
    if path.contains('.') {
        let Some(Value::Object(fields)) = values.get_mut(name) else {
            return 0;
        };
        removed = remove(fields, rest, false);
        if !fields.is_empty() {
            return removed;
        }
    }
    let Some(value) = values.remove(name) else {
        return removed;
    };
    removed + entry_size(name, &value, is_top, values.is_empty())
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
