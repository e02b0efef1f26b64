//! The one transaction of a sync.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use portolan::catalog::{
    Baseline, ChartInfo, ChartRow, Commit, Error, HISTORY_KEPT, Handled, Refused, RepositoryName, State, no_rows,
};
use rstest::rstest;

use super::{Fixture, On, chart, history, record, repository, rows};

#[rstest]
#[tokio::test]
async fn the_first_commit_writes_charts_repository_and_record(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = vec![chart("mysql", &["2.0.0", "1.0.0"]), chart("team/nginx", &["1.0.0"])];
    let committed = fixture.sync(charts.clone()).await;
    assert_eq!((committed.added, committed.changed, committed.removed), (2, 0, 0));
    assert_eq!(fixture.charts().await, charts);
    assert_eq!(
        fixture.tables.texts("SELECT chart_id FROM charts ORDER BY id").await,
        ["stable/mysql", "stable/team%2Fnginx"]
    );
    assert_eq!(
        fixture
            .tables
            .texts("SELECT namespace || ' ' || name || ' ' || checksum FROM repos")
            .await,
        ["kubeapps stable checksum"]
    );
    let last_update = fixture.tables.texts("SELECT last_update FROM repos").await.remove(0);
    assert!(last_update.ends_with(" +0000 UTC"), "{last_update}");
    assert_eq!(
        fixture.tables.number("SELECT CAST(id AS BIGINT) FROM repos").await,
        committed.repos_id
    );
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert!(stored.trusted);
    assert_eq!((stored.uid.as_str(), stored.charts), ("uid-1", 2));
}

#[rstest]
#[tokio::test]
async fn a_record_comes_back_as_it_was_saved(#[values(On::Sqlite, On::Postgres)] on: On) {
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
        message: "it is a page".into(),
    });
    full.handled = Handled {
        resync_requests: Some(7),
        requested_at: Some("now".into()),
        flux_requested_at: Some("then".into()),
    };
    full.last_attempt = Some("2026-01-02T03:04:05.123456789Z".parse().unwrap());
    full.last_success = Some("2026-01-01T00:00:00Z".parse().unwrap());
    full.state = State {
        ready: Some(false),
        reason: "Timeout".into(),
        message: "try again".into(),
        failures: 3,
    };
    full.last_sync = Some(serde_json::json!({"result": "Synced", "skipped": [{"chart": "a\u{0}b"}]}));
    full.spec_hash = Some("hash".into());
    full.generation = 4;
    fixture
        .catalog
        .save(&full, None, Some(&history("first")))
        .await
        .unwrap();
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
    assert_eq!(fixture.catalog.record(&repository()).await.unwrap(), Some(empty));
}

#[rstest]
#[tokio::test]
async fn the_same_charts_again_write_no_row_of_kubeapps(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = || vec![chart("mysql", &["1.0.0"]), chart("nginx", &["1.0.0"])];
    fixture.sync(charts()).await;
    fixture.tables.watch("charts").await;
    fixture.tables.watch("repos").await;
    let before = (
        fixture.tables.writes("charts").await,
        fixture.tables.writes("repos").await,
    );
    let committed = fixture.sync(charts()).await;
    assert_eq!((committed.unchanged, committed.is_change()), (2, false));
    assert_eq!(
        (
            fixture.tables.writes("charts").await,
            fixture.tables.writes("repos").await
        ),
        before
    );
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test]
async fn new_times_of_creation_alone_write_nothing_but_come_along_with_another_change(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("mysql", &["2.0.0", "1.0.0"])]).await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    let mut newer = chart("mysql", &["2.0.0", "1.0.0"]);
    for version in &mut newer.chart_versions {
        version.created = "2026-01-01T00:00:00Z".into();
    }
    let committed = fixture.sync(vec![newer.clone()]).await;
    assert_eq!((committed.unchanged, committed.changed), (1, 0));
    assert_eq!(fixture.tables.writes("charts").await, before);

    newer.description.push('!');
    let committed = fixture.sync(vec![newer.clone()]).await;
    assert_eq!((committed.unchanged, committed.changed), (0, 1));
    assert_eq!(fixture.charts().await, [newer]);
}

