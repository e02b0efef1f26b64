use std::collections::{BTreeSet, HashMap, HashSet};

use futures::{Stream, TryStreamExt};
use sqlx::types::Json;

use super::batch::RowChange;
use crate::api::NamespacedName;
use crate::catalog::chart::ChartFingerprint;
use crate::catalog::engine::{Engine, Transaction, on_engine, select};
use crate::catalog::{ChartInfo, Error, ErrorKind, RepoRef};

/// The parts of stored charts that only some syncs compare.
#[derive(Clone, Copy)]
pub(super) struct StoredComparison {
    /// To retain versions that are missing in the index, and for the news.
    pub(super) versions: bool,
    pub(super) times: bool,
}

impl StoredComparison {
    pub(super) fn fingerprint(self, info: &ChartInfo) -> ChartFingerprint {
        if self.times {
            info.fingerprint_with_times()
        } else {
            info.fingerprint()
        }
    }
}

pub(super) struct StoredChart {
    pub(super) id: i64,
    pub(super) bytes: i64,
    /// `None` if the row does not have Kubeapps' format. It then differs from any chart.
    pub(super) fingerprint: Option<ChartFingerprint>,
    icon: Option<String>,
    pub(super) seen: bool,
    /// Empty unless versions are compared, because there may be many.
    pub(super) versions: Vec<String>,
    /// Versions of another repository URL are not missing from this index.
    pub(super) repo: Option<RepoRef>,
}

impl StoredChart {
    fn of(id: i64, bytes: i64, info: &str, comparison: StoredComparison) -> Self {
        let info: Option<ChartInfo> = serde_json::from_str(info).ok();
        let versions = info
            .iter()
            .filter(|_| comparison.versions)
            .flat_map(ChartInfo::versions);
        let versions: BTreeSet<&str> = versions.collect();
        Self {
            id,
            bytes,
            versions: versions.into_iter().map(str::to_owned).collect(),
            fingerprint: info.as_ref().map(|info| comparison.fingerprint(info)),
            repo: info
                .as_ref()
                .filter(|_| comparison.versions)
                .map(|info| info.repo.clone()),
            icon: info.filter(ChartInfo::has_imported_icon).map(|info| info.icon),
            seen: false,
        }
    }

    /// Returns an entry for a chart that this sync inserts, to detect duplicates of its ID.
    pub(super) const fn new_row() -> Self {
        Self {
            id: 0,
            bytes: 0,
            fingerprint: None,
            icon: None,
            seen: true,
            versions: Vec::new(),
            repo: None,
        }
    }

    pub(super) fn missing_in(&self, info: &ChartInfo) -> Vec<&str> {
        if self.versions.is_empty() || self.repo.as_ref() != Some(&info.repo) {
            return Vec::new();
        }
        let present: HashSet<&str> = info.versions().collect();
        let stored = self.versions.iter().map(String::as_str);
        stored.filter(|version| !present.contains(version)).collect()
    }

    /// Returns the update to `info`. An imported icon stays while its URL is the same.
    pub(super) fn change_to(&self, info: &ChartInfo) -> RowChange {
        RowChange::Update {
            id: self.id,
            keep_icon: self.icon.is_some() && info.raw_icon.is_none() && self.icon.as_deref() == Some(&info.icon),
        }
    }
}

#[derive(Default)]
pub(super) struct StoredCharts {
    pub(super) charts: HashMap<String, StoredChart>,
    /// IDs of rows without a `chart_id`, which no reader can find.
    pub(super) nameless: Vec<i64>,
    pub(super) nameless_bytes: i64,
}

