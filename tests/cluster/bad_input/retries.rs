//! Retries of failed syncs: automatic, after `Retry-After`, or after a spec change.

use futures::future::join;

use super::*;
use crate::support::chart_server::{ChartServer, Fault, Page};

/// A host sends `Retry-After` to `first`, which holds that repository alone, and then to `second`, which holds `third` of
/// the same namespace too.
async fn check_hold(fixture: &Fixture, host: &ChartServer, status: u16, reason: &str) {
    const HOLD: Duration = Duration::from_secs(12);
    let world = &fixture.world;
    let names = ["first", "second", "third"].map(|name| format!("{name}-{status}"));
    let [first, second, third] = &names;
    for name in &names {
        host.serve(&index_path(name), Page::new(index(&[("web", &["1.0.0"])])));
        world.declare(name, &host.url(&format!("/{name}"))).await;
        world.until_ready(name).await;
    }
    let rows = fixture.rows(third).await;
    let refuse = async |name: &str| {
        let held = Fault::retry_after(status, &HOLD.as_secs().to_string());
        host.break_times(&index_path(name), held, 1);
        world.resync(name, "now").await;
        let object = world.until_ready_is(name, "False", reason).await;
        assert_eq!(condition(&object, "Reconciling"), Some(("True", "Retrying")));
    };
    refuse(first).await;
    world.resync_and_wait(third, "one").await;
    world.until_ready(third).await;
    refuse(second).await;

    world.resync(third, "two").await;
    let object = world.until_ready_is(third, "False", reason).await;
    let refusal = message(&object);
    assert!(
        refusal.contains("with Retry-After") && refusal.contains("remain available"),
        "{refusal}"
    );
    fixture
        .event_with(third, "SyncFailed", &[reason, "with Retry-After"])
        .await;

    // All recover automatically, but not before the pause is over.
    for name in &names {
        world.until_ready(name).await;
    }
    assert_eq!(fixture.rows(third).await, rows);
    let requests = |name: &str| host.requests(&index_path(name));
    let [first, second, third] = [requests(first), requests(second), requests(third)];
    assert_eq!((first.len(), second.len(), third.len()), (3, 3, 3));
    for (reported, next) in [(&first[1], &first[2]), (&second[1], &second[2]), (&first[1], &third[2])] {
        assert_eq!(reported.status.map(|status| status.as_u16()), Some(status));
        let after = next.at.duration_since(reported.at);
        assert!(after >= HOLD, "{after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_pauses_a_repository_and_after_a_second_one_its_namespace() {
    let fixture = Fixture::new(&[]).await;
    let (limited, overloaded) = (ChartServer::start().await, ChartServer::start().await);
    join(
        check_hold(&fixture, &limited, 429, "TooManyRequests"),
        check_hold(&fixture, &overloaded, 503, "ServerError"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_cause_gets_a_separate_event() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
    let url = world.serve("unlucky", index(&[("web", &["1.0.0"])]));
    world.declare("unlucky", &url).await;
    world.until_ready("unlucky").await;
    for (status, reason, cause) in [
        (404, "NotFound", "404"),
        (401, "Unauthorized", "401"),
        (403, "Forbidden", "403"),
    ] {
        world.server.clear_faults(&index_path("unlucky"));
        world.server.break_path(&index_path("unlucky"), Fault::status(status));
        fixture.world.resync("unlucky", cause).await;
        world.until_ready_is("unlucky", "False", reason).await;
        fixture.event_with("unlucky", "SyncStalled", &[reason, cause]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_setting_is_reported_and_its_correction_is_synced_immediately() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
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
    for (name, spec, without, reason, text) in &cases {
        let (rows, requests) = (fixture.rows(name).await, fixture.requests(name));
        world.edit(name, json!({ "spec": spec })).await;
        let object = world.until_ready_is(name, "False", reason).await;
        assert_eq!(condition(&object, "Stalled"), Some(("True", *reason)));
        assert_eq!(condition(&object, "Reconciling"), None);
        assert!(message(&object).contains(text), "{}", message(&object));
        fixture.event_with(name, "SyncStalled", &[reason, text]).await;
        // The index is not requested.
        assert_eq!(
            (fixture.rows(name).await, fixture.requests(name)),
            (rows.clone(), requests),
            "{name}"
        );

        world.edit(name, json!({ "spec": without })).await;
        world.until_ready(name).await;
        assert_eq!(fixture.rows(name).await, rows);
    }
}
