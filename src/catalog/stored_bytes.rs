//! Bytes that a repository stores, and their limits: `portolan_stored_bytes`.
//!
//! Each write adds the size of the rows that it wrote, and subtracts the size of the replaced rows. Adding up all rows
//! would cost more than most syncs; only the first commit and a requested sync do that. Charts include deprecated ones, files
//! include Chart.yaml and SVG icons.

use std::ops::{Add, AddAssign};
use std::path::Path;

use sqlx::AssertSqlSafe;
use sqlx::types::Json;

use super::engine::{Engine, Transaction, execute, on_engine, select};
use super::{Error, ErrorKind};
use crate::api::NamespacedName;

const DEFAULT_REPOSITORY_LIMIT: u64 = 4 << 30;

/// Sizes in bytes, or a change of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredBytes {
    pub charts: i64,
    pub files: i64,
}

impl Add for StoredBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            charts: self.charts + other.charts,
            files: self.files + other.files,
        }
    }
}

impl AddAssign for StoredBytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Limits by `--max-repository-bytes` and `--max-namespace-bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageLimits {
    /// Default: 4 GiB, and on SQLite at most a quarter of the volume.
    pub repository: Option<u64>,
    pub namespace: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StoredLimits {
    repository: Limit,
    namespace: Option<Limit>,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    bytes: u64,
    /// The flag, and the reason of its default.
    source: &'static str,
    is_for_files: bool,
}

impl StorageLimits {
    pub(super) fn resolve(self, sqlite: Option<&Path>) -> StoredLimits {
        let flag = |bytes| Limit {
            bytes,
            source: "--max-repository-bytes",
            is_for_files: false,
        };
        let quarter = || Some(volume_bytes(sqlite?)? / 4);
        let repository = match (self.repository, quarter()) {
            (Some(bytes), _) => flag(bytes),
            (None, Some(bytes)) if bytes < DEFAULT_REPOSITORY_LIMIT => Limit {
                bytes,
                source: "a quarter of the volume of the database, unless --max-repository-bytes sets another limit",
                is_for_files: false,
            },
            (None, _) => flag(DEFAULT_REPOSITORY_LIMIT),
        };
        let namespace = self.namespace.map(|bytes| Limit {
            bytes,
            source: "--max-namespace-bytes",
            is_for_files: false,
        });
        StoredLimits { repository, namespace }
    }
}

/// Returns the size of the volume that holds the file; `None` if the directory can't be read.
fn volume_bytes(file: &Path) -> Option<u64> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    let volume = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))).ok()?;
    volume.f_blocks.checked_mul(volume.f_frsize)
}

impl StoredLimits {
    async fn check_charts(
        &self,
        tx: &mut Transaction,
        name: &NamespacedName,
        stored: StoredBytes,
    ) -> Result<(), Error> {
        self.check(tx, name, stored, |limit| limit).await
    }

    async fn check_files(&self, tx: &mut Transaction, name: &NamespacedName, stored: StoredBytes) -> Result<(), Error> {
        self.check(tx, name, stored, Limit::for_files).await
    }

    async fn check(
        &self,
        tx: &mut Transaction,
        name: &NamespacedName,
        stored: StoredBytes,
        part: impl Fn(Limit) -> Limit,
    ) -> Result<(), Error> {
        let subject = || format!("the charts and files of repository {name}");
        part(self.repository).check(stored, subject)?;
        let Some(limit) = self.namespace else { return Ok(()) };
        let subject = || format!("the charts and files of namespace {}", name.namespace);
        part(limit).check(size_of_namespace(tx, name).await?, subject)
    }
}

impl Limit {
    /// Returns the part of the limit that files may fill: with an eighth left, charts can still be synced.
    fn for_files(self) -> Self {
        Self {
            bytes: self.bytes - self.bytes / 8,
            is_for_files: true,
            ..self
        }
    }

    fn check(self, stored: StoredBytes, subject: impl FnOnce() -> String) -> Result<(), Error> {
        // Charts always have their part, also if files were stored under a higher limit.
        let most_files = if self.is_for_files {
            u64::MAX
        } else {
            self.bytes - self.bytes / 8
        };
        let files = u64::try_from(stored.files).unwrap_or_default().min(most_files);
        match u64::try_from(stored.charts).map(|charts| charts + files) {
            Ok(bytes) if bytes > self.bytes => Err(ErrorKind::QuotaExceeded {
                subject: subject(),
                bytes,
                limit: self.bytes,
                source_of_limit: if self.is_for_files {
                    format!("for files seven eighths of {}", self.source)
                } else {
                    self.source.to_owned()
                },
            }
            .into()),
            _ => Ok(()),
        }
    }
}

/// Adds the change of a commit. Counts all rows if `recount`, or if the repository was never counted.
pub(super) async fn commit(
    tx: &mut Transaction,
    name: &NamespacedName,
    change: StoredBytes,
    limits: &StoredLimits,
    recount: bool,
) -> Result<(), Error> {
    const SELECT: &str = "SELECT charts, files FROM portolan_stored_bytes WHERE namespace = $1 AND name = $2";
    const UPSERT: &str = "INSERT INTO portolan_stored_bytes (namespace, name, charts, files) VALUES ($1, $2, $3, $4)
        ON CONFLICT (namespace, name) DO UPDATE SET charts = excluded.charts, files = excluded.files";
    if !recount && change == StoredBytes::default() {
        return Ok(());
    }
    let before: Option<StoredBytes> = select!(fetch_optional, tx, SELECT, name);
    let stored = match before {
        Some(before) if !recount => before + change,
        _ => StoredBytes {
            charts: total_size(tx, name, "info", "charts").await?
                + total_size(tx, name, "info", "portolan_deprecated_charts").await?,
            files: total_size(tx, name, "info", "files").await?
                + total_size(tx, name, "metadata", "portolan_chart_metadata").await?
                + total_size(tx, name, "svg", "portolan_svg_icons").await?
                + total_size(tx, name, "url", "portolan_svg_icons").await?,
        },
    };
    execute!(tx, UPSERT, name, stored.charts, stored.files);
    if change.charts > 0 {
        limits.check_charts(tx, name, stored).await?;
    }
    Ok(())
}

pub(super) async fn add(tx: &mut Transaction, name: &NamespacedName, change: StoredBytes) -> Result<(), Error> {
    const UPDATE: &str = "UPDATE portolan_stored_bytes SET charts = charts + $3, files = files + $4
        WHERE namespace = $1 AND name = $2";
    execute!(tx, UPDATE, name, change.charts, change.files);
    Ok(())
}

/// Adds the size of files, by `chart_files_id`, that were written in place of `replaced` bytes.
pub(super) async fn add_files(
    tx: &mut Transaction,
    name: &NamespacedName,
    files: &[&str],
    replaced: i64,
    limits: &StoredLimits,
) -> Result<(), Error> {
    let (size, listed) = tx.choose(
        ("octet_length", "IN (SELECT value FROM json_each($4))"),
        ("pg_column_size", "= ANY($4)"),
    );
    let statement = AssertSqlSafe(format!(
        "UPDATE portolan_stored_bytes SET files = files - $3
            + (SELECT CAST(coalesce(sum({size}(f.info) + coalesce({size}(d.metadata), 0)), 0) AS BIGINT)
                FROM files f LEFT JOIN portolan_chart_metadata d ON d.namespace = $1 AND d.name = $2
                    AND d.chart_id = f.chart_id AND d.chart_files_id = f.chart_files_id
                WHERE f.repo_namespace = $1 AND f.chart_files_id {listed})
        WHERE namespace = $1 AND name = $2 RETURNING charts, files"
    ));
    let stored: Option<StoredBytes> = match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            let query = query.bind(replaced).bind(Json(files));
            query.fetch_optional(connection).await?
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query_as(statement).bind(&name.namespace).bind(&name.name);
            query.bind(replaced).bind(files).fetch_optional(connection).await?
        }
    };
    match stored {
        Some(stored) => limits.check_files(tx, name, stored).await,
        // Counted by the next commit.
        None => Ok(()),
    }
}

/// Adds the change of the size of an SVG icon, which counts as a file.
pub(super) async fn add_svg_icon(
    tx: &mut Transaction,
    name: &NamespacedName,
    change: i64,
    limits: &StoredLimits,
) -> Result<(), Error> {
    const UPDATE: &str = "UPDATE portolan_stored_bytes SET files = files + $3
        WHERE namespace = $1 AND name = $2 RETURNING charts, files";
    let stored: Option<StoredBytes> = select!(fetch_optional, tx, UPDATE, name, change);
    match stored {
        Some(stored) if change > 0 => limits.check_files(tx, name, stored).await,
        // Counted by the next commit.
        _ => Ok(()),
    }
}

pub(super) async fn size_of_charts(tx: &mut Transaction, name: &NamespacedName, charts: &[&str]) -> Result<i64, Error> {
    const SQLITE: &str = "SELECT coalesce(sum(octet_length(info)), 0) FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id IN (SELECT value FROM json_each($3))";
    const POSTGRES: &str = "SELECT CAST(coalesce(sum(pg_column_size(info)), 0) AS BIGINT) FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = ANY($3)";
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query_scalar(SQLITE).bind(&name.namespace).bind(&name.name);
            query.bind(Json(charts)).fetch_one(connection).await?
        }
        Engine::Postgres(connection) => {
            let query = sqlx::query_scalar(POSTGRES).bind(&name.namespace).bind(&name.name);
            query.bind(charts).fetch_one(connection).await?
        }
    })
}

/// Returns the size of the files, the metadata and the SVG icons of charts, by row ID.
pub(super) async fn size_of_files(tx: &mut Transaction, ids: &[i64]) -> Result<i64, Error> {
    let (size, listed) = tx.choose(
        ("octet_length", "IN (SELECT value FROM json_each($1))"),
        ("pg_column_size", "= ANY($1)"),
    );
    let statement = AssertSqlSafe(format!(
        "SELECT CAST(
        (SELECT coalesce(sum({size}(f.info)), 0) FROM charts c JOIN files f
            ON f.repo_name = c.repo_name AND f.repo_namespace = c.repo_namespace AND f.chart_id = c.chart_id
        WHERE c.id {listed})
        + (SELECT coalesce(sum({size}(d.metadata)), 0) FROM charts c JOIN portolan_chart_metadata d
            ON d.name = c.repo_name AND d.namespace = c.repo_namespace AND d.chart_id = c.chart_id
        WHERE c.id {listed})
        + (SELECT coalesce(sum({size}(s.svg) + {size}(s.url)), 0) FROM charts c JOIN portolan_svg_icons s
            ON s.name = c.repo_name AND s.namespace = c.repo_namespace AND s.chart_id = c.chart_id
        WHERE c.id {listed}) AS BIGINT)"
    ));
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query_scalar(statement).bind(Json(ids));
            query.fetch_one(connection).await?
        }
        Engine::Postgres(connection) => sqlx::query_scalar(statement).bind(ids).fetch_one(connection).await?,
    })
}

/// Returns the size of a column in all rows of the repository, as stored: compressed on Postgres. Neither engine reads
/// the value for it.
pub(super) async fn total_size(
    tx: &mut Transaction,
    name: &NamespacedName,
    column: &'static str,
    table: &'static str,
) -> Result<i64, Error> {
    let size = tx.choose("octet_length", "pg_column_size");
    let repo = if table.starts_with("portolan_") { "" } else { "repo_" };
    let statement = AssertSqlSafe(format!(
        "SELECT CAST(coalesce(sum({size}({column})), 0) AS BIGINT) FROM {table}
        WHERE {repo}namespace = $1 AND {repo}name = $2"
    ));
    let (bytes,): (i64,) = select!(fetch_one, tx, statement, name);
    Ok(bytes)
}

async fn size_of_namespace(tx: &mut Transaction, name: &NamespacedName) -> Result<StoredBytes, Error> {
    const SELECT: &str = "SELECT CAST(coalesce(sum(charts), 0) AS BIGINT) AS charts,
            CAST(coalesce(sum(files), 0) AS BIGINT) AS files
        FROM portolan_stored_bytes WHERE namespace = $1";
    Ok(on_engine!(tx.executor(), executor =>
        sqlx::query_as(SELECT).bind(&name.namespace).fetch_one(executor).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limit_is_a_quarter_of_a_small_volume_and_4_gib_otherwise() {
        let limits = StorageLimits::default().resolve(None);
        assert_eq!(limits.repository.bytes, 4 << 30);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("portolan.db");
        let volume = volume_bytes(&file).unwrap();
        let limits = StorageLimits::default().resolve(Some(&file));
        assert_eq!(limits.repository.bytes, (volume / 4).min(4 << 30));
    }

    #[test]
    fn a_flag_takes_precedence_and_is_named_in_the_error() {
        let limits = StorageLimits {
            repository: Some(7),
            namespace: None,
        };
        let limit = limits.resolve(Some(Path::new("portolan.db"))).repository;
        let stored = |charts, files| StoredBytes { charts, files };
        assert!(limit.check(stored(3, 4), String::new).is_ok());
        let drifted = limit.check(stored(-1, 0), String::new);
        assert!(drifted.is_ok(), "the count may drift below zero");
        let error = limit
            .check(stored(3, 5), || "the charts".to_owned())
            .unwrap_err()
            .to_string();
        assert!(error.contains("--max-repository-bytes"), "{error}");
    }

    #[test]
    fn files_leave_an_eighth_of_the_limit_to_charts() {
        let limits = StorageLimits {
            repository: Some(80),
            namespace: None,
        };
        let limit = limits.resolve(None).repository;
        let stored = StoredBytes { charts: 10, files: 61 };
        assert!(limit.check(stored, String::new).is_ok());
        let error = limit.for_files().check(stored, || "they".to_owned()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "they take 71 bytes, more than the limit of 70 bytes (for files seven eighths of --max-repository-bytes); \
             raise the limit, or reduce the repository by a filter"
        );
    }
}
