//! Charts that an installed chart may come from, also deprecated ones, which no list shows.

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::api::NamespacedName;
use crate::catalog::engine::{on_engine, select};
use crate::catalog::files::read::SizedRow;
use crate::catalog::{Catalog, ChartInfo, Error, StoredText};

/// The fields of a chart by which an installed chart is recognized. Reads rows of any writer: every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateInfo {
    pub repo: Option<CandidateRepository>,
    pub home: Option<String>,
    pub icon: Option<String>,
    pub sources: Option<Vec<Option<String>>>,
    #[serde(rename = "chartVersions")]
    pub versions: Option<Vec<CandidateVersion>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateRepository {
    pub url: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateVersion {
    pub version: Option<String>,
    pub digest: Option<String>,
}

impl From<ChartInfo> for CandidateInfo {
    fn from(info: ChartInfo) -> Self {
        let versions = info.chart_versions.into_iter().map(|version| CandidateVersion {
            version: Some(version.version),
            digest: Some(version.digest),
        });
        Self {
            repo: Some(CandidateRepository {
                url: Some(info.repo.url),
            }),
            home: Some(info.home),
            icon: Some(info.icon),
            sources: info.sources.map(|sources| sources.into_iter().map(Some).collect()),
            versions: Some(versions.collect()),
        }
    }
}

impl Catalog {
    /// Passes repository and `chart_id` of every stored chart to `visit`. Reads the index of the table only.
    pub async fn visit_chart_ids(&self, visit: impl FnMut(NamespacedName, &str) + Send) -> Result<(), Error> {
        const SELECT: &str = "SELECT repo_namespace, repo_name, chart_id FROM charts WHERE chart_id IS NOT NULL";
        self.visit_ids(SELECT, visit).await
    }

    /// Same as [`Catalog::visit_chart_ids`] for deprecated charts.
    pub async fn visit_deprecated_ids(&self, visit: impl FnMut(NamespacedName, &str) + Send) -> Result<(), Error> {
        self.visit_ids(
            "SELECT namespace, name, chart_id FROM portolan_deprecated_charts",
            visit,
        )
        .await
    }

    async fn visit_ids(
        &self,
        statement: &'static str,
        mut visit: impl FnMut(NamespacedName, &str) + Send,
    ) -> Result<(), Error> {
        self.read("list the charts", "", async |connection| {
            on_engine!(connection.executor(), executor => {
                let mut rows = sqlx::query_as::<_, (String, String, String)>(statement).fetch(executor);
                while let Some((namespace, name, chart_id)) = rows.try_next().await? {
                    visit(NamespacedName::new(namespace, name), &chart_id);
                }
            });
            Ok(())
        })
        .await
    }

    /// Returns the [`CandidateInfo`] of a deprecated chart as JSON, if it has at most `limit` bytes.
    pub async fn deprecated_row(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        limit: u64,
    ) -> Result<Option<StoredText>, Error> {
        const SELECT: &str = "SELECT CAST(octet_length(info) AS BIGINT) AS bytes,
                CASE WHEN octet_length(info) <= $4 THEN info END AS info FROM portolan_deprecated_charts
            WHERE namespace = $1 AND name = $2 AND chart_id = $3";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read("read a deprecated chart", &name.namespace, async |connection| {
            let row: Option<SizedRow> = select!(fetch_optional, connection, SELECT, name, chart_id, limit);
            Ok(row.map(StoredText::from))
        })
        .await
    }
}
