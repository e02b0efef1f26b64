//! Which rows of charts a sync has written, as the database tells it.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::rig::{Database, Rig};

const GONE: Duration = Duration::from_millis(50);
/// Triggers that note each write.
const TRIGGERS: &str = "
CREATE TABLE bench_writes (id INTEGER PRIMARY KEY);
CREATE TRIGGER bench_insert AFTER INSERT ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;
CREATE TRIGGER bench_update AFTER UPDATE ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;
CREATE TRIGGER bench_delete AFTER DELETE ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;";

/// The rows at one time.
pub enum Rows {
    /// Writes that the triggers have noted.
    Noted(i64),
    /// The transaction that wrote each row (`xmin`).
    Written(HashMap<i32, String>),
}

impl Rows {
    /// Has writes noted from now on, where that must be asked for.
    pub async fn watch(rig: &Rig, database: Database) {
        if database == Database::Sqlite {
            let mut connection = sqlite(rig).await;
            sqlx::raw_sql(TRIGGERS)
                .execute(&mut connection)
                .await
                .expect("triggers can be made");
            connection.close().await.expect("a connection is closed");
        }
    }

    /// As they are now.
    pub async fn now(rig: &Rig, database: Database) -> Self {
        if database == Database::Sqlite {
            let mut connection = sqlite(rig).await;
            let noted = sqlx::query_scalar("SELECT count(*) FROM bench_writes")
                .fetch_one(&mut connection)
                .await
                .expect("there are triggers");
            connection.close().await.expect("a connection is closed");
            return Self::Noted(noted);
        }
        let mut connection = PgConnection::connect(rig.url()).await.expect("Postgres answers");
        let rows: Vec<(i32, String)> = sqlx::query_as("SELECT id, xmin::text FROM charts")
            .fetch_all(&mut connection)
            .await
            .expect("there are charts");
        connection.close().await.expect("a connection is closed");
        // What its process used is not to be counted, so it should be gone.
        tokio::time::sleep(GONE).await;
        Self::Written(rows.into_iter().collect())
    }

    /// Rows that were written or removed since.
    pub fn since(&self, before: &Self) -> usize {
        match (before, self) {
            (Self::Noted(before), Self::Noted(now)) => (now - before) as usize,
            (Self::Written(before), Self::Written(now)) => {
                let written = now.iter().filter(|(id, xmin)| before.get(id) != Some(xmin)).count();
                let removed = before.keys().filter(|id| !now.contains_key(id)).count();
                written + removed
            }
            _ => unreachable!("a database is always asked in the same way"),
        }
    }
}

/// Copies the database to a file of its own.
pub async fn copy(rig: &Rig, file: &str) {
    let mut connection = sqlite(rig).await;
    sqlx::query("VACUUM INTO $1")
        .bind(file)
        .execute(&mut connection)
        .await
        .expect("the database can be copied");
    connection.close().await.expect("a connection is closed");
}

async fn sqlite(rig: &Rig) -> SqliteConnection {
    SqliteConnection::connect(rig.url())
        .await
        .expect("the database is there")
}
