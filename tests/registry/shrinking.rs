//! Shrinking registries: charts and cached metadata remain until the removal is accepted.

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use serde_json::json;

use super::site::{Site, list, manifest, name};
use crate::support::chart_server::Fault;

const NAMES: [&str; 12] = [
    "anchor", "berth", "crane", "dock", "echo", "fender", "gantry", "harbour", "inlet", "jetty", "keel", "lock",
];

/// Returns a site with twelve charts of one version each.
async fn twelve() -> Site {
    let site = Site::new(&NAMES).await;
    for name in NAMES {
        site.publish(name, &["1.0.0"]);
    }
    site.sync().await;
    assert_eq!(site.infos().await.len(), 12);
    site
}

/// Runs a sync that is refused and returns the digest that would accept it.
async fn refused(site: &Site) -> String {
    let finished = site.sync().await;
    let SyncOutcome::Failed(failed) = &finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    assert_eq!(failed.reason, "ShrinkRefused");
    finished.record.refused.unwrap().confirm.unwrap()
}

#[tokio::test]
async fn cached_metadata_is_kept_until_a_removal_is_accepted() {
    let site = twelve().await;
    for name in &NAMES[1..] {
        site.list(name, &[]);
    }
    for _ in 0..2 {
        refused(&site).await;
        assert_eq!(site.number("SELECT count(*) FROM portolan_oci_tags").await, 12);
    }
    assert_eq!(site.infos().await.len(), 12);
    for name in &NAMES[1..] {
        site.list(name, &["1.0.0".to_owned()]);
    }
    let finished = site.sync().await;
    assert!(
        matches!(finished.outcome, SyncOutcome::NotModified),
        "{:?}",
        finished.outcome
    );
    for name in NAMES {
        assert_eq!(site.server.count(&manifest(name, "1.0.0")), 1, "{name}");
    }
}

#[tokio::test]
async fn metadata_of_removed_repositories_is_deleted_with_their_charts() {
    let mut site = twelve().await;
    let declared = |site: &mut Site, names: &[&str]| {
        site.declaration.oci_repositories = names.iter().map(|name| (*name).to_owned()).collect();
    };
    // The source is unchanged, as if the registry listed its repositories itself.
    declared(&mut site, &NAMES[..2]);
    refused(&site).await;
    let repositories = "SELECT count(*) FROM portolan_oci_repositories";
    assert_eq!(site.number(repositories).await, 12);
    declared(&mut site, &NAMES[..8]);
    assert!(matches!(
        site.sync().await.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!((site.infos().await.len(), site.number(repositories).await), (8, 8));
    assert_eq!(site.number("SELECT count(*) FROM portolan_oci_tags").await, 8);
}

#[tokio::test]
async fn the_accepted_digest_is_stable_during_several_attempts() {
    let mut site = twelve().await;
    for name in NAMES {
        site.list(name, &[]);
    }
    site.publish_many("harbour", 600);
    let confirm = refused(&site).await;
    assert_eq!(refused(&site).await, confirm, "the remaining tags were pulled");
    assert_eq!(site.infos().await.len(), 12);
    // Another change needs another digest.
    site.publish_many("harbour", 601);
    let other = refused(&site).await;
    assert_ne!(other, confirm);

    site.declaration.allow_shrink = Some(confirm);
    assert_eq!(refused(&site).await, other);
    site.declaration.allow_shrink = Some(other);
    let finished = site.attempt(SyncMode::Complete).await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!((site.infos().await.len(), site.version_count(0).await), (1, 601));
}

#[tokio::test]
async fn an_accepted_digest_applies_to_all_attempts_of_a_sync() {
    let mut site = twelve().await;
    for name in NAMES {
        site.list(name, &[]);
    }
    site.publish_many("harbour", 1200);
    let confirm = refused(&site).await;
    site.declaration.allow_shrink = Some(confirm);
    let first = site.attempt(SyncMode::Complete).await;
    assert!(
        matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }),
        "{:?}",
        first.outcome
    );
    assert_eq!(site.infos().await.len(), 12, "no chart is removed before the end");
    let last = site.sync().await;
    assert!(matches!(last.outcome, SyncOutcome::Synced { is_complete: true, .. }));
    assert_eq!((site.infos().await.len(), site.version_count(0).await), (1, 1200));
}

#[tokio::test]
async fn an_unlistable_repository_does_not_count_as_removed() {
    let site = twelve().await;
    site.execute(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    for name in &NAMES[1..8] {
        site.server.break_path(&list(name), Fault::status(500));
    }
    site.list("lock", &[]);
    site.push("anchor", "1.0.0", &json!({"appVersion": "another"}));
    let finished = site.attempt(SyncMode::Complete).await;
    assert!(matches!(&finished.outcome, SyncOutcome::Interrupted(failed) if failed.reason == "ServerError"));
    let infos = site.infos().await;
    assert_eq!(infos.len(), 12, "removed charts are unknown");
    assert_eq!(infos[0].chart_versions[0].app_version, "another");

    for name in &NAMES[1..8] {
        site.server.clear_faults(&list(name));
    }
    assert!(matches!(
        site.sync().await.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!(site.infos().await.len(), 11);
    let record = site.syncer.record(&name()).await.unwrap().unwrap();
    assert_eq!(record.baseline.unwrap().names, 11);
}

#[tokio::test]
async fn a_shrunken_registry_is_refused_once_all_lists_are_complete() {
    let site = twelve().await;
    for name in &NAMES[1..] {
        site.list(name, &[]);
    }
    site.server.break_path(&list("anchor"), Fault::status(500));
    let finished = site.sync().await;
    assert!(
        matches!(finished.outcome, SyncOutcome::Interrupted(_)),
        "{:?}",
        finished.outcome
    );
    assert_eq!(site.infos().await.len(), 12);
    assert_eq!(site.number("SELECT count(*) FROM portolan_oci_tags").await, 12);
    site.server.clear_faults(&list("anchor"));
    refused(&site).await;
    assert_eq!(site.infos().await.len(), 12);
}
