//! The whole story of a repository, against a real API server and Postgres.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::PgPool;

use super::{World, condition, finalizers, index, message};
use crate::support::chart_server::Fault;
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::postgres;

/// What is in the catalogue of a namespace: each chart's identifier with its versions, newest first.
async fn charts(pool: &PgPool, namespace: &str) -> Vec<(String, Vec<String>)> {
    let rows: Vec<(String, serde_json::Value)> =
        sqlx::query_as("SELECT chart_id, info FROM charts WHERE repo_namespace = $1 ORDER BY chart_id")
            .bind(namespace)
            .fetch_all(pool)
            .await
            .unwrap();
    let versions = |info: &serde_json::Value| {
        let versions = info["chartVersions"].as_array().unwrap().iter();
        versions
            .map(|version| version["version"].as_str().unwrap().to_owned())
            .collect()
    };
    rows.iter().map(|(id, info)| (id.clone(), versions(info))).collect()
}

async fn until_charts(pool: &PgPool, namespace: &str, wanted: &[(&str, &[&str])]) {
    eventually(super::SOON, &format!("the charts {wanted:?}"), async || {
        let found = charts(pool, namespace).await;
        let is_wanted = found.len() == wanted.len()
            && found
                .iter()
                .zip(wanted)
                .all(|((id, versions), (wanted_id, wanted))| id == wanted_id && versions == wanted);
        if is_wanted { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_followed_from_its_declaration_to_its_deletion() {
    let world = World::new().await;
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let _portolan = world.portolan(&database.url, &["--min-interval=1s"]).await;
    let namespace = world.namespace.as_str();

    // Declared, and Ready within five seconds.
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let declared = Instant::now();
    world.declare("stable", &url).await;
    let object = world.until_ready("stable").await;
    assert!(
        declared.elapsed() < Duration::from_secs(5),
        "Ready took {:?}",
        declared.elapsed()
    );
    assert_eq!(
        finalizers(&object),
        ["apprepositories.kubeapps.com/apprepo-cleanup-finalizer"]
    );
    assert_eq!(message(&object), "1 version in 1 chart.");
    until_charts(&pool, namespace, &[("stable/web", &["1.0.0"])]).await;
    world.event("stable", "SyncSucceeded").await;

    // As a user sees it.
    let control_plane = control_plane().await;
    let wait = [
        "wait",
        "--for=condition=Ready",
        "apprepository/stable",
        "-n",
        namespace,
        "--timeout=10s",
    ];
    assert!(control_plane.kubectl(&wait).await.contains("condition met"));
    let table = control_plane
        .kubectl(&["get", "apprepositories", "-n", namespace])
        .await;
    for column in [
        "NAME",
        "TYPE",
        "URL",
        "READY",
        "SUSPENDED",
        "CHARTS",
        "LAST SYNC",
        "AGE",
        "stable",
        "helm",
        "True",
    ] {
        assert!(table.contains(column), "{column} is missing in\n{table}");
    }

    // The index changes; each way to ask for a resync brings the change in.
    let ways = [
        json!({ "spec": { "resyncRequests": 1 } }),
        json!({ "metadata": { "annotations": { "apprepositories.kubeapps.com/requested-at": "one" } } }),
        json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": "two" } } }),
        json!({ "spec": { "description": "edited" } }),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let version = format!("1.{}.0", number + 1);
        world.serve("stable", index(&[("web", &[&version, "1.0.0"])]));
        world.edit("stable", way).await;
        until_charts(&pool, namespace, &[("stable/web", &[&version, "1.0.0"])]).await;
    }
    let object = world.until_ready("stable").await;
    assert_eq!(object.status.unwrap().last_handled_reconcile_at.as_deref(), Some("two"));

    // The interval fires by itself.
    world
        .edit("stable", json!({ "spec": { "interval": "* * * * * *" } }))
        .await;
    world.until_ready("stable").await;
    world.serve("stable", index(&[("web", &["2.0.0"]), ("worker", &["0.1.0"])]));
    until_charts(
        &pool,
        namespace,
        &[("stable/web", &["2.0.0"]), ("stable/worker", &["0.1.0"])],
    )
    .await;

    // Suspended: nothing is fetched, and what was asked for meanwhile is done on resume.
    world
        .edit("stable", json!({ "spec": { "suspend": true, "interval": "@daily" } }))
        .await;
    world
        .until("stable", "the status to say suspended", |object| {
            object
                .status
                .as_ref()
                .is_some_and(|status| status.suspended == Some(true))
        })
        .await;
    let requests = world.server.seen("/stable/index.yaml").len();
    world.serve("stable", index(&[("web", &["3.0.0"]), ("worker", &["0.1.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 2 } })).await;
    world.until("stable", "the request to be seen", super::is_current).await;
    assert_eq!(world.server.seen("/stable/index.yaml").len(), requests);
    world.edit("stable", json!({ "spec": { "suspend": null } })).await;
    until_charts(
        &pool,
        namespace,
        &[("stable/web", &["3.0.0"]), ("stable/worker", &["0.1.0"])],
    )
    .await;

    // A bad index is refused with its cause, and its charts stay.
    world.serve("stable", "<<<<<<< HEAD\nentries: {}\n");
    world.edit("stable", json!({ "spec": { "resyncRequests": 3 } })).await;
    let object = world
        .until("stable", "the index to be refused", |object| {
            condition(object, "Stalled").is_some()
        })
        .await;
    assert_eq!(condition(&object, "Ready").unwrap().0, "False");
    assert!(message(&object).contains("are still served"), "{}", message(&object));
    world.event("stable", "SyncStalled").await;
    until_charts(
        &pool,
        namespace,
        &[("stable/web", &["3.0.0"]), ("stable/worker", &["0.1.0"])],
    )
    .await;

    // Repaired.
    world.serve("stable", index(&[("web", &["3.1.0"]), ("worker", &["0.1.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 4 } })).await;
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Stalled"), None);
    until_charts(
        &pool,
        namespace,
        &[("stable/web", &["3.1.0"]), ("stable/worker", &["0.1.0"])],
    )
    .await;

    // Deleted: the rows go before the object does.
    world.delete("stable").await;
    world.gone("stable").await;
    assert!(charts(&pool, namespace).await.is_empty());
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM repos")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_may_pass_is_retried_until_it_has() {
    let world = World::new().await;
    let database = postgres::database().await;
    let _portolan = world.portolan(&database.url, &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.server.break_times("/stable/index.yaml", Fault::status(503), 1);
    world.declare("stable", &url).await;
    let object = world.until("stable", "the failure to show", |object| {
        condition(object, "Reconciling").is_some_and(|(_, reason)| reason == "Retrying")
    });
    assert_eq!(
        condition(&object.await, "Ready").map(|(status, _)| status),
        Some("False")
    );
    world.until_ready("stable").await;
    world.event("stable", "SyncFailed").await;
    world.event("stable", "SyncSucceeded").await;
}
