//! Read queries for commands. They never wait for a sync, and work on a database that only Kubeapps has written.

mod candidates;

use std::collections::{BTreeMap, HashMap};

use futures::TryStreamExt;
use jiff::Timestamp;
use sqlx::FromRow;

use super::{
    Baseline, Catalog, ChartFingerprint, ChartInfo, Error, ErrorKind, HistoryEntry, Record,
    engine::{Connection, on_engine, select, sql},
    history,
    record::unsigned,
};
use crate::api::NamespacedName;
pub use candidates::{CandidateInfo, CandidateRepository, CandidateVersion};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RepositorySummary {
    pub name: NamespacedName,
    /// URL of the last sync, or else of the stored charts; empty if there is neither.
    pub url: String,
    pub charts: u64,
    pub versions: u64,
    /// `None` if only Kubeapps' syncer has written the repository.
    pub record: Option<Record>,
}

impl RepositorySummary {
    fn entry<'a>(summaries: &'a mut BTreeMap<NamespacedName, Self>, name: &NamespacedName) -> &'a mut Self {
        summaries.entry(name.clone()).or_insert_with(|| Self {
            name: name.clone(),
            ..Self::default()
        })
    }
}

/// Tells readers of a repository what has changed since they read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryKeys {
    pub name: NamespacedName,
    pub charts: ChartsKey,
    /// `None` if only Kubeapps' syncer has written the repository.
    pub record: Option<RecordKey>,
}

/// Changes with every write of the charts, by Portolan or by Kubeapps' syncer.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct ChartsKey {
    repos_id: i64,
    checksum: Option<String>,
    last_update: Option<String>,
}

impl ChartsKey {
    /// Returns the parts of the key as text, which is equal in all processes.
    #[must_use]
    pub fn text(&self) -> String {
        let part = |part: &Option<String>| part.as_deref().unwrap_or_default().to_owned();
        format!("{} {} {}", self.repos_id, part(&self.checksum), part(&self.last_update))
    }

    /// Returns the time of the last write; `None` if it is unknown. Its text is that of Go's `time.Time`.
    #[must_use]
    pub fn last_update(&self) -> Option<Timestamp> {
        let mut parts = self.last_update.as_deref()?.split(' ');
        let (date, time, offset) = (parts.next()?, parts.next()?, parts.next()?);
        let (hours, minutes) = offset.split_at_checked(3)?;
        format!("{date}T{time}{hours}:{minutes}").parse().ok()
    }
}

/// Changes with every write of the record, also by a sync that changed no charts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    pub uid: String,
    pub revision: i64,
    /// As [`Record::origin`].
    pub origin: String,
}

#[derive(FromRow)]
struct KeysRow {
    namespace: String,
    name: String,
    #[sqlx(flatten)]
    charts: ChartsKey,
    uid: Option<String>,
    revision: Option<i64>,
    origin: Option<String>,
}