#[rstest]
#[tokio::test]
async fn one_version_more_writes_one_row(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    let ids = fixture
        .tables
        .texts("SELECT CAST(id AS TEXT) FROM charts ORDER BY chart_id")
        .await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    let next = vec![
        chart("a", &["1.0.0"]),
        chart("b", &["1.1.0", "1.0.0"]),
        chart("c", &["1.0.0"]),
    ];
    let committed = fixture.try_sync("another", next.clone()).await.unwrap();
    assert_eq!(
        (
            committed.added,
            committed.changed,
            committed.removed,
            committed.unchanged
        ),
        (0, 1, 0, 2)
    );
    let after = fixture.tables.writes("charts").await;
    assert_eq!(after.iter().filter(|write| !before.contains(write)).count(), 1);
    assert_eq!(fixture.charts().await, next);
    assert_eq!(
        fixture
            .tables
            .texts("SELECT CAST(id AS TEXT) FROM charts ORDER BY chart_id")
            .await,
        ids
    );
    assert_eq!(fixture.tables.texts("SELECT checksum FROM repos").await, ["another"]);
}

#[rstest]
#[tokio::test]
async fn charts_that_are_gone_go_with_their_files_and_others_stay(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    let other = RepositoryName::new("kubeapps", "other");
    let other_record = portolan::catalog::Record::new(other.clone(), "uid-2");
    let mut theirs = chart("a", &["1.0.0"]);
    theirs.id = "other/a".into();
    fixture
        .catalog
        .commit(Commit::new(other_record, None, "x"), rows(vec![theirs]))
        .await
        .unwrap();
    for (repo, name) in [("stable", "a"), ("stable", "b"), ("other", "a")] {
        insert_file(&fixture, repo, name, "1.0.0").await;
    }
    let committed = fixture.sync(vec![chart("b", &["1.0.0"])]).await;
    assert_eq!((committed.removed, committed.unchanged), (1, 1));
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_id FROM charts ORDER BY chart_id")
            .await,
        ["other/a", "stable/b"]
    );
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_files_id FROM files ORDER BY chart_files_id")
            .await,
        ["other/a-1.0.0", "stable/b-1.0.0"]
    );
    let empty = fixture.sync(vec![]).await;
    assert_eq!(empty.removed, 1);
    assert_eq!(fixture.tables.count("charts").await, 1);
}

#[rstest]
#[tokio::test]
async fn files_of_a_version_that_is_gone_go_with_it(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["2.0.0", "1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    for (name, version) in [
        ("a", "2.0.0"),
        ("a", "1.0.0"),
        ("b", "1.0.0"),
        ("c", "0.9.0"),
        ("c", "1.0.0"),
    ] {
        insert_file(&fixture, "stable", name, version).await;
    }
    let next = vec![
        chart("a", &["2.0.0"]),
        chart("b", &["1.1.0", "1.0.0"]),
        chart("c", &["1.0.0"]),
    ];
    fixture.sync(next).await;
    // The chart c was not written, so nothing of it was looked at.
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_files_id FROM files ORDER BY chart_files_id")
            .await,
        ["stable/a-2.0.0", "stable/b-1.0.0", "stable/c-0.9.0", "stable/c-1.0.0"]
    );
}

pub async fn insert_file(fixture: &Fixture, repo: &str, name: &str, version: &str) {
    fixture
        .tables
        .execute(&format!(
            "INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
             VALUES ('{repo}/{name}', '{repo}', 'kubeapps', '{repo}/{name}-{version}', '{{}}')"
        ))
        .await;
}

