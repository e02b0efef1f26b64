//! A chart of the API as a row of the database.

use jiff::Timestamp;
use serde::Deserialize;

use super::ServerClient;
use crate::api::NamespacedName;
use crate::catalog::query::ChartDetails;
use crate::catalog::{ChartInfo, ChartVersion, Maintainer, RepoRef};
use crate::cmd::Error;

/// As Kubeapps writes it.
const UNKNOWN_TIME: &str = "0001-01-01T00:00:00Z";

#[derive(Deserialize)]
struct Repository {
    namespace: String,
    name: String,
    url: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Chart {
    name: String,
    description: String,
    category: String,
    keywords: Vec<String>,
    home: String,
    icon: String,
    sources: Vec<String>,
    maintainers: Vec<Maintainer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: String,
    app_version: String,
    created: Option<Timestamp>,
    digest: String,
    urls: Vec<String>,
}

impl From<Version> for ChartVersion {
    fn from(version: Version) -> Self {
        let created = version.created.map(|created| created.to_string());
        Self {
            version: version.version,
            app_version: version.app_version,
            created: created.unwrap_or_else(|| UNKNOWN_TIME.to_owned()),
            digest: version.digest,
            urls: non_empty(version.urls),
            ..Self::default()
        }
    }
}

fn non_empty(list: Vec<String>) -> Option<Vec<String>> {
    Some(list).filter(|list| !list.is_empty())
}

impl ServerClient {
    /// Returns a chart of each repository of this name, as [`crate::catalog::Catalog::show`] does; without its icon.
    pub async fn show(
        &self,
        repository: &str,
        chart: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<ChartDetails>, Error> {
        let repositories: Vec<Repository> = match namespace {
            Some(namespace) => self
                .get(&["repositories", namespace, repository])
                .await?
                .into_iter()
                .collect(),
            None => self.list(&["repositories"], &[], usize::MAX).await?.items,
        };
        let mut charts = Vec::new();
        for repository in repositories.into_iter().filter(|found| found.name == repository) {
            charts.extend(self.chart_of(repository, chart).await?);
        }
        Ok(charts)
    }

    async fn chart_of(&self, repository: Repository, chart: &str) -> Result<Option<ChartDetails>, Error> {
        let path = ["charts", &repository.namespace, &repository.name, chart];
        let Some(found) = self.get::<Chart>(&path).await? else {
            return Ok(None);
        };
        let path = [&path[..], &["versions"]].concat();
        let versions = self.list::<Version>(&path, &[], usize::MAX).await?.items;
        let name = NamespacedName::new(repository.namespace, repository.name);
        let info = ChartInfo {
            id: format!("{}/{}", name.name, found.name.replace('/', "%2F")),
            name: found.name,
            repo: RepoRef {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
                url: repository.url,
                kind: Some(repository.kind).filter(|kind| kind != "helm").unwrap_or_default(),
            },
            description: found.description,
            home: found.home,
            keywords: non_empty(found.keywords),
            maintainers: found.maintainers,
            sources: non_empty(found.sources),
            icon: found.icon,
            raw_icon: None,
            icon_content_type: String::new(),
            category: found.category,
            chart_versions: versions.into_iter().map(ChartVersion::from).collect(),
        };
        Ok(Some(ChartDetails { repository: name, info }))
    }
}
