//! Direct access to the database.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::SOON;
use crate::support::eventually::eventually;
use crate::support::portolan::{command, run};
use crate::support::postgres::{TestDatabase, database};
use crate::support::process::ScratchDir;

pub enum Rows {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Rows {
    /// Opens a database that may not exist yet (SQLite) or is empty (Postgres).
    pub async fn of(url: &str) -> Self {
        match url.strip_prefix("sqlite://") {
            Some(file) => {
                let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
                Self::Sqlite(SqlitePool::connect_with(options).await.unwrap())
            }
            None => Self::Postgres(PgPool::connect(url).await.unwrap()),
        }
    }

    pub async fn pairs(&self, query: &str) -> Result<Vec<(String, String)>, sqlx::Error> {
        let query = AssertSqlSafe(query.to_owned());
        match self {
            Self::Sqlite(pool) => sqlx::query_as(query).fetch_all(pool).await,
            Self::Postgres(pool) => sqlx::query_as(query).fetch_all(pool).await,
        }
    }

    pub async fn count(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(query).fetch_one(pool).await.unwrap(),
        }
    }

    pub async fn execute(&self, statements: &str) {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        match self {
            Self::Sqlite(pool) => drop(statements.execute(pool).await.unwrap()),
            Self::Postgres(pool) => drop(statements.execute(pool).await.unwrap()),
        }
    }

    /// All chart rows by ID.
    pub async fn infos(&self) -> Result<BTreeMap<String, Value>, sqlx::Error> {
        let rows = self
            .pairs("SELECT chart_id, CAST(info AS TEXT) FROM charts ORDER BY chart_id")
            .await?;
        Ok(rows
            .into_iter()
            .map(|(id, info)| (id, serde_json::from_str(&info).unwrap()))
            .collect())
    }

    /// All file rows by ID.
    pub async fn files(&self) -> BTreeMap<String, Value> {
        let rows = self
            .pairs("SELECT chart_files_id, CAST(info AS TEXT) FROM files ORDER BY chart_files_id")
            .await
            .unwrap();
        rows.into_iter()
            .map(|(id, info)| (id, serde_json::from_str(&info).unwrap()))
            .collect()
    }

    /// Chart IDs with versions, newest first: `stable/web 1.1.0 1.0.0`.
    pub async fn charts(&self) -> Result<Vec<String>, sqlx::Error> {
        let line = |(id, info): (&String, &Value)| {
            let versions = info["chartVersions"].as_array().unwrap().iter();
            versions.fold(id.clone(), |line, version| {
                format!("{line} {}", version["version"].as_str().unwrap())
            })
        };
        Ok(self.infos().await?.iter().map(line).collect())
    }

    /// Waits until the catalog contains exactly these charts.
    pub async fn until_charts(&self, expected: &[&str]) {
        self.until_charts_within(SOON, expected).await;
    }

    /// The same with another deadline.
    pub async fn until_charts_within(&self, deadline: Duration, expected: &[&str]) {
        eventually(deadline, &format!("the charts {expected:?}"), async || {
            match self.charts().await {
                Ok(found) if found == expected => Ok(()),
                Ok(found) => Err(format!("{found:?}")),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    }

    /// Checks that no charts or records are left.
    pub async fn assert_empty(&self) {
        let charts = self.pairs("SELECT repo_namespace, chart_id FROM charts").await.unwrap();
        assert!(charts.is_empty(), "charts are left: {charts:?}");
        for table in ["repos", "portolan_repositories"] {
            assert_eq!(
                self.count(&format!("SELECT count(*) FROM {table}")).await,
                0,
                "rows are left in {table}"
            );
        }
    }

    /// Chart IDs with row numbers, which change if a row is deleted and recreated.
    pub async fn numbers(&self) -> Vec<(String, String)> {
        self.pairs("SELECT chart_id, CAST(id AS TEXT) FROM charts ORDER BY chart_id")
            .await
            .unwrap()
    }

    /// Closes all connections.
    pub async fn close(self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A database for one test.
pub struct Postgres {
    pub database: TestDatabase,
    pub rows: Rows,
}

impl Postgres {
    pub async fn new() -> Self {
        let database = database().await;
        let rows = Rows::of(&database.url).await;
        Self { database, rows }
    }

    pub fn url(&self) -> &str {
        &self.database.url
    }
}

/// Expected rows: those of a sync into an empty catalog.
pub async fn reference(namespace: &str, name: &str, url: &str) -> BTreeMap<String, Value> {
    let directory = ScratchDir::new("reference");
    let database = format!("sqlite://{}", directory.join("catalog.db").display());
    one_shot(namespace, name, url, &database).await;
    Rows::of(&database).await.infos().await.unwrap()
}

pub async fn one_shot(namespace: &str, name: &str, url: &str, database: &str) {
    let mut sync = command(["sync", name, url, "helm"]);
    sync.args(["--namespace", namespace, "--database-url", database]);
    let output = run(sync).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
