//! The reading side: what commands show, and a server may serve.
//!
//! All of it works on a database that Kubeapps alone has filled, and none of it waits for a sync that is being written.

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

/// How many words a search looks at, and how many characters of each.
const MAX_WORDS: usize = 16;
const MAX_WORD_CHARS: usize = 256;

/// A repository at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct RepositorySummary {
    /// The repository.
    pub name: NamespacedName,
    /// Its URL: of the last sync, or else as its charts have it; empty if there is neither.
    pub url: String,
    /// Charts that are stored.
    pub charts: u64,
    /// Versions of all its charts.
    pub versions: u64,
    /// What we remember of it. Nothing where only Kubeapps' syncer has been at it.
    pub record: Option<Record>,
}

/// What is searched for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Each of them is to be found in the name, the description or a keyword of a chart, as a part and in any case of letters. All
    /// charts where there is none.
    pub words: Vec<String>,
    /// Only in this namespace.
    pub namespace: Option<String>,
    /// Only in repositories of this name.
    pub repository: Option<String>,
    /// At most so many.
    pub limit: u32,
    /// Passing over so many.
    pub offset: u32,
}

/// A page of what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Charts whose name holds all words first, the nearest names before the longer ones.
    pub hits: Vec<Hit>,
    /// Whether there are more behind these.
    pub more: bool,
}

/// A chart that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The repository.
    pub repository: NamespacedName,
    /// The chart's name.
    pub chart: String,
    /// Its newest version.
    pub version: String,
    /// The version of what that installs.
    pub app_version: String,
    /// What the chart says of itself.
    pub description: String,
}

/// A chart with all its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownChart {
    /// The repository.
    pub repository: NamespacedName,
    /// The chart.
    pub info: ChartInfo,
}

impl Catalog {
    /// All repositories that have charts or are remembered, by namespace and name.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn repositories(&self) -> Result<Vec<RepositorySummary>, Error> {
        // Before the charts are counted: of a repository that is synced in between, a record that tells of charts would else be
        // shown with none.
        let records = self.records().await?;
        let stored: Vec<CountsRow> = self
            .look("reading the repositories", async {
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

    /// Charts by words.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn search(&self, search: &Search) -> Result<Found, Error> {
        let patterns: Vec<String> = search.words.iter().take(MAX_WORDS).map(|word| pattern(word)).collect();
        // One more than asked for tells whether there are more.
        let limit = i64::from(search.limit) + 1;
        let rows: Vec<HitRow> = self
            .look("searching the charts", async {
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
        let more = hits.len() > search.limit as usize;
        hits.truncate(search.limit as usize);
        Ok(Found { hits, more })
    }

    /// A chart of a repository, in one namespace or in each that has a repository of this name. A slash in the chart's name may be
    /// written as it is.
    ///
    /// # Errors
    /// When the database fails, and [`Error::Malformed`] for a row that somebody else has shaped.
    pub async fn show(&self, repository: &str, chart: &str, namespace: Option<&str>) -> Result<Vec<ShownChart>, Error> {
        const SELECT: &str = "SELECT repo_namespace, repo_name, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND chart_id = $2 AND (CAST($3 AS TEXT) IS NULL OR repo_namespace = $3)
            ORDER BY repo_namespace";
        let chart_id = format!("{repository}/{}", chart.replace('/', "%2F"));
        let rows: Vec<(String, String, String)> = self
            .look("reading a chart", async {
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
                Ok(info) => Ok(ShownChart {
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

    /// What the stored charts of a repository are, by their `chart_id`. Those that are not of Kubeapps' shape are left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fingerprints(&self, name: &NamespacedName) -> Result<HashMap<String, Fingerprint>, Error> {
        const SELECT: &str = "SELECT chart_id, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND repo_namespace = $2 AND chart_id IS NOT NULL";
        let mut found = HashMap::new();
        self.look("reading the charts of a repository", async {
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

    /// The newest syncs of a repository that changed something, failed, or recovered; the newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn history(&self, name: &NamespacedName, limit: u32) -> Result<Vec<HistoryEntry>, Error> {
        let newest = history::newest(&self.0.pools, name, limit);
        self.look("reading the history of a repository", newest).await
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

/// A chart's rank is the length of its name where that holds all words, and nothing where they are found elsewhere.
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

/// A pattern for LIKE that finds the word anywhere; its own wildcards are no wildcards.
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
    fn a_word_is_searched_for_as_it_is() {
        assert_eq!(pattern("cms"), "%cms%");
        assert_eq!(pattern("100%_\\\0x"), "%100\\%\\_\\\\x%");
        assert_eq!(pattern(&"x".repeat(1000)).len(), MAX_WORD_CHARS + 2);
    }
}
