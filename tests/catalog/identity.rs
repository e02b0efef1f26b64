//! Identity, record and deletion of a repository.

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{Baseline, ErrorKind, HISTORY_LIMIT, Handled, Record, RecordState, Refused, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, chart, commit::insert_file, history, record, repository, rows};

#[rstest]
#[tokio::test]
async fn a_record_survives_a_round_trip(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut full = record();
    full.origin = "one-shot".into();
    full.url = "https://charts.example.com".into();
    full.kind = "helm".into();
    full.change_key = "key".into();
    full.etag = Some("\"etag\"".into());
    full.last_modified = Some("Wed, 21 Oct 2015 07:28:00 GMT".into());
    full.index_digest = "abc".into();
    full.baseline = Some(Baseline {
        names: 10,
        versions: 99,
    });
    full.refused = Some(Refused {
        etag: Some("\"other\"".into()),
        last_modified: None,
        digest: "def".into(),
        reason: "NotAnIndex".into(),
        message: "not an index".into(),
        confirm: Some("feed".into()),
        inputs: "key".into(),
    });
    full.handled = Handled {
        resync_requests: Some(7),
        requested_at: Some("now".into()),
        flux_requested_at: Some("then".into()),
        last: Some("now".into()),
    };
    full.last_attempt = Some("2026-01-02T03:04:05.123456789Z".parse().unwrap());
    full.last_success = Some("2026-01-01T00:00:00Z".parse().unwrap());
    full.state = RecordState {
        ready: Some(false),
        stalled: true,
        reason: "Timeout".into(),
        message: "try again".into(),
        failures: 3,
        failure_reported: true,
        slow_syncs: 2,
        retry_at: Some(jiff::Timestamp::UNIX_EPOCH),
    };
    full.last_sync = Some(serde_json::json!({"result": "Synced", "skipped": [{"chart": "a\u{0}b"}]}));
    full.spec_hash = Some("hash".into());
    full.schedule = Some("*/10 * * * *".into());
    full.generation = 4;
    fixture
        .catalog
        .save(&full, None, Some(&history("first")))
        .await
        .unwrap();
    full.revision = Some(1);
    assert_eq!(fixture.catalog.record(&repository()).await.unwrap(), Some(full.clone()));
    assert_eq!(fixture.catalog.records().await.unwrap(), [full.clone()]);
    assert_eq!(
        fixture.catalog.history(&repository(), 10).await.unwrap(),
        [history("first")]
    );

    let mut empty = record();
    empty.state.message = "a text with\0NUL".into();
    fixture.catalog.save(&empty, Some("uid-1"), None).await.unwrap();
    empty.state.message = "a text withNUL".into();
    empty.revision = Some(2);
    assert_eq!(fixture.catalog.record(&repository()).await.unwrap(), Some(empty));
}

#[rstest]
#[tokio::test]
async fn the_record_is_completed_from_the_counts_of_the_commit(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let commit = SyncCommit::new(record(), None, "x").complete_record_with(|committed, record| {
        record.last_sync = Some(serde_json::json!({"added": committed.added}));
        committed.is_change().then(|| history("changed"))
    });
    fixture
        .catalog
        .commit(commit, rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert_eq!(stored.last_sync, Some(serde_json::json!({"added": 1})));
    let quiet = SyncCommit::new(stored, Some("uid-1".into()), "x")
        .complete_record_with(|committed, _| committed.is_change().then(|| history("changed")));
    fixture
        .catalog
        .commit(quiet, rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    assert_eq!(
        fixture.catalog.history(&repository(), 10).await.unwrap(),
        [history("changed")]
    );
}

#[rstest]
#[tokio::test]
async fn the_history_is_limited_per_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let other = Record::new(NamespacedName::new("kubeapps", "other"), "uid-2");
    fixture
        .catalog
        .save(&other, None, Some(&history("theirs")))
        .await
        .unwrap();
    fixture.catalog.save(&record(), None, None).await.unwrap();
    for at in 0..HISTORY_LIMIT + 5 {
        fixture
            .catalog
            .save(&record(), Some("uid-1"), Some(&history(&at.to_string())))
            .await
            .unwrap();
    }
    let kept = fixture.catalog.history(&repository(), 1000).await.unwrap();
    assert_eq!(kept.len(), 50);
    assert_eq!((kept[0].message.as_str(), kept[49].message.as_str()), ("54", "5"));
    assert_eq!(fixture.catalog.history(&repository(), 1).await.unwrap().len(), 1);
    assert_eq!(fixture.catalog.history(&other.name, 10).await.unwrap().len(), 1);
}

#[rstest]
#[tokio::test]
async fn a_record_with_an_old_revision_is_not_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let read = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    fixture.catalog.save(&read, Some("uid-1"), None).await.unwrap();
    let error = fixture.catalog.save(&read, Some("uid-1"), None).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    let late = SyncCommit::new(read, Some("uid-1".into()), "late");
    let error = fixture
        .catalog
        .commit(late, rows(vec![chart("b", &["1.0.0"])]))
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    assert_eq!(fixture.chart_names().await, ["a"]);
}

