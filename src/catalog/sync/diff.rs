use std::{collections::HashMap, io};

use futures::FutureExt;

use super::batch::{Batch, RowChange};
use super::retention::RetentionPlan;
use super::stored::{self, StoredChart, StoredCharts, StoredComparison};
use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, execute};
use crate::catalog::news::ChangeLog;
use crate::catalog::{ChartRow, CommitSummary, Error, ErrorKind, RepoRef, Retention, StoredBytes, stored_bytes};

const DELETE_BATCH: usize = 1000;

pub(super) struct DiffOptions {
    pub(super) retention: Option<Retention>,
    /// A chart that differs only in creation times is written.
    pub(super) compares_times: bool,
    /// Changed versions are returned.
    pub(super) has_sinks: bool,
}

/// Writes changed charts, and deletes or retains missing ones. `unchanged_rows` are not in `rows`. Returns the changed
/// versions.
pub(super) async fn write_charts(
    tx: &mut Transaction,
    name: &NamespacedName,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    options: DiffOptions,
    unchanged_rows: &HashMap<String, i64>,
    committed: &mut CommitSummary,
) -> Result<ChangeLog, Error> {
    let has_sinks = options.has_sinks;
    let mut plan = RetentionPlan::load(tx, name, options.retention).await?;
    let comparison = StoredComparison {
        versions: plan.is_enabled() || has_sinks,
        times: options.compares_times,
    };
    let StoredCharts {
        charts: mut stored,
        nameless: mut deleted,
        nameless_bytes,
    } = StoredCharts::read(tx, name, unchanged_rows, comparison).boxed().await?;
    committed.unchanged += unchanged_rows.len() as u64;
    committed.bytes.charts -= nameless_bytes;
    let (mut batch, mut repo) = (Batch::new(name, committed, has_sinks), None);
    for row in rows {
        let mut row = row.map_err(Error::rows)?;
        repo.get_or_insert_with(|| row.info.repo.clone());
        let change = match stored.get_mut(&row.chart_id) {
            // Another chart has the same ID, or this chart has changed.
            None if unchanged_rows.contains_key(&row.chart_id) => return Err(ErrorKind::StaleDigests.into()),
            None => {
                stored.insert(row.chart_id.clone(), StoredChart::new_row());
                batch.report(&row.chart_id, || ChangeLog::of_chart(&row.chart_id, &[], &row.info));
                RowChange::Insert
            }
            Some(stored) if stored.seen => {
                let reason = "another chart of this repository has the same id".to_owned();
                batch.committed.rejected.push((row.chart_id, reason));
                continue;
            }
            Some(stored) => {
                stored.seen = true;
                add_retained(tx, &mut plan, stored, &mut row).await?;
                if stored.fingerprint == Some(comparison.fingerprint(&row.info)) {
                    batch.committed.unchanged += 1;
                    continue;
                }
                batch.committed.bytes.charts -= stored.bytes;
                // The versions of a row in another format are unknown.
                if stored.fingerprint.is_some() {
                    let changes = || ChangeLog::of_chart(&row.chart_id, &stored.versions, &row.info);
                    batch.report(&row.chart_id, changes);
                }
                stored.change_to(&row.info)
            }
        };
        batch.push(tx, row, change).await?;
    }
    stored.retain(|_, stored| !stored.seen);
    if repo.is_none() && plan.is_enabled() && !stored.is_empty() {
        repo = repo_of(tx, unchanged_rows).await?;
    }
    deleted.extend(write_missing(tx, &mut batch, &mut plan, stored, repo).await?);
    batch.write(tx).await?;
    let changes = batch.changes;
    committed.removed = delete_charts(tx, name, &deleted, &mut committed.bytes).await?;
    committed.kept = plan.save(tx, name).await?;
    Ok(changes)
}

