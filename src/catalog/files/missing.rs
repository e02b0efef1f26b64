//! Versions without files. The database finds them, because the charts of a large repository are expensive to read.

use jiff::Timestamp;
use sqlx::FromRow;

use crate::api::NamespacedName;
use crate::catalog::engine::{Connection, Transaction, execute, select, sql};
use crate::catalog::record::unsigned;
use crate::catalog::{Error, MissingFiles, MissingFilesPage, Progress};

pub(super) async fn files(
    connection: &mut Connection,
    name: &NamespacedName,
    only_newest: bool,
    now: Timestamp,
    limit: usize,
) -> Result<MissingFilesPage, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (statement, now) = (sql!(connection, "files_missing.sql"), now.as_millisecond());
    let rows: Vec<MissingRow> = select!(fetch_all, connection, statement, name, only_newest, now, limit);
    let next_try = rows.first().and_then(|row| row.next_try);
    Ok(MissingFilesPage {
        files: rows.into_iter().filter_map(MissingRow::files).collect(),
        next_try: next_try.and_then(|millis| Timestamp::from_millisecond(millis).ok()),
    })
}

pub(super) async fn progress(
    connection: &mut Connection,
    name: &NamespacedName,
    only_newest: bool,
) -> Result<Progress, Error> {
    let (statement, tries) = (sql!(connection, "files_progress.sql"), i64::from(Progress::TRIES));
    let (total, open, failed): (i64, i64, i64) = select!(fetch_one, connection, statement, name, only_newest, tries);
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
        written = execute!(tx, statement, name, imported_versions);
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
