//! Cached state of a registry.

use std::collections::BTreeMap;

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{OciChange, OciMetadata, OciRemovals, OciRepository, OciTag, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, at, record, repository, rows};

fn tag(name: &str) -> OciTag {
    OciTag {
        digest: format!("sha256:{name}"),
        ..OciTag::default()
    }
}

fn metadata(name: &str) -> String {
    format!(r#"{{"name": "nginx", "version": "{name}", "description": "it's \u0000 \"quoted\""}}"#)
}

fn nginx(tags: &[&str]) -> OciRepository {
    OciRepository {
        repository: "team/nginx".into(),
        etag: Some("\"etag\"".into()),
        last_modified: None,
        digests_checked: Some(at(0)),
        tags: tags.iter().map(|name| ((*name).to_owned(), tag(name))).collect(),
    }
}

async fn load(fixture: &Fixture, source: &str) -> Vec<OciRepository> {
    fixture.catalog.oci_repositories(&repository(), source).await.unwrap()
}

/// Writes all tags of a repository, with the metadata of charts.
async fn save(fixture: &Fixture, source: &str, whole: &OciRepository) {
    let changed: Vec<OciChange> = (whole.tags.iter())
        .map(|(name, tag)| OciChange {
            name: name.clone(),
            tag: tag.clone(),
            metadata: tag.problem.is_none().then(|| metadata(name)),
        })
        .collect();
    save_parts(fixture, source, whole, &changed).await;
}

async fn save_parts(fixture: &Fixture, source: &str, head: &OciRepository, changed: &[OciChange]) {
    let saved = (fixture.catalog).save_oci(&repository(), source, head, changed).await;
    saved.unwrap();
}

async fn charts(fixture: &Fixture, repository_of_tags: &str, after: &str, limit: u32) -> Vec<OciMetadata> {
    let charts = (fixture.catalog)
        .oci_metadata(&repository(), repository_of_tags, after, limit)
        .await;
    charts.unwrap()
}

#[rstest]
#[tokio::test]
async fn saved_state_is_returned(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    assert!(load(&fixture, "s").await.is_empty());
    let mut first = nginx(&["1.0.0", "1.1.0", "v2"]);
    let image = OciTag {
        problem: Some("is an image".into()),
        tries: 3,
        next_try: Some(at(60)),
        ..tag("1.1.0")
    };
    first.tags.insert("1.1.0".into(), image);
    let empty = OciRepository {
        repository: "team/empty".into(),
        ..OciRepository::default()
    };
    save(&fixture, "s", &first).await;
    save(&fixture, "s", &empty).await;
    assert_eq!(load(&fixture, "s").await, [empty, first.clone()]);
    let other = NamespacedName::new("kubeapps", "other");
    assert!(fixture.catalog.oci_repositories(&other, "s").await.unwrap().is_empty());

    let found = charts(&fixture, "team/nginx", "", 10).await;
    let chart = |name: &str| OciMetadata {
        tag: name.into(),
        digest: format!("sha256:{name}"),
        metadata: metadata(name),
    };
    assert_eq!(found, [chart("1.0.0"), chart("v2")], "other tags have no metadata");
    assert_eq!(charts(&fixture, "team/nginx", "", 1).await, [chart("1.0.0")]);
    assert_eq!(charts(&fixture, "team/nginx", "1.0.0", 1).await, [chart("v2")]);
    assert!(charts(&fixture, "team/empty", "", 10).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn only_changed_tags_are_written_and_metadata_stays_until_it_is_replaced(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    save(&fixture, "s", &nginx(&["1.0.0", "1.1.0", "2.0.0", "3.0.0"])).await;
    let due = OciTag {
        next_try: Some(at(60)),
        ..tag("1.0.0")
    };
    let broken = OciTag {
        problem: Some("not found".into()),
        ..tag("1.1.0")
    };
    let change = |name: &str, tag: &OciTag, metadata: Option<&str>| OciChange {
        name: name.into(),
        tag: tag.clone(),
        metadata: metadata.map(str::to_owned),
    };
    let changed = [
        change("1.0.0", &due, None),
        change("1.1.0", &broken, None),
        change("4.0.0", &tag("4.0.0"), Some("{}")),
    ];
    let head = OciRepository {
        digests_checked: None,
        tags: BTreeMap::new(),
        ..nginx(&[])
    };
    save_parts(&fixture, "s", &head, &changed).await;
    let mut wanted = nginx(&["2.0.0", "3.0.0", "4.0.0"]);
    wanted.digests_checked = None;
    wanted.tags.insert("1.0.0".into(), due);
    wanted.tags.insert("1.1.0".into(), broken);
    assert_eq!(load(&fixture, "s").await, [wanted]);
    let found = charts(&fixture, "team/nginx", "", 10).await;
    let found: Vec<(&str, &str)> = found.iter().map(|one| (&*one.tag, &*one.metadata)).collect();
    let known = ["1.0.0", "2.0.0", "3.0.0"].map(metadata);
    assert_eq!(
        found,
        [
            ("1.0.0", &*known[0]),
            ("2.0.0", &known[1]),
            ("3.0.0", &known[2]),
            ("4.0.0", "{}")
        ]
    );
}

#[rstest]
#[tokio::test]
async fn a_recheck_resets_validators_digest_checks_and_retries(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut known = nginx(&["1.0.0"]);
    let failed = OciTag {
        problem: Some("not found".into()),
        tries: 3,
        next_try: Some(at(600)),
        ..OciTag::default()
    };
    known.tags.insert("2.0.0".into(), failed);
    save(&fixture, "s", &known).await;
    fixture.catalog.recheck_oci(&repository(), at(60)).await.unwrap();
    (known.etag, known.digests_checked) = (None, None);
    known.tags.get_mut("2.0.0").unwrap().next_try = Some(at(60));
    assert_eq!(load(&fixture, "s").await, [known]);
}

#[rstest]
#[tokio::test]
async fn state_of_another_source_is_not_returned_and_the_next_save_deletes_it(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    save(&fixture, "old", &nginx(&["1.0.0", "2.0.0"])).await;
    let mut other = nginx(&["1.0.0"]);
    other.repository = "team/other".into();
    save(&fixture, "old", &other).await;
    assert!(load(&fixture, "new").await.is_empty());
    save(&fixture, "new", &nginx(&["3.0.0"])).await;
    assert!(load(&fixture, "old").await.is_empty());
    assert_eq!(load(&fixture, "new").await, [nginx(&["3.0.0"])]);
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 1);
}

/// Saves three repositories with three tags each. Returns removals of one repository and of two tags of another.
async fn three(fixture: &Fixture) -> OciRemovals {
    for name in ["a", "b", "c"] {
        let mut one = nginx(&["1.0.0", "2.0.0", "3.0.0"]);
        one.repository = name.into();
        save(fixture, "s", &one).await;
    }
    let head = OciRepository {
        repository: "b".into(),
        etag: Some("\"shorter\"".into()),
        ..nginx(&[])
    };
    OciRemovals {
        source: "s".into(),
        repositories: vec!["a".to_owned()],
        tags: vec![(head, vec!["2.0.0".to_owned(), "3.0.0".to_owned()])],
    }
}

/// Returns the cached repositories as `repository etag tags`.
async fn left(fixture: &Fixture) -> Vec<String> {
    let shown = |one: OciRepository| {
        let tags: Vec<String> = one.tags.into_keys().collect();
        format!("{} {} {}", one.repository, one.etag.unwrap_or_default(), tags.join(" "))
    };
    load(fixture, "s").await.into_iter().map(shown).collect()
}

const LEFT: [&str; 2] = ["b \"shorter\" 1.0.0", "c \"etag\" 1.0.0 2.0.0 3.0.0"];

#[rstest]
#[tokio::test]
async fn state_that_left_the_registry_is_deleted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let gone = three(&fixture).await;
    for _ in 0..2 {
        fixture.catalog.delete_oci(&repository(), &gone).await.unwrap();
        assert_eq!(left(&fixture).await, LEFT);
    }
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 4);
    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    assert_eq!(fixture.tables.count("portolan_oci_repositories").await, 0);
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 0);
}

#[rstest]
#[tokio::test]
async fn state_that_left_the_registry_is_deleted_in_the_transaction_of_its_charts(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let gone = three(&fixture).await;
    let commit = || {
        let mut commit = SyncCommit::new(record(), None, "checksum");
        commit.oci_removals = Some(gone.clone());
        commit
    };
    let broken = || std::iter::once(Err(std::io::Error::other("the spool is gone")));
    assert!(fixture.catalog.commit(commit(), broken()).await.is_err());
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 9);
    fixture.catalog.commit(commit(), rows(Vec::new())).await.unwrap();
    assert_eq!(left(&fixture).await, LEFT);
}

#[rstest]
#[tokio::test]
async fn ten_thousand_tags_can_be_stored(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let names: Vec<String> = (0..10_000).map(|at| format!("1.0.{at:05}")).collect();
    let many = nginx(&names.iter().map(String::as_str).collect::<Vec<_>>());
    save(&fixture, "s", &many).await;
    assert_eq!(load(&fixture, "s").await, [many]);
    assert_eq!(charts(&fixture, "team/nginx", "1.0.09990", 100).await.len(), 9);
}
