//! Reads, postpones and deletes rows of the outbox.

use jiff::Timestamp;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres};
use tokio::sync::watch;

use super::NewsRow;
use crate::catalog::engine::{Connection, Engine, Transaction, on_engine};
use crate::catalog::record::unsigned;
use crate::catalog::{Catalog, Error};

/// The rows that a process may deliver now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueNews {
    pub rows: Vec<NewsRow>,
    /// The earliest time at which the oldest row of a sink is due; `None` without rows.
    pub next_try: Option<Timestamp>,
}

/// Rows that wait for their delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewsBacklog {
    pub rows: u64,
    pub oldest: Option<Timestamp>,
}

/// Selects the oldest row of each sink, of the origin `$1` and the repositories `$2`: those that are due at `$3` first, and
/// of these the oldest of each namespace. The cost follows the number of sinks, whose first rows the index finds.
macro_rules! due {
    ($repositories:literal) => {
        concat!(
            "WITH RECURSIVE sinks AS (
                SELECT min(sink) AS sink FROM portolan_news WHERE origin = $1
                UNION ALL
                SELECT (SELECT min(n.sink) FROM portolan_news AS n WHERE n.origin = $1 AND n.sink > sinks.sink)
                FROM sinks WHERE sinks.sink IS NOT NULL
            ), heads AS (
                SELECT sink, (SELECT n.id FROM portolan_news AS n WHERE n.origin = $1 AND n.sink = sinks.sink AND (",
            $repositories,
            ") ORDER BY n.created, n.id LIMIT 1) AS id FROM sinks
            )
            SELECT n.id, n.namespace, n.name, n.sink, n.event, n.created, n.tries, n.next_try
            FROM heads JOIN portolan_news AS n ON n.sink = heads.sink AND n.id = heads.id
            ORDER BY CASE WHEN n.next_try > $3 THEN n.next_try ELSE 0 END,
                row_number() OVER (PARTITION BY n.namespace, n.next_try <= $3 ORDER BY n.created, n.id),
                n.created, n.id LIMIT $4"
        )
    };
}

impl Catalog {
    /// Returns a counter that rises when this process has inserted news.
    #[must_use]
    pub fn news_inserted(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }

    pub(in crate::catalog) fn notify_news(&self, inserted: u64) {
        if inserted > 0 {
            self.0.news.send_modify(|count| *count += inserted);
        }
    }

    /// Returns the oldest row of each sink that is not in `busy`, if it is due: first the oldest of each namespace. Counts only
    /// rows of `repositories` (`namespace/name`; `None` for all). Deletes rows that can't be read, which would
    /// hold the later ones of their sink.
    pub async fn due_news(
        &self,
        origin: &str,
        repositories: Option<&[String]>,
        now: Timestamp,
        busy: &[String],
        limit: usize,
    ) -> Result<DueNews, Error> {
        const SQLITE: &str = due!("$2 IS NULL OR n.namespace || '/' || n.name IN (SELECT value FROM json_each($2))");
        const POSTGRES: &str =
            due!("$2::text[] IS NULL OR n.namespace || '/' || n.name IN (SELECT unnest($2::text[]))");
        // A busy sink has at most one row among them.
        let rows = i64::try_from(limit.saturating_add(busy.len())).unwrap_or(i64::MAX);
        let now = now.as_millisecond();
        let heads = self.read("read the news that is due", "", async |connection: &mut Connection| {
            let heads: Vec<StoredNews> = match connection.executor() {
                Engine::Sqlite(executor) => {
                    let select = sqlx::query_as(SQLITE).bind(origin).bind(repositories.map(Json));
                    select.bind(now).bind(rows).fetch_all(executor).await?
                }
                Engine::Postgres(executor) => {
                    // Not cached: the plan for a few rows is slow for thousands.
                    let select = sqlx::query_as::<Postgres, _>(POSTGRES).persistent(false);
                    let select = select.bind(origin).bind(repositories).bind(now).bind(rows);
                    select.fetch_all(executor).await?
                }
            };
            Ok(heads)
        });
        let heads = heads.await?;
        let next_try = heads.iter().map(|head| head.next_try).min().map(time);
        let due = heads
            .into_iter()
            .filter(|head| head.next_try <= now && !busy.contains(&head.sink));
        let mut rows = Vec::new();
        for stored in due.take(limit) {
            match stored.decode() {
                Ok(row) => rows.push(row),
                Err((id, sink)) => self.news_delivered(&id, &sink).await?,
            }
        }
        Ok(DueNews { rows, next_try })
    }

    pub async fn news_backlog(&self, origin: &str) -> Result<NewsBacklog, Error> {
        const SELECT: &str = "SELECT count(*), min(created) FROM portolan_news WHERE origin = $1";
        self.read("count the news", "", async |connection: &mut Connection| {
            let (rows, oldest): (i64, Option<i64>) = on_engine!(connection.executor(), executor =>
                sqlx::query_as(SELECT).bind(origin).fetch_one(executor).await?);
            Ok(NewsBacklog {
                rows: unsigned(rows),
                oldest: oldest.map(time),
            })
        })
        .await
    }

    pub async fn news_delivered(&self, id: &str, sink: &str) -> Result<(), Error> {
        const DELETE: &str = "DELETE FROM portolan_news WHERE sink = $1 AND id = $2";
        self.write("delete delivered news", "", async |tx: &mut Transaction| {
            on_engine!(tx.executor(), executor => {
                sqlx::query(DELETE).bind(sink).bind(id).execute(executor).await?;
            });
            Ok(())
        })
        .await
    }

    /// Counts a failed delivery. The later rows of the sink wait too.
    pub async fn postpone_news(&self, id: &str, sink: &str, next_try: Timestamp) -> Result<(), Error> {
        const UPDATE: &str = "UPDATE portolan_news SET tries = tries + 1, next_try = $3 WHERE sink = $1 AND id = $2";
        let next_try = next_try.as_millisecond();
        self.write("postpone news", "", async |tx: &mut Transaction| {
            on_engine!(tx.executor(), executor => {
                sqlx::query(UPDATE).bind(sink).bind(id).bind(next_try).execute(executor).await?;
            });
            Ok(())
        })
        .await
    }

    /// Deletes the rows of a sink that exists no longer. Returns their number.
    pub async fn drop_sink(&self, origin: &str, sink: &str) -> Result<u64, Error> {
        const DELETE: &str = "DELETE FROM portolan_news WHERE origin = $1 AND sink = $2";
        self.write("delete the news of a sink", "", async |tx: &mut Transaction| {
            Ok(on_engine!(tx.executor(), executor =>
                sqlx::query(DELETE).bind(origin).bind(sink).execute(executor).await?.rows_affected()))
        })
        .await
    }

    /// Deletes rows that are older than `before`. Returns their number.
    pub async fn expire_news(&self, origin: &str, before: Timestamp) -> Result<u64, Error> {
        const DELETE: &str = "DELETE FROM portolan_news WHERE origin = $1 AND created < $2";
        let before = before.as_millisecond();
        self.write("delete expired news", "", async |tx: &mut Transaction| {
            Ok(on_engine!(tx.executor(), executor =>
                sqlx::query(DELETE).bind(origin).bind(before).execute(executor).await?.rows_affected()))
        })
        .await
    }

    /// Deletes the oldest rows beyond both limits, of the namespace and sink with the most rows first. Returns their
    /// number.
    pub async fn trim_news(&self, origin: &str, max_per_sink: u32, max_total: u32) -> Result<u64, Error> {
        // `age` counts the rows of a namespace and sink from the newest. The first ones of all namespaces are kept before the
        // second ones.
        const SINKS: &str = "DELETE FROM portolan_news WHERE (sink, id) IN (SELECT sink, id FROM (
            SELECT sink, id, row_number() OVER (PARTITION BY sink ORDER BY age, created DESC, id) AS place FROM (
                SELECT sink, id, created,
                    row_number() OVER (PARTITION BY namespace, sink ORDER BY created DESC, id) AS age
                FROM portolan_news WHERE origin = $1) AS aged) AS placed WHERE place > $2)";
        const TOTAL: &str = "DELETE FROM portolan_news WHERE (sink, id) IN (SELECT sink, id FROM (
            SELECT sink, id, row_number() OVER (ORDER BY share, created DESC, id) AS place FROM (
                SELECT sink, id, created, row_number() OVER (PARTITION BY namespace ORDER BY age, created DESC, id) AS share
                FROM (SELECT sink, id, namespace, created,
                        row_number() OVER (PARTITION BY namespace, sink ORDER BY created DESC, id) AS age
                    FROM portolan_news WHERE origin = $1) AS aged) AS shared) AS placed WHERE place > $2)";
        self.write("trim the news", "", async |tx: &mut Transaction| {
            let mut trimmed = 0;
            for (statement, limit) in [(SINKS, max_per_sink), (TOTAL, max_total)] {
                trimmed += on_engine!(tx.executor(), executor => sqlx::query(statement)
                    .bind(origin)
                    .bind(i64::from(limit))
                    .execute(executor)
                    .await?
                    .rows_affected());
            }
            Ok(trimmed)
        })
        .await
    }
}

#[derive(FromRow)]
struct StoredNews {
    id: String,
    namespace: String,
    name: String,
    sink: String,
    event: String,
    created: i64,
    tries: i64,
    next_try: i64,
}

impl StoredNews {
    /// Fails with ID and sink for an event of a newer release.
    fn decode(self) -> Result<NewsRow, (String, String)> {
        let event = match serde_json::from_str(&self.event) {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(id = self.id, sink = self.sink, %error, "dropping news that can't be read");
                return Err((self.id, self.sink));
            }
        };
        Ok(NewsRow {
            id: self.id,
            namespace: self.namespace,
            name: self.name,
            sink: self.sink,
            event,
            created: time(self.created),
            tries: u32::try_from(self.tries).unwrap_or(u32::MAX),
            next_try: time(self.next_try),
        })
    }
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
