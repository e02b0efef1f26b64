//! Reads, postpones and deletes rows of the outbox.

use jiff::Timestamp;
use sqlx::FromRow;
use tokio::sync::watch;

use super::NewsRow;
use crate::catalog::engine::{Connection, Transaction, on_engine};
use crate::catalog::record::unsigned;
use crate::catalog::{Catalog, Error};

/// Rows that wait for their delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewsBacklog {
    pub rows: u64,
    pub oldest: Option<Timestamp>,
    /// The earliest time at which the oldest row of a sink is due.
    pub next_try: Option<Timestamp>,
}

/// Selects the rows of an origin, `$1`, with their place in the queue of their sink.
macro_rules! queues {
    () => {
        "SELECT sink, id, namespace, created, next_try, row_number() OVER (PARTITION BY sink ORDER BY created, id) AS nth
        FROM portolan_news AS n WHERE EXISTS (SELECT 1 FROM portolan_repositories AS r
            WHERE r.namespace = n.namespace AND r.name = n.name AND r.origin = $1)"
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

    /// Returns the oldest row of each sink that is not in `busy`, if it is due: first one of each namespace. Deletes rows that
    /// can't be read, which would hold the later ones of their sink.
    pub async fn due_news(
        &self,
        origin: &str,
        now: Timestamp,
        busy: &[String],
        limit: usize,
    ) -> Result<Vec<NewsRow>, Error> {
        const SELECT: &str = concat!(
            "SELECT n.id, n.namespace, n.name, n.sink, n.event, n.created, n.tries, n.next_try
            FROM portolan_news AS n JOIN (
                SELECT sink, id, row_number() OVER (PARTITION BY namespace ORDER BY created, id) AS turn
                FROM (",
            queues!(),
            ") AS queues WHERE nth = 1 AND next_try <= $2
            ) AS due ON due.sink = n.sink AND due.id = n.id
            ORDER BY turn, n.created, n.id LIMIT $3"
        );
        // A busy sink has at most one row among them.
        let rows = i64::try_from(limit.saturating_add(busy.len())).unwrap_or(i64::MAX);
        let now = now.as_millisecond();
        let due = self.read("read the news that is due", "", async |connection: &mut Connection| {
            let rows: Vec<StoredNews> = on_engine!(connection.executor(), executor => sqlx::query_as(SELECT)
                .bind(origin)
                .bind(now)
                .bind(rows)
                .fetch_all(executor)
                .await?);
            Ok(rows)
        });
        let due = due.await?.into_iter().filter(|row| !busy.contains(&row.sink));
        let mut rows = Vec::new();
        for stored in due.take(limit) {
            match stored.decode() {
                Ok(row) => rows.push(row),
                Err((id, sink)) => self.news_delivered(&id, &sink).await?,
            }
        }
        Ok(rows)
    }

    pub async fn news_backlog(&self, origin: &str) -> Result<NewsBacklog, Error> {
        const SELECT: &str = concat!(
            "SELECT count(*), min(created), min(CASE WHEN nth = 1 THEN next_try END) FROM (",
            queues!(),
            ") AS queues"
        );
        self.read("count the news", "", async |connection: &mut Connection| {
            let (rows, oldest, next_try): (i64, Option<i64>, Option<i64>) = on_engine!(connection.executor(), executor =>
                sqlx::query_as(SELECT).bind(origin).fetch_one(executor).await?);
            Ok(NewsBacklog {
                rows: unsigned(rows),
                oldest: oldest.map(time),
                next_try: next_try.map(time),
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
        const DELETE: &str =
            "DELETE FROM portolan_news WHERE sink = $2 AND EXISTS (SELECT 1 FROM portolan_repositories AS r
            WHERE r.namespace = portolan_news.namespace AND r.name = portolan_news.name AND r.origin = $1)";
        self.write("delete the news of a sink", "", async |tx: &mut Transaction| {
            Ok(on_engine!(tx.executor(), executor =>
                sqlx::query(DELETE).bind(origin).bind(sink).execute(executor).await?.rows_affected()))
        })
        .await
    }

    /// Deletes rows that are older than `before`. Returns their number.
    pub async fn expire_news(&self, before: Timestamp) -> Result<u64, Error> {
        const DELETE: &str = "DELETE FROM portolan_news WHERE created < $1";
        let before = before.as_millisecond();
        self.write("delete expired news", "", async |tx: &mut Transaction| {
            Ok(on_engine!(tx.executor(), executor =>
                sqlx::query(DELETE).bind(before).execute(executor).await?.rows_affected()))
        })
        .await
    }

    /// Deletes the oldest rows beyond both limits, of the namespace and sink with the most rows first. Returns their
    /// number.
    pub async fn trim_news(&self, max_per_sink: u32, max_total: u32) -> Result<u64, Error> {
        // `age` counts the rows of a namespace and sink from the newest. The first ones of all namespaces are kept before the
        // second ones.
        const SINKS: &str = "DELETE FROM portolan_news WHERE (sink, id) IN (SELECT sink, id FROM (
            SELECT sink, id, row_number() OVER (PARTITION BY sink ORDER BY age, created DESC, id) AS place FROM (
                SELECT sink, id, created,
                    row_number() OVER (PARTITION BY namespace, sink ORDER BY created DESC, id) AS age
                FROM portolan_news) AS aged) AS placed WHERE place > $1)";
        const TOTAL: &str = "DELETE FROM portolan_news WHERE (sink, id) IN (SELECT sink, id FROM (
            SELECT sink, id, row_number() OVER (ORDER BY share, created DESC, id) AS place FROM (
                SELECT sink, id, created, row_number() OVER (PARTITION BY namespace ORDER BY age, created DESC, id) AS share
                FROM (SELECT sink, id, namespace, created,
                        row_number() OVER (PARTITION BY namespace, sink ORDER BY created DESC, id) AS age
                    FROM portolan_news) AS aged) AS shared) AS placed WHERE place > $1)";
        self.write("trim the news", "", async |tx: &mut Transaction| {
            let mut trimmed = 0;
            for (statement, limit) in [(SINKS, max_per_sink), (TOTAL, max_total)] {
                trimmed += on_engine!(tx.executor(), executor => sqlx::query(statement)
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
