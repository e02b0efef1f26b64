//! What is known of a registry's repositories and tags.

use portolan::catalog::{OciRepository, OciTag, RepositoryName};
use rstest::rstest;

use super::{Fixture, On, Tables, at, repository};

fn tag(name: &str) -> OciTag {
    OciTag {
        tag: name.into(),
        digest: format!("sha256:{name}"),
        metadata: Some(format!(
            r#"{{"name": "nginx", "version": "{name}", "description": "it's \u0000 \"quoted\""}}"#
        )),
        problem: None,
        tries: 0,
        next_try: None,
    }
}

fn nginx(tags: &[&str]) -> OciRepository {
    OciRepository {
        repository: "team/nginx".into(),
        etag: Some("\"etag\"".into()),
        last_modified: None,
        digests_checked: Some(at(0)),
        tags: tags.iter().map(|name| tag(name)).collect(),
    }
}

async fn load(fixture: &Fixture, source: &str) -> Vec<OciRepository> {
    fixture.catalog.oci_repositories(&repository(), source).await.unwrap()
}

async fn save(fixture: &Fixture, source: &str, repository_of_tags: &OciRepository) {
    fixture
        .catalog
        .save_oci(&repository(), source, repository_of_tags)
        .await
        .unwrap();
}

#[rstest]
#[tokio::test]
async fn what_was_saved_comes_back(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    assert!(load(&fixture, "s").await.is_empty());
    let mut first = nginx(&["1.0.0", "1.1.0", "v2"]);
    first.tags[1].metadata = None;
    first.tags[1].problem = Some("it is an image".into());
    first.tags[1].tries = 3;
    first.tags[1].next_try = Some(at(60));
    let empty = OciRepository {
        repository: "team/empty".into(),
        ..OciRepository::default()
    };
    save(&fixture, "s", &first).await;
    save(&fixture, "s", &empty).await;
    assert_eq!(load(&fixture, "s").await, [empty, first.clone()]);
    let other = RepositoryName::new("kubeapps", "other");
    assert!(fixture.catalog.oci_repositories(&other, "s").await.unwrap().is_empty());

    let mut next = nginx(&["1.1.0", "3.0.0"]);
    next.etag = Some("\"another\"".into());
    next.digests_checked = None;
    save(&fixture, "s", &next).await;
    assert_eq!(load(&fixture, "s").await[1], next);
}

#[rstest]
#[tokio::test]
async fn what_another_source_told_is_not_given_and_goes_with_the_next_save(#[values(On::Sqlite, On::Postgres)] on: On) {
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

#[rstest]
#[tokio::test]
async fn repositories_that_left_the_registry_are_forgotten(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    for name in ["a", "b", "c"] {
        let mut one = nginx(&["1.0.0"]);
        one.repository = name.into();
        save(&fixture, "s", &one).await;
    }
    let kept = ["b".to_owned()];
    assert_eq!(fixture.catalog.retain_oci(&repository(), &kept).await.unwrap(), 2);
    let left: Vec<String> = load(&fixture, "s")
        .await
        .into_iter()
        .map(|one| one.repository)
        .collect();
    assert_eq!(left, kept);
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 1);
    fixture.catalog.remove(&repository(), None).await.unwrap();
    assert_eq!(fixture.tables.count("portolan_oci_repositories").await, 0);
    assert_eq!(fixture.tables.count("portolan_oci_tags").await, 0);
}

#[rstest]
#[tokio::test]
async fn ten_thousand_tags_are_kept_and_only_what_differs_is_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let names: Vec<String> = (0..10_000).map(|at| format!("1.0.{at:05}")).collect();
    let mut many = nginx(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for tag in &mut many.tags {
        tag.metadata.as_mut().unwrap().push_str(&" ".repeat(1000));
    }
    let stamps = async || {
        let sql = match fixture.tables {
            // A rowid that is written anew by an upsert stays: what is written is seen by a trigger.
            Tables::Sqlite(_) => "SELECT what FROM tag_writes",
            Tables::Postgres(_) => {
                "SELECT tag || ' ' || ctid::text || ' ' || xmin::text FROM portolan_oci_tags ORDER BY tag"
            }
        };
        fixture.tables.texts(sql).await
    };
    if on == On::Sqlite {
        fixture
            .tables
            .execute(
                "CREATE TABLE tag_writes (what TEXT);
                 CREATE TRIGGER tags_i AFTER INSERT ON portolan_oci_tags BEGIN INSERT INTO tag_writes VALUES (new.tag); END;
                 CREATE TRIGGER tags_u AFTER UPDATE ON portolan_oci_tags BEGIN INSERT INTO tag_writes VALUES (new.tag); END;",
            )
            .await;
    }
    save(&fixture, "s", &many).await;
    let before = stamps().await;
    save(&fixture, "s", &many).await;
    assert_eq!(stamps().await, before);
    many.tags[77].digest.push('x');
    many.tags[9_000].next_try = Some(at(1));
    save(&fixture, "s", &many).await;
    let after = stamps().await;
    let written = match on {
        On::Sqlite => after.len() - before.len(),
        On::Postgres => after.iter().filter(|stamp| !before.contains(stamp)).count(),
    };
    assert_eq!(written, 2);
    assert_eq!(load(&fixture, "s").await, [many]);
}
