//! Registries that shrink, or seem to: nothing is forgotten, and nothing goes, before that is believed.

use portolan::controllers::apprepository::decision::Mode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use serde_json::json;

use super::site::{Site, list, manifest, name};
use crate::support::chart_server::Fault;

const NAMES: [&str; 12] = [
    "anchor", "berth", "crane", "dock", "echo", "fender", "gantry", "harbour", "inlet", "jetty", "keel", "lock",
];

/// Of twelve charts, each with one version.
async fn twelve() -> Site {
    let site = Site::new(&NAMES).await;
    for name in NAMES {
        site.publish(name, &["1.0.0"]);
    }
    site.sync().await;
    assert_eq!(site.infos().await.len(), 12);
    site
}

/// The digest that confirms what was refused by this attempt.
async fn refused(site: &Site) -> String {
    let finished = site.sync().await;
    let SyncOutcome::Failed(failed) = &finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    assert_eq!(failed.reason, "ShrinkRefused");
    finished.record.refused.unwrap().confirm.unwrap()
}

#[tokio::test]
async fn what_has_gone_is_remembered_until_it_is_believed_so_that_its_return_costs_no_pull() {
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
async fn repositories_that_are_listed_no_more_are_forgotten_with_their_charts_and_not_before() {
    let mut site = twelve().await;
    let declared = |site: &mut Site, names: &[&str]| {
        site.declaration.oci_repositories = names.iter().map(|name| (*name).to_owned()).collect();
    };
    // As where the registry itself is asked for its repositories: the source is the same.
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
async fn the_digest_that_confirms_a_shrinking_stays_while_the_registry_is_pulled_in_parts() {
    let mut site = twelve().await;
    for name in NAMES {
        site.list(name, &[]);
    }
    site.publish_many("harbour", 600);
    let confirm = refused(&site).await;
    assert_eq!(refused(&site).await, confirm, "the rest was pulled");
    assert_eq!(site.infos().await.len(), 12);
    // Another offer is another matter.
    site.publish_many("harbour", 601);
    let other = refused(&site).await;
    assert_ne!(other, confirm);

    site.declaration.allow_shrink = Some(confirm);
    assert_eq!(refused(&site).await, other);
    site.declaration.allow_shrink = Some(other);
    let finished = site.attempt(Mode::Complete).await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!((site.infos().await.len(), site.shown(0).await), (1, 601));
}

#[tokio::test]
async fn a_confirmation_holds_from_the_first_part_to_the_last() {
    let mut site = twelve().await;
    for name in NAMES {
        site.list(name, &[]);
    }
    site.publish_many("harbour", 1200);
    let confirm = refused(&site).await;
    site.declaration.allow_shrink = Some(confirm);
    let first = site.attempt(Mode::Complete).await;
    assert!(
        matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }),
        "{:?}",
        first.outcome
    );
    assert_eq!(site.infos().await.len(), 12, "nothing goes before its end");
    let last = site.sync().await;
    assert!(matches!(last.outcome, SyncOutcome::Synced { is_complete: true, .. }));
    assert_eq!((site.infos().await.len(), site.shown(0).await), (1, 1200));
}

#[tokio::test]
async fn what_can_not_be_listed_does_not_count_as_gone_although_nothing_of_it_is_remembered() {
    let site = twelve().await;
    site.forget(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    for name in &NAMES[1..8] {
        site.server.break_path(&list(name), Fault::status(500));
    }
    site.list("lock", &[]);
    site.push("anchor", "1.0.0", &json!({"appVersion": "another"}));
    let finished = site.attempt(Mode::Complete).await;
    assert!(matches!(&finished.outcome, SyncOutcome::Interrupted(failed) if failed.reason == "ServerError"));
    let infos = site.infos().await;
    assert_eq!(infos.len(), 12, "it can't be told what has gone");
    assert_eq!(infos[0].chart_versions[0].app_version, "another");

    for name in &NAMES[1..8] {
        site.server.repair(&list(name));
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
async fn a_registry_that_has_shrunk_is_refused_once_all_lists_are_there_although_a_part_was_synced_before() {
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
    site.server.repair(&list("anchor"));
    refused(&site).await;
    assert_eq!(site.infos().await.len(), 12);
}
