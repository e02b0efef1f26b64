//! The part above the tabs: the chart, the version, its repository, and how to install it.

use axum::http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;

use super::Shown;
use crate::serve::api::files::{FilesState, FilesView};
use crate::serve::api::repositories::Item;
use crate::serve::helm::origin;
use crate::serve::pages::shown::{Badge, Choice, When, choices, letter, name};
use crate::serve::pages::{links, repositories};
use crate::serve::problem::Problem;
use crate::serve::site::{Site, Visit};
use crate::text::printable;

pub(super) struct Header {
    pub(super) name: String,
    /// The path of the icon. Without one, a letter needs no request.
    pub(super) icon: Option<String>,
    pub(super) letter: String,
    pub(super) description: String,
    pub(super) version: String,
    pub(super) app_version: String,
    pub(super) created: Option<When>,
    /// The form that selects a version.
    pub(super) chart_link: String,
    pub(super) versions: Vec<Choice>,
    /// The tab that the form keeps.
    pub(super) tab: &'static str,
    pub(super) repository: String,
    pub(super) repository_link: String,
    pub(super) health: Badge,
    pub(super) is_deprecated: bool,
    /// Says why files of the version are missing, or are not those of the archive.
    pub(super) notice: Option<String>,
    /// `None` if the name or the version is no word of a command line.
    pub(super) install: Option<String>,
    pub(super) has_credentials: bool,
    pub(super) has_external_url: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChartYaml {
    deprecated: bool,
}

impl Header {
    pub(super) async fn load(
        site: &Site,
        visit: &Visit,
        headers: &HeaderMap,
        shown: &Shown,
        files: &FilesView,
        tab: &'static str,
    ) -> Result<Self, Problem> {
        let (prefix, repository) = (site.prefix(), &shown.names.repository);
        let chart_id = shown.names.chart_id();
        let metadata = shown.metadata.as_ref();
        let metadata = metadata.and_then(|metadata| serde_json::from_str::<ChartYaml>(&metadata.json).ok());
        let loaded = visit.repository(repository)?;
        let summary = &shown.info.summary;
        let has_icon = summary.has_icon || site.rows().has_svg_icon(repository, &chart_id).await?;
        let icon = || {
            let chart = links::chart(prefix, "/api/v1/charts", repository, &chart_id);
            format!("{chart}/icon")
        };
        // Of charts that share a name, in a registry, the index has the paths.
        let same_name = loaded.charts.iter().filter(|chart| chart.name == summary.name);
        let key = if same_name.take(2).count() > 1 {
            shown.chart.as_str()
        } else {
            &*summary.name
        };
        let key = key.replace("%2F", "/");
        let base = format!("{}{prefix}/helm", origin(site, headers));
        let has_credentials = visit.caller.user.is_some();
        let versions = shown.versions.iter().map(|line| line.version.clone());
        Ok(Self {
            name: name(&summary.name),
            icon: has_icon.then(icon),
            letter: letter(&summary.name),
            description: printable(&summary.description),
            version: printable(&shown.version),
            app_version: shown.app_version(),
            created: shown.created().map(|created| When::new(created, Timestamp::now())),
            chart_link: shown.chart_address(prefix),
            versions: choices(versions, Some(shown.version.as_str())),
            tab,
            repository: printable(&repository.to_string()),
            repository_link: links::repository(prefix, repository),
            health: repositories::health(&Item::new(site, visit.loaded(), repository, loaded)),
            is_deprecated: metadata.unwrap_or_default().deprecated,
            notice: notice(files),
            install: repositories::install(
                &base,
                repository,
                [key.as_str(), shown.version.as_str()],
                has_credentials,
            ),
            has_credentials,
            has_external_url: site.external_origin().is_some(),
        })
    }
}

fn notice(files: &FilesView) -> Option<String> {
    let message = printable(files.message.as_deref().unwrap_or_default());
    let earlier = if files.names.is_empty() {
        ""
    } else {
        " You see those of an earlier archive of this version."
    };
    match files.state {
        FilesState::Pending => Some(format!(
            "The files of this version are not imported yet. Load the page again later.{earlier}"
        )),
        FilesState::Failed => Some(format!(
            "The import of the files of this version failed, and is repeated: {message}{earlier}"
        )),
        FilesState::Skipped => Some(
            "The files of this version are not imported, because --chart-files of Portolan excludes them. The newest version may \
             have them."
                .to_owned(),
        ),
        // A warning.
        FilesState::Imported | FilesState::None => {
            (!message.is_empty()).then(|| format!("The import of the files has a warning: {message}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(state: FilesState, message: Option<&str>, names: &[&str]) -> Option<String> {
        notice(&FilesView {
            state,
            message: message.map(str::to_owned),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    #[test]
    fn missing_files_have_a_reason() {
        assert_eq!(of(FilesState::Imported, None, &["readme"]), None);
        assert_eq!(of(FilesState::None, None, &[]), None);
        let pending = of(FilesState::Pending, None, &["readme"]).unwrap();
        assert!(
            pending.contains("not imported yet") && pending.contains("earlier archive"),
            "{pending}"
        );
        let failed = of(FilesState::Failed, Some("status 404\u{202e}"), &[]).unwrap();
        assert!(failed.ends_with("is repeated: status 404"), "{failed}");
        assert!(of(FilesState::Skipped, None, &[]).unwrap().contains("--chart-files"));
        assert!(of(FilesState::Imported, Some("README.md is cut"), &["readme"]).is_some());
    }
}