impl From<KeysRow> for RepositoryKeys {
    fn from(row: KeysRow) -> Self {
        let record = row.uid.zip(row.revision).zip(row.origin);
        Self {
            name: NamespacedName::new(row.namespace, row.name),
            charts: row.charts,
            record: record.map(|((uid, revision), origin)| RecordKey { uid, revision, origin }),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartDetails {
    pub repository: NamespacedName,
    pub info: ChartInfo,
}

impl Catalog {
    /// Returns every repository that has charts or a record, ordered by namespace and name.
    pub async fn repositories(&self) -> Result<Vec<RepositorySummary>, Error> {
        // Read before the charts are counted. Otherwise a sync in between could show a record with charts but a count of 0.
        let records = self.records().await?;
        let stored: Vec<(String, String, i64, i64, String)> = self
            .read("list the repositories", "", async |connection| {
                let statement = sql!(connection, "repository_counts.sql");
                Ok(on_engine!(connection.executor(), executor => sqlx::query_as(statement).fetch_all(executor).await?))
            })
            .await?;
        let mut summaries = BTreeMap::<NamespacedName, RepositorySummary>::new();
        for (namespace, name, charts, versions, url) in stored {
            let summary = RepositorySummary::entry(&mut summaries, &NamespacedName::new(namespace, name));
            (summary.charts, summary.versions, summary.url) = (unsigned(charts), unsigned(versions), url);
        }
        for record in records {
            let summary = RepositorySummary::entry(&mut summaries, &record.name);
            if !record.url.is_empty() {
                summary.url.clone_from(&record.url);
            }
            summary.record = Some(record);
        }
        Ok(summaries.into_values().collect())
    }

    /// Returns the keys of all repositories that have a record or may have charts, in one namespace or in all. Read them before
    /// the charts: a write in between then shows as a change.
    pub async fn repository_keys(&self, namespace: Option<&str>) -> Result<Vec<RepositoryKeys>, Error> {
        const JOINED: &str = "SELECT r.namespace, r.name, CAST(r.id AS BIGINT) AS repos_id, r.checksum, r.last_update,
                p.uid, p.revision, p.origin
            FROM repos r LEFT JOIN portolan_repositories p ON p.namespace = r.namespace AND p.name = r.name
            WHERE CAST($1 AS TEXT) IS NULL OR r.namespace = $1
            UNION ALL
            SELECT p.namespace, p.name, CAST(0 AS BIGINT) AS repos_id, CAST(NULL AS TEXT) AS checksum,
                CAST(NULL AS TEXT) AS last_update, p.uid, p.revision, p.origin
            FROM portolan_repositories p
            WHERE (CAST($1 AS TEXT) IS NULL OR p.namespace = $1)
                AND NOT EXISTS (SELECT 1 FROM repos r WHERE r.namespace = p.namespace AND r.name = p.name)";
        const OF_KUBEAPPS: &str = "SELECT r.namespace, r.name, CAST(r.id AS BIGINT) AS repos_id, r.checksum,
                r.last_update, CAST(NULL AS TEXT) AS uid, CAST(NULL AS BIGINT) AS revision, CAST(NULL AS TEXT) AS origin
            FROM repos r WHERE CAST($1 AS TEXT) IS NULL OR r.namespace = $1";
        let mut found = self.keys(JOINED, namespace).await?;
        if found.is_none() {
            // Portolan's tables are missing in a database that only Kubeapps has written.
            found = self.keys(OF_KUBEAPPS, namespace).await?;
        }
        Ok(found.unwrap_or_default())
    }

    /// Returns `None` if a table is missing.
    async fn keys(
        &self,
        statement: &'static str,
        namespace: Option<&str>,
    ) -> Result<Option<Vec<RepositoryKeys>>, Error> {
        self.read("list the repositories", "", async |connection| {
            let rows: Vec<KeysRow> = on_engine!(connection.executor(), executor =>
                sqlx::query_as(statement).bind(namespace).fetch_all(executor).await?);
            Ok(Some(rows.into_iter().map(RepositoryKeys::from).collect()))
        })
        .await
    }

    /// Passes `chart_id` and `info` of each stored chart of a repository to `visit`, with one row in memory.
    pub async fn visit_charts(
        &self,
        name: &NamespacedName,
        mut visit: impl FnMut(Option<&str>, &str) + Send,
    ) -> Result<(), Error> {
        const SELECT: &str = "SELECT chart_id, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND repo_namespace = $2";
        self.read(
            "read the charts of the repository",
            &name.namespace,
            async |connection| {
                on_engine!(connection.executor(), executor => {
                    let mut rows = sqlx::query_as::<_, (Option<String>, String)>(SELECT)
                        .bind(&name.name)
                        .bind(&name.namespace)
                        .fetch(executor);
                    while let Some((chart_id, info)) = rows.try_next().await? {
                        visit(chart_id.as_deref(), &info);
                    }
                });
                Ok(())
            },
        )
        .await
    }

    /// Returns a chart in one namespace, or in each namespace with a repository of this name.
    pub async fn show(
        &self,
        repository: &str,
        chart: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<ChartDetails>, Error> {
        const SELECT: &str = "SELECT repo_namespace, repo_name, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND chart_id = $2 AND (CAST($3 AS TEXT) IS NULL OR repo_namespace = $3)
            ORDER BY repo_namespace";
        let chart_id = format!("{repository}/{}", chart.replace('/', "%2F"));
        let rows: Vec<(String, String, String)> = self
            .read("reading a chart", "", async |connection| {
                Ok(on_engine!(connection.executor(), executor => sqlx::query_as(SELECT)
                    .bind(repository)
                    .bind(&chart_id)
                    .bind(namespace)
                    .fetch_all(executor)
                    .await?))
            })
            .await?;
        rows.into_iter()
            .map(|(namespace, name, info)| match serde_json::from_str(&info) {
                Ok(info) => Ok(ChartDetails {
                    repository: NamespacedName::new(namespace, name),
                    info,
                }),
                Err(error) => Err(ErrorKind::Malformed {
                    chart: format!("{namespace}/{chart_id}"),
                    reason: error.to_string(),
                }
                .into()),
            })
            .collect()
    }

    /// Returns the fingerprints of the stored charts by `chart_id`. Rows without Kubeapps' format are omitted.
    pub async fn fingerprints(&self, name: &NamespacedName) -> Result<HashMap<String, ChartFingerprint>, Error> {
        const SELECT: &str = "SELECT chart_id, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND repo_namespace = $2 AND chart_id IS NOT NULL";
        self.read(
            "read the charts of the repository",
            &name.namespace,
            async |connection| {
                let mut fingerprints = HashMap::new();
                on_engine!(connection.executor(), executor => {
                    let mut rows = sqlx::query_as::<_, (String, String)>(SELECT)
                        .bind(&name.name)
                        .bind(&name.namespace)
                        .fetch(executor);
                    while let Some((chart_id, info)) = rows.try_next().await? {
                        if let Ok(info) = serde_json::from_str::<ChartInfo>(&info) {
                            fingerprints.insert(chart_id, info.fingerprint());
                        }
                    }
                });
                Ok(fingerprints)
            },
        )
        .await
    }

    /// Counts the stored charts and versions that come from `url`; `None` if there are none.
    pub async fn stored_counts(&self, name: &NamespacedName, url: &str) -> Result<Option<Baseline>, Error> {
        const SQLITE: &str = "SELECT count(*), coalesce(sum(json_array_length(info, '$.chartVersions')), 0) FROM charts
            WHERE repo_namespace = $1 AND repo_name = $2 AND info -> 'repo' ->> 'url' = $3";
        const POSTGRES: &str = "SELECT count(*), CAST(coalesce(sum(CASE jsonb_typeof(info -> 'chartVersions')
                WHEN 'array' THEN jsonb_array_length(info -> 'chartVersions') ELSE 0 END), 0) AS BIGINT) FROM charts
            WHERE repo_namespace = $1 AND repo_name = $2 AND info -> 'repo' ->> 'url' = $3";
        self.read(
            "count the charts of the repository",
            &name.namespace,
            async |connection| {
                let statement = connection.choose(SQLITE, POSTGRES);
                let (names, versions): (i64, i64) = select!(fetch_one, connection, statement, name, url);
                Ok((names > 0).then(|| Baseline {
                    names: unsigned(names),
                    versions: unsigned(versions),
                }))
            },
        )
        .await
    }

    /// Returns up to `limit` syncs that changed something, failed, or recovered; the newest first.
    pub async fn history(&self, name: &NamespacedName, limit: u32) -> Result<Vec<HistoryEntry>, Error> {
        let newest = async |connection: &mut Connection| history::newest(connection, name, limit).await;
        self.read("read the sync history", &name.namespace, newest).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_update(text: &str) -> Option<String> {
        let key = ChartsKey {
            repos_id: 1,
            checksum: None,
            last_update: Some(text.to_owned()),
        };
        key.last_update().map(|time| time.to_string())
    }

    #[test]
    fn the_time_of_the_last_write_is_read_from_the_text_of_go() {
        assert_eq!(
            last_update("2024-12-24 08:06:53.123456789 +0000 UTC").as_deref(),
            Some("2024-12-24T08:06:53.123456789Z")
        );
        assert_eq!(
            last_update("2024-12-24 08:06:53.5 +0100 CET m=+0.1").as_deref(),
            Some("2024-12-24T07:06:53.5Z")
        );
        assert_eq!(last_update("yesterday"), None);
        assert_eq!(last_update("2024-12-24 08:06:53 é"), None);
    }
}