#[rstest]
#[tokio::test]
async fn an_imported_icon_is_kept_while_its_url_is_the_same(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let with_icon = |name: &str| ChartInfo {
        raw_icon: Some("aWNvbg==".into()),
        icon_content_type: "image/png".into(),
        ..chart(name, &["1.0.0"])
    };
    fixture
        .sync(vec![with_icon("a"), with_icon("b"), chart("c", &["1.0.0"])])
        .await;
    let mut moved = chart("b", &["1.0.0"]);
    moved.icon = "https://example.com/other.png".into();
    let committed = fixture
        .sync(vec![chart("a", &["1.1.0", "1.0.0"]), moved, chart("c", &["1.1.0"])])
        .await;
    assert_eq!(committed.changed, 3);
    let stored = fixture.charts().await;
    let icons: Vec<_> = stored
        .iter()
        .map(|info| (info.raw_icon.as_deref(), info.icon_content_type.as_str()))
        .collect();
    assert_eq!(icons, [(Some("aWNvbg=="), "image/png"), (None, ""), (None, "")]);
    assert_eq!(stored[0].chart_versions.len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_repository_of_another_identity_is_not_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for expected in [None, Some("uid-0")] {
        let commit = Commit::new(record(), expected.map(Into::into), "new");
        let error = fixture
            .catalog
            .commit(commit, rows(vec![chart("b", &["1.0.0"])]))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Superseded { .. }), "{error}");
        let error = fixture
            .catalog
            .save(&record(), expected, Some(&history("x")))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Superseded { .. }), "{error}");
    }
    assert_eq!(fixture.chart_names().await, ["a"]);
    assert_eq!(fixture.tables.texts("SELECT checksum FROM repos").await, ["checksum"]);
    assert_eq!(fixture.tables.count("portolan_syncs").await, 0);
    assert!(!fixture.catalog.remove(&repository(), Some("uid-0")).await.unwrap());
    assert_eq!(fixture.chart_names().await, ["a"]);

    // A record that is gone supersedes too: the repository was removed while it was being synced.
    assert!(fixture.catalog.remove(&repository(), Some("uid-1")).await.unwrap());
    let commit = Commit::new(record(), Some("uid-1".into()), "new");
    let error = fixture.catalog.commit(commit, no_rows()).await.unwrap_err();
    assert!(matches!(error, Error::Superseded { .. }), "{error}");
    assert_eq!(fixture.tables.count("repos").await, 0);
}

