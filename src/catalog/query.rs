//! Read queries for commands. They never wait for a sync, and work on a database that only Kubeapps has written.

use std::collections::{BTreeMap, HashMap};

use futures::TryStreamExt;
use sqlx::types::Json;

use super::{
    Baseline, Catalog, ChartInfo, Error, ErrorKind, Fingerprint, HistoryEntry, Record,
    engine::{Connection, on_engine, select, sql},
    history,
    record::unsigned,
};
use crate::api::NamespacedName;

const MAX_WORDS: usize = 16;
const MAX_WORD_CHARS: usize = 256;

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

#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Case-insensitive substrings that must all match the name, the description or a keyword.
    pub words: Vec<String>,
    pub namespace: Option<String>,
    pub repository: Option<String>,
    pub limit: u32,
    pub offset: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResults {
    /// Charts whose name matches come first, shorter names before longer names.
    pub hits: Vec<Hit>,
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    pub repository: NamespacedName,
    pub chart: String,
    pub version: String,
    pub app_version: String,
    pub description: String,
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

    pub async fn search(&self, search: &Search) -> Result<SearchResults, Error> {
        let patterns: Vec<String> = search.words.iter().take(MAX_WORDS).map(|word| pattern(word)).collect();
        // One extra row shows if there are more.
        let limit = i64::from(search.limit) + 1;
        let rows: Vec<(String, String, String, String, String, String)> = self
            .read("search the charts", "", async |connection| {
                let statement = sql!(connection, "search.sql");
                Ok(on_engine!(connection.executor(), executor => sqlx::query_as(statement)
                    .bind(Json(&patterns))
                    .bind(&search.namespace)
                    .bind(&search.repository)
                    .bind(limit)
                    .bind(i64::from(search.offset))
                    .fetch_all(executor)
                    .await?))
            })
            .await?;
        let hit = |(namespace, name, chart, version, app_version, description)| Hit {
            repository: NamespacedName { namespace, name },
            chart,
            version,
            app_version,
            description,
        };
        let mut hits: Vec<Hit> = rows.into_iter().map(hit).collect();
        let has_more = hits.len() > search.limit as usize;
        hits.truncate(search.limit as usize);
        Ok(SearchResults { hits, has_more })
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
    pub async fn fingerprints(&self, name: &NamespacedName) -> Result<HashMap<String, Fingerprint>, Error> {
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

/// Returns a LIKE pattern that finds the word anywhere, with wildcards escaped.
fn pattern(word: &str) -> String {
    let mut pattern = String::from("%");
    for c in word.chars().filter(|c| *c != '\0').take(MAX_WORD_CHARS) {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_in_a_word_are_escaped() {
        assert_eq!(pattern("cms"), "%cms%");
        assert_eq!(pattern("100%_\\\0x"), "%100\\%\\_\\\\x%");
        assert_eq!(pattern(&"x".repeat(1000)).len(), MAX_WORD_CHARS + 2);
    }
}
