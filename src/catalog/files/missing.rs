//! Versions without files. The database finds them, because the charts of a large repository are expensive to read.

use jiff::Timestamp;
use sqlx::FromRow;

use crate::api::NamespacedName;
use crate::catalog::engine::{Pools, Transaction, on_engine, sql};
use crate::catalog::record::unsigned;
use crate::catalog::{Error, FilesMode, MissingFiles, MissingFilesPage, Progress};

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
) -> Result<MissingFilesPage, Error> {
    let reader = pools.reader();
    let statement = sql!(reader, "files_missing.sql");
    let rows: Vec<MissingRow> = on_engine!(reader, pool => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(mode.only_newest)
        .bind(now.as_millisecond())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(pool)
        .await?);
    let next_try = rows.first().and_then(|row| row.next_try);
    Ok(MissingFilesPage {
        files: rows.into_iter().filter_map(MissingRow::files).collect(),
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

/// Inserts empty rows for versions without one, except the first `imported_versions` of each chart.
pub(super) async fn skip(tx: &mut Transaction, name: &NamespacedName, imported_versions: i64) -> Result<u64, Error> {
    let statements = [sql!(tx, "files_mark_skipped.sql"), sql!(tx, "files_insert_skipped.sql")];
    let mut written = 0;
    for statement in statements {
        written = on_engine!(&mut *tx, tx => sqlx::query(statement)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(imported_versions)
            .execute(&mut **tx)
            .await?
            .rows_affected());
    }
    Ok(written)
}

/// All columns but `next_try` are null if no files are missing now.
#[derive(FromRow)]
struct MissingRow {
    next_try: Option<i64>,
    chart_id: Option<String>,
    version: Option<String>,
    digest: Option<String>,
    urls: Option<String>,
    tries: Option<i64>,
}

impl MissingRow {
    fn files(self) -> Option<MissingFiles> {
        let urls = self
            .urls
            .and_then(|urls| serde_json::from_str::<Option<Vec<String>>>(&urls).ok());
        Some(MissingFiles {
            chart_id: self.chart_id?,
            version: self.version?,
            digest: self.digest?,
            urls: urls.flatten().filter(|urls| !urls.is_empty()),
            tries: u32::try_from(self.tries?).unwrap_or(u32::MAX),
        })
    }
}