#[rstest]
#[tokio::test]
async fn a_new_identity_may_take_the_rows_over(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let mut renewed = record();
    renewed.uid = "uid-2".into();
    let commit = Commit::new(renewed, Some("uid-1".into()), "checksum");
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
async fn a_removal_takes_charts_files_record_and_history(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    insert_file(&fixture, "stable", "a", "1.0.0").await;
    fixture
        .catalog
        .save(&record(), Some("uid-1"), Some(&history("x")))
        .await
        .unwrap();
    assert!(fixture.catalog.remove(&repository(), None).await.unwrap());
    for table in ["repos", "charts", "files", "portolan_repositories", "portolan_syncs"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
    assert!(!fixture.catalog.remove(&repository(), None).await.unwrap());
}

#[rstest]
#[tokio::test]
async fn a_repository_without_a_record_is_removed_too(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .tables
        .execute("INSERT INTO repos (namespace, name) VALUES ('kubeapps', 'stable')")
        .await;
    assert!(fixture.catalog.remove(&repository(), Some("uid-1")).await.unwrap());
    assert_eq!(fixture.tables.count("repos").await, 0);
}

#[rstest]
#[tokio::test]
async fn what_was_counted_is_known_when_the_record_is_concluded(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let commit = Commit::new(record(), None, "x").conclude_with(|committed, record| {
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
    let quiet = Commit::new(stored, Some("uid-1".into()), "x")
        .conclude_with(|committed, _| committed.is_change().then(|| history("changed")));
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
async fn the_history_keeps_the_newest_syncs_of_each_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let other = portolan::catalog::Record::new(RepositoryName::new("kubeapps", "other"), "uid-2");
    fixture
        .catalog
        .save(&other, None, Some(&history("theirs")))
        .await
        .unwrap();
    fixture.catalog.save(&record(), None, None).await.unwrap();
    for at in 0..HISTORY_KEPT + 5 {
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
async fn a_chart_that_the_database_refuses_is_named_and_the_rest_is_written(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let names: Vec<String> = (0..40).map(|at| format!("chart-{at:02}")).collect();
    let all = |version: &str| names.iter().map(|name| chart(name, &[version])).collect::<Vec<_>>();
    // Each database refuses the description "poison", as it would refuse what it can't hold.
    fixture.sync(all("1.0.0")[..20].to_vec()).await;
    match on {
        On::Sqlite => {
            for event in ["INSERT", "UPDATE"] {
                fixture
                    .tables
                    .execute(&format!(
                        "CREATE TRIGGER refuse_{event} BEFORE {event} ON charts WHEN new.info ->> 'description' = 'poison'
                         BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
                    ))
                    .await;
            }
        }
        On::Postgres => {
            fixture
                .tables
                .execute("ALTER TABLE charts ADD CHECK (info ->> 'description' <> 'poison')")
                .await;
        }
    }
    let mut next = all("1.1.0");
    next[7].description = "poison".into();
    next[33].description = "poison".into();
    next[39].description = "poison".into();
    let committed = fixture.sync(next).await;
    let rejected: Vec<&str> = committed.rejected.iter().map(|(chart, _)| chart.as_str()).collect();
    assert_eq!(rejected, ["stable/chart-33", "stable/chart-39", "stable/chart-07"]);
    assert!(committed.rejected[0].1.contains(if on == On::Sqlite {
        "no poison here"
    } else {
        "check constraint"
    }));
    assert_eq!((committed.added, committed.changed, committed.removed), (18, 19, 0));
    let stored = fixture.charts().await;
    assert_eq!(stored.len(), 38);
    assert_eq!(
        stored[7].chart_versions[0].version, "1.0.0",
        "what is stored of it stays as it was"
    );
    assert_eq!(stored[8].chart_versions[0].version, "1.1.0");
}

#[tokio::test]
async fn what_postgres_cannot_hold_is_named_and_the_rest_is_written() {
    let fixture = Fixture::new(On::Postgres).await;
    let mut nul = chart("nul", &["1.0.0"]);
    nul.description = "a\0b".into();
    // A key of an index may have 2,704 bytes, and compression does not help where nothing repeats.
    let noise: String = (0..4000_u32)
        .filter_map(|at| char::from_u32(0x4e00 + (at * 7919) % 20_000))
        .collect();
    let long = chart(&noise, &["1.0.0"]);
    let committed = fixture
        .sync(vec![chart("a", &["1.0.0"]), nul, chart("b", &["1.0.0"]), long.clone()])
        .await;
    assert_eq!(committed.added, 2);
    let mut rejected = committed.rejected;
    rejected.sort_by_key(|(chart, _)| chart.len());
    assert_eq!(rejected[0].0, "stable/nul");
    assert!(rejected[0].1.contains("Unicode"), "{}", rejected[0].1);
    assert_eq!(rejected[1].0, long.id);
    assert!(rejected[1].1.contains("index row"), "{}", rejected[1].1);
    assert_eq!(fixture.chart_names().await, ["a", "b"]);
}

#[rstest]
#[tokio::test]
async fn of_two_charts_with_one_id_the_first_counts(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("a", &["2.0.0"])]).await;
    assert_eq!((committed.added, committed.rejected.len()), (1, 1));
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("a", &["2.0.0"])]).await;
    assert_eq!(
        (committed.unchanged, committed.changed, committed.rejected.len()),
        (1, 0, 1)
    );
    assert_eq!(fixture.charts().await, [chart("a", &["1.0.0"])]);
}

#[rstest]
#[tokio::test]
async fn hostile_names_are_names(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let hostile = hostile_names();
    let all: Vec<ChartInfo> = hostile.iter().map(|name| chart(name, &["1.0.0"])).collect();
    let other = portolan::catalog::Record::new(RepositoryName::new("kubeapps", "x') OR true --"), "uid-2");
    fixture
        .catalog
        .commit(Commit::new(other, None, "x"), rows(vec![chart("safe", &["1.0.0"])]))
        .await
        .unwrap();
    fixture.sync(all.clone()).await;
    let again = fixture.sync(all.clone()).await;
    assert_eq!(again.unchanged as usize, hostile.len());
    // One after the other goes, and nothing else goes with it.
    for gone in 0..hostile.len() {
        let committed = fixture.sync(all[gone + 1..].to_vec()).await;
        assert_eq!(committed.removed, 1, "{}", hostile[gone]);
        assert_eq!(fixture.tables.count("charts").await as usize, hostile.len() - gone);
    }
}

pub fn hostile_names() -> Vec<&'static str> {
    vec![
        "x') OR true OR (info->>'name' = 'y",
        "o'neill",
        "a\"b\\c",
        "{\"a\": [1]}",
        "100%_\\",
        "$1 ? :a @b",
        "名前/é\u{202e}",
        "'; DROP TABLE charts; --",
        "null",
    ]
}

#[rstest]
#[tokio::test]
async fn many_and_large_charts_are_written_in_batches(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let large = |at: usize, text: char| {
        let mut info = chart(&format!("chart-{at:04}"), &["1.0.0"]);
        info.description = text
            .to_string()
            .repeat(if at.is_multiple_of(100) { 1_500_000 } else { 3000 });
        info
    };
    let committed = fixture.sync((0..700).map(|at| large(at, 'a')).collect()).await;
    assert_eq!(committed.added, 700);
    let committed = fixture
        .sync(
            (350..1050)
                .map(|at| large(at, if at < 500 { 'a' } else { 'b' }))
                .collect(),
        )
        .await;
    assert_eq!(
        (
            committed.unchanged,
            committed.changed,
            committed.added,
            committed.removed
        ),
        (150, 200, 350, 350)
    );
    assert_eq!(fixture.tables.count("charts").await, 700);
    assert_eq!(fixture.charts().await[699], large(1049, 'b'));
}

#[rstest]
#[tokio::test]
async fn rows_that_break_off_leave_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let broken = (0..600).map(|at| {
        if at == 590 {
            return Err(io::Error::other("the disk is broken"));
        }
        let info = chart(&at.to_string(), &["1.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let error = fixture
        .catalog
        .commit(Commit::new(record(), None, "x"), broken)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Rows { .. }) && error.is_transient(), "{error}");
    assert!(error.to_string().contains("--spool-dir"), "{error}");
    assert_nothing_is_stored(&fixture).await;
}

#[rstest]
#[tokio::test]
async fn a_commit_that_is_dropped_half_way_leaves_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let half_way = Arc::new(AtomicBool::new(false));
    let reached = Arc::clone(&half_way);
    let charts = (0..1000).map(move |at| {
        if at == 600 {
            reached.store(true, Ordering::SeqCst);
        }
        let info = chart(&at.to_string(), &["1.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let mut commit = Box::pin(fixture.catalog.commit(Commit::new(record(), None, "x"), charts));
    std::future::poll_fn(|context| {
        assert!(
            commit.as_mut().poll(context).is_pending(),
            "it was to be dropped half way"
        );
        if half_way.load(Ordering::SeqCst) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    drop(commit);
    assert_nothing_is_stored(&fixture).await;
    // And the next one finds the way clear.
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
}

async fn assert_nothing_is_stored(fixture: &Fixture) {
    for table in ["repos", "charts", "portolan_repositories"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}
