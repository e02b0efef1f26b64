//! `portolan search`: charts by words.

use std::num::NonZeroU32;

use clap::Args;
use serde::Serialize;

use super::{
    Failure,
    cluster::given,
    database,
    flags::{DatabaseFlags, LogFlags, OutputFlags, OutputForm},
    output,
};
use crate::catalog::query::{self as read, Hit};
use crate::text::truncate;

/// How much of a description a table shows, in bytes.
const MAX_DESCRIPTION: usize = 100;

/// Search the charts of the catalogue by name, description and keywords.
#[derive(Args, Debug)]
pub struct Search {
    /// The words to look for; a chart is found that has all of them. Without any, all charts
    pub words: Vec<String>,
    /// Only the charts of this namespace; of all without it
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How many charts are shown at most
    #[arg(long, env = "PORTOLAN_LIMIT", value_name = "N", default_value = "100")]
    pub limit: NonZeroU32,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Search {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        let catalog = database::open_read_only(&self.database).await?;
        let search = read::Search {
            words: self.words,
            namespace: given(self.namespace.as_deref()).map(str::to_owned),
            limit: self.limit.get(),
            ..read::Search::default()
        };
        let found = catalog.search(&search).await;
        catalog.close().await;
        let found = found.map_err(|error| Failure::failed(error.to_string()))?;
        match self.output.output {
            OutputForm::Json => output::print_json(&found.hits.iter().map(View::new).collect::<Vec<_>>())?,
            OutputForm::Table if found.hits.is_empty() => output::print("no charts found\n")?,
            OutputForm::Table => output::print(&text(&found.hits))?,
        }
        if found.has_more {
            eprintln!(
                "--limit={} has left charts out: look for more words, or raise it",
                self.limit
            );
        }
        Ok(())
    }
}

/// What is shown of a chart.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View<'a> {
    namespace: &'a str,
    repository: &'a str,
    chart: &'a str,
    version: &'a str,
    app_version: &'a str,
    description: &'a str,
}

impl<'a> View<'a> {
    fn new(hit: &'a Hit) -> Self {
        Self {
            namespace: &hit.repository.namespace,
            repository: &hit.repository.name,
            chart: &hit.chart,
            version: &hit.version,
            app_version: &hit.app_version,
            description: &hit.description,
        }
    }
}

fn text(hits: &[Hit]) -> String {
    const HEADER: [&str; 5] = ["NAMESPACE", "CHART", "VERSION", "APP VERSION", "DESCRIPTION"];
    let row = |hit: &Hit| {
        vec![
            hit.repository.namespace.clone(),
            format!("{}/{}", hit.repository.name, hit.chart),
            hit.version.clone(),
            hit.app_version.clone(),
            truncate(&hit.description, MAX_DESCRIPTION),
        ]
    };
    output::table(&HEADER, hits.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    #[test]
    fn a_hit_is_one_line_that_names_what_show_takes() {
        let hit = Hit {
            repository: NamespacedName::new("default", "harbour"),
            chart: "tide-table".to_owned(),
            version: "0.3.1".to_owned(),
            app_version: "2".to_owned(),
            description: "long ".repeat(100),
        };
        let text = text(&[hit]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("harbour/tide-table "), "{text}");
    }
}
