//! The charts of a sync against those that are stored, one by one.

use std::{collections::HashMap, io};

use futures::FutureExt;

use super::batch::{Batch, Change};
use super::retention::Keeper;
use super::stored::{self, Stored, StoredCharts};
use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, on_engine};
use crate::catalog::{ChartRow, Committed, Error, Keep, RepoRef};

/// How many rows are deleted by one statement.
const DELETE_AT_ONCE: usize = 1000;

/// Writes what differs, and removes what is no more or keeps it for a while. The `untouched`, by chart_id with the ids of their
/// rows, are in the index as they are stored, and so are not among the rows.
pub(super) async fn charts(
    tx: &mut Transaction,
    name: &NamespacedName,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    keep: Option<Keep>,
    untouched: &HashMap<String, i64>,
    committed: &mut Committed,
) -> Result<(), Error> {
    let mut keeper = Keeper::load(tx, name, keep).await?;
    let StoredCharts {
        charts: mut stored,
        nameless: mut gone,
    } = StoredCharts::read(tx, name, untouched, keeper.is_on()).boxed().await?;
    committed.unchanged += untouched.len() as u64;
    let (mut batch, mut repo) = (Batch::default(), None);
    for row in rows {
        let mut row = row.map_err(|source| Error::Rows { source })?;
        repo.get_or_insert_with(|| row.info.repo.clone());
        let change = match stored.get_mut(&row.chart_id) {
            // The row is another chart's, or this one has changed after all.
            None if untouched.contains_key(&row.chart_id) => return Err(Error::OutdatedCuts),
            None => {
                stored.insert(row.chart_id.clone(), Stored::new_row());
                Change::Insert
            }
            Some(stored) if stored.seen => {
                let reason = "another chart of this repository has the same id".to_owned();
                committed.rejected.push((row.chart_id, reason));
                continue;
            }
            Some(stored) => {
                stored.seen = true;
                add_kept(tx, &mut keeper, stored, &mut row).await?;
                if stored.fingerprint == Some(row.info.fingerprint()) {
                    committed.unchanged += 1;
                    continue;
                }
                stored.change_to(&row.info)
            }
        };
        batch.push(row, change)?;
        if batch.is_full(tx) {
            batch.write(tx, name, committed).await?;
        }
    }
    stored.retain(|_, stored| !stored.seen);
    if repo.is_none() && keeper.is_on() && !stored.is_empty() {
        repo = repo_of(tx, untouched).await?;
    }
    for (chart_id, stored) in stored {
        let is_of_other_index = repo.is_some() && stored.repo != repo;
        let versions: &[String] = if is_of_other_index { &[] } else { &stored.versions };
        let kept = keeper.keep_of_chart(&chart_id, versions);
        if kept.is_empty() {
            gone.push(stored.id);
        } else if kept.len() == stored.versions.len() {
            committed.unchanged += 1;
        } else if let Some(mut info) = stored::info(tx, stored.id).await? {
            info.chart_versions.retain(|version| kept.contains(&version.version));
            batch.push(ChartRow { chart_id, info }, Change::update(stored.id))?;
            if batch.is_full(tx) {
                batch.write(tx, name, committed).await?;
            }
        }
    }
    batch.write(tx, name, committed).await?;
    committed.removed = delete_charts(tx, name, &gone).await?;
    committed.kept = keeper.save(tx, name).await?;
    Ok(())
}

/// Where the charts of this index are from, where none of them is new: one tells for all.
async fn repo_of(tx: &mut Transaction, untouched: &HashMap<String, i64>) -> Result<Option<RepoRef>, Error> {
    match untouched.values().next() {
        Some(id) => Ok(stored::info(tx, *id).await?.map(|info| info.repo)),
        None => Ok(None),
    }
}

/// Puts those versions into the row that left the index and stay for a while.
async fn add_kept(tx: &mut Transaction, keeper: &mut Keeper, stored: &Stored, row: &mut ChartRow) -> Result<(), Error> {
    let kept = keeper.keep_of_versions(&row.chart_id, stored.missing_in(&row.info));
    if !kept.is_empty()
        && let Some(info) = stored::info(tx, stored.id).await?
    {
        keeper.merge(&mut row.info, info, &kept);
    }
    Ok(())
}

/// Deletes charts by the ids of their rows. Their files go with them, and so does what we remember of those.
pub(super) async fn delete_charts(tx: &mut Transaction, name: &NamespacedName, ids: &[i64]) -> Result<u64, Error> {
    const FORGET: [&str; 2] = [
        "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_files.chart_id)",
        "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_icons.chart_id)",
    ];
    let mut deleted = 0;
    for ids in ids.chunks(DELETE_AT_ONCE) {
        deleted += match tx {
            Engine::Sqlite(tx) => sqlx::query("DELETE FROM charts WHERE id IN (SELECT value FROM json_each($1))")
                .bind(sqlx::types::Json(ids))
                .execute(&mut **tx)
                .await?
                .rows_affected(),
            Engine::Postgres(tx) => sqlx::query("DELETE FROM charts WHERE id = ANY($1)")
                .bind(ids)
                .execute(&mut **tx)
                .await?
                .rows_affected(),
        };
    }
    if deleted > 0 {
        for statement in FORGET {
            on_engine!(&mut *tx, tx => {
                sqlx::query(statement).bind(&name.namespace).bind(&name.name).execute(&mut **tx).await?;
            });
        }
    }
    Ok(deleted)
}
