use std::num::NonZeroU32;

use clap::Args;
use serde::Serialize;

use super::flags::{OutputFormat, QueryFlags, database::DatabaseFlags};
use super::{Error, output};
use crate::catalog::query::{self, Hit};
use crate::text::truncate;

/// The length of a description in the table, in bytes.
const MAX_DESCRIPTION: usize = 100;

/// Search charts by name, description and keywords
#[derive(Args, Debug)]
pub struct Search {
    /// Words that all have to match (default: show all charts)
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
        let search = query::Search {
            namespace: self.query.namespace().map(str::to_owned),
            words: self.words,
            limit: self.limit.get(),
            ..query::Search::default()
        };
        let results = self
            .database
            .read(async |catalog| Ok(catalog.search(&search).await?))
            .await?;
        match self.query.output {
            OutputFormat::Json => output::print_json(&results.hits.iter().map(View::new).collect::<Vec<_>>())?,
            OutputFormat::Table if results.hits.is_empty() => output::print("no charts found\n")?,
            OutputFormat::Table => output::print(&text(&results.hits))?,
        }
        if results.has_more {
            eprintln!("more charts match; add words, or raise --limit={}", self.limit);
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
    fn a_chart_is_one_line_with_its_name_for_show() {
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
