//! The database is missing, away, or shared with others.

use rstest::rstest;
use serde_json::json;

use super::{SOON, Serving, database, declare, fill, sync};
use crate::catalog::On;
use crate::support::eventually::eventually;
use crate::support::postgres;
use crate::support::world::World;

#[tokio::test]
async fn it_is_ready_once_there_is_a_database() {
    let world = World::new().await;
    declare(&world, "stable", crate::cluster::index(&[("web", &["1.0.0"])]));
    let serving = Serving::begin(&world.database_url(), &["--manifests", &world.manifests()]);
    serving.portolan.line_with("failed to read the catalog", SOON).await;
    let detail = serving.get("/charts").await.problem(503);
    assert!(detail.contains("database"), "{detail}");
    assert_eq!(serving.portolan.get("/livez").await.unwrap().0, 200);
    assert_eq!(serving.portolan.get("/readyz").await.unwrap().0, 503);
    assert_eq!(serving.get("/openapi.json").await.status, 200);
    assert!(!world.database().exists());
    sync(&world, &world.database_url()).await;
    serving.portolan.ready(SOON).await;
    assert_eq!(serving.names("/charts").await, ["web"]);
}

#[tokio::test]
async fn the_last_snapshot_is_served_while_the_database_is_away() {
    let world = World::new().await;
    let database = postgres::database().await;
    fill(&world, &database.url, "stable", &[("web", &["1.0.0"])]).await;
    let (gate, url) = database.behind_gate().await;
    let serving = Serving::of(&world, &url).await;
    assert_eq!(serving.json("/charts").await["stale"], false);
    gate.close().await;
    let stale = eventually(SOON, "a stale list", async || {
        let list = serving.json("/charts?q=web").await;
        if list["stale"] == true {
            Ok(list)
        } else {
            Err(list.to_string())
        }
    })
    .await;
    assert_eq!(super::names(&stale), ["web"]);
    assert!(stale["staleSeconds"].is_u64(), "{stale}");
    serving.get("/charts/default/stable/web").await.problem(503);
    assert_eq!(serving.portolan.get("/readyz").await.unwrap().0, 200);
    gate.open().await;
    eventually(SOON, "a current list", async || {
        let list = serving.json("/charts").await;
        if list["stale"] == false {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
    assert_eq!(serving.json("/charts/default/stable/web").await["name"], "web");
}

#[rstest]
#[tokio::test]
async fn repositories_of_another_origin_are_not_served(#[values(On::Sqlite, On::Postgres)] on: On) {
    let (world, other) = (World::new().await, World::new().await);
    let url = database(&world, on).await;
    fill(&world, &url, "ours", &[("web", &["1.0.0"])]).await;
    fill(&other, &url, "theirs", &[("redis", &["1.0.0"])]).await;
    for (world, repository, chart) in [(&world, "ours", "web"), (&other, "theirs", "redis")] {
        let serving = Serving::of(world, &url).await;
        assert_eq!(serving.names("/charts").await, [chart]);
        assert_eq!(serving.names("/repositories").await, [repository]);
        let hidden = if chart == "web" { "theirs/redis" } else { "ours/web" };
        serving.get(&format!("/charts/default/{hidden}")).await.problem(404);
    }
}

#[tokio::test]
async fn rows_that_only_kubeapps_has_written_are_served() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    world.execute("DELETE FROM portolan_repositories").await;
    let serving = Serving::of(&world, &url).await;
    assert_eq!(serving.names("/charts").await, ["web"]);
    let repository = serving.json("/repositories/default/stable").await;
    assert_eq!(
        [&repository["managedBy"], &repository["ready"]],
        [&json!("kubeapps"), &json!(null)]
    );
}

#[tokio::test]
async fn repositories_without_an_owner_are_hidden_and_counted_while_another_cluster_is_live() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    world
        .execute("INSERT INTO repos (namespace, name, checksum, last_update) VALUES ('default', 'free', 'x', 'y')")
        .await;
    let serving = Serving::of(&world, &url).await;
    let list = serving.json("/repositories").await;
    assert_eq!(
        (super::names(&list), &list["hidden"]),
        (vec!["free".to_owned(), "stable".to_owned()], &json!(0))
    );
    world
        .execute(
            "INSERT INTO portolan_clusters (cluster_id, origin, renewed)
             VALUES ('other', 'them', CAST(unixepoch('subsec') * 1000 AS INTEGER))",
        )
        .await;
    eventually(SOON, "the repository to be hidden", async || {
        let list = serving.json("/repositories").await;
        if super::names(&list) == ["stable"] && list["hidden"] == 1 {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
    serving.get("/repositories/default/free").await.problem(404);
}

#[tokio::test]
async fn a_database_file_that_is_replaced_is_opened_again() {
    let (world, next) = (World::new().await, World::new().await);
    fill(&world, &world.database_url(), "stable", &[("web", &["1.0.0"])]).await;
    declare(&world, "stable", crate::cluster::index(&[("redis", &["1.0.0"])]));
    sync(&world, &next.database_url()).await;
    let serving = Serving::of(&world, &world.database_url()).await;
    assert_eq!(serving.names("/charts").await, ["web"]);
    std::fs::rename(next.database(), world.database()).unwrap();
    eventually(SOON, "the charts of the other file", async || {
        let names = serving.names("/charts").await;
        if names == ["redis"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn it_ends_after_a_signal() {
    let world = World::new().await;
    fill(&world, &world.database_url(), "stable", &[("web", &["1.0.0"])]).await;
    let mut serving = Serving::of(&world, &world.database_url()).await;
    serving.portolan.signal("TERM");
    eventually(SOON, "it not to be ready", async || {
        match serving.portolan.get("/readyz").await {
            Ok((200, _)) => Err("ready"),
            _ => Ok(()),
        }
    })
    .await;
    // Clients that do not know of the shutdown are still served.
    assert_eq!(serving.names("/charts").await, ["web"]);
    assert!(serving.portolan.exit(SOON).await.success());
}
