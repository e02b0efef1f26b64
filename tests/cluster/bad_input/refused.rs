//! Refused indexes are not downloaded again until they change or are confirmed.

use portolan::api::REQUESTED_AT;

use super::*;
use crate::support::chart_server::Page;

const CONFLICT: &str = "<<<<<<< HEAD\nentries: {}\n=======\n";

/// A repository that was synced, and then serves a refused page.
async fn refused(fixture: &Fixture, name: &str, page: Page, reason: &str) -> AppRepository {
    let world = &fixture.world;
    let url = world.serve(name, index(&[("web", &["1.0.0"])]));
    world.declare_with(name, ticking(&url)).await;
    world.until_ready(name).await;
    world.server.serve(&index_path(name), page);
    world.until_ready_is(name, "False", reason).await
}

/// Serves a valid index again and waits for its sync.
async fn until_accepted(fixture: &Fixture, name: &str) {
    fixture.world.serve(name, index(&[("web", &["2.0.0", "1.0.0"])]));
    fixture.world.until_ready(name).await;
    assert_eq!(fixture.rows(name).await[0].info["chartVersions"][0]["version"], "2.0.0");
}

/// Waits for some ticks and checks that nothing changes.
async fn check_refusal_stays(fixture: &Fixture, object: &AppRepository, name: &str) {
    let (rows, events) = (fixture.rows(name).await, fixture.world.events(name).await);
    fixture.until_more_requests(name, 3).await;
    let now = fixture.world.repositories.get(name).await.unwrap();
    assert_eq!(
        now.metadata.resource_version, object.metadata.resource_version,
        "{:?}",
        now.status
    );
    assert_eq!(fixture.rows(name).await, rows);
    assert_eq!(fixture.world.events(name).await, events);
}

/// Checks that the last requests were conditional and got no body.
fn check_not_downloaded(fixture: &Fixture, name: &str, etag: &str) {
    let requests = fixture.world.server.requests(&index_path(name));
    for request in &requests[requests.len() - 3..] {
        assert_eq!(request.status, Some(http::StatusCode::NOT_MODIFIED), "{request:?}");
        assert_eq!(request.headers[http::header::IF_NONE_MATCH], etag);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_index_is_not_downloaded_again_until_it_has_changed() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let page = Page::new(CONFLICT).etag("\"refused\"");
    let object = refused(&fixture, "conflict", page, "InvalidYAML").await;
    check_refusal_stays(&fixture, &object, "conflict").await;
    check_not_downloaded(&fixture, "conflict", "\"refused\"");
    until_accepted(&fixture, "conflict").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_refused_initially_or_at_a_new_url_is_not_downloaded_again() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let world = &fixture.world;
    let page = || Page::new(CONFLICT).etag("\"refused\"");
    world.server.serve(&index_path("never"), page());
    world.declare_with("never", ticking(&world.server.url("/never"))).await;

    let url = world.serve("good", index(&[("web", &["1.0.0"])]));
    world.declare_with("moved", ticking(&url)).await;
    world.until_ready("moved").await;
    world.server.serve(&index_path("moved"), page());
    let url = world.server.url("/moved");
    world.edit("moved", json!({ "spec": { "url": url } })).await;

    for name in ["never", "moved"] {
        let object = world.until_ready_is(name, "False", "InvalidYAML").await;
        check_refusal_stays(&fixture, &object, name).await;
        check_not_downloaded(&fixture, name, "\"refused\"");
        until_accepted(&fixture, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_over_the_cap_is_not_downloaded_again_until_it_has_changed() {
    let fixture = Fixture::new(&["--min-interval=1s", "--index-max-bytes=64Ki"]).await;
    let page = Page::new("#".repeat(100 * 1024)).gzip().etag("\"refused\"");
    let object = refused(&fixture, "large", page, "TooLarge").await;
    check_refusal_stays(&fixture, &object, "large").await;
    check_not_downloaded(&fixture, "large", "\"refused\"");
    until_accepted(&fixture, "large").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_index_of_a_server_without_validators_stays_refused_until_it_has_changed() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let object = refused(&fixture, "conflict", Page::new(CONFLICT).without_etag(), "InvalidYAML").await;
    check_refusal_stays(&fixture, &object, "conflict").await;
    until_accepted(&fixture, "conflict").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_previous_index_is_accepted_after_another_was_refused() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    refused(&fixture, "wavering", Page::new(CONFLICT), "InvalidYAML").await;
    let rows = fixture.rows("wavering").await;
    fixture.world.serve("wavering", index(&[("web", &["1.0.0"])]));
    let object = fixture.world.until_ready("wavering").await;
    assert_eq!(condition(&object, "Stalled"), None);
    assert_eq!(fixture.rows("wavering").await, rows);
}

/// The digest in a message.
fn digest_in(message: &str) -> String {
    let (_, after) = message
        .split_once("apprepositories.kubeapps.com/allow-shrink: \"")
        .expect(message);
    after.split_once('"').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shrunken_index_is_accepted_only_with_the_digest_from_the_message() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
    let names: Vec<String> = (10..22).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    let restamped = |charts: &[(&str, &[&str])]| index(charts) + "generated: \"2026-03-01T12:00:00Z\"\n";
    for (name, left) in [("emptied", 0), ("halved", 5)] {
        let url = world.serve(name, index(&charts));
        world.declare(name, &url).await;
        world.until_ready(name).await;
        let rows = fixture.rows(name).await;

        world.serve(name, index(&charts[..left]));
        fixture.world.resync(name, "shrunk").await;
        let object = world.until_ready_is(name, "False", "ShrinkRefused").await;
        assert_eq!(condition(&object, "Stalled"), Some(("True", "ShrinkRefused")));
        let refusal = message(&object);
        assert!(
            refusal.contains(&format!("from 12 charts with 12 versions to {left} charts")),
            "{refusal}"
        );
        let digest = digest_in(&refusal);
        let note = fixture.event_with(name, "ShrinkRefused", &[&digest]).await;
        assert!(note.contains("allow-shrink"), "{note}");

        // A wrong digest together with a request, so that the test sees when it was handled.
        let allow = |digest: &str, token: &str| {
            json!({ "metadata": { "annotations": {
                "apprepositories.kubeapps.com/allow-shrink": digest, REQUESTED_AT: token
            } } })
        };
        world.edit(name, allow("true", "wrong")).await;
        let object = fixture.world.resync_and_wait(name, "wrong").await;
        assert_eq!(condition(&object, "Ready"), Some(("False", "ShrinkRefused")));
        assert_eq!(fixture.rows(name).await, rows);

        // Changed times alone do not make it another index.
        world.serve(name, restamped(&charts[..left]));
        world
            .edit(
                name,
                json!({ "metadata": { "annotations": {
            "apprepositories.kubeapps.com/allow-shrink": digest
        } } }),
            )
            .await;
        let object = world.until_ready(name).await;
        assert_eq!(condition(&object, "Stalled"), None);
        assert_eq!(fixture.charts(name).await, &names[..left]);
    }
}
