//! Summary of a sync, as shown in the status and stored in the catalog.

use jiff::Timestamp;
use serde::Deserialize;

use crate::api::{LastSync, SkippedEntry};
use crate::catalog::{CommitSummary, Record};
use crate::helm::index::Summary;
use crate::text::{printable, truncate};

const MAX_NAMED: usize = 20;
const MAX_TEXT: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounts {
    pub charts: u64,
    pub versions: u64,
    pub filtered: u64,
}

#[must_use]
pub fn last_sync(summary: &Summary, counts: &SyncCounts, committed: &CommitSummary, started: Timestamp) -> LastSync {
    let entry = |chart: &str, version: Option<&str>, reason: &str| SkippedEntry {
        chart: shown(chart),
        version: version.map(shown),
        reason: shown(reason),
    };
    let invalid = (summary.skipped.first.iter()).map(|skip| entry(&skip.chart, skip.version.as_deref(), &skip.reason));
    let rejected = committed
        .rejected
        .iter()
        .map(|(chart, reason)| entry(chart, None, reason));
    let skipped = invalid.chain(rejected).take(MAX_NAMED).collect();
    let rejected = committed.rejected.len() as u64;
    LastSync {
        result: "Synced".to_owned(),
        // Digest of the entries. The digest of the body changes with `generated`.
        digest: format!("sha256:{}", summary.digest),
        duration: format!(
            "{:.3}s",
            Timestamp::now().duration_since(started).as_secs_f64().max(0.0)
        ),
        charts: number(counts.charts.saturating_sub(rejected)),
        versions: number(counts.versions),
        deprecated: number(summary.deprecated),
        filtered: number(counts.filtered),
        kept: number(committed.kept),
        duplicates: number(summary.duplicates),
        added: number(committed.added),
        changed: number(committed.changed),
        removed: number(committed.removed),
        skipped_count: number(summary.skipped.count + rejected),
        skipped,
    }
}

/// Returns the summary of the last sync; `None` if another version wrote it in another format.
#[must_use]
pub fn last_sync_of(record: &Record) -> Option<LastSync> {
    LastSync::deserialize(record.last_sync.as_ref()?).ok()
}

/// Returns the numbers of added, changed and removed charts: of the whole sync if it had several parts.
pub(super) fn changes(before: Option<&Record>, after: &Record, committed: &CommitSummary) -> [i64; 3] {
    match last_sync_of(after).filter(|_| before.is_some_and(Record::is_partial)) {
        Some(all) => [all.added, all.changed, all.removed],
        None => [committed.added, committed.changed, committed.removed].map(number),
    }
}

/// Returns `before` if the new sync changed nothing, since the last sync with changes is the one worth showing.
pub(super) fn unless_quiet(new: LastSync, before: Option<LastSync>) -> LastSync {
    let Some(before) = before else { return new };
    let as_if_quiet = LastSync {
        duration: new.duration.clone(),
        added: 0,
        changed: 0,
        removed: 0,
        ..before.clone()
    };
    if as_if_quiet == new { before } else { new }
}

pub(super) fn with_earlier(new: LastSync, earlier: &LastSync) -> LastSync {
    let added = new.added.saturating_add(earlier.added);
    LastSync {
        // A chart may be added or changed in several parts: it counts once.
        changed: (new.changed.max(earlier.changed)).min(new.charts.saturating_sub(added).max(0)),
        removed: new.removed.saturating_add(earlier.removed),
        added,
        ..new
    }
}

#[must_use]
pub fn ready_message(last_sync: &LastSync) -> String {
    let mut message = format!(
        "{} in {}",
        counted(last_sync.versions, "version"),
        counted(last_sync.charts, "chart")
    );
    let counts = [
        (last_sync.deprecated, "chart", "whose newest version is deprecated"),
        (last_sync.filtered, "chart", "by the filter"),
        (last_sync.skipped_count, "entry", "not valid"),
    ];
    let skipped: Vec<String> = counts
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, noun, why)| format!("{} {why}", counted(*count, noun)))
        .collect();
    if !skipped.is_empty() {
        message.push_str("; skipped: ");
        message.push_str(&skipped.join(", "));
    }
    message.push('.');
    message
}

fn counted(count: i64, noun: &str) -> String {
    match (count, noun) {
        (1, _) => format!("1 {noun}"),
        (_, "entry") => format!("{count} entries"),
        _ => format!("{count} {noun}s"),
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn shown(text: &str) -> String {
    truncate(&printable(text), MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synced(added: u64, digest: &str) -> LastSync {
        let summary = Summary {
            digest: digest.to_owned(),
            ..Summary::default()
        };
        let committed = CommitSummary {
            added,
            ..CommitSummary::default()
        };
        let counts = SyncCounts {
            charts: 2,
            versions: 3,
            filtered: 0,
        };
        last_sync(&summary, &counts, &committed, Timestamp::now())
    }

    #[test]
    fn a_sync_without_changes_keeps_the_previous_summary() {
        let before = synced(2, "a");
        assert_eq!(unless_quiet(synced(0, "a"), Some(before.clone())), before);
        assert_eq!(unless_quiet(synced(0, "b"), Some(before.clone())).digest, "sha256:b");
        assert_eq!(unless_quiet(synced(1, "a"), Some(before)).added, 1);
        assert_eq!(unless_quiet(synced(0, "a"), None).added, 0);
    }

    #[test]
    fn parts_of_a_sync_are_counted_together_and_each_chart_once() {
        let earlier = LastSync {
            added: 5,
            changed: 2,
            removed: 1,
            ..LastSync::default()
        };
        let part = |changed| LastSync {
            charts: 8,
            added: 1,
            changed,
            ..LastSync::default()
        };
        let counts = |last_sync: LastSync| (last_sync.added, last_sync.changed, last_sync.removed);
        assert_eq!(counts(with_earlier(part(7), &earlier)), (6, 2, 1));
        assert_eq!(counts(with_earlier(part(0), &earlier)), (6, 2, 1));
    }

    #[test]
    fn the_message_lists_skipped_charts() {
        let last_sync = LastSync {
            charts: 1,
            versions: 2,
            deprecated: 1,
            filtered: 2,
            skipped_count: 3,
            ..LastSync::default()
        };
        let message = ready_message(&last_sync);
        assert_eq!(
            message,
            "2 versions in 1 chart; skipped: 1 chart whose newest version is deprecated, 2 charts by the filter, 3 entries not valid."
        );
    }
}
