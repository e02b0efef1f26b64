//! Invalid repositories and tags: they are listed, and do not affect others.

use serde_json::json;

use super::{NEVER, RecordedRegistry, chart, resynced, skipped};
use crate::cluster::rows::Postgres;
use crate::cluster::{World, condition, message};
use crate::support::chart_server::Fault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oci_repository_names_are_normalized_and_invalid_ones_affect_no_others() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    for name in ["harbour", "pier"] {
        fixture.push(name, &chart(name, "1.0.0")).await;
    }
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    fixture
        .declare(&world, "port", &["harbour", " pier/", "harbour", "", "No Such"])
        .await;
    let object = world.until_ready("port").await;
    let both = ["port/harbour 1.0.0", "port/pier 1.0.0"];
    assert_eq!(postgres.rows.charts().await.unwrap(), both);
    let skipped = skipped(&object);
    assert_eq!((skipped.len(), skipped[0].0.as_str()), (1, "No Such"), "{skipped:?}");
    assert!(
        skipped[0].2.contains("fix the URL or spec.ociRepositories"),
        "{skipped:?}"
    );

    // A filter uses stored metadata.
    let before = fixture.requests();
    for (rule, kept) in [(".name == \"pier\"", &both[1..]), (".name | test(\".\")", &both[..])] {
        world
            .edit("port", json!({ "spec": { "filterRule": { "jq": rule } } }))
            .await;
        world.until_ready("port").await;
        assert_eq!(postgres.rows.charts().await.unwrap(), kept);
    }
    assert_eq!(fixture.pulled_since(before), Vec::<String>::new());

    // If all names are invalid, the spec has to be fixed.
    let none = json!({ "spec": { "ociRepositories": ["No Such"] } });
    world.edit("port", none).await;
    let object = world.until_ready_is("port", "False", "InvalidName").await;
    assert!(message(&object).contains("ports/No Such"), "{}", message(&object));
    assert_eq!(postgres.rows.charts().await.unwrap(), both);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_becomes_private_is_reported_and_keeps_its_charts() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    for name in ["harbour", "pier"] {
        fixture.push(name, &chart(name, "1.0.0")).await;
    }
    let _portolan = world.portolan(postgres.url(), &["--crontab=* * * * * *"]).await;
    fixture.declare(&world, "port", &["harbour", "pier"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(skipped(&object), []);
    let tags = "/v2/ports/pier/tags/list";
    fixture.front.break_path(tags, Fault::status(403));
    let object = world
        .until("port", "the private repository to be reported", |object| {
            !skipped(object).is_empty()
        })
        .await;
    let skipped_now = skipped(&object);
    assert_eq!(
        (skipped_now.len(), skipped_now[0].0.as_str()),
        (1, "pier"),
        "{skipped_now:?}"
    );
    assert!(skipped_now[0].2.contains("403"), "{skipped_now:?}");
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    let both = ["port/harbour 1.0.0", "port/pier 1.0.0"];
    assert_eq!(postgres.rows.charts().await.unwrap(), both);
    // New tags of other repositories are not delayed.
    fixture.push("harbour", &chart("harbour", "1.1.0")).await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.1.0 1.0.0", "port/pier 1.0.0"])
        .await;
    fixture.front.clear_faults(tags);
    world
        .until("port", "no more skipped entries", |object| skipped(object).is_empty())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_that_are_not_charts_are_skipped_and_listed() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let fixture = RecordedRegistry::with_password().await;
    let pushed = fixture
        .registry
        .push_chart("ports/harbour", "1.0.0", &chart("harbour", "1.0.0"))
        .await;
    let odd = chart("harbour", "1.0.0");
    fixture.registry.push_chart("ports/harbour", "latest", &odd).await;
    fixture.registry.push_signature("ports/harbour", &pushed).await;
    fixture.registry.push_image("ports/harbour", "2.0.0").await;
    fixture.registry.push_image_index("ports/harbour", "3.0.0").await;
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    fixture.declare(&world, "port", &["harbour", "sunk"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(postgres.rows.charts().await.unwrap(), ["port/harbour 1.0.0"]);
    let skipped = skipped(&object);
    let reason = |chart: &str, version: Option<&str>| {
        let found = skipped
            .iter()
            .find(|(name, tag, _)| name == chart && tag.as_deref() == version);
        found
            .map(|(_, _, reason)| reason.as_str())
            .unwrap_or_else(|| panic!("{chart} {version:?} in {skipped:?}"))
    };
    assert!(
        reason("harbour", Some("2.0.0")).contains("a container image"),
        "{skipped:?}"
    );
    assert!(
        reason("harbour", Some("3.0.0")).contains("an image index"),
        "{skipped:?}"
    );
    assert!(reason("sunk", None).contains("404"), "{skipped:?}");
    assert!(
        !skipped
            .iter()
            .any(|(_, version, _)| version.as_deref() == Some("latest")),
        "{skipped:?}"
    );

    // Tags known not to be charts are not pulled again.
    let before = fixture.requests();
    resynced(&world, "port", "one").await;
    assert_eq!(fixture.pulled_since(before), Vec::<String>::new());
    // Once it is a chart, it is served.
    fixture.push("sunk", &chart("sunk", "0.1.0")).await;
    fixture.push("harbour", &chart("harbour", "2.0.0")).await;
    resynced(&world, "port", "two").await;
    assert_eq!(
        postgres.rows.charts().await.unwrap(),
        ["port/harbour 2.0.0 1.0.0", "port/sunk 0.1.0"]
    );
}