#[rstest]
#[tokio::test]
async fn a_repository_of_another_identity_is_not_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for expected in [None, Some("uid-0")] {
        let commit = SyncCommit::new(record(), expected.map(Into::into), "new");
        let error = fixture
            .catalog
            .commit(commit, rows(vec![chart("b", &["1.0.0"])]))
            .await
            .unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
        let error = fixture
            .catalog
            .save(&record(), expected, Some(&history("x")))
            .await
            .unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    }
    assert_eq!(fixture.chart_names().await, ["a"]);
    assert_eq!(fixture.tables.texts("SELECT checksum FROM repos").await, ["checksum"]);
    assert_eq!(fixture.tables.count("portolan_syncs").await, 0);
    assert!(
        !fixture
            .catalog
            .remove(&repository(), Fence::Uid(Some("uid-0")))
            .await
            .unwrap()
    );
    assert_eq!(fixture.chart_names().await, ["a"]);

    // The repository was deleted during its sync.
    assert!(
        fixture
            .catalog
            .remove(&repository(), Fence::Uid(Some("uid-1")))
            .await
            .unwrap()
    );
    let commit = SyncCommit::new(record(), Some("uid-1".into()), "new");
    let error = fixture.catalog.commit(commit, rows(vec![])).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    assert_eq!(fixture.tables.count("repos").await, 0);
}

#[rstest]
#[tokio::test]
async fn a_new_uid_can_take_over_the_rows(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let mut renewed = record();
    renewed.uid = "uid-2".into();
    let commit = SyncCommit::new(renewed, Some("uid-1".into()), "checksum");
    let committed = fixture
        .catalog
        .commit(commit, rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    assert_eq!(committed.unchanged, 1);
    assert_eq!(
        fixture.catalog.record(&repository()).await.unwrap().unwrap().uid,
        "uid-2"
    );
}

#[rstest]
#[tokio::test]
async fn a_deletion_covers_charts_files_record_and_history(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    insert_file(&fixture, "stable", "a", "1.0.0").await;
    fixture
        .catalog
        .save(&record(), Some("uid-1"), Some(&history("x")))
        .await
        .unwrap();
    assert!(fixture.catalog.remove(&repository(), Fence::None).await.unwrap());
    for table in ["repos", "charts", "files", "portolan_repositories", "portolan_syncs"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
    assert!(!fixture.catalog.remove(&repository(), Fence::None).await.unwrap());
}

#[rstest]
#[tokio::test]
async fn a_repository_without_a_record_can_be_deleted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .tables
        .execute("INSERT INTO repos (namespace, name) VALUES ('kubeapps', 'stable')")
        .await;
    let remove = async |uid| fixture.catalog.remove(&repository(), Fence::Uid(uid)).await.unwrap();
    assert!(!remove(Some("uid-1")).await, "the rows belong to no object");
    assert!(remove(None).await);
    assert_eq!(fixture.tables.count("repos").await, 0);
}

/// The object of a deletion may have had no record, while another process synced its successor.
#[rstest]
#[tokio::test]
async fn a_clean_up_without_a_known_uid_leaves_the_rows_of_a_record_alone(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    assert_eq!(fixture.catalog.stored_uid(&repository()).await.unwrap(), None);
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert!(!fixture.catalog.remove(&repository(), Fence::Uid(None)).await.unwrap());
    assert_eq!(fixture.chart_names().await, ["a"]);
    assert_eq!(
        fixture.catalog.stored_uid(&repository()).await.unwrap().as_deref(),
        Some("uid-1")
    );
}

/// Two releases may share a database. The older one must not drop unknown fields.
#[rstest]
#[case::a_field_of_a_newer_release(r#"{"schedule": null, "ofTheFuture": 1}"#, "ofTheFuture")]
#[case::a_nested_field_of_a_newer_release(r#"{"state": {"ofTheFuture": 1}}"#, "ofTheFuture")]
#[case::invalid_json("{", "EOF")]
#[tokio::test]
async fn unreadable_details_are_an_error_that_names_the_repository(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] details: &str,
    #[case] reason: &str,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let update = format!("UPDATE portolan_repositories SET details = '{details}'");
    fixture.tables.execute(&update).await;
    let other = Record::new(NamespacedName::new("kubeapps", "other"), "uid-2");
    fixture.catalog.save(&other, None, None).await.unwrap();
    let error = fixture.catalog.record(&repository()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnreadableRecord { .. }), "{error}");
    assert!(!error.is_transient(), "{error}");
    let text = error.to_string();
    assert!(text.contains("kubeapps/stable") && text.contains(reason), "{text}");
    // It concerns no other repository.
    let readable = fixture.catalog.records().await.unwrap();
    let readable: Vec<_> = readable.iter().map(|record| &record.name).collect();
    assert_eq!(readable, [&other.name]);
    assert_eq!(fixture.catalog.names().await.unwrap(), [other.name, repository()]);
    let stored = "SELECT details FROM portolan_repositories WHERE name = 'stable'";
    assert_eq!(fixture.tables.texts(stored).await, [details]);
    assert!(
        fixture
            .catalog
            .remove(&repository(), Fence::Uid(Some("uid-1")))
            .await
            .unwrap()
    );
}
