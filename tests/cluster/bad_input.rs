//! Broken chart repositories: reported errors, and unchanged charts.

mod causes;
mod entries;
mod large;
mod quiet;
mod refused;
mod retries;
mod table;

use std::time::Duration;

use portolan::api::AppRepository;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{NEVER, SOON, World, condition, index, message};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::postgres;

/// Ticks every second, for tests over several ticks. Needs `--min-interval=1s`.
const EVERY_SECOND: &str = "* * * * * *";

/// A namespace with a database and a running Portolan.
struct Fixture {
    world: World,
    pool: PgPool,
    portolan: Portolan,
}

impl Fixture {
    /// The default schedule never fires, so that tests see only requested syncs, unless `flags` set another.
    async fn new(flags: &[&str]) -> Self {
        let world = World::new().await;
        let database = postgres::database().await;
        let pool = PgPool::connect(&database.url).await.unwrap();
        let portolan = if flags.iter().any(|flag| flag.starts_with("--crontab")) {
            world.portolan(&database.url, flags).await
        } else {
            world.portolan(&database.url, &[&[NEVER], flags].concat()).await
        };
        Self { world, pool, portolan }
    }

    /// Rows of a repository.
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

    /// Chart IDs of a repository, without the repository name.
    async fn charts(&self, name: &str) -> Vec<String> {
        let rows = self.rows(name).await;
        rows.iter()
            .map(|row| row.chart_id.split_once('/').unwrap().1.to_owned())
            .collect()
    }

    /// Number of requests for the index of a repository.
    fn requests(&self, name: &str) -> usize {
        self.world.server.requests(&index_path(name)).len()
    }

    /// Waits for this many more requests of the index. All but the last are processed, since syncs of one repository
    /// never overlap.
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

    /// Waits for an event whose note contains all texts, and returns the note.
    async fn event_with(&self, name: &str, reason: &str, texts: &[&str]) -> String {
        eventually(
            SOON,
            &format!("an event {reason} about {name} with {texts:?}"),
            async || {
                let events = self.world.events(name).await;
                let found = events
                    .iter()
                    .find(|(seen, note)| seen == reason && texts.iter().all(|text| note.contains(text)));
                found.map(|(_, note)| note.clone()).ok_or_else(|| format!("{events:?}"))
            },
        )
        .await
    }
}

#[derive(sqlx::FromRow, Clone, Debug, PartialEq)]
struct Row {
    chart_id: String,
    info: Value,
    /// Transaction of the last write; it stays equal if the row was not written.
    written_by: String,
}

fn index_path(name: &str) -> String {
    format!("/{name}/index.yaml")
}

fn ticking(url: &str) -> Value {
    json!({ "spec": { "type": "helm", "url": url, "interval": EVERY_SECOND } })
}
