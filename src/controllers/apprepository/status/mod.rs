//! Builds the kstatus conditions and the status of an AppRepository.

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::decision::has_lost_charts;
use super::sync_summary::last_sync_of;
use crate::api::conditions::{find, since};
use crate::api::{AppRepositoryStatus, Files};
use crate::catalog::{Record, RecordState};

/// Condition type: the charts match the repository.
pub const READY: &str = "Ready";
/// Condition type: work or a retry is in progress. Present only when true.
pub const RECONCILING: &str = "Reconciling";
/// Condition type: needs a user's action, described in the message. Present only when true.
pub const STALLED: &str = "Stalled";

/// Maximum age of a status that differs only in its times.
const REFRESH_SECONDS: i64 = 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPhase {
    Syncing,
    Idle,
}

pub struct Facts<'a> {
    pub generation: Option<i64>,
    pub suspended: bool,
    /// The record is of an earlier spec.
    pub is_new_spec: bool,
    /// `None` if the repository was never synced or the database was lost.
    pub record: Option<&'a Record>,
    /// State that could not be recorded because the database fails.
    pub unrecorded: Option<&'a RecordState>,
    pub phase: SyncPhase,
    pub files: ImportProgress,
    pub now: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ImportProgress {
    #[default]
    Disabled,
    /// Not counted since the start of the process.
    Unknown,
    Counted(Files),
}

/// Builds the status; unchanged conditions keep their transition time from `before`.
#[must_use]
pub fn build(facts: &Facts<'_>, before: Option<&AppRepositoryStatus>) -> AppRepositoryStatus {
    let state = facts
        .unrecorded
        .or(facts.record.map(|record| &record.state))
        .filter(|state| state.ready.is_some() || !state.reason.is_empty());
    let mut conditions = ConditionList {
        facts,
        before,
        list: Vec::new(),
    };
    // Lost charts are not Ready, regardless of the last result.
    let record = facts.record.filter(|record| record.state.ready != Some(false));
    let has_lost = record.is_some_and(has_lost_charts);
    match state {
        Some(_) if facts.is_new_spec && !facts.suspended && !has_lost && facts.unrecorded.is_none() => {
            conditions.add_new_spec();
        }
        Some(state) if !has_lost || facts.unrecorded.is_some() => conditions.add_recorded(state),
        _ => conditions.add_unrecorded(),
    }
    let ready = conditions.list.first();
    let status = ready.map(|ready| match ready.status.as_str() {
        "True" => "Ready".to_owned(),
        "False" => format!("Failed: {}", ready.message),
        _ => "Syncing".to_owned(),
    });
    AppRepositoryStatus {
        status,
        observed_generation: facts.generation,
        last_handled_reconcile_at: match facts.record {
            Some(record) => record.handled.last.clone(),
            // A record that can't be read is not lost.
            None => before.and_then(|before| before.last_handled_reconcile_at.clone()),
        },
        last_sync_time: facts
            .record
            .and_then(|record| record.last_success)
            .map(to_seconds)
            .map(Time)
            .or_else(|| before.and_then(|before| before.last_sync_time.clone())),
        suspended: facts.suspended.then_some(true),
        files: match &facts.files {
            ImportProgress::Disabled => None,
            ImportProgress::Unknown => before.and_then(|before| before.files.clone()),
            ImportProgress::Counted(files) => Some(files.clone()),
        },
        last_sync: match facts.record {
            Some(record) => last_sync_of(record),
            None => before.and_then(|before| before.last_sync.clone()),
        },
        conditions: conditions.list,
    }
}

/// Returns true if the status must be written: it differs in more than times, or is older than an hour.
#[must_use]
pub fn needs_update(old: Option<&AppRepositoryStatus>, new: &AppRepositoryStatus) -> bool {
    let Some(old) = old else { return true };
    let age = match (&old.last_sync_time, &new.last_sync_time) {
        (Some(old), Some(new)) => new.0.as_second() - old.0.as_second(),
        (None, None) => 0,
        _ => return true,
    };
    age > REFRESH_SECONDS || without_times(old) != without_times(new)
}