impl StoredCharts {
    /// Excludes `unchanged_rows` (row ID by `chart_id`). Fails with [`ErrorKind::StaleDigests`] if a row is missing.
    pub(super) async fn read(
        tx: &mut Transaction,
        name: &NamespacedName,
        unchanged_rows: &HashMap<String, i64>,
        comparison: StoredComparison,
    ) -> Result<Self, Error> {
        if unchanged_rows.is_empty() {
            return read_all(tx, name, comparison).await;
        }
        let (mut count, mut changed) = (0, Vec::new());
        for (id, chart_id) in ids(tx, name).await? {
            match chart_id.and_then(|chart_id| unchanged_rows.get(&chart_id)) {
                None => changed.push(id),
                Some(expected) if *expected == id => count += 1,
                Some(_) => return Err(ErrorKind::StaleDigests.into()),
            }
        }
        if count < unchanged_rows.len() {
            return Err(ErrorKind::StaleDigests.into());
        }
        read_some(tx, &changed, comparison).await
    }

    async fn collect(
        mut rows: impl Stream<Item = Result<(i64, i64, Option<String>, String), sqlx::Error>> + Send + Unpin,
        comparison: StoredComparison,
    ) -> Result<Self, Error> {
        let mut stored = Self::default();
        while let Some((id, bytes, chart_id, info)) = rows.try_next().await? {
            match chart_id {
                Some(chart_id) => {
                    stored
                        .charts
                        .insert(chart_id, StoredChart::of(id, bytes, &info, comparison));
                }
                None => {
                    stored.nameless.push(id);
                    stored.nameless_bytes += bytes;
                }
            }
        }
        Ok(stored)
    }
}

async fn read_all(
    tx: &mut Transaction,
    name: &NamespacedName,
    comparison: StoredComparison,
) -> Result<StoredCharts, Error> {
    const SQLITE: &str = "SELECT id, octet_length(info), chart_id, info FROM charts
        WHERE repo_name = $1 AND repo_namespace = $2";
    const POSTGRES: &str =
        "SELECT CAST(id AS BIGINT), CAST(pg_column_size(info) AS BIGINT), chart_id, CAST(info AS TEXT) FROM charts
        WHERE repo_name = $1 AND repo_namespace = $2";
    let statement = tx.choose(SQLITE, POSTGRES);
    on_engine!(tx.executor(), executor => {
        let rows = sqlx::query_as(statement).bind(&name.name).bind(&name.namespace).fetch(executor);
        StoredCharts::collect(rows, comparison).await
    })
}

async fn read_some(tx: &mut Transaction, ids: &[i64], comparison: StoredComparison) -> Result<StoredCharts, Error> {
    const SQLITE: &str = "SELECT id, octet_length(info), chart_id, info FROM charts
        WHERE id IN (SELECT value FROM json_each($1))";
    const POSTGRES: &str =
        "SELECT CAST(id AS BIGINT), CAST(pg_column_size(info) AS BIGINT), chart_id, CAST(info AS TEXT) FROM charts
        WHERE id = ANY($1)";
    if ids.is_empty() {
        return Ok(StoredCharts::default());
    }
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let rows = sqlx::query_as(SQLITE).bind(Json(ids)).fetch(connection);
            StoredCharts::collect(rows, comparison).await
        }
        Engine::Postgres(connection) => {
            let rows = sqlx::query_as(POSTGRES).bind(ids).fetch(connection);
            StoredCharts::collect(rows, comparison).await
        }
    }
}

pub(super) async fn ids(tx: &mut Transaction, name: &NamespacedName) -> Result<Vec<(i64, Option<String>)>, Error> {
    const SELECT: &str = "SELECT CAST(id AS BIGINT), chart_id FROM charts WHERE repo_namespace = $1 AND repo_name = $2";
    Ok(select!(fetch_all, tx, SELECT, name))
}

/// Returns a stored chart, or `None` if it does not have Kubeapps' format.
pub(super) async fn info(tx: &mut Transaction, id: i64) -> Result<Option<ChartInfo>, Error> {
    const SELECT: &str = "SELECT CAST(info AS TEXT) FROM charts WHERE id = $1";
    let info: Option<String> =
        on_engine!(tx.executor(), executor => sqlx::query_scalar(SELECT).bind(id).fetch_optional(executor).await?);
    Ok(info.and_then(|info| serde_json::from_str(&info).ok()))
}
