//! Indexes that contain invalid entries, and invalid settings.

use super::*;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};

/// An SQL injection unless names are bound parameters.
const HOSTILE: &str = "x') OR true OR ('a";

fn entry(name: &str, version: &str) -> String {
    json!({ "name": name, "version": version, "urls": ["a.tgz"] }).to_string()
}

/// Builds an index in YAML flow notation from keys and lists of versions.
fn index_of(charts: &[(&str, Vec<String>)]) -> String {
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for (key, versions) in charts {
        // Explicit keys (`?`), as Go prints them: implicit ones are limited to 1,024 characters.
        text.push_str(&format!("  ? {}\n  : [{}]\n", json!(key), versions.join(", ")));
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_entries_are_skipped_and_listed() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
    let long = "n".repeat(3_000);
    let good = ("web", vec![entry("web", "1.0.0")]);
    let bad = [
        ("nothing", vec!["null".to_owned()]),
        ("text", vec!["just a text".to_owned()]),
        (
            "typed",
            vec!["{name: typed, version: [1, 2]}".to_owned(), entry("typed", "1.0.0")],
        ),
        (
            "maps",
            vec!["{name: maps, version: 1.0.0, keywords: {a: b}}".to_owned()],
        ),
        ("versionless", vec![entry("versionless", "")]),
        ("endless", vec![entry("endless", &"1".repeat(3_000))]),
        ("nameless", vec![entry("", "1.0.0")]),
        ("up", vec![entry("..", "1.0.0")]),
        ("bell", vec![entry("bell\u{7}", "1.0.0")]),
        (long.as_str(), vec![entry(&long, "1.0.0")]),
        ("duplicate", vec![entry("web", "9.0.0")]),
    ];
    let url = world.serve("mixed", index_of(&[std::slice::from_ref(&good), &bad[..]].concat()));
    world.declare("mixed", &url).await;
    let object = world.until_ready("mixed").await;

    assert_eq!(fixture.charts("mixed").await, ["typed", "web"]);
    let versions = |row: &Row| row.info["chartVersions"][0]["version"].clone();
    let rows = fixture.rows("mixed").await;
    assert_eq!(rows.iter().map(versions).collect::<Vec<_>>(), ["1.0.0", "1.0.0"]);

    let last_sync = object.status.unwrap().last_sync.unwrap();
    assert_eq!((last_sync.charts, last_sync.versions), (2, 2));
    assert_eq!(last_sync.skipped_count, 11, "{:?}", last_sync.skipped);
    for (key, _) in &bad {
        let named = last_sync
            .skipped
            .iter()
            .find(|skipped| key.starts_with(skipped.chart.trim_end_matches('…')));
        // Of two charts with one name, the name identifies the skipped one.
        let named = named.or_else(|| {
            last_sync
                .skipped
                .iter()
                .find(|skipped| *key == "duplicate" && skipped.chart == "web")
        });
        let named = named.unwrap_or_else(|| panic!("{key} is not named in {:?}", last_sync.skipped));
        assert!(
            !named.reason.is_empty() && named.chart.len() <= 1024 && named.reason.len() <= 1024,
            "{named:?}"
        );
    }
    let note = world.event("mixed", "ChartsSkipped").await;
    assert!(note.starts_with("skipped 11 entries of the index: nothing"), "{note}");

    // Once repaired, nothing is skipped.
    world.serve("mixed", index_of(&[good]));
    let object = fixture.world.resync_and_wait("mixed", "now").await;
    assert_eq!(object.status.unwrap().last_sync.unwrap().skipped_count, 0);
    assert_eq!(fixture.charts("mixed").await, ["web"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_named_like_an_sql_statement_is_added_and_removed_alone() {
    let fixture = Fixture::new(&[]).await;
    let world = &fixture.world;
    let charts = |hostile: &[&str]| {
        let all = ["web", "worker"].iter().chain(hostile);
        index_of(&all.map(|name| (*name, vec![entry(name, "1.0.0")])).collect::<Vec<_>>())
    };
    for name in ["hostile", "bystander"] {
        let url = world.serve(
            name,
            charts(&[HOSTILE, "x' OR 1=1--", "%", "a\\", "\"; DROP TABLE charts; --"]),
        );
        world.declare(name, &url).await;
        world.until_ready(name).await;
    }
    let before = fixture.rows("bystander").await;
    assert_eq!(before.len(), 7);
    assert!(before.iter().any(|row| row.info["name"] == HOSTILE));

    world.serve("hostile", charts(&[]));
    fixture.world.resync_and_wait("hostile", "now").await;
    assert_eq!(fixture.charts("hostile").await, ["web", "worker"]);
    world.delete("hostile").await;
    world.gone("hostile").await;
    assert_eq!(fixture.rows("bystander").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_interval_is_reported_and_the_default_is_used() {
    // The minimum does not apply to the default, which the operator sets.
    let fixture = Fixture::new(&["--crontab=* * * * * *"]).await;
    let world = &fixture.world;
    for (name, interval) in [
        ("words", "every now and then"),
        ("often", "* * * * * *"),
        ("never", "0 0 31 2 *"),
    ] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        let spec = json!({ "spec": { "type": "helm", "url": url, "interval": interval } });
        world.declare_with(name, spec).await;
        let object = world.until_ready(name).await;
        assert_eq!(
            (condition(&object, "Stalled"), condition(&object, "Reconciling")),
            (None, None),
            "{name}"
        );
        let note = fixture
            .event_with(name, "InvalidInterval", &["spec.interval", "using the default"])
            .await;
        assert!(
            type_of_event(world, name, "InvalidInterval").await == "Warning",
            "{note}"
        );
        fixture.until_more_requests(name, 1).await;
        assert_eq!(
            condition(&world.until_ready(name).await, "Ready"),
            Some(("True", "Synced"))
        );
    }
}

async fn type_of_event(world: &World, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let list = events.list(&ListParams::default()).await.unwrap();
    let about = |event: &&Event| {
        event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name)
            && event.reason.as_deref() == Some(reason)
    };
    list.items
        .iter()
        .find(about)
        .and_then(|event| event.type_.clone())
        .unwrap()
}
