//! The life cycle of a repository, with a real API server and Postgres.

use std::time::{Duration, Instant};

use serde_json::json;

use super::rows::Postgres;
use super::{NEVER, World, condition, finalizers, index, is_current, message};
use crate::support::chart_server::Fault;
use crate::support::control_plane::control_plane;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_reconciled_from_its_creation_to_its_deletion() {
    let world = World::new().await;
    let postgres = Postgres::new().await;
    let portolan = world.portolan(postgres.url(), &["--min-interval=1s"]).await;
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
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
    world.event("stable", "SyncSucceeded").await;

    // The printed columns.
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

    // Each way to request a sync applies the changed index.
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
        postgres
            .rows
            .until_charts(&[&format!("stable/web {version} 1.0.0")])
            .await;
    }
    let object = world.until_ready("stable").await;
    assert_eq!(object.status.unwrap().last_handled_reconcile_at.as_deref(), Some("two"));

    // The interval fires.
    world
        .edit("stable", json!({ "spec": { "interval": "* * * * * *" } }))
        .await;
    world.until_ready("stable").await;
    world.serve("stable", index(&[("web", &["2.0.0"]), ("worker", &["0.1.0"])]));
    postgres
        .rows
        .until_charts(&["stable/web 2.0.0", "stable/worker 0.1.0"])
        .await;

    // Suspended: nothing is fetched; requests are handled on resume.
    world
        .edit("stable", json!({ "spec": { "suspend": true, "interval": "@daily" } }))
        .await;
    world
        .until("stable", "the status to be suspended", |object| {
            object
                .status
                .as_ref()
                .is_some_and(|status| status.suspended == Some(true))
        })
        .await;
    let requests = world.server.requests("/stable/index.yaml").len();
    world.serve("stable", index(&[("web", &["3.0.0"]), ("worker", &["0.1.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 2 } })).await;
    let object = world
        .until("stable", "the request to be observed", super::is_current)
        .await;
    assert_eq!(world.server.requests("/stable/index.yaml").len(), requests);
    // Ready is about the generation that was synced.
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    let ready = &object.status.as_ref().unwrap().conditions[0];
    assert!(ready.observed_generation < object.metadata.generation, "{ready:?}");
    world.edit("stable", json!({ "spec": { "suspend": null } })).await;
    postgres
        .rows
        .until_charts(&["stable/web 3.0.0", "stable/worker 0.1.0"])
        .await;

    // An invalid index is reported with its cause, and the charts stay.
    world.serve("stable", "<<<<<<< HEAD\nentries: {}\n");
    world.edit("stable", json!({ "spec": { "resyncRequests": 3 } })).await;
    let object = world
        .until("stable", "the index to be rejected", |object| {
            condition(object, "Stalled").is_some()
        })
        .await;
    assert_eq!(condition(&object, "Ready").unwrap().0, "False");
    assert!(message(&object).contains("remain available"), "{}", message(&object));
    world.event("stable", "SyncStalled").await;
    postgres
        .rows
        .until_charts(&["stable/web 3.0.0", "stable/worker 0.1.0"])
        .await;

    // Repaired.
    world.serve("stable", index(&[("web", &["3.1.0"]), ("worker", &["0.1.0"])]));
    world.edit("stable", json!({ "spec": { "resyncRequests": 4 } })).await;
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Stalled"), None);
    postgres
        .rows
        .until_charts(&["stable/web 3.1.0", "stable/worker 0.1.0"])
        .await;

    // Deletion removes the rows before the object, and the series of the repository.
    const LAST_SUCCESS: &str = "portolan_repository_last_success_timestamp_seconds";
    let labels = [("namespace", namespace), ("name", "stable")];
    let synced_at = portolan.metrics().await.sum(LAST_SUCCESS, &labels).unwrap();
    let age = jiff::Timestamp::now().as_second() as f64 - synced_at;
    assert!((0.0..60.0).contains(&age), "{age} s");
    world.delete("stable").await;
    world.gone("stable").await;
    postgres.rows.assert_empty().await;
    assert_eq!(portolan.metrics().await.sum(LAST_SUCCESS, &labels), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_failure_is_retried_until_it_recovers() {
    let world = World::new().await;
    let postgres = Postgres::new().await;
    let _portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.server.break_times("/stable/index.yaml", Fault::status(503), 1);
    world.declare("stable", &url).await;
    let object = world.until("stable", "the failure to be reported", |object| {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_is_unknown_until_a_changed_spec_was_synced() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;

    world
        .server
        .break_path("/stable/index.yaml", Fault::Delay(Duration::from_secs(3)));
    let edited = world
        .edit("stable", json!({ "spec": { "description": "edited" } }))
        .await;
    let object = world.until("stable", "the new generation", is_current).await;
    assert_eq!(condition(&object, "Ready"), Some(("Unknown", "Syncing")));
    assert_eq!(condition(&object, "Reconciling"), Some(("True", "Syncing")));
    let conditions = object.status.unwrap().conditions;
    assert!(
        conditions
            .iter()
            .all(|condition| condition.observed_generation == edited.metadata.generation)
    );
    assert_eq!(postgres.rows.charts().await.unwrap(), ["stable/web 1.0.0"]);
    world.until_ready("stable").await;

    // A resync of the same generation leaves Ready as it is.
    let fetched = world.server.requests("/stable/index.yaml").len();
    world.resync("stable", "now").await;
    world.until_fetched("stable", fetched + 1).await;
    let object = world.repositories.get("stable").await.unwrap();
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
}
