use std::num::NonZeroU32;

use clap::Args;

use super::flags::{OutputFormat, QueryFlags, database::DatabaseFlags};
use super::{Error, output};
use crate::catalog::{Catalog, HistoryEntry, SyncView};
use crate::text::truncate;

/// The length of a message in the table, in bytes.
const MAX_MESSAGE: usize = 100;

/// Show the latest syncs of a repository
///
/// Lists syncs that changed something, failed or recovered, newest first; the catalog keeps 50 per repository. CHARTS is the number
/// of charts after the sync, if it read an index.
#[derive(Args, Debug)]
pub struct History {
    /// Name of the repository
    pub name: String,
    /// Maximum number of syncs to show
    #[arg(long, value_name = "N", default_value = "20")]
    pub limit: NonZeroU32,
    #[command(flatten)]
    pub query: QueryFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
}

impl History {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let entries = self.database.read(async |catalog| self.entries(catalog).await).await?;
        match self.query.output {
            OutputFormat::Json => output::print_json(&entries.iter().map(SyncView::new).collect::<Vec<_>>()),
            OutputFormat::Table if entries.is_empty() => output::print("no syncs recorded\n"),
            OutputFormat::Table => output::print(&text(&entries)),
        }
    }

    async fn entries(&self, catalog: &Catalog) -> Result<Vec<HistoryEntry>, Error> {
        let namespace = self.query.namespace();
        let mut names = catalog.names().await?;
        names.retain(|name| name.name == self.name && namespace.is_none_or(|namespace| namespace == name.namespace));
        match names.as_slice() {
            [] => Err(Error::Failed(format!(
                "repository {} not found; `portolan status` lists all repositories",
                self.name
            ))),
            [name] => Ok(catalog.history(name, self.limit.get()).await?),
            names => Err(output::ambiguous(&self.name, names.iter().map(|name| &*name.namespace))),
        }
    }
}

/// Returns the number of charts after a sync; `-` if it read no index.
fn charts(entry: &HistoryEntry) -> String {
    if entry.versions == 0 {
        "-".to_owned()
    } else {
        entry.charts.to_string()
    }
}

fn text(entries: &[HistoryEntry]) -> String {
    const HEADER: [&str; 9] = [
        "STARTED", "DURATION", "RESULT", "REASON", "CHARTS", "ADDED", "CHANGED", "REMOVED", "MESSAGE",
    ];
    let row = |entry: &HistoryEntry| {
        vec![
            entry.started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            format!("{:.1}s", entry.duration.as_secs_f64()),
            entry.result.clone(),
            entry.reason.clone(),
            charts(entry),
            entry.added.to_string(),
            entry.changed.to_string(),
            entry.removed.to_string(),
            truncate(&entry.message, MAX_MESSAGE),
        ]
    };
    output::table(&HEADER, entries.iter().map(row))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sync_is_one_line_with_its_duration_and_changes() {
        let entry = HistoryEntry {
            started_at: "2026-03-01T12:00:30.25Z".parse().unwrap(),
            duration: Duration::from_millis(1234),
            result: "Failed".to_owned(),
            reason: "Timeout".to_owned(),
            message: "slow\u{1b}[2J ".repeat(100),
            charts: 4,
            versions: 9,
            added: 3,
            changed: 2,
            removed: 1,
            ..HistoryEntry::default()
        };
        let text = text(&[entry]);
        assert_eq!(text.lines().count(), 2, "{text}");
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words[..9],
            [
                "2026-03-01T12:00:30Z",
                "1.2s",
                "Failed",
                "Timeout",
                "4",
                "3",
                "2",
                "1",
                "slow"
            ]
        );
    }
}
