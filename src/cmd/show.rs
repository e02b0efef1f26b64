use clap::Args;

use super::flags::{OutputFormat, QueryFlags, database::DatabaseFlags};
use super::server::ServerFlags;
use super::{Error, output};
use crate::catalog::query::ChartDetails;
use crate::catalog::{Catalog, ChartVersion, Maintainer};
use crate::text::printable;

/// Show a chart and its versions
///
/// With --server, the chart is without its imported icon.
#[derive(Args, Debug)]
pub struct Show {
    /// Chart to show
    #[arg(value_name = "REPOSITORY/CHART")]
    pub chart: String,
    #[command(flatten)]
    pub query: QueryFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub server: ServerFlags,
}

impl Show {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let parts = self.chart.split_once('/');
        let (repository, chart) = parts
            .filter(|(repository, chart)| !repository.is_empty() && !chart.is_empty())
            .ok_or_else(|| Error::Usage(format!("invalid chart {}; use REPOSITORY/CHART", self.chart)))?;
        let namespace = self.query.namespace();
        let show = async |catalog: &Catalog| Ok(catalog.show(repository, chart, namespace).await?);
        let mut charts = match self.server.client().await? {
            Some(server) => server.show(repository, chart, namespace).await?,
            None => self.database.read(show).await?,
        };
        match charts.as_mut_slice() {
            [] => Err(Error::Failed(format!(
                "chart {} not found; use `portolan search` to find charts",
                self.chart
            ))),
            [chart] => {
                chart.info.repo.url = output::redacted_url(&chart.info.repo.url);
                match self.query.output {
                    OutputFormat::Json => output::print_json(&chart.info),
                    OutputFormat::Table => output::print(&text(chart)),
                }
            }
            charts => {
                let namespaces = charts.iter().map(|chart| &*chart.repository.namespace);
                Err(output::ambiguous(&self.chart, namespaces))
            }
        }
    }
}

/// Formats one line per field and a table of versions.
fn text(chart: &ChartDetails) -> String {
    let ChartDetails { repository, info } = chart;
    let list = |list: &Option<Vec<String>>| list.as_deref().unwrap_or_default().join(", ");
    let maintainers: Vec<String> = info.maintainers.iter().map(maintainer).collect();
    let lines = [
        ("Chart", format!("{}/{}", repository.name, info.name)),
        ("Namespace", repository.namespace.clone()),
        ("Repository", info.repo.url.clone()),
        ("Description", info.description.clone()),
        ("Category", info.category.clone()),
        ("Keywords", list(&info.keywords)),
        ("Home", info.home.clone()),
        ("Sources", list(&info.sources)),
        ("Maintainers", maintainers.join(", ")),
    ];
    let mut text = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{:<13}{}\n", format!("{name}:"), printable(value)));
    }
    text.push('\n');
    let row = |version: &ChartVersion| {
        let is_unknown = version.created.starts_with("0001-");
        let created = if is_unknown { "-" } else { &version.created };
        let url = version.urls.iter().flatten().next().map_or("-", String::as_str);
        [&version.version, &version.app_version, created, url]
            .map(str::to_owned)
            .to_vec()
    };
    let header = ["VERSION", "APP VERSION", "CREATED", "ARCHIVE"];
    text + &output::table(&header, info.chart_versions.iter().map(row))
}

fn maintainer(maintainer: &Maintainer) -> String {
    if maintainer.email.is_empty() {
        maintainer.name.clone()
    } else {
        format!("{} <{}>", maintainer.name, maintainer.email)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    #[test]
    fn a_chart_is_shown_with_its_versions_and_without_control_characters() {
        let info = serde_json::json!({
            "ID": "harbour/beacon", "name": "beacon",
            "repo": {"namespace": "default", "name": "harbour", "url": "https://charts.example", "type": ""},
            "description": "A light\u{1b}[5m", "home": "", "keywords": ["light", "sea"],
            "maintainers": [{"name": "Keeper", "email": "keeper@charts.example"}], "sources": null,
            "icon": "", "raw_icon": null, "icon_content_type": "", "category": "",
            "chartVersions": [{"version": "1.2.0", "app_version": "3", "created": "0001-01-01T00:00:00Z", "digest": "",
                "urls": ["beacon-1.2.0.tgz"], "readme": "", "values": "", "additional_values": null, "schema": ""}],
        });
        let chart = ChartDetails {
            repository: NamespacedName::new("default", "harbour"),
            info: serde_json::from_value(info).unwrap(),
        };
        let text = text(&chart);
        assert!(text.starts_with("Chart:       harbour/beacon\n"), "{text}");
        assert!(text.contains("Keywords:    light, sea\n"), "{text}");
        assert!(text.contains("Maintainers: Keeper <keeper@charts.example>\n"), "{text}");
        assert!(!text.contains("Home:") && !text.contains('\u{1b}'), "{text}");
        let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["1.2.0", "3", "-", "beacon-1.2.0.tgz"]);
    }
}
