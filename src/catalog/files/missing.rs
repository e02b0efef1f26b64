//! The versions that have no files yet. The database finds them, since the charts of a large repository would be much to read.

use jiff::Timestamp;
use sqlx::FromRow;

use crate::api::NamespacedName;
use crate::catalog::engine::{Pools, Transaction, on_engine, sql};
use crate::catalog::record::unsigned;
use crate::catalog::{Error, FilesMode, Progress, Wanted, WantedFiles};

/// A mode that wants something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    only_newest: bool,
}

impl Mode {
    pub(super) const fn of(mode: FilesMode) -> Option<Self> {
        match mode {
            FilesMode::All => Some(Self { only_newest: false }),
            FilesMode::Latest => Some(Self { only_newest: true }),
            FilesMode::None => None,
        }
    }
}

pub(super) async fn files(
    pools: &Pools,
    name: &NamespacedName,
    mode: Mode,
    now: Timestamp,
    limit: usize,
) -> Result<Wanted, Error> {
    let reader = pools.reader();
    let statement = sql!(reader, "files_wanted.sql");
    let rows: Vec<WantedRow> = on_engine!(reader, pool => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(mode.only_newest)
        .bind(now.as_millisecond())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(pool)
        .await?);
    let next_try = rows.first().and_then(|row| row.next_try);
    Ok(Wanted {
        files: rows.into_iter().filter_map(WantedRow::files).collect(),
        next_try: next_try.and_then(|millis| Timestamp::from_millisecond(millis).ok()),
    })
}

pub(super) async fn progress(pools: &Pools, name: &NamespacedName, mode: Mode) -> Result<Progress, Error> {
    let reader = pools.reader();
    let statement = sql!(reader, "files_progress.sql");
    let (total, open, failed): (i64, i64, i64) = on_engine!(reader, pool => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(mode.only_newest)
        .bind(i64::from(Progress::TRIES))
        .fetch_one(pool)
        .await?);
    Ok(Progress {
        total: unsigned(total),
        imported: unsigned(total - open),
        failed: unsigned(failed),
    })
}

/// Empty rows for all versions but the first `passed_over` of each chart, where there is none. Says how many.
pub(super) async fn leave_out(tx: &mut Transaction, name: &NamespacedName, passed_over: i64) -> Result<u64, Error> {
    let statements = [sql!(tx, "files_mark_skipped.sql"), sql!(tx, "files_insert_skipped.sql")];
    let mut written = 0;
    for statement in statements {
        written = on_engine!(&mut *tx, tx => sqlx::query(statement)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(passed_over)
            .execute(&mut **tx)
            .await?
            .rows_affected());
    }
    Ok(written)
}

/// All but the next time is null where nothing is wanted now.
#[derive(FromRow)]
struct WantedRow {
    next_try: Option<i64>,
    chart_id: Option<String>,
    version: Option<String>,
    digest: Option<String>,
    urls: Option<String>,
    tries: Option<i64>,
}

impl WantedRow {
    fn files(self) -> Option<WantedFiles> {
        let urls = self
            .urls
            .and_then(|urls| serde_json::from_str::<Option<Vec<String>>>(&urls).ok());
        Some(WantedFiles {
            chart_id: self.chart_id?,
            version: self.version?,
            digest: self.digest?,
            urls: urls.flatten().filter(|urls| !urls.is_empty()),
            tries: u32::try_from(self.tries?).unwrap_or(u32::MAX),
        })
    }
}
