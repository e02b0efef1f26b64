//! Failed downloads and their next retry: `portolan_files` and `portolan_icons`, two tables of the same form.
//!
//! A row counts the tries of one subject (an archive by its digest, an icon by its URL). A new subject starts at 1. A row
//! without tries is a warning of an imported archive, or marks a version whose files are not imported.

use jiff::Timestamp;
use sqlx::types::Json;

use super::MissingFiles;
use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, execute, select, sql};
use crate::catalog::record::{lock_if_uid, storable};
use crate::catalog::{Catalog, Error, MissingIcon};

/// A row of `portolan_files`.
#[derive(serde::Serialize)]
pub(super) struct FailureRow(String, String, String, i64, i64, String);

impl FailureRow {
    pub(super) fn failure(missing: &MissingFiles, message: &str, next_try: Timestamp) -> Self {
        Self::new(missing, 1, next_try.as_millisecond(), message)
    }

    pub(super) fn warning(missing: &MissingFiles, message: &str) -> Self {
        Self::new(missing, 0, 0, message)
    }

    fn new(missing: &MissingFiles, tries: i64, next_try: i64, message: &str) -> Self {
        Self(
            missing.chart_id.clone(),
            missing.files_id(),
            missing.digest.clone(),
            tries,
            next_try,
            storable(message).into_owned(),
        )
    }
}

pub(super) async fn record(tx: &mut Transaction, name: &NamespacedName, problems: &[FailureRow]) -> Result<(), Error> {
    if problems.is_empty() {
        return Ok(());
    }
    let statement = sql!(tx, "files_problems_upsert.sql");
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            query.bind(Json(problems)).execute(connection).await?;
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            let query = query
                .bind(problems.iter().map(|row| &*row.0).collect::<Vec<_>>())
                .bind(problems.iter().map(|row| &*row.1).collect::<Vec<_>>())
                .bind(problems.iter().map(|row| &*row.2).collect::<Vec<_>>())
                .bind(problems.iter().map(|row| row.3).collect::<Vec<_>>())
                .bind(problems.iter().map(|row| row.4).collect::<Vec<_>>())
                .bind(problems.iter().map(|row| &*row.5).collect::<Vec<_>>());
            query.execute(connection).await?;
        }
    }
    Ok(())
}

/// Deletes the rows of these pairs of `chart_id` and `chart_files_id`.
pub(super) async fn delete(tx: &mut Transaction, name: &NamespacedName, files: &[(&str, String)]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2
        AND (chart_id, chart_files_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each($3))";
    const POSTGRES: &str = "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2
        AND (chart_id, chart_files_id) IN (SELECT * FROM unnest($3::text[], $4::text[]))";
    if files.is_empty() {
        return Ok(());
    }
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            query.bind(Json(files)).execute(connection).await?;
        }
        Engine::Postgres(connection) => {
            let (charts, files): (Vec<&str>, Vec<&str>) = files.iter().map(|(chart, file)| (*chart, &**file)).unzip();
            let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
            query.bind(charts).bind(files).execute(connection).await?;
        }
    }
    Ok(())
}

pub(in crate::catalog) async fn record_icon(
    tx: &mut Transaction,
    name: &NamespacedName,
    icon: &MissingIcon,
    message: &str,
    next_try: Timestamp,
) -> Result<(), Error> {
    const UPSERT: &str = "INSERT INTO portolan_icons (namespace, name, chart_id, url, next_try, message, tries)
        VALUES ($1, $2, $3, $4, $5, $6, 1)
        ON CONFLICT (namespace, name, chart_id) DO UPDATE SET url = excluded.url,
            tries = CASE WHEN portolan_icons.url = excluded.url THEN portolan_icons.tries + 1 ELSE 1 END,
            next_try = excluded.next_try, message = excluded.message";
    let (next_try, message) = (next_try.as_millisecond(), storable(message));
    execute!(tx, UPSERT, name, &icon.chart_id, &icon.url, next_try, &*message);
    Ok(())
}

pub(in crate::catalog) async fn delete_icon(
    tx: &mut Transaction,
    name: &NamespacedName,
    icon: &MissingIcon,
) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND chart_id = $3";
    execute!(tx, DELETE, name, &icon.chart_id);
    Ok(())
}

/// Makes all failures due.
pub(in crate::catalog) async fn retry(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    for statement in [
        "UPDATE portolan_files SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
        "UPDATE portolan_icons SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
    ] {
        execute!(tx, statement, name);
    }
    Ok(())
}

impl Catalog {
    /// Makes all failures of the repository due, as the commit of a requested sync does.
    pub async fn retry_failures(&self, name: &NamespacedName, uid: &str) -> Result<(), Error> {
        self.write("retry failed chart files", &name.namespace, async |tx| {
            if lock_if_uid(tx, name, uid).await? {
                retry(tx, name).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns up to `limit` versions without files, or with files of another archive than the index names, ordered by ID,
    /// each with the reason.
    pub async fn files_problems(&self, name: &NamespacedName, limit: usize) -> Result<Vec<(String, String)>, Error> {
        const SELECT: &str = "SELECT chart_files_id, message FROM portolan_files
            WHERE namespace = $1 AND name = $2 AND message <> '' ORDER BY chart_files_id LIMIT $3";
        self.read(
            "read the failures of chart files",
            &name.namespace,
            async |connection| {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                Ok(select!(fetch_all, connection, SELECT, name, limit))
            },
        )
        .await
    }
}
