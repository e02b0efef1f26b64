//! Versions whose files are not imported. They get an empty row.

use std::collections::HashSet;

use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, select, sql};
use crate::catalog::{ChartInfo, Error, RepoRef, StoredBytes, stored_bytes};

/// Charts of one statement: one for a large repository would take longer than the server allows.
const CHARTS: usize = 20;
/// A longer ID may not fit into Postgres' index.
const MAX_ID_BYTES: usize = 2000;

/// Versions that get an empty row if they have none.
#[derive(Debug, Default)]
pub(in crate::catalog) struct SkippedVersions {
    versions: Vec<SkippedVersion>,
    repo: RepoRef,
}

#[derive(Debug, sqlx::FromRow)]
struct SkippedVersion {
    chart_id: String,
    files_id: String,
    has_digest: bool,
}

impl SkippedVersions {
    /// Adds the versions after the first `imported` ones.
    pub(in crate::catalog) fn add(&mut self, chart_id: &str, chart: &ChartInfo, imported: usize) {
        self.repo.clone_from(&chart.repo);
        let mut seen = HashSet::new();
        for (at, version) in chart.chart_versions.iter().enumerate() {
            let is_first = seen.insert(&*version.version);
            if at >= imported && is_first && !version.version.is_empty() {
                self.versions.push(SkippedVersion {
                    chart_id: chart_id.to_owned(),
                    files_id: format!("{chart_id}-{}", version.version),
                    has_digest: !version.digest.is_empty(),
                });
            }
        }
    }

    pub(in crate::catalog) fn remove_charts(&mut self, removed: &[(String, String)]) {
        let is_removed = |version: &SkippedVersion| removed.iter().any(|(chart_id, _)| *chart_id == version.chart_id);
        self.versions.retain(|version| !is_removed(version));
    }

    /// Inserts the rows. Returns their number and size; the caller adds it to the stored bytes.
    pub(in crate::catalog) async fn insert(
        &mut self,
        tx: &mut Transaction,
        name: &NamespacedName,
    ) -> Result<(u64, StoredBytes), Error> {
        self.versions.retain(|version| version.files_id.len() <= MAX_ID_BYTES);
        let undigested: Vec<&SkippedVersion> = self.versions.iter().filter(|version| !version.has_digest).collect();
        if !undigested.is_empty() {
            mark(tx, name, &undigested).await?;
        }
        if self.versions.is_empty() {
            return Ok((0, StoredBytes::default()));
        }
        let sizes = insert(tx, name, &self.versions, &self.repo).await?;
        let bytes = StoredBytes {
            files: sizes.iter().sum(),
            ..StoredBytes::default()
        };
        Ok((sizes.len() as u64, bytes))
    }
}

/// Without a digest only the mark distinguishes an empty row from a chart without files.
async fn mark(tx: &mut Transaction, name: &NamespacedName, versions: &[&SkippedVersion]) -> Result<(), Error> {
    let statement = sql!(tx, "files_mark_skipped.sql");
    let ids = versions.iter().map(|version| (&*version.chart_id, &*version.files_id));
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            query.bind(Json(ids.collect::<Vec<_>>())).execute(connection).await?;
        }
        Engine::Postgres(connection) => {
            let (charts, files): (Vec<&str>, Vec<&str>) = ids.unzip();
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            query.bind(charts).bind(files).execute(connection).await?;
        }
    }
    Ok(())
}

async fn insert(
    tx: &mut Transaction,
    name: &NamespacedName,
    versions: &[SkippedVersion],
    repo: &RepoRef,
) -> Result<Vec<i64>, Error> {
    let statement = sql!(tx, "files_insert_skipped.sql");
    let ids = versions.iter().map(|version| (&*version.chart_id, &*version.files_id));
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query_scalar(statement).bind(&name.namespace).bind(&name.name);
            let query = query.bind(Json(ids.collect::<Vec<_>>())).bind(Json(repo));
            query.fetch_all(connection).await?
        }
        Engine::Postgres(connection) => {
            let (charts, files): (Vec<&str>, Vec<&str>) = ids.unzip();
            let query = sqlx::query_scalar(statement).bind(&name.namespace).bind(&name.name);
            let query = query.bind(charts).bind(files).bind(Json(repo));
            query.fetch_all(connection).await?
        }
    })
}

/// Inserts empty rows for all versions of a repository without one, except the first `imported` of each chart. Returns
/// their number.
pub(super) async fn insert_all(tx: &mut Transaction, name: &NamespacedName, imported: usize) -> Result<u64, Error> {
    const SELECT: &str = "SELECT chart_id FROM charts WHERE repo_namespace = $1 AND repo_name = $2
        AND chart_id IS NOT NULL ORDER BY chart_id";
    const REPO: &str = "SELECT CAST(info -> 'repo' AS TEXT) FROM charts WHERE repo_namespace = $1 AND repo_name = $2
        ORDER BY id DESC LIMIT 1";
    let charts: Vec<(String,)> = select!(fetch_all, tx, SELECT, name);
    let repo: Option<(Option<String>,)> = select!(fetch_optional, tx, REPO, name);
    let repo = repo
        .and_then(|(repo,)| serde_json::from_str(&repo?).ok())
        .unwrap_or_default();
    let (mut skipped, mut rows, mut bytes) = (
        SkippedVersions {
            versions: Vec::new(),
            repo,
        },
        0,
        StoredBytes::default(),
    );
    for charts in charts.chunks(CHARTS) {
        skipped.versions = skippable(tx, name, imported, charts).await?;
        let (inserted, size) = skipped.insert(tx, name).await?;
        rows += inserted;
        bytes += size;
    }
    stored_bytes::add(tx, name, bytes).await?;
    Ok(rows)
}

async fn skippable(
    tx: &mut Transaction,
    name: &NamespacedName,
    imported: usize,
    charts: &[(String,)],
) -> Result<Vec<SkippedVersion>, Error> {
    let statement = sql!(tx, "files_skippable.sql");
    let imported = i64::try_from(imported).unwrap_or(i64::MAX);
    let charts: Vec<&str> = charts.iter().map(|(chart_id,)| &**chart_id).collect();
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            query.bind(imported).bind(Json(charts)).fetch_all(connection).await?
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            query.bind(imported).bind(charts).fetch_all(connection).await?
        }
    })
}
