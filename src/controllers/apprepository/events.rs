//! Chooses the Kubernetes events of a sync: changes, failures and recoveries. An unchanged repository gets none.

use super::spec::RepositorySpec;
use super::sync::request::{SyncError, SyncOutcome};
use super::sync_summary::changes;
use crate::catalog::Record;
use crate::helm::index::Skipped;
use crate::runtime::events::Event;

const MAX_NAMED: usize = 5;

#[must_use]
pub fn sync_events(
    spec: &RepositorySpec,
    before: Option<&Record>,
    after: &Record,
    outcome: &SyncOutcome,
) -> Vec<Event> {
    let mut events = spec_events(spec, before);
    let has_recovered = before.is_some_and(|record| record.state.ready == Some(false));
    match outcome {
        SyncOutcome::NotModified => {
            if has_recovered {
                let note = format!("recovered: {}", after.state.message);
                events.push(Event::normal("SyncSucceeded", note));
            }
        }
        // A sync in several parts is reported once, at its end.
        SyncOutcome::Synced { is_complete: false, .. } => {}
        SyncOutcome::Synced { committed, skipped, .. } => {
            let was_partial = before.is_some_and(Record::is_partial);
            let [added, changed, removed] = changes(before, after, committed);
            let is_change = added + changed + removed > 0;
            let is_first = before.is_none_or(|record| record.last_success.is_none());
            if is_change || has_recovered || is_first || was_partial {
                let note = format!(
                    "charts added: {added}, changed: {changed}, removed: {removed}; now {}",
                    after.state.message
                );
                events.push(Event::normal("SyncSucceeded", note));
            }
            let skipped_before = before.filter(|_| !was_partial).and_then(skipped_of);
            if skipped.count > 0 && skipped_before != skipped_of(after) {
                events.push(Event::warning("ChartsSkipped", skipped_note(skipped)));
            }
        }
        SyncOutcome::Failed(failed) | SyncOutcome::Interrupted(failed) => events.extend(failure_event(before, failed)),
    }
    events
}

fn spec_events(spec: &RepositorySpec, before: Option<&Record>) -> Vec<Event> {
    let mut events = Vec::new();
    if before.and_then(|record| record.spec_hash.as_deref()) == Some(spec.spec_hash.as_str()) {
        return events;
    }
    if let Some(error) = &spec.interval_error {
        events.push(Event::warning("InvalidInterval", format!("{error}; using the default")));
    }
    if spec.access.are_proxies_refused {
        let note = "the proxies in spec.syncJobPodTemplate are ignored in this namespace, using those of the operator; \
                    --allow-tenant-proxies allows them";
        events.push(Event::warning("ProxiesIgnored", note));
    }
    events
}

/// Returns the event of a failure, unless the last sync failed for the same reason.
fn failure_event(before: Option<&Record>, failed: &SyncError) -> Option<Event> {
    let is_repeated = before.is_some_and(|record| {
        record.state.ready == Some(false)
            && record.state.reason == failed.reason
            // A new shrink has a new digest to confirm.
            && (failed.reason != super::SHRINK_REFUSED || record.state.message == failed.message)
    });
    let reason = match failed.reason.as_str() {
        super::SHRINK_REFUSED => super::SHRINK_REFUSED,
        _ if failed.transient => "SyncFailed",
        _ => "SyncStalled",
    };
    (!is_repeated).then(|| Event::warning(reason, format!("{}: {}", failed.reason, failed.message)))
}

/// Returns the skipped entries of the record; an unchanged list is not reported again.
fn skipped_of(record: &Record) -> Option<&serde_json::Value> {
    record.last_sync.as_ref().and_then(|last_sync| last_sync.get("skipped"))
}

