//! A push that precedes the index of its repository.

use jiff::Timestamp;
use portolan::api::POLL_AT;

use super::NEVER;
use super::pushes::Database;
use crate::catalog::On;
use crate::cluster::{World, index};
use crate::support::eventually::{SOON, eventually};

/// Returns the JSON of the only record.
async fn details(database: &Database) -> String {
    let select = "SELECT name, CAST(details AS TEXT) FROM portolan_repositories";
    let mut records = database.rows.pairs(select).await.unwrap();
    records.remove(0).1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_follows_the_push_is_found_although_the_controller_was_killed() {
    let (world, database) = (World::new().await, Database::new(On::Postgres).await);
    let flags = [NEVER, "--min-interval=1s"];
    let portolan = world.portolan(&database.url, &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let fetched = world.server.requests("/stable/index.yaml").len();
    let pushed = Timestamp::now().to_string();
    world.annotate("stable", POLL_AT, &pushed).await;
    let handled = format!(r#""at":"{pushed}""#);
    eventually(SOON, "the poll to be handled", async || {
        let details = details(&database).await;
        if details.contains(&handled) {
            Ok(())
        } else {
            Err(details)
        }
    })
    .await;
    portolan.signal("KILL");
    drop(portolan);
    world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    let _portolan = world.portolan(&database.url, &flags).await;
    database.rows.until_charts(&["stable/web 1.1.0 1.0.0"]).await;
    let seen = world.server.requests("/stable/index.yaml");
    assert!(
        seen[fetched..].iter().all(|request| request.is_conditional()),
        "{seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_found_is_the_end_of_the_looks() {
    let (world, database) = (World::new().await, Database::new(On::Sqlite).await);
    let _portolan = world.portolan(&database.url, &[NEVER, "--min-interval=1s"]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    // The looks after 10 seconds and a minute are past, and that after 10 minutes is near.
    let pushed = Timestamp::now() - jiff::SignedDuration::from_secs(595);
    world.annotate("stable", POLL_AT, &pushed.to_string()).await;
    database.rows.until_charts(&["stable/web 1.1.0 1.0.0"]).await;
    let details = details(&database).await;
    assert!(details.contains(r#""hasFound":true"#), "{details}");
}
