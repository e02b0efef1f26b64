//! Several processes that deliver news from one database.

use serde_json::json;
use sqlx::PgPool;

use super::KEY;
use super::sink_server::{Answer, SinkServer};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::postgres;
use crate::support::world::{SOON, World};

/// A cluster with a repository, and a Secret `ops/hook-all` for its news. Clusters name their Secrets alike.
struct Cluster {
    world: World,
    sink: SinkServer,
    repository: &'static str,
}

impl Cluster {
    async fn new(repository: &'static str, answer: Answer) -> Self {
        let (world, sink) = (World::new().await, SinkServer::start(answer).await);
        world.release(repository, &["1.0.0"]);
        world.write_sink("ops", "all", &json!({ "url": sink.url, "token": KEY }));
        let url = world.server.url(&format!("/{repository}"));
        world.declare(repository, &url, "  interval: \"* * * * * *\"\n");
        Self {
            world,
            sink,
            repository,
        }
    }

    async fn run(&self, database_url: &str) -> Portolan {
        let flags = [
            "--min-interval=1s",
            "--news-private-networks",
            "--namespace=ops",
            "--news=hook-all",
        ];
        self.world.run_on(database_url, &flags).await
    }

    async fn rows(&self, pool: &PgPool) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM portolan_news WHERE name = $1");
        count.bind(self.repository).fetch_one(pool).await.unwrap()
    }

    async fn until_delivered(&self, pool: &PgPool) {
        eventually(SOON, "the news of a cluster to be delivered", async || {
            let rows = self.rows(pool).await;
            if rows == 0 { Ok(()) } else { Err(format!("{rows} rows")) }
        })
        .await;
    }

    fn is_source_of_all_messages(&self) -> bool {
        let mut requests = self.sink.requests().into_iter();
        requests.all(|request| request.json()["data"]["repository"] == self.repository)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_on_one_database_deliver_their_own_news() {
    let database = postgres::database().await;
    let first = Cluster::new("first", Answer::Status(503)).await;
    let second = Cluster::new("second", Answer::Status(200)).await;
    let mut stopped = first.run(&database.url).await;
    first.sink.request(1).await;
    stopped.signal("KILL");
    stopped.exit(SOON).await;
    let refused = first.sink.requests().len();
    let pool = PgPool::connect(&database.url).await.unwrap();
    // The oldest rows of the database, in a sink of the same name.
    let backlog = "INSERT INTO portolan_news (id, origin, namespace, name, sink, event, created, tries, next_try)
        SELECT id || '-' || n, origin, namespace, name, sink, event, created - n, 0, created - n
        FROM portolan_news, generate_series(1, 2000) AS n";
    sqlx::query(backlog).execute(&pool).await.unwrap();

    let _second = second.run(&database.url).await;
    second.until_delivered(&pool).await;
    second.world.release("second", &["1.1.0", "1.0.0"]);
    second.sink.request_with("\"1.1.0\"").await;
    second.until_delivered(&pool).await;
    assert_eq!(first.rows(&pool).await, 2_001);

    sqlx::query("DELETE FROM portolan_news WHERE id LIKE '%-%'")
        .execute(&pool)
        .await
        .unwrap();
    first.sink.answer(Answer::Status(200));
    let _first = first.run(&database.url).await;
    first.until_delivered(&pool).await;
    assert!(first.sink.requests().len() > refused);
    assert!(first.is_source_of_all_messages() && second.is_source_of_all_messages());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_namespace_that_another_process_watches_delay_nothing() {
    let (world, sink) = (World::new().await, SinkServer::start(Answer::Status(200)).await);
    world.release("web", &["1.0.0"]);
    world.write_sink("team-a", "web", &json!({ "url": sink.url, "token": KEY }));
    world.declare_with_news("team-a", "web");
    let flags = [
        "--min-interval=1s",
        "--news-private-networks",
        "--watch-namespace=team-a",
    ];
    let mut portolan = world.run(&flags).await;
    sink.request(1).await;
    world.until_outbox_is_empty().await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    let copied = "origin, url, kind, change_key, credentials, index_digest, generation, details, revision";
    let statements = [
        format!(
            "INSERT INTO portolan_repositories (namespace, name, uid, {copied})
            SELECT 'team-b', 'other', 'uid-of-other', {copied} FROM portolan_repositories"
        ),
        // The oldest rows of the same sink and of a hundred others, below the limits of rows.
        "WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1999)
            INSERT INTO portolan_news (id, origin, namespace, name, sink, event, created, tries, next_try)
            SELECT 'other' || n, origin, namespace, name,
                CASE WHEN n % 2 = 0 AND n < 1800 THEN 'team-a/hook-web' ELSE 'team-b/' || (n % 100) END,
                '{\"kind\":\"failed\",\"namespace\":\"team-b\",\"repository\":\"other\"}',
                unixepoch() * 1000 - 3600000 + n, 0, 0
            FROM numbers, portolan_repositories WHERE name = 'other'"
            .to_owned(),
        "INSERT INTO portolan_news SELECT 'expired', origin, namespace, name, sink, event, 1, 0, 0
            FROM portolan_news WHERE id = 'other0'"
            .to_owned(),
    ];
    for statement in statements {
        world.execute(&statement).await;
    }

    let _portolan = world.run(&flags).await;
    let of_other = "SELECT id FROM portolan_news WHERE name = 'other'";
    eventually(SOON, "the expired row to be deleted", async || {
        let rows = world.texts(of_other).await.len();
        if rows == 2_000 {
            Ok(())
        } else {
            Err(format!("{rows} rows"))
        }
    })
    .await;
    world.release("web", &["1.1.0", "1.0.0"]);
    sink.request_with("\"1.1.0\"").await;
    assert_eq!(world.texts(of_other).await.len(), 2_000);
    assert_eq!(sink.requests().len(), 2);
}
