//! The status of an AppRepository in kstatus' sense: built as a whole from what is known, compared, and written only if it
//! says something new.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::decide::is_lost;
use super::summary::account;
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
        .filter(|state| state.ready.is_some());
    let mut conditions = Conditions {
        facts,
        before,
        list: Vec::new(),
    };
    // Charts that were lost are not Ready, whatever was said of them before.
    let lost = facts
        .record
        .is_some_and(|record| record.state.ready == Some(true) && is_lost(record));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Handled;

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn state(ready: bool, stalled: bool, reason: &str) -> State {
        State {
            ready: Some(ready),
            stalled,
            reason: reason.to_owned(),
            message: "the server said 404".to_owned(),
            failures: 0,
        }
    }

    fn record(state: State) -> Record {
        Record {
            state,
            last_success: Some(at("2026-01-01T10:00:00.4Z")),
            handled: Handled {
                last: Some("now".to_owned()),
                ..Handled::default()
            },
            trusted: true,
            ..Record::default()
        }
    }

    fn facts(record: Option<&Record>) -> Facts<'_> {
        Facts {
            generation: Some(3),
            suspended: false,
            record,
            unrecorded: None,
            phase: Phase::Settled,
            files: Imported::None,
            now: at("2026-01-01T11:00:00Z"),
        }
    }

    /// Type, status and reason of each condition.
    fn shape(status: &AppRepositoryStatus) -> Vec<(&str, &str, &str)> {
        status
            .conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str()))
            .collect()
    }

    #[test]
    fn never_synced_is_unknown_and_reconciling() {
        let status = build(&facts(None), None);
        assert_eq!(
            shape(&status),
            [("Ready", "Unknown", "Syncing"), ("Reconciling", "True", "Syncing")]
        );
        assert_eq!(status.observed_generation, Some(3));
        assert!(
            status
                .conditions
                .iter()
                .all(|condition| condition.observed_generation == Some(3))
        );
    }

    #[test]
    fn synced_is_ready_and_nothing_else() {
        let record = record(state(true, false, "Synced"));
        let status = build(&facts(Some(&record)), None);
        assert_eq!(shape(&status), [("Ready", "True", "Synced")]);
        assert_eq!(status.status.as_deref(), Some("Ready"));
        assert_eq!(status.last_handled_reconcile_at.as_deref(), Some("now"));
        assert_eq!(status.last_sync_time, Some(Time(at("2026-01-01T10:00:00Z"))));
    }

    #[test]
    fn a_failure_that_may_pass_is_reconciling_and_says_what_is_served() {
        let record = record(state(false, false, "ServerError"));
        let status = build(&facts(Some(&record)), None);
        assert_eq!(
            shape(&status),
            [("Ready", "False", "ServerError"), ("Reconciling", "True", "Retrying")]
        );
        let message = &status.conditions[0].message;
        assert_eq!(
            message,
            "The server said 404. The charts of 2026-01-01T10:00:00Z are still served."
        );
        assert!(status.status.unwrap().starts_with("Failed: "));
    }

    #[test]
    fn a_failure_that_will_not_pass_is_stalled() {
        let record = record(state(false, true, "NotFound"));
        assert_eq!(
            shape(&build(&facts(Some(&record)), None)),
            [("Ready", "False", "NotFound"), ("Stalled", "True", "NotFound")]
        );
    }

    #[test]
    fn a_lost_catalogue_is_told_from_a_new_repository() {
        let before = AppRepositoryStatus {
            last_sync_time: Some(Time(at(NOON))),
            ..AppRepositoryStatus::default()
        };
        let status = build(&facts(None), Some(&before));
        assert_eq!(status.conditions[0].reason, "CatalogueRebuilding");
        assert_eq!(status.last_sync_time, before.last_sync_time);
    }

    const NOON: &str = "2026-01-01T12:00:00Z";

    #[test]
    fn charts_that_were_lost_are_not_ready_and_not_served() {
        let mut lost = record(state(true, false, "Synced"));
        lost.trusted = false;
        assert_eq!(
            build(&facts(Some(&lost)), None).conditions[0].reason,
            "CatalogueRebuilding"
        );
        lost.state = state(false, false, "ServerError");
        assert_eq!(
            build(&facts(Some(&lost)), None).conditions[0].message,
            "The server said 404."
        );
    }

    #[test]
    fn what_can_not_be_read_is_kept_from_the_status_before() {
        let known = record(state(true, false, "Synced"));
        let before = build(&facts(Some(&known)), None);
        let away = state(false, false, "DatabaseUnreachable");
        let status = build(
            &Facts {
                unrecorded: Some(&away),
                ..facts(None)
            },
            Some(&before),
        );
        assert_eq!(status.last_handled_reconcile_at.as_deref(), Some("now"));
        assert!(
            status.conditions[0].message.contains("are still served"),
            "{:?}",
            status.conditions[0]
        );
    }

    #[test]
    fn a_new_generation_being_synced_keeps_its_verdict_and_is_reconciling() {
        let record = record(state(true, false, "Synced"));
        let status = build(
            &Facts {
                phase: Phase::Syncing,
                files: Imported::None,
                ..facts(Some(&record))
            },
            None,
        );
        assert_eq!(
            shape(&status),
            [("Ready", "True", "Synced"), ("Reconciling", "True", "Syncing")]
        );
    }

    #[test]
    fn suspension_keeps_the_verdict_and_promises_nothing() {
        let failed = record(state(false, false, "ServerError"));
        let status = build(
            &Facts {
                suspended: true,
                ..facts(Some(&failed))
            },
            None,
        );
        assert_eq!(shape(&status), [("Ready", "False", "ServerError")]);
        assert_eq!(status.suspended, Some(true));
    }

    #[test]
    fn a_condition_that_stays_keeps_its_transition_time() {
        let record = record(state(true, false, "Synced"));
        let first = build(&facts(Some(&record)), None);
        let second = build(
            &Facts {
                now: at(NOON),
                ..facts(Some(&record))
            },
            Some(&first),
        );
        assert_eq!(
            second.conditions[0].last_transition_time,
            first.conditions[0].last_transition_time
        );
        let mut failed = record.clone();
        failed.state = state(false, true, "NotFound");
        let third = build(
            &Facts {
                now: at(NOON),
                ..facts(Some(&failed))
            },
            Some(&second),
        );
        assert_eq!(third.conditions[0].last_transition_time, Time(at(NOON)));
    }

    #[test]
    fn a_later_time_alone_is_news_only_after_an_hour() {
        let mut record = record(state(true, false, "Synced"));
        let old = build(&facts(Some(&record)), None);
        record.last_success = Some(at("2026-01-01T10:59:00Z"));
        assert!(!is_news(Some(&old), &build(&facts(Some(&record)), Some(&old))));
        record.last_success = Some(at("2026-01-01T11:00:02Z"));
        assert!(is_news(Some(&old), &build(&facts(Some(&record)), Some(&old))));
        record.handled.last = Some("later".to_owned());
        record.last_success = Some(at("2026-01-01T10:00:01Z"));
        assert!(is_news(Some(&old), &build(&facts(Some(&record)), Some(&old))));
    }

    #[test]
    fn a_message_is_a_sentence_whose_names_are_as_they_were() {
        assert_eq!(sentence("the index is empty"), "The index is empty.");
        assert_eq!(sentence("Kubeapps' copy is gone!"), "Kubeapps' copy is gone!");
        for named in [
            "oci://host/ports answered 404.",
            "charts.example.com is away.",
            "lib64 is old.",
        ] {
            assert_eq!(sentence(named), named);
        }
        assert_eq!(sentence(""), ".");
    }

    #[test]
    fn a_long_message_is_cut() {
        let mut record = record(state(false, true, "NotFound"));
        record.state.message = "x".repeat(40_000);
        assert!(build(&facts(Some(&record)), None).conditions[0].message.len() <= MAX_MESSAGE);
    }
}
