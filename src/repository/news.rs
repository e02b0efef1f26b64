//! What of an attempt is worth an event: what is new, or has recovered. A quiet pass is none.

use super::declaration::Declaration;
use super::execute::Verdict;
use super::origin::News;
use crate::catalog::Record;
use crate::source::index::Skipped;

/// How many of the entries left out an event names.
const NAMED: usize = 5;

/// The news of an attempt. `before` is what was remembered when it began.
#[must_use]
pub fn of(declaration: &Declaration, before: Option<&Record>, after: &Record, verdict: &Verdict) -> Vec<News> {
    let mut news = Vec::new();
    let is_new_spec = before.and_then(|record| record.spec_hash.as_deref()) != Some(declaration.spec_hash.as_str());
    if let Some(error) = declaration.interval_error.as_ref().filter(|_| is_new_spec) {
        news.push(News { warning: true, reason: "InvalidInterval", note: format!("{error}; the default is used") });
    }
    let recovered = before.is_some_and(|record| record.state.ready == Some(false));
    match verdict {
        Verdict::NotModified => {
            if recovered {
                news.push(succeeded(format!("Recovered: {}", after.state.message)));
            }
        }
        Verdict::Synced { committed, skipped } => {
            let changes = committed.added + committed.changed + committed.removed;
            if changes > 0 || recovered || before.is_none_or(|record| record.last_success.is_none()) {
                let (added, changed, removed) = (committed.added, committed.changed, committed.removed);
                news.push(succeeded(format!(
                    "{added} charts added, {changed} changed, {removed} removed: {}",
                    after.state.message
                )));
            }
            let skipped_before = before.and_then(|record| skipped_of(record));
            if skipped.count > 0 && skipped_before != skipped_of(after) {
                news.push(News { warning: true, reason: "ChartsSkipped", note: skipped_note(skipped) });
            }
        }
        Verdict::Failed(failed) => {
            let told = before.is_some_and(|record| record.state.ready == Some(false) && record.state.reason == failed.reason);
            if !told {
                let reason = match failed.reason.as_str() {
                    super::SHRINK_REFUSED => super::SHRINK_REFUSED,
                    _ if failed.transient => "SyncFailed",
                    _ => "SyncStalled",
                };
                news.push(News { warning: true, reason, note: format!("{}: {}", failed.reason, failed.message) });
            }
        }
    }
    news
}

fn succeeded(note: String) -> News {
    News { warning: false, reason: "SyncSucceeded", note }
}

/// What was left out, as it is remembered: the same list twice is no news.
fn skipped_of(record: &Record) -> Option<&serde_json::Value> {
    record.last_sync.as_ref().and_then(|account| account.get("skipped"))
}

fn skipped_note(skipped: &Skipped) -> String {
    let named: Vec<String> = (skipped.first.iter().take(NAMED))
        .map(|skip| match &skip.version {
            Some(version) => format!("{} {version}: {}", skip.chart, skip.reason),
            None => format!("{}: {}", skip.chart, skip.reason),
        })
        .collect();
    let more = skipped.count.saturating_sub(named.len() as u64);
    let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{} entries of the index were left out: {}{tail}", skipped.count, named.join("; "))
}
