//! The catalog on real databases. Tests run on SQLite and on Postgres unless they are about one of them.

mod batches;
mod cancellation;
mod chart_digests;
mod chart_digests_equivalence;
mod chart_digests_retention;
mod chart_digests_stale;
mod chart_metadata;
mod clusters;
mod commit;
mod concurrency;
mod connection;
mod deprecated;
mod faults;
mod fence;
mod files;
mod garbage;
mod icons;
mod icons_svg;
mod identity;
mod kubeapps;
mod news;
mod news_queue;
mod query;
mod quotas;
mod recovery;
mod registries;
mod retention;
mod scale;
mod search;
mod skipped_files;
mod sqlite_file;
mod tombstones;
mod transfer;
mod writable;

use std::{io, time::Duration};

use jiff::Timestamp;
use portolan::api::NamespacedName;
use portolan::catalog::{
    Catalog, CatalogSettings, ChartInfo, ChartRow, ChartVersion, CommitSummary, Database, Error, HistoryEntry, Login,
    Maintainer, Record, RepoRef, SyncCommit,
};
use sqlx::{AssertSqlSafe, Executor, PgPool, SqlitePool};
use tempfile::TempDir;

use crate::support::postgres::{self, TestDatabase};

/// The database of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Sqlite,
    Postgres,
}

/// A catalog with direct access to its tables.
pub struct Fixture {
    pub catalog: Catalog,
    pub settings: CatalogSettings,
    pub url: String,
    pub tables: Tables,
    _directory: TempDir,
    pub database: Option<TestDatabase>,
}

impl Fixture {
    pub async fn new(on: On) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (url, database) = match on {
            On::Sqlite => (
                format!("sqlite://{}", directory.path().join("portolan.db").display()),
                None,
            ),
            On::Postgres => {
                let database = postgres::database().await;
                (database.url.clone(), Some(database))
            }
        };
        let settings = settings(&url);
        let catalog = Catalog::open(&settings).await.unwrap();
        let tables = match on {
            On::Sqlite => {
                let options = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(settings.database.sqlite_path().unwrap())
                    .foreign_keys(true);
                Tables::Sqlite(SqlitePool::connect_with(options).await.unwrap())
            }
            On::Postgres => Tables::Postgres(PgPool::connect(&url).await.unwrap()),
        };
        Self {
            catalog,
            settings,
            url,
            tables,
            _directory: directory,
            database,
        }
    }

    /// Commits these charts to the repository and creates its record if needed.
    pub async fn sync(&self, charts: Vec<ChartInfo>) -> CommitSummary {
        self.try_sync("checksum", charts).await.unwrap()
    }

    pub async fn try_sync(&self, checksum: &str, charts: Vec<ChartInfo>) -> Result<CommitSummary, Error> {
        let stored = self.catalog.record(&repository()).await?;
        let expected = stored.as_ref().map(|record| record.uid.clone());
        let record = stored.unwrap_or_else(record);
        self.catalog
            .commit(SyncCommit::new(record, expected, checksum), rows(charts))
            .await
    }

    /// `chart_files_id` of all rows of files.
    pub async fn files(&self) -> Vec<String> {
        self.tables
            .texts("SELECT chart_files_id FROM files ORDER BY chart_files_id")
            .await
    }

    /// The stored charts by chart_id.
    pub async fn charts(&self) -> Vec<ChartInfo> {
        self.tables
            .texts("SELECT CAST(info AS TEXT) FROM charts ORDER BY chart_id")
            .await
            .iter()
            .map(|info| serde_json::from_str(info).unwrap())
            .collect()
    }

    pub async fn chart_names(&self) -> Vec<String> {
        self.charts().await.into_iter().map(|info| info.name).collect()
    }
}

/// Direct access to the tables.
pub enum Tables {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Tables {
    pub async fn execute(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Sqlite(pool) => drop(pool.execute(sql).await.unwrap()),
            Self::Postgres(pool) => drop(pool.execute(sql).await.unwrap()),
        }
    }

    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        }
    }

    pub async fn number(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }

    pub async fn count(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {table}")).await
    }

    /// Records writes of this table for [`Tables::writes`]. Postgres has system columns for that.
    pub async fn watch(&self, table: &str) {
        if let Self::Sqlite(_) = self {
            self.execute("CREATE TABLE IF NOT EXISTS writes (what TEXT)").await;
            for (event, row) in [("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")] {
                self.execute(&format!(
                    "CREATE TRIGGER watch_{table}_{event} AFTER {event} ON {table}
                     BEGIN INSERT INTO writes VALUES ('{table} {event} ' || {row}.id); END"
                ))
                .await;
            }
        }
    }

    /// Returns a value that changes with every write of the watched table, even with equal values.
    pub async fn writes(&self, table: &str) -> Vec<String> {
        match self {
            Self::Sqlite(_) => self.texts("SELECT what FROM writes ORDER BY rowid").await,
            Self::Postgres(_) => {
                let sql = format!("SELECT id || ' ' || ctid::text || ' ' || xmin::text FROM {table} ORDER BY id");
                self.texts(&sql).await
            }
        }
    }
}

/// Returns a fixed time plus `seconds`.
pub fn at(seconds: i64) -> Timestamp {
    "2026-01-02T03:04:05Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)
}

pub fn settings(url: &str) -> CatalogSettings {
    CatalogSettings::new(Database::parse(url, &Login::default()).unwrap())
}

pub fn repository() -> NamespacedName {
    NamespacedName::new("kubeapps", "stable")
}

pub fn record() -> Record {
    Record::new(repository(), "uid-1")
}

pub fn rows(charts: Vec<ChartInfo>) -> impl Iterator<Item = io::Result<ChartRow>> + Send {
    charts.into_iter().map(|info| {
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    })
}

/// A chart of [`repository`] with these versions.
pub fn chart(name: &str, versions: &[&str]) -> ChartInfo {
    let NamespacedName { namespace, name: repo } = repository();
    let escaped = name.replace('/', "%2F");
    ChartInfo {
        id: format!("{repo}/{escaped}"),
        name: escaped,
        repo: RepoRef {
            namespace,
            name: repo,
            url: "https://charts.example.com".into(),
            kind: String::new(),
        },
        description: format!("{name} for everybody"),
        home: "https://example.com".into(),
        keywords: Some(vec!["cms".into()]),
        maintainers: vec![Maintainer {
            name: "bot".into(),
            ..Maintainer::default()
        }],
        sources: None,
        icon: "https://example.com/icon.png".into(),
        raw_icon: None,
        icon_content_type: String::new(),
        category: String::new(),
        chart_versions: versions
            .iter()
            .map(|version| ChartVersion {
                version: (*version).into(),
                app_version: format!("app-{version}"),
                created: "2020-01-01T00:00:00Z".into(),
                digest: format!("digest-{version}"),
                urls: Some(vec![format!("https://example.com/{name}-{version}.tgz")]),
                ..ChartVersion::default()
            })
            .collect(),
    }
}

pub fn history(message: &str) -> HistoryEntry {
    HistoryEntry {
        started_at: "2026-01-02T03:04:05.5Z".parse().unwrap(),
        duration: Duration::from_millis(1234),
        result: "Succeeded".into(),
        reason: "Synced".into(),
        message: message.into(),
        digest: "abc".into(),
        charts: 1,
        versions: 2,
        added: 3,
        changed: 4,
        removed: 5,
        skipped: 6,
    }
}
