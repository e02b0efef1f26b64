//! Chart repositories that are broken, each in its own way: what users are told, and what stays as it was.

mod causes;
mod entries;
mod large;
mod quiet;
mod refused;
mod retries;
mod table;

use std::time::Duration;

use portolan::api::{AppRepository, REQUESTED_AT};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{SOON, World, condition, index, message};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::postgres;

/// A tick a second, for what has to be seen at several ticks. It needs `--min-interval=1s`.
const EVERY_SECOND: &str = "* * * * * *";

/// A world with a catalogue and one Portolan that fills it.
struct Harbour {
    world: World,
    pool: PgPool,
    portolan: Portolan,
}

impl Harbour {
    /// Nothing is synced by the default schedule, so that a test sees just what it asks for, unless `flags` say otherwise.
    async fn new(flags: &[&str]) -> Self {
        let world = World::new().await;
        let database = postgres::database().await;
        let pool = PgPool::connect(&database.url).await.unwrap();
        let portolan = if flags.iter().any(|flag| flag.starts_with("--crontab")) {
            world.portolan(&database.url, flags).await
        } else {
            world
                .portolan(&database.url, &[&["--crontab=@yearly"], flags].concat())
                .await
        };
        Self { world, pool, portolan }
    }

    /// The charts of a repository as they stand in the catalogue.
    async fn rows(&self, name: &str) -> Vec<Row> {
        sqlx::query_as(
            "SELECT chart_id, info, xmin::text AS written_by FROM charts \
             WHERE repo_namespace = $1 AND repo_name = $2 ORDER BY chart_id",
        )
        .bind(&self.world.namespace)
        .bind(name)
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// The identifiers of a repository's charts, without the repository's name.
    async fn charts(&self, name: &str) -> Vec<String> {
        let rows = self.rows(name).await;
        rows.iter()
            .map(|row| row.chart_id.split_once('/').unwrap().1.to_owned())
            .collect()
    }

    /// Asks for a resync by the annotation; `token` is the answer in `status.lastHandledReconcileAt`.
    async fn resync(&self, name: &str, token: &str) {
        self.world
            .edit(name, json!({ "metadata": { "annotations": { REQUESTED_AT: token } } }))
            .await;
    }

    /// The same, and waits until it was done.
    async fn resync_and_wait(&self, name: &str, token: &str) -> AppRepository {
        self.resync(name, token).await;
        self.world
            .until(name, "the resync to be done", |object| {
                let handled = object
                    .status
                    .as_ref()
                    .and_then(|status| status.last_handled_reconcile_at.as_deref());
                handled == Some(token)
            })
            .await
    }

    /// How often the index of a repository was asked for.
    fn requests(&self, name: &str) -> usize {
        self.world.server.seen(&index_path(name)).len()
    }

    /// Waits until the index was asked for so many times more, and what came of all but the last was dealt with: no two syncs
    /// of a repository run at the same time.
    async fn until_more_requests(&self, name: &str, more: usize) {
        let before = self.requests(name);
        eventually(
            SOON,
            &format!("{more} more requests for the index of {name}"),
            async || {
                let seen = self.requests(name) - before;
                if seen > more { Ok(()) } else { Err(seen) }
            },
        )
        .await;
    }

    /// Waits for an event whose note says all this, and gives the note.
    async fn event_that_says(&self, name: &str, reason: &str, says: &[&str]) -> String {
        eventually(
            SOON,
            &format!("an event {reason} about {name} that says {says:?}"),
            async || {
                let events = self.world.events(name).await;
                let found = events
                    .iter()
                    .find(|(seen, note)| seen == reason && says.iter().all(|text| note.contains(text)));
                found.map(|(_, note)| note.clone()).ok_or_else(|| format!("{events:?}"))
            },
        )
        .await
    }
}

/// A chart in the catalogue.
#[derive(sqlx::FromRow, Clone, Debug, PartialEq)]
struct Row {
    chart_id: String,
    info: Value,
    /// The transaction that wrote the row last: an equal one means that it was not written again.
    written_by: String,
}

/// Where the server has a repository's index.
fn index_path(name: &str) -> String {
    format!("/{name}/index.yaml")
}

/// A spec of type helm with a tick a second.
fn ticking(url: &str) -> Value {
    json!({ "spec": { "type": "helm", "url": url, "interval": EVERY_SECOND } })
}
