//! Retries of failed syncs: automatic, after `Retry-After`, or after a spec change.

use futures::future::join;

use super::*;
use crate::support::chart_server::{ChartServer, Fault, Page};

/// A host that sends `Retry-After` to `first`; `second` on the same host sends no request.
async fn check_hold(harbour: &Harbour, host: &ChartServer, status: u16, reason: &str) {
    const HOLD: Duration = Duration::from_secs(9);
    let world = &harbour.world;
    let [first, second] = [format!("first-{status}"), format!("second-{status}")];
    for name in [&first, &second] {
        host.serve(&index_path(name), Page::new(index(&[("web", &["1.0.0"])])));
        world.declare(name, &host.url(&format!("/{name}"))).await;
        world.until_ready(name).await;
    }
    let rows = (harbour.rows(&first).await, harbour.rows(&second).await);
    let held = Fault::retry_after(status, &HOLD.as_secs().to_string());
    host.break_times(&index_path(&first), held, 1);
    harbour.world.resync(&first, "now").await;
    let object = world.until_ready_is(&first, "False", reason).await;
    assert_eq!(condition(&object, "Reconciling"), Some(("True", "Retrying")));

    harbour.world.resync(&second, "now").await;
    let object = world.until_ready_is(&second, "False", reason).await;
    assert_eq!(condition(&object, "Reconciling"), Some(("True", "Retrying")));
    let refusal = message(&object);
    assert!(
        refusal.contains("with Retry-After") && refusal.contains("remain available"),
        "{refusal}"
    );
    harbour
        .event_that_says(&second, "SyncFailed", &[reason, "with Retry-After"])
        .await;

    // Both recover automatically, but not before the pause is over.
    world.until_ready(&first).await;
    world.until_ready(&second).await;
    assert_eq!((harbour.rows(&first).await, harbour.rows(&second).await), rows);
    let (first, second) = (host.seen(&index_path(&first)), host.seen(&index_path(&second)));
    assert_eq!((first.len(), second.len()), (3, 2));
    let reported = first[1].at;
    assert_eq!(first[1].status.map(|status| status.as_u16()), Some(status));
    for request in [&first[2], &second[1]] {
        assert!(
            request.at.duration_since(reported) >= HOLD,
            "{:?}",
            request.at.duration_since(reported)
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_pauses_all_repositories_of_a_host() {
    let harbour = Harbour::new(&[]).await;
    let (limited, overloaded) = (ChartServer::start().await, ChartServer::start().await);
    join(
        check_hold(&harbour, &limited, 429, "TooManyRequests"),
        check_hold(&harbour, &overloaded, 503, "ServerError"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_cause_gets_a_separate_event() {
    let harbour = Harbour::new(&[]).await;
    let world = &harbour.world;
    let url = world.serve("unlucky", index(&[("web", &["1.0.0"])]));
    world.declare("unlucky", &url).await;
    world.until_ready("unlucky").await;
    for (status, reason, cause) in [
        (404, "NotFound", "404"),
        (401, "Unauthorized", "401"),
        (403, "Forbidden", "403"),
    ] {
        world.server.repair(&index_path("unlucky"));
        world.server.break_path(&index_path("unlucky"), Fault::status(status));
        harbour.world.resync("unlucky", cause).await;
        world.until_ready_is("unlucky", "False", reason).await;
        harbour
            .event_that_says("unlucky", "SyncStalled", &[reason, cause])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_setting_is_reported_and_its_correction_is_synced_immediately() {
    let harbour = Harbour::new(&[]).await;
    let world = &harbour.world;
    let cases = [
        (
            "registry",
            json!({ "type": "oci", "ociRepositories": ["web"] }),
            json!({ "type": "helm", "ociRepositories": null }),
            "NotFound",
            "web",
        ),
        (
            "filtered",
            json!({ "filterRule": { "jq": ".name ==" } }),
            json!({ "filterRule": null }),
            "InvalidFilter",
            "spec.filterRule",
        ),
        (
            "locked",
            json!({ "auth": { "header": { "secretKeyRef": { "name": "secret", "key": "header" } } } }),
            json!({ "auth": null }),
            "SecretNotFound",
            "/secret",
        ),
    ];
    for (name, ..) in &cases {
        world
            .declare(name, &world.serve(name, index(&[("web", &["1.0.0"])])))
            .await;
        world.until_ready(name).await;
    }
    for (name, spec, without, reason, says) in &cases {
        let (rows, requests) = (harbour.rows(name).await, harbour.requests(name));
        world.edit(name, json!({ "spec": spec })).await;
        let object = world.until_ready_is(name, "False", reason).await;
        assert_eq!(condition(&object, "Stalled"), Some(("True", *reason)));
        assert_eq!(condition(&object, "Reconciling"), None);
        assert!(message(&object).contains(says), "{}", message(&object));
        harbour.event_that_says(name, "SyncStalled", &[reason, says]).await;
        // The index is not requested.
        assert_eq!(
            (harbour.rows(name).await, harbour.requests(name)),
            (rows.clone(), requests),
            "{name}"
        );

        world.edit(name, json!({ "spec": without })).await;
        world.until_ready(name).await;
        assert_eq!(harbour.rows(name).await, rows);
    }
}
