use std::num::NonZeroU32;

use clap::Args;
use serde::Serialize;

use super::flags::{OutputFormat, QueryFlags, count, database::DatabaseFlags};
use super::{Error, output};
use crate::serve::search::{Hit, Words, search};
use crate::serve::snapshot::Snapshot;
use crate::text::truncate;

/// The length of a description in the table, in bytes.
const MAX_DESCRIPTION: usize = 100;

/// Search charts by name, description and keywords
#[derive(Args, Debug)]
pub struct Search {
    /// Words that all have to match (default: show all charts); below three matches, charts with similar names
    /// follow
    pub words: Vec<String>,
    /// Maximum number of charts to show
    #[arg(long, value_name = "N", default_value = "100")]
    pub limit: NonZeroU32,
    #[command(flatten)]
    pub query: QueryFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
}

impl Search {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let mut snapshot = Snapshot::new(self.query.namespace().map(str::to_owned));
        self.database
            .read(async |catalog| Ok(snapshot.refresh(catalog).await?))
            .await?;
        let results = search(snapshot.charts(), &Words::new(&self.words), count(self.limit));
        match self.query.output {
            OutputFormat::Json => output::print_json(&results.hits.iter().map(View::new).collect::<Vec<_>>())?,
            OutputFormat::Table if results.hits.is_empty() => output::print("no charts found\n")?,
            OutputFormat::Table => output::print(&text(&results.hits))?,
        }
        if results.has_more {
            eprintln!("more charts match; add words, or raise --limit={}", self.limit);
        }
        match results.hits.iter().filter(|hit| hit.fuzzy).count() {
            0 => {}
            similar => eprintln!("charts that only have a similar name: {similar}"),
        }
        match snapshot.unreadable() {
            0 => {}
            unreadable => eprintln!("charts left out because their rows are not readable: {unreadable}"),
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    namespace: &'a str,
    repository: &'a str,
    chart: &'a str,
    version: &'a str,
    app_version: &'a str,
    description: &'a str,
    fuzzy: bool,
}

impl<'a> View<'a> {
    fn new(hit: &Hit<'a>) -> Self {
        let Hit {
            repository,
            chart,
            fuzzy,
        } = *hit;
        Self {
            namespace: &repository.namespace,
            repository: &repository.name,
            chart: &chart.name,
            version: &chart.version,
            app_version: &chart.app_version,
            description: &chart.description,
            fuzzy,
        }
    }
}

fn text(hits: &[Hit<'_>]) -> String {
    const HEADER: [&str; 5] = ["NAMESPACE", "CHART", "VERSION", "APP VERSION", "DESCRIPTION"];
    let row = |Hit { repository, chart, .. }: &Hit<'_>| {
        vec![
            repository.namespace.clone(),
            format!("{}/{}", repository.name, chart.name),
            chart.version.to_string(),
            chart.app_version.to_string(),
            truncate(&chart.description, MAX_DESCRIPTION),
        ]
    };
    output::table(&HEADER, hits.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;
    use crate::serve::summary::ChartSummary;

    #[test]
    fn a_chart_is_one_line_with_its_name_for_show() {
        let info = serde_json::json!({
            "name": "tide-table", "description": "long ".repeat(100),
            "chartVersions": [{"version": "0.3.1", "app_version": "2"}],
        });
        let hit = Hit {
            repository: &NamespacedName::new("default", "harbour"),
            chart: &ChartSummary::decode("harbour/tide-table", &info.to_string()).unwrap(),
            fuzzy: false,
        };
        let text = text(&[hit]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("harbour/tide-table "), "{text}");
    }
}
