//! Writes the results of an import in groups: a transaction for each archive would cost more than everything else.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use sqlx::types::Json;

use super::failures::{self, FailureRow};
use super::metadata::{self, MetadataRow};
use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, sql};
use crate::catalog::{Catalog, Error, ErrorKind, FetchedFiles, MissingFiles, record, stored_bytes};

const REJECTED_RETRY: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug)]
pub enum FilesResult {
    Imported(FetchedFiles),
    /// A version without files gets an empty row; files of an earlier archive stay.
    Failed {
        missing: MissingFiles,
        message: String,
        next_try: Timestamp,
    },
}

impl FilesResult {
    #[must_use]
    pub const fn missing(&self) -> &MissingFiles {
        match self {
            Self::Imported(files) => &files.missing,
            Self::Failed { missing, .. } => missing,
        }
    }
}

struct FilesRow<'a> {
    chart_id: &'a str,
    files_id: String,
    info: Cow<'a, str>,
}

struct CurrentRow {
    /// Position in the group.
    at: usize,
    repo: Box<RawValue>,
    /// Size of the stored files.
    bytes: i64,
}

impl Catalog {
    /// Returns the number of results whose version still exists with the same digest; others are obsolete. Equal rows
    /// are not touched. Files that the database rejects are found by bisection and recorded as failed. Fails with
    /// [`ErrorKind::QuotaExceeded`] beyond the allowed space; results before it are written.
    pub async fn write_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        results: &mut [FilesResult],
    ) -> Result<u64, Error> {
        let mut written = 0;
        let mut pending = vec![results];
        while let Some(results) = pending.pop() {
            let group = &mut *results;
            let outcome = self.write("write chart files", &name.namespace, async |tx| {
                write(self, tx, name, uid, group).await
            });
            match outcome.await {
                Ok(count) => written += count,
                Err(error) if results.len() > 1 && is_of_one_result(&error) => {
                    let (left, right) = results.split_at_mut(results.len() / 2);
                    pending.extend([right, left]);
                }
                // A process that does not take our lock deleted the chart before our write.
                Err(error) if error.is_foreign_key_violation() => {}
                Err(error) if error.is_invalid_data() && matches!(results, [FilesResult::Imported(_)]) => {
                    for result in &mut *results {
                        *result = reject(result.missing(), &error);
                    }
                    pending.push(results);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

/// Files that the database rejects, such as characters that its encoding lacks, are not requested again soon.
fn reject(missing: &MissingFiles, error: &Error) -> FilesResult {
    FilesResult::Failed {
        missing: missing.clone(),
        message: error.to_string(),
        next_try: Timestamp::now() + REJECTED_RETRY,
    }
}

fn is_of_one_result(error: &Error) -> bool {
    error.is_invalid_data()
        || error.is_foreign_key_violation()
        || matches!(error.kind(), ErrorKind::QuotaExceeded { .. })
}

async fn write(
    catalog: &Catalog,
    tx: &mut Transaction,
    name: &NamespacedName,
    uid: &str,
    results: &mut [FilesResult],
) -> Result<u64, Error> {
    if !record::lock_if_uid(tx, name, uid).await? {
        return Ok(0);
    }
    let current = current(tx, name, results).await?;
    for CurrentRow { at, repo, .. } in &current {
        if let Some(FilesResult::Imported(files)) = results.get_mut(*at) {
            files.complete(repo)?;
        }
    }
    let (mut imported, mut empty, mut problems, mut solved) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut metadata_rows = Vec::new();
    for CurrentRow { at, repo, .. } in &current {
        let Some(result) = results.get(*at) else { continue };
        let missing = result.missing();
        let row = |info| FilesRow {
            chart_id: &missing.chart_id,
            files_id: missing.files_id(),
            info,
        };
        match result {
            FilesResult::Imported(files) => {
                imported.push(row(Cow::Borrowed(files.info())));
                metadata_rows.push(MetadataRow::of(files));
                match &files.warning {
                    // Without a digest, the row would make the version count as missing again.
                    Some(warning) if !missing.digest.is_empty() => problems.push(FailureRow::warning(missing, warning)),
                    _ => solved.push((&*missing.chart_id, missing.files_id())),
                }
            }
            FilesResult::Failed { message, next_try, .. } => {
                let mut files = FetchedFiles::empty(missing)?;
                files.complete(repo)?;
                empty.push(row(Cow::Owned(files.info().to_owned())));
                problems.push(FailureRow::failure(missing, message, *next_try));
            }
        }
    }
    let (overwrite, insert) = (sql!(tx, "files_upsert.sql"), sql!(tx, "files_insert.sql"));
    insert_rows(tx, name, overwrite, &imported).await?;
    insert_rows(tx, name, insert, &empty).await?;
    metadata::write(tx, name, &metadata_rows).await?;
    failures::record(tx, name, &problems).await?;
    failures::delete(tx, name, &solved).await?;
    let files: Vec<&str> = imported.iter().chain(&empty).map(|row| &*row.files_id).collect();
    let replaced = current.iter().map(|current| current.bytes).sum();
    stored_bytes::add_files(tx, name, &files, replaced, catalog.limits()).await?;
    Ok(current.len() as u64)
}

async fn current(
    tx: &mut Transaction,
    name: &NamespacedName,
    results: &[FilesResult],
) -> Result<Vec<CurrentRow>, Error> {
    let statement = sql!(tx, "files_current.sql");
    let wanted = results.iter().map(|result| {
        let MissingFiles {
            chart_id,
            version,
            digest,
            ..
        } = result.missing();
        (&**chart_id, &**version, &**digest)
    });
    let rows: Vec<(i64, Option<String>, i64)> = match tx.executor() {
        Engine::Sqlite(connection) => {
            let wanted = Json(wanted.collect::<Vec<_>>());
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            query.bind(wanted).fetch_all(connection).await?
        }
        Engine::Postgres(connection) => {
            let (mut charts, mut versions, mut digests) = (Vec::new(), Vec::new(), Vec::new());
            for (chart_id, version, digest) in wanted {
                charts.push(chart_id);
                versions.push(version);
                digests.push(digest);
            }
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            let query = query.bind(charts).bind(versions).bind(digests);
            query.fetch_all(connection).await?
        }
    };
    let current = rows.into_iter().map(|(position, repo, bytes)| {
        let repo = RawValue::from_string(repo.unwrap_or_else(|| "null".to_owned()));
        Ok(CurrentRow {
            at: usize::try_from(position - 1).unwrap_or(usize::MAX),
            repo: repo.map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
            bytes,
        })
    });
    current.collect()
}

/// Writes rows: one by one on SQLite, which has no round trips to save.
async fn insert_rows(
    tx: &mut Transaction,
    name: &NamespacedName,
    statement: &'static str,
    rows: &[FilesRow<'_>],
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    match tx.executor() {
        Engine::Sqlite(connection) => {
            for row in rows {
                let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
                let query = query.bind(row.chart_id).bind(&row.files_id).bind(&*row.info);
                query.execute(&mut *connection).await?;
            }
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query(statement)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(rows.iter().map(|row| row.chart_id).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| &*row.files_id).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| &*row.info).collect::<Vec<_>>());
            query.execute(connection).await?;
        }
    }
    Ok(())
}
