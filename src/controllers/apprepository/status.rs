//! The status of an AppRepository in kstatus' sense: built as a whole from what is known, compared, and written only if it
//! says something new.

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::decision::is_lost;
use super::sync_summary::account;
use crate::api::{AppRepositoryStatus, Files};
use crate::catalog::{Record, State};

/// Ready: the charts are in step with the repository.
pub const READY: &str = "Ready";
/// Reconciling: work is under way, or will be tried again by itself. Present only when true.
pub const RECONCILING: &str = "Reconciling";
/// Stalled: nothing will change by itself; the message says what to do. Present only when true.
pub const STALLED: &str = "Stalled";

/// A status that differs by nothing but times is written again once it is this old.
const REFRESH_SECONDS: i64 = 3600;
/// The longest message of a condition that the API server lets in has 32,768 bytes; ours stay readable.
const MAX_MESSAGE: usize = 1024;

/// What the reconciler knows of the repository at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A sync is about to start.
    Syncing,
    /// There is nothing more to do for now.
    Settled,
}

/// What a status is built from.
pub struct Facts<'a> {
    /// The generation that was read.
    pub generation: Option<i64>,
    /// Whether syncs are held by the user.
    pub suspended: bool,
    /// What the database remembers; nothing, where the repository was never synced or the database was lost.
    pub record: Option<&'a Record>,
    /// What was found just now, where it could not be recorded: the database is away.
    pub unrecorded: Option<&'a State>,
    /// What is happening.
    pub phase: Phase,
    /// How far the import of files is.
    pub files: Imported,
    /// The time of a transition, if there is one.
    pub now: Timestamp,
}

/// How far the import of files is, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Imported {
    /// None are imported.
    #[default]
    None,
    /// Nobody has looked since the start.
    Unseen,
    /// As it was seen last.
    Seen(Files),
}

/// Builds the status that `facts` call for; `before` gives the transition times that stay.
#[must_use]
pub fn build(facts: &Facts<'_>, before: Option<&AppRepositoryStatus>) -> AppRepositoryStatus {
    let state = facts
        .unrecorded
        .or(facts.record.map(|record| &record.state))
        .filter(|state| state.ready.is_some() || !state.reason.is_empty());
    let mut conditions = Conditions {
        facts,
        before,
        list: Vec::new(),
    };
    // Charts that were lost are not Ready, whatever was said of them before.
    let lost = facts
        .record
        .is_some_and(|record| record.state.ready != Some(false) && is_lost(record));
    match state {
        Some(state) if !lost || facts.unrecorded.is_some() => known(&mut conditions, state, facts, before),
        _ => unknown(&mut conditions, facts, before),
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
            // What could not be read is not lost.
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
            Imported::None => None,
            Imported::Unseen => before.and_then(|before| before.files.clone()),
            Imported::Seen(files) => Some(files.clone()),
        },
        last_sync: match facts.record {
            Some(record) => account(record),
            None => before.and_then(|before| before.last_sync.clone()),
        },
        conditions: conditions.list,
    }
}

/// Whether `new` says anything that `old` does not, times left out; or is only the later word of the two, and an hour later.
#[must_use]
pub fn is_news(old: Option<&AppRepositoryStatus>, new: &AppRepositoryStatus) -> bool {
    let Some(old) = old else { return true };
    let age = match (&old.last_sync_time, &new.last_sync_time) {
        (Some(old), Some(new)) => new.0.as_second() - old.0.as_second(),
        (None, None) => 0,
        _ => return true,
    };
    age > REFRESH_SECONDS || without_times(old) != without_times(new)
}

/// A digest of what `status` says, times left out: to know what was written last although the store may not show it yet.
#[must_use]
pub fn fingerprint(status: &AppRepositoryStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Statuses hold string keys and finite numbers only, for which JSON can't fail.
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

/// The last attempt has left its verdict.
fn known(conditions: &mut Conditions<'_>, state: &State, facts: &Facts<'_>, before: Option<&AppRepositoryStatus>) {
    let working = facts.phase == Phase::Syncing;
    if state.ready == Some(true) {
        conditions.push(READY, "True", &state.reason, &state.message);
        if working {
            conditions.push(RECONCILING, "True", "Syncing", "The repository is being synced.");
        }
        return;
    }
    if state.ready.is_none() {
        // A registry is large, and what is there of it is shown already.
        conditions.push(READY, "Unknown", &state.reason, &state.message);
        if !facts.suspended {
            conditions.push(RECONCILING, "True", &state.reason, &state.message);
        }
        return;
    }
    let served = match facts.record {
        Some(record) => record.last_success.filter(|_| !is_lost(record)),
        None => before
            .and_then(|before| before.last_sync_time.as_ref())
            .map(|time| time.0),
    };
    let message = match served {
        Some(time) => {
            format!(
                "{} The charts of {} are still served.",
                sentence(&state.message),
                to_seconds(time)
            )
        }
        None => sentence(&state.message),
    };
    conditions.push(READY, "False", &state.reason, &message);
    if working {
        conditions.push(RECONCILING, "True", "Syncing", "The repository is being synced.");
    } else if state.stalled {
        conditions.push(STALLED, "True", &state.reason, &message);
    } else if !facts.suspended {
        conditions.push(
            RECONCILING,
            "True",
            "Retrying",
            "It is tried again by itself, with growing pauses.",
        );
    }
}

/// Nothing is remembered: the repository is new, or the catalogue was lost.
fn unknown(conditions: &mut Conditions<'_>, facts: &Facts<'_>, before: Option<&AppRepositoryStatus>) {
    let was_synced = facts.record.is_some_and(is_lost) || before.is_some_and(|before| before.last_sync_time.is_some());
    let (reason, message) = if was_synced && facts.suspended {
        (
            "CatalogueRebuilding",
            "The catalogue has lost the charts of this repository; they are fetched again once its syncs are resumed.",
        )
    } else if was_synced {
        (
            "CatalogueRebuilding",
            "The catalogue has lost the charts of this repository; they are being fetched again.",
        )
    } else if facts.suspended {
        (
            "Suspended",
            "The repository was never synced, and its syncs are suspended.",
        )
    } else {
        ("Syncing", "The repository is being synced for the first time.")
    };
    conditions.push(READY, "Unknown", reason, message);
    if !facts.suspended {
        conditions.push(RECONCILING, "True", reason, message);
    }
}

/// `message` as a sentence: with a capital, unless it begins with a URL, a host or the like, and a full stop.
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
    let rest = chars.as_str();
    let stop = if rest.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{rest}{stop}")
}

/// Kubernetes' times have whole seconds.
fn to_seconds(time: Timestamp) -> Timestamp {
    time.round(Unit::Second).unwrap_or(time)
}

struct Conditions<'a> {
    facts: &'a Facts<'a>,
    before: Option<&'a AppRepositoryStatus>,
    list: Vec<Condition>,
}

impl Conditions<'_> {
    fn push(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let same = self.before.and_then(|before| {
            before
                .conditions
                .iter()
                .find(|c| c.type_ == type_ && c.status == status)
        });
        self.list.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: crate::text::truncate(message, MAX_MESSAGE),
            observed_generation: self.facts.generation,
            last_transition_time: same.map_or_else(
                || Time(to_seconds(self.facts.now)),
                |condition| condition.last_transition_time.clone(),
            ),
        });
    }
}