/// Cuts charts that left the index to their retained versions. Returns the row IDs of those without any.
async fn write_missing(
    tx: &mut Transaction,
    batch: &mut Batch<'_>,
    plan: &mut RetentionPlan,
    stored: HashMap<String, StoredChart>,
    repo: Option<RepoRef>,
) -> Result<Vec<i64>, Error> {
    let mut deleted = Vec::new();
    // In an order that gives the same news each time.
    let mut missing: Vec<(String, StoredChart)> = stored.into_iter().collect();
    missing.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    for (chart_id, stored) in missing {
        let has_other_source = repo.is_some() && stored.repo != repo;
        let versions: &[String] = if has_other_source { &[] } else { &stored.versions };
        let retained = plan.retain_chart(&chart_id, versions);
        if retained.is_empty() {
            batch.committed.bytes.charts -= stored.bytes;
            deleted.push(stored.id);
            if batch.has_sinks {
                batch.changes.append(ChangeLog::of_deleted(&chart_id, &stored.versions));
            }
        } else if retained.len() == stored.versions.len() {
            batch.committed.unchanged += 1;
        } else if let Some(mut info) = stored::info(tx, stored.id).await? {
            info.chart_versions
                .retain(|version| retained.contains(&version.version));
            batch.committed.bytes.charts -= stored.bytes;
            batch.report(&chart_id, || ChangeLog::of_chart(&chart_id, &stored.versions, &info));
            let change = RowChange::update(stored.id);
            batch.push(tx, ChartRow { chart_id, info }, change).await?;
        }
    }
    Ok(deleted)
}

async fn repo_of(tx: &mut Transaction, unchanged_rows: &HashMap<String, i64>) -> Result<Option<RepoRef>, Error> {
    match unchanged_rows.values().next() {
        Some(id) => Ok(stored::info(tx, *id).await?.map(|info| info.repo)),
        None => Ok(None),
    }
}

async fn add_retained(
    tx: &mut Transaction,
    plan: &mut RetentionPlan,
    stored: &StoredChart,
    row: &mut ChartRow,
) -> Result<(), Error> {
    if !plan.is_enabled() {
        return Ok(());
    }
    let retained = plan.retain_versions(&row.chart_id, stored.missing_in(&row.info));
    if !retained.is_empty()
        && let Some(info) = stored::info(tx, stored.id).await?
    {
        plan.merge(&mut row.info, info, &retained);
    }
    Ok(())
}

/// Deletes charts by row ID, and subtracts the size of their files. The database cascades to these; their metadata,
/// icons and failures are deleted here.
pub(super) async fn delete_charts(
    tx: &mut Transaction,
    name: &NamespacedName,
    ids: &[i64],
    bytes: &mut StoredBytes,
) -> Result<u64, Error> {
    const DELETE_DERIVED: [&str; 4] = [
        "DELETE FROM portolan_chart_metadata WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_chart_metadata.chart_id)",
        "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_files.chart_id)",
        "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_icons.chart_id)",
        "DELETE FROM portolan_svg_icons WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_svg_icons.chart_id)",
    ];
    let mut deleted = 0;
    for ids in ids.chunks(DELETE_BATCH) {
        bytes.files -= stored_bytes::size_of_files(tx, ids).await?;
        deleted += delete_by_id(tx, ids).await?;
    }
    if deleted > 0 {
        for statement in DELETE_DERIVED {
            execute!(tx, statement, name);
        }
    }
    Ok(deleted)
}

/// Works in batches: one statement for a large repository would take longer than the server allows.
pub(in crate::catalog) async fn delete_all_charts(tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
    let rows = stored::ids(tx, name).await?;
    let ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
    let mut deleted = 0;
    for ids in ids.chunks(DELETE_BATCH) {
        deleted += delete_by_id(tx, ids).await?;
    }
    Ok(deleted)
}

async fn delete_by_id(tx: &mut Transaction, ids: &[i64]) -> Result<u64, Error> {
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query("DELETE FROM charts WHERE id IN (SELECT value FROM json_each($1))");
            let query = query.bind(sqlx::types::Json(ids));
            query.execute(connection).await?.rows_affected()
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query("DELETE FROM charts WHERE id = ANY($1)").bind(ids);
            query.execute(connection).await?.rows_affected()
        }
    })
}
