//! Read queries for commands.
//!
//! They work on a database that only Kubeapps has written, and never wait for a running sync.

use std::collections::{BTreeMap, HashMap};

use futures::TryStreamExt;
use sqlx::{FromRow, types::Json};

use super::{
    Catalog, ChartInfo, Error, Fingerprint, HistoryEntry, Record,
    engine::{Engine, on_engine},
    history,
    record::unsigned,
};
use crate::api::NamespacedName;

const MAX_WORDS: usize = 16;
const MAX_WORD_CHARS: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct RepositorySummary {
    pub name: NamespacedName,
    /// URL of the last sync, or else of the stored charts; empty if there is neither.
    pub url: String,
    pub charts: u64,
    pub versions: u64,
    /// `None` if only Kubeapps' syncer has written the repository.
    pub record: Option<Record>,
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
    /// Charts whose name matches come first, shorter names before longer ones.
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
        let stored: Vec<CountsRow> = self
            .read("list the repositories", async {
                Ok(match self.0.pools.reader() {
                    Engine::Sqlite(pool) => sqlx::query_as(COUNTS_SQLITE).fetch_all(pool).await?,
                    Engine::Postgres(pool) => sqlx::query_as(COUNTS_POSTGRES).fetch_all(pool).await?,
                })
            })
            .await?;
        let mut summaries: BTreeMap<NamespacedName, RepositorySummary> = stored
            .into_iter()
            .map(RepositorySummary::from)
            .map(|s| (s.name.clone(), s))
            .collect();
        for record in records {
            let summary = summaries
                .entry(record.name.clone())
                .or_insert_with(|| RepositorySummary::empty(record.name.clone()));
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
        let rows: Vec<HitRow> = self
            .read("search the charts", async {
                Ok(match self.0.pools.reader() {
                    Engine::Sqlite(pool) => {
                        let query = sqlx::query_as(SEARCH_SQLITE).bind(Json(&patterns));
                        let query = query.bind(&search.namespace).bind(&search.repository);
                        query.bind(limit).bind(i64::from(search.offset)).fetch_all(pool).await?
                    }
                    Engine::Postgres(pool) => {
                        let query = sqlx::query_as(SEARCH_POSTGRES).bind(&patterns);
                        let query = query.bind(&search.namespace).bind(&search.repository);
                        query.bind(limit).bind(i64::from(search.offset)).fetch_all(pool).await?
                    }
                })
            })
            .await?;
        let mut hits: Vec<Hit> = rows.into_iter().map(Hit::from).collect();
        let has_more = hits.len() > search.limit as usize;
        hits.truncate(search.limit as usize);
        Ok(SearchResults { hits, has_more })
    }

    /// Returns a chart in one namespace, or in each namespace with a repository of this name.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a row does not have Kubeapps' format.
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
            .read("reading a chart", async {
                Ok(on_engine!(self.0.pools.reader(), pool => sqlx::query_as(SELECT)
                    .bind(repository)
                    .bind(&chart_id)
                    .bind(namespace)
                    .fetch_all(pool)
                    .await?))
            })
            .await?;
        rows.into_iter()
            .map(|(namespace, name, info)| match serde_json::from_str(&info) {
                Ok(info) => Ok(ChartDetails {
                    repository: NamespacedName::new(namespace, name),
                    info,
                }),
                Err(error) => Err(Error::Malformed {
                    chart: format!("{namespace}/{chart_id}"),
                    reason: error.to_string(),
                }),
            })
            .collect()
    }

    /// Returns the fingerprints of the stored charts by `chart_id`. Rows without Kubeapps' format are omitted.
    pub async fn fingerprints(&self, name: &NamespacedName) -> Result<HashMap<String, Fingerprint>, Error> {
        const SELECT: &str = "SELECT chart_id, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND repo_namespace = $2 AND chart_id IS NOT NULL";
        let mut found = HashMap::new();
        self.read("read the charts of the repository", async {
            on_engine!(self.0.pools.reader(), pool => {
                let mut rows = sqlx::query_as::<_, (String, String)>(SELECT)
                    .bind(&name.name)
                    .bind(&name.namespace)
                    .fetch(pool);
                while let Some((chart_id, info)) = rows.try_next().await? {
                    if let Ok(info) = serde_json::from_str::<ChartInfo>(&info) {
                        found.insert(chart_id, info.fingerprint());
                    }
                }
            });
            Ok(())
        })
        .await?;
        Ok(found)
    }

    /// Returns up to `limit` syncs that changed something, failed, or recovered; the newest first.
    pub async fn history(&self, name: &NamespacedName, limit: u32) -> Result<Vec<HistoryEntry>, Error> {
        let newest = history::newest(&self.0.pools, name, limit);
        self.read("read the sync history", newest).await
    }
}

