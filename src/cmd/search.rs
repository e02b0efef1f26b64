use std::num::NonZeroU32;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::flags::{OutputFormat, QueryFlags, count, database::DatabaseFlags};
use super::server::{ServerClient, ServerFlags};
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
    #[command(flatten)]
    pub server: ServerFlags,
}

/// The charts to show.
struct Found {
    charts: Vec<View>,
    has_more: bool,
    /// Charts that are left out, and why.
    omitted: Option<String>,
}

impl Search {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let found = match self.server.client().await? {
            Some(server) => self.ask(&server).await?,
            None => self.read().await?,
        };
        match self.query.output {
            OutputFormat::Json => output::print_json(&found.charts)?,
            OutputFormat::Table if found.charts.is_empty() => output::print("no charts found\n")?,
            OutputFormat::Table => output::print(&text(&found.charts))?,
        }
        if found.has_more {
            eprintln!("more charts match; add words, or raise --limit={}", self.limit);
        }
        match found.charts.iter().filter(|chart| chart.fuzzy).count() {
            0 => {}
            similar => eprintln!("charts that only have a similar name: {similar}"),
        }
        if let Some(omitted) = found.omitted {
            eprintln!("{omitted}");
        }
        Ok(())
    }

    async fn read(&self) -> Result<Found, Error> {
        let mut snapshot = Snapshot::new(self.query.namespace().map(str::to_owned));
        self.database
            .read(async |catalog| Ok(snapshot.refresh(catalog).await?))
            .await?;
        let results = search(snapshot.charts(), &Words::new(&self.words), count(self.limit));
        let omitted = Some(snapshot.unreadable()).filter(|unreadable| *unreadable > 0);
        Ok(Found {
            charts: results.hits.iter().map(View::new).collect(),
            has_more: results.has_more,
            omitted: omitted.map(|omitted| format!("charts left out because their rows are not readable: {omitted}")),
        })
    }

    async fn ask(&self, server: &ServerClient) -> Result<Found, Error> {
        let words = self.words.join(" ");
        let namespace = self.query.namespace().unwrap_or_default();
        let query = [("q", words.as_str()), ("namespace", namespace)];
        let listed = server.list(&["charts"], &query, count(self.limit)).await?;
        let omitted = "charts are left out because the server has no memory for them".to_owned();
        Ok(Found {
            charts: listed.items,
            has_more: listed.has_more,
            omitted: listed.is_incomplete.then_some(omitted),
        })
    }
}

/// A chart as JSON, and as the API has it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    repository: String,
    #[serde(alias = "name")]
    chart: String,
    version: String,
    app_version: String,
    description: String,
    fuzzy: bool,
}

impl View {
    fn new(hit: &Hit<'_>) -> Self {
        let Hit {
            repository,
            chart,
            fuzzy,
        } = *hit;
        Self {
            namespace: repository.namespace.clone(),
            repository: repository.name.clone(),
            chart: chart.name.to_string(),
            version: chart.version.to_string(),
            app_version: chart.app_version.to_string(),
            description: chart.description.to_string(),
            fuzzy,
        }
    }
}

fn text(charts: &[View]) -> String {
    const HEADER: [&str; 5] = ["NAMESPACE", "CHART", "VERSION", "APP VERSION", "DESCRIPTION"];
    let row = |chart: &View| {
        vec![
            chart.namespace.clone(),
            format!("{}/{}", chart.repository, chart.chart),
            chart.version.clone(),
            chart.app_version.clone(),
            truncate(&chart.description, MAX_DESCRIPTION),
        ]
    };
    output::table(&HEADER, charts.iter().map(row))
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
        let text = text(&[View::new(&hit)]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("harbour/tide-table "), "{text}");
    }
}