/// Returns a hash of `status` without times.
#[must_use]
pub fn fingerprint(status: &AppRepositoryStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Statuses hold string keys and finite numbers only, so that JSON can't fail.
    serde_json::to_vec(&without_times(status))
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

fn without_times(status: &AppRepositoryStatus) -> AppRepositoryStatus {
    let mut status = status.clone();
    status.last_sync_time = None;
    if let Some(last_sync) = &mut status.last_sync {
        last_sync.duration.clear();
    }
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    status
}

/// Formats `message` as a sentence. The first letter stays if the text starts with a URL, host or similar.
fn sentence(message: &str) -> String {
    let first_word = message.split_whitespace().next().unwrap_or_default();
    let is_word = first_word
        .chars()
        .all(|c| c.is_alphabetic() || matches!(c, '\'' | ',' | '-'));
    let mut chars = message.chars();
    let first = match chars.next() {
        Some(first) if is_word => first.to_uppercase().to_string(),
        first => first.map(String::from).unwrap_or_default(),
    };
    let remaining = chars.as_str();
    let stop = if remaining.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{remaining}{stop}")
}

fn to_seconds(time: Timestamp) -> Timestamp {
    time.round(Unit::Second).unwrap_or(time)
}

struct ConditionList<'a> {
    facts: &'a Facts<'a>,
    before: Option<&'a AppRepositoryStatus>,
    list: Vec<Condition>,
}

impl ConditionList<'_> {
    fn add_recorded(&mut self, state: &RecordState) {
        let facts = self.facts;
        let is_syncing = facts.phase == SyncPhase::Syncing;
        if state.ready == Some(true) {
            self.push(READY, "True", &state.reason, &state.message);
            if is_syncing {
                self.push(RECONCILING, "True", "Syncing", "The repository is being synced.");
            }
            return;
        }
        if state.ready.is_none() {
            // A large registry already shows what is pulled so far.
            self.push(READY, "Unknown", &state.reason, &state.message);
            if !facts.suspended {
                self.push(RECONCILING, "True", &state.reason, &state.message);
            }
            return;
        }
        let message = sentence(&state.message) + &self.available_charts();
        self.push(READY, "False", &state.reason, &message);
        if is_syncing {
            self.push(RECONCILING, "True", "Syncing", "The repository is being synced.");
        } else if state.stalled {
            self.push(STALLED, "True", &state.reason, &message);
        } else if !facts.suspended {
            self.push(RECONCILING, "True", "Retrying", "Retrying with exponential backoff.");
        }
    }

    /// Adds the conditions of a repository whose spec was not synced yet. Its result is the result of the spec before.
    fn add_new_spec(&mut self) {
        let message = "The changed spec is being synced.".to_owned() + &self.available_charts();
        self.push(READY, "Unknown", "Syncing", &message);
        self.push(RECONCILING, "True", "Syncing", &message);
    }

    /// Returns a sentence about the charts of the last sync; empty if there are none.
    fn available_charts(&self) -> String {
        let last = match self.facts.record {
            Some(record) => record.last_success.filter(|_| !has_lost_charts(record)),
            None => self.before.and_then(|before| Some(before.last_sync_time.as_ref()?.0)),
        };
        last.map_or_else(String::new, |time| {
            format!(" Charts from the last sync at {} remain available.", to_seconds(time))
        })
    }

    /// Returns the generation that the conditions are about: a suspended repository keeps the result of an earlier one.
    fn generation(&self) -> Option<i64> {
        let earlier = self
            .facts
            .record
            .filter(|_| self.facts.is_new_spec && self.facts.suspended);
        earlier.map_or(self.facts.generation, |record| Some(record.generation))
    }

    /// Adds the conditions of a repository without a result: it is new, or the catalog was lost.
    fn add_unrecorded(&mut self) {
        let (facts, before) = (self.facts, self.before);
        let was_synced =
            facts.record.is_some_and(has_lost_charts) || before.is_some_and(|before| before.last_sync_time.is_some());
        let (reason, message) = if was_synced && facts.suspended {
            (
                "RebuildingCatalog",
                "The charts were lost from the database. They are fetched again once the repository is resumed.",
            )
        } else if was_synced {
            (
                "RebuildingCatalog",
                "The charts were lost from the database and are being fetched again.",
            )
        } else if facts.suspended {
            ("Suspended", "The repository is suspended and was never synced.")
        } else {
            ("Syncing", "The repository is being synced for the first time.")
        };
        self.push(READY, "Unknown", reason, message);
        if !facts.suspended {
            self.push(RECONCILING, "True", reason, message);
        }
    }

    fn push(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let before = self.before.and_then(|before| find(&before.conditions, type_));
        let now = Time(to_seconds(self.facts.now));
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: crate::text::sanitize(message),
            observed_generation: self.generation(),
            last_transition_time: now.clone(),
        };
        self.list.push(since(condition, before, now));
    }
}
