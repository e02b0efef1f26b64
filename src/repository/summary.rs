//! The account of a sync that an object's status and the catalogue show.

use jiff::Timestamp;

use crate::api::{LastSync, SkippedEntry};
use crate::catalog::Committed;
use crate::source::index::Summary;
use crate::text::{printable, truncate};

/// How many of the entries left out are named.
const NAMED: usize = 20;
/// The longest text of one of them, in bytes.
const MAX_TEXT: usize = 1024;

/// The account of a sync that has read an index and kept `charts` with `versions` of it.
#[must_use]
pub fn last_sync(summary: &Summary, charts: u64, versions: u64, committed: &Committed, started: Timestamp) -> LastSync {
    let entry = |chart: &str, version: Option<&str>, reason: &str| SkippedEntry {
        chart: shown(chart),
        version: version.map(shown),
        reason: shown(reason),
    };
    let skipped = (summary.skipped.first.iter())
        .map(|skip| entry(&skip.chart, skip.version.as_deref(), &skip.reason))
        .chain(
            committed
                .rejected
                .iter()
                .map(|(chart, reason)| entry(chart, None, reason)),
        )
        .take(NAMED)
        .collect();
    let rejected = committed.rejected.len() as u64;
    LastSync {
        result: "Synced".to_owned(),
        // Of the entries, not of the body: `generated` moves that, and nobody wants to hear of it.
        digest: format!("sha256:{}", summary.digest),
        duration: format!(
            "{:.3}s",
            Timestamp::now().duration_since(started).as_secs_f64().max(0.0)
        ),
        charts: number(charts.saturating_sub(rejected)),
        versions: number(versions),
        deprecated: number(summary.deprecated),
        duplicates: number(summary.duplicates),
        added: number(committed.added),
        changed: number(committed.changed),
        removed: number(committed.removed),
        skipped_count: number(summary.skipped.count + rejected),
        skipped,
    }
}

/// What `Ready` says of a repository whose charts are in step.
#[must_use]
pub fn ready_message(account: &LastSync) -> String {
    let mut message = format!(
        "{} in {}",
        counted(account.versions, "version"),
        counted(account.charts, "chart")
    );
    let mut left_out = Vec::new();
    if account.deprecated > 0 {
        left_out.push(format!(
            "{} because the newest version is deprecated",
            counted(account.deprecated, "chart")
        ));
    }
    if account.skipped_count > 0 {
        left_out.push(format!(
            "{} that can't be used",
            counted(account.skipped_count, "entry")
        ));
    }
    if !left_out.is_empty() {
        message.push_str("; left out: ");
        message.push_str(&left_out.join(", "));
    }
    message.push('.');
    message
}

fn counted(count: i64, what: &str) -> String {
    match (count, what) {
        (1, _) => format!("1 {what}"),
        (_, "entry") => format!("{count} entries"),
        _ => format!("{count} {what}s"),
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn shown(text: &str) -> String {
    truncate(&printable(text), MAX_TEXT)
}