const COUNTS_SQLITE: &str = "SELECT r.namespace, r.name, count(c.id) AS charts,
        coalesce(sum(json_array_length(c.info, '$.chartVersions')), 0) AS versions,
        coalesce(max(c.info -> 'repo' ->> 'url'), '') AS url
    FROM repos r LEFT JOIN charts c ON c.repo_name = r.name AND c.repo_namespace = r.namespace
    GROUP BY r.namespace, r.name";

const COUNTS_POSTGRES: &str = "SELECT r.namespace, r.name, count(c.id) AS charts,
        coalesce(sum(CASE jsonb_typeof(c.info -> 'chartVersions')
            WHEN 'array' THEN jsonb_array_length(c.info -> 'chartVersions') ELSE 0 END), 0) AS versions,
        coalesce(max(c.info -> 'repo' ->> 'url'), '') AS url
    FROM repos r LEFT JOIN charts c ON c.repo_name = r.name AND c.repo_namespace = r.namespace
    GROUP BY r.namespace, r.name";

/// Ranks charts whose name matches all words by the length of the name, before the others.
const SEARCH_SQLITE: &str = r"SELECT repo_namespace, repo_name, coalesce(info ->> 'name', chart_id, '') AS chart,
        coalesce(info -> 'chartVersions' -> 0 ->> 'version', '') AS version,
        coalesce(info -> 'chartVersions' -> 0 ->> 'app_version', '') AS app_version,
        coalesce(info ->> 'description', '') AS description
    FROM charts
    WHERE ($2 IS NULL OR repo_namespace = $2) AND ($3 IS NULL OR repo_name = $3)
        AND NOT EXISTS (SELECT 1 FROM json_each($1) AS word WHERE NOT (
            coalesce(info ->> 'name', '') LIKE word.value ESCAPE '\'
            OR coalesce(info ->> 'description', '') LIKE word.value ESCAPE '\'
            OR coalesce(info ->> 'keywords', '') LIKE word.value ESCAPE '\'))
    ORDER BY CASE WHEN json_array_length($1) > 0 AND NOT EXISTS (SELECT 1 FROM json_each($1) AS word
            WHERE NOT coalesce(info ->> 'name', '') LIKE word.value ESCAPE '\') THEN length(info ->> 'name') END NULLS LAST,
        chart, repo_namespace, repo_name
    LIMIT $4 OFFSET $5";

const SEARCH_POSTGRES: &str = r"SELECT repo_namespace, repo_name, coalesce(info ->> 'name', chart_id, '') AS chart,
        coalesce(info -> 'chartVersions' -> 0 ->> 'version', '') AS version,
        coalesce(info -> 'chartVersions' -> 0 ->> 'app_version', '') AS app_version,
        coalesce(info ->> 'description', '') AS description
    FROM charts
    WHERE ($2::text IS NULL OR repo_namespace = $2) AND ($3::text IS NULL OR repo_name = $3)
        AND NOT EXISTS (SELECT FROM unnest($1::text[]) AS word (pattern) WHERE NOT (
            coalesce(info ->> 'name', '') ILIKE word.pattern
            OR coalesce(info ->> 'description', '') ILIKE word.pattern
            OR coalesce(info ->> 'keywords', '') ILIKE word.pattern))
    ORDER BY CASE WHEN cardinality($1) > 0 AND info ->> 'name' ILIKE ALL ($1) THEN length(info ->> 'name') END NULLS LAST,
        chart, repo_namespace, repo_name
    LIMIT $4 OFFSET $5";

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

#[derive(FromRow)]
struct CountsRow {
    namespace: String,
    name: String,
    charts: i64,
    versions: i64,
    url: String,
}

impl RepositorySummary {
    const fn empty(name: NamespacedName) -> Self {
        Self {
            name,
            url: String::new(),
            charts: 0,
            versions: 0,
            record: None,
        }
    }
}

impl From<CountsRow> for RepositorySummary {
    fn from(row: CountsRow) -> Self {
        Self {
            url: row.url,
            charts: unsigned(row.charts),
            versions: unsigned(row.versions),
            ..Self::empty(NamespacedName::new(row.namespace, row.name))
        }
    }
}

#[derive(FromRow)]
struct HitRow {
    repo_namespace: String,
    repo_name: String,
    chart: String,
    version: String,
    app_version: String,
    description: String,
}

impl From<HitRow> for Hit {
    fn from(row: HitRow) -> Self {
        Self {
            repository: NamespacedName::new(row.repo_namespace, row.repo_name),
            chart: row.chart,
            version: row.version,
            app_version: row.app_version,
            description: row.description,
        }
    }
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
