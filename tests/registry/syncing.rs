//! Cached metadata of a registry.

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use serde_json::json;

use super::site::{Site, digest, interrupted, list, manifest, skipped};
use crate::support::chart_server::{Fault, Page};

#[tokio::test]
async fn cached_metadata_has_only_catalog_fields_and_at_most_64_kib() {
    let site = Site::new(&["harbour", "long"]).await;
    let more = json!({
        "description": "a port",
        "keywords": ["sea"],
        "annotations": {"category": "Infrastructure", "notes": "x".repeat(100_000)},
        "dependencies": vec![json!({"name": "quay", "version": "1"}); 1000],
    });
    site.push("harbour", "1.0.0", &more);
    site.list("harbour", &["1.0.0".to_owned()]);
    site.push("long", "1.0.0", &json!({"description": "x".repeat(70_000)}));
    site.list("long", &["1.0.0".to_owned()]);
    let finished = site.sync().await;
    let problems = skipped(&finished);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("long 1.0.0: metadata has 70"), "{problems:?}");
    let infos = site.infos().await;
    assert_eq!(infos.len(), 1);
    assert_eq!(
        (&*infos[0].description, &*infos[0].category),
        ("a port", "Infrastructure")
    );
    assert_eq!(infos[0].keywords.as_deref(), Some(&["sea".to_owned()][..]));
    let remembered = site.number("SELECT max(length(metadata)) FROM portolan_oci_tags").await;
    assert!(remembered < 1000, "{remembered}");
}

#[tokio::test]
async fn a_chart_whose_newest_tag_is_deprecated_is_stored_beside_the_charts() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("quay", &["2.0.0"]);
    site.push("harbour", "1.0.0", &json!({}));
    site.push(
        "harbour",
        "1.1.0",
        &json!({"deprecated": true, "home": "https://harbour.example"}),
    );
    site.list("harbour", &["1.0.0".to_owned(), "1.1.0".to_owned()]);
    site.sync().await;
    assert_eq!(site.charts().await, ["quay 2.0.0"]);
    let stored = "SELECT count(*) FROM portolan_deprecated_charts WHERE chart_id LIKE '%/harbour'
        AND info ->> 'home' = 'https://harbour.example' AND json_array_length(info, '$.chartVersions') = 2";
    assert_eq!(site.number(stored).await, 1);
    site.push("harbour", "1.2.0", &json!({}));
    site.list("harbour", &["1.0.0".to_owned(), "1.1.0".to_owned(), "1.2.0".to_owned()]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.1.0 1.0.0", "quay 2.0.0"]);
    assert_eq!(site.number("SELECT count(*) FROM portolan_deprecated_charts").await, 0);
}

#[tokio::test]
async fn a_sync_of_an_unchanged_registry_requests_only_tag_lists_and_writes_no_tags() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["2.0.0"]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 2.0.0"]);
    let requests = site.server.request_count();
    let finished = site.sync().await;
    assert!(
        matches!(finished.outcome, SyncOutcome::NotModified),
        "{:?}",
        finished.outcome
    );
    assert_eq!(site.server.request_count(), requests + 2);
}

#[tokio::test]
async fn other_artifacts_are_cached_without_a_second_request() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "2.0.0"]);
    let image = json!({"schemaVersion": 2, "manifests": []}).to_string();
    site.server
        .serve(&manifest("harbour", "2.0.0"), Page::new(image.clone()));
    let problems = skipped(&site.sync().await);
    assert!(problems[0].contains("is not a Helm chart"), "{problems:?}");
    assert_eq!(site.server.count(&manifest("harbour", "2.0.0")), 1);
    let remembered = sqlx::query_scalar::<_, String>("SELECT digest FROM portolan_oci_tags WHERE tag = '2.0.0'");
    assert_eq!(
        remembered.fetch_one(&site.tables).await.unwrap(),
        digest(image.as_bytes())
    );
}

#[tokio::test]
async fn tags_pushed_again_are_found_by_a_full_comparison_even_if_interrupted() {
    let mut site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.push("quay", "1.0.0", &json!({"appVersion": "another"}));
    assert!(
        matches!(site.sync().await.outcome, SyncOutcome::NotModified),
        "the list does not show the change"
    );
    site.server.break_path(&list("quay"), Fault::retry_after(503, "1"));
    interrupted(&site.attempt(SyncMode::Complete).await);
    site.server.clear_faults(&list("quay"));
    site.restart();
    site.sync().await;
    assert_eq!(site.infos().await[1].chart_versions[0].app_version, "another");

    // An interrupted digest check keeps its progress.
    site.push("harbour", "1.1.0", &json!({"appVersion": "another"}));
    site.server
        .break_times(&manifest("quay", "1.0.0"), Fault::retry_after(503, "1"), 1);
    interrupted(&site.attempt(SyncMode::Complete).await);
    let requests = site.server.count(&manifest("harbour", "1.0.0"));
    site.restart();
    site.sync().await;
    assert_eq!(site.server.count(&manifest("harbour", "1.0.0")), requests);
    assert_eq!(site.infos().await[0].chart_versions[0].app_version, "another");
}

#[tokio::test]
async fn a_clock_set_back_does_not_disable_checks() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    let broken = manifest("harbour", "1.1.0");
    site.server.break_path(&broken, Fault::status(500));
    site.sync().await;
    site.execute(&[
        "UPDATE portolan_oci_repositories SET digests_checked = '2099-01-01T00:00:00Z'",
        "UPDATE portolan_oci_tags SET next_try = '2099-01-01T00:00:00Z' WHERE next_try IS NOT NULL",
    ])
    .await;
    site.server.clear_faults(&broken);
    site.push("harbour", "1.0.0", &json!({"appVersion": "another"}));
    site.sync().await;
    let infos = site.infos().await;
    let descriptions: Vec<&str> = infos[0]
        .chart_versions
        .iter()
        .map(|version| &*version.app_version)
        .collect();
    assert_eq!(descriptions, ["", "another"]);
}
