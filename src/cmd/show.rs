//! `portolan show`: one chart.

use clap::Args;

use super::{
    Failure,
    cluster::given,
    database,
    flags::{DatabaseFlags, LogFlags, OutputFlags, OutputForm},
    output,
};
use crate::catalog::query::ChartDetails;
use crate::catalog::{ChartVersion, Maintainer};
use crate::text::printable;

/// Show a chart of the catalogue with all its versions.
#[derive(Args, Debug)]
pub struct Show {
    /// The chart, as REPOSITORY/CHART
    #[arg(value_name = "REPOSITORY/CHART")]
    pub chart: String,
    /// The namespace of the repository; needed where several have a repository of that name
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Show {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        let (repository, chart) = self
            .chart
            .split_once('/')
            .filter(|(repository, chart)| !repository.is_empty() && !chart.is_empty())
            .ok_or_else(|| {
                Failure::usage(format!(
                    "{} is no REPOSITORY/CHART; `portolan search` lists them",
                    self.chart
                ))
            })?;
        let catalog = database::open_read_only(&self.database).await?;
        let found = catalog.show(repository, chart, given(self.namespace.as_deref())).await;
        catalog.close().await;
        let mut found = found.map_err(|error| Failure::failed(error.to_string()))?;
        for chart in &mut found {
            chart.info.repo.url = output::shown_url(&chart.info.repo.url);
        }
        match found.as_slice() {
            [] => Err(Failure::failed(format!(
                "the catalogue has no chart {}; `portolan search` finds charts by words",
                self.chart
            ))),
            [one] => match self.output.output {
                OutputForm::Json => output::print_json(&one.info),
                OutputForm::Table => output::print(&text(one)),
            },
            several => {
                let namespaces: Vec<&str> = several
                    .iter()
                    .map(|chart| chart.repository.namespace.as_str())
                    .collect();
                Err(Failure::failed(format!(
                    "{} is in several namespaces ({}): name one with -n",
                    self.chart,
                    namespaces.join(", ")
                )))
            }
        }
    }
}

/// What is known of the chart, one line each, and a table of its versions.
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
        let created = if version.created.starts_with("0001-") {
            "-"
        } else {
            &version.created
        };
        let url = version
            .urls
            .as_deref()
            .and_then(<[_]>::first)
            .map_or("-", String::as_str);
        vec![
            version.version.clone(),
            version.app_version.clone(),
            created.to_owned(),
            url.to_owned(),
        ]
    };
    text + &output::table(
        &["VERSION", "APP VERSION", "CREATED", "ARCHIVE"],
        info.chart_versions.iter().map(row),
    )
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