fn skipped_note(skipped: &Skipped) -> String {
    let named = skipped.first.iter().take(MAX_NAMED).map(|skip| match &skip.version {
        Some(version) => format!("{} {version}: {}", skip.chart, skip.reason),
        None => format!("{}: {}", skip.chart, skip.reason),
    });
    let mut named: Vec<String> = named.collect();
    let more = skipped.count.saturating_sub(named.len() as u64);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    format!("skipped {} entries of the index: {}", skipped.count, named.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::NamespacedName;
    use crate::catalog::{CommitSummary, RecordState};
    use crate::controllers::apprepository::spec::{Defaults, OneShot};
    use crate::helm::index::Skip;

    fn spec() -> RepositorySpec {
        let defaults = Defaults::usual();
        let name = NamespacedName {
            namespace: "default".to_owned(),
            name: "stable".to_owned(),
        };
        let arguments = OneShot {
            url: "https://example.com".to_owned(),
            ..OneShot::default()
        };
        RepositorySpec::one_shot(name, arguments, &defaults)
    }

    fn record(ready: bool, reason: &str) -> Record {
        Record {
            spec_hash: Some(spec().spec_hash),
            last_success: Some(jiff::Timestamp::UNIX_EPOCH),
            state: RecordState {
                ready: Some(ready),
                reason: reason.to_owned(),
                ..RecordState::default()
            },
            ..Record::default()
        }
    }

    fn failed(reason: &str, transient: bool) -> SyncOutcome {
        SyncOutcome::Failed(SyncError {
            reason: reason.to_owned(),
            message: "it broke".to_owned(),
            transient,
            retry_after: None,
        })
    }

    fn synced(added: u64) -> SyncOutcome {
        SyncOutcome::Synced {
            committed: CommitSummary {
                added,
                ..CommitSummary::default()
            },
            skipped: Skipped::default(),
            is_complete: true,
        }
    }

    fn reasons(before: Option<&Record>, after: &Record, outcome: &SyncOutcome) -> Vec<String> {
        sync_events(&spec(), before, after, outcome)
            .into_iter()
            .map(|event| event.reason)
            .collect()
    }

    #[test]
    fn an_unchanged_repository_is_not_reported() {
        let ready = record(true, "Synced");
        assert!(reasons(Some(&ready), &ready, &SyncOutcome::NotModified).is_empty());
        assert!(reasons(Some(&ready), &ready, &synced(0)).is_empty());
    }

    #[test]
    fn the_first_sync_a_change_and_a_recovery_are_reported() {
        let (ready, broken) = (record(true, "Synced"), record(false, "NotFound"));
        assert_eq!(reasons(None, &ready, &synced(0)), ["SyncSucceeded"]);
        assert_eq!(reasons(Some(&ready), &ready, &synced(1)), ["SyncSucceeded"]);
        assert_eq!(
            reasons(Some(&broken), &ready, &SyncOutcome::NotModified),
            ["SyncSucceeded"]
        );
    }

    #[test]
    fn a_sync_in_parts_is_reported_once_with_all_changes() {
        let synced_partly = SyncOutcome::Synced {
            committed: CommitSummary {
                added: 2,
                ..CommitSummary::default()
            },
            skipped: Skipped::default(),
            is_complete: false,
        };
        let part = Record {
            index_digest: crate::controllers::apprepository::decision::partial_digest("feed"),
            ..record(true, "Progressing")
        };
        assert!(reasons(None, &part, &synced_partly).is_empty());
        let complete = Record {
            last_sync: Some(json!({ "added": 3, "removed": 1 })),
            ..record(true, "Synced")
        };
        let events = sync_events(&spec(), Some(&part), &complete, &synced(1));
        assert_eq!(events.len(), 1);
        assert!(
            events[0].note.starts_with("charts added: 3, changed: 0, removed: 1;"),
            "{}",
            events[0].note
        );
    }

    #[test]
    fn a_failure_is_reported_once_per_cause() {
        let (ready, broken) = (record(true, "Synced"), record(false, "NotFound"));
        assert_eq!(
            reasons(Some(&ready), &broken, &failed("NotFound", false)),
            ["SyncStalled"]
        );
        assert!(reasons(Some(&broken), &broken, &failed("NotFound", false)).is_empty());
        assert_eq!(
            reasons(Some(&broken), &broken, &failed("Timeout", true)),
            ["SyncFailed"]
        );
        assert_eq!(
            reasons(Some(&ready), &broken, &failed("ShrinkRefused", false)),
            ["ShrinkRefused"]
        );
    }

    #[test]
    fn skipped_entries_are_reported_when_the_list_changes() {
        let skip = Skip {
            chart: "bad".to_owned(),
            version: Some("1".to_owned()),
            reason: "it is null".to_owned(),
        };
        let skipped = Skipped {
            count: 7,
            first: vec![skip],
        };
        let outcome = SyncOutcome::Synced {
            committed: CommitSummary::default(),
            skipped,
            is_complete: true,
        };
        let before = record(true, "Synced");
        let after = Record {
            last_sync: Some(json!({ "skipped": [{ "chart": "bad" }] })),
            ..before.clone()
        };
        let events = sync_events(&spec(), Some(&before), &after, &outcome);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].reason, "ChartsSkipped");
        assert!(
            events[0].note.ends_with("bad 1: it is null; and 6 more"),
            "{}",
            events[0].note
        );
        assert!(reasons(Some(&after), &after, &outcome).is_empty());
    }

    #[test]
    fn ignored_proxies_are_reported_when_the_spec_or_the_flag_changes() {
        let mut spec = spec();
        spec.access.are_proxies_refused = true;
        let ready = record(true, "Synced");
        let reported = |before| sync_events(&spec, before, &ready, &SyncOutcome::NotModified);
        let event = &reported(None)[0];
        assert!(
            event.is_warning && event.note.contains("--allow-tenant-proxies"),
            "{event:?}"
        );
        assert!(reported(Some(&ready)).is_empty());
    }

    #[test]
    fn an_invalid_interval_is_reported_when_the_spec_changes() {
        let spec = RepositorySpec {
            interval_error: Some("invalid spec.interval".to_owned()),
            ..spec()
        };
        let ready = record(true, "Synced");
        let reported = |before| sync_events(&spec, before, &ready, &SyncOutcome::NotModified);
        assert_eq!(reported(None)[0].reason, "InvalidInterval");
        assert!(reported(Some(&ready)).is_empty());
    }
}
