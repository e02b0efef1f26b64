//! Charts whose newest version is deprecated: no list shows them, and installed charts are compared with them.

use portolan::api::NamespacedName;
use portolan::catalog::{Catalog, ChartInfo, DeprecatedCharts, Fence, Record, SyncCommit};
use portolan::releases::Candidate;
use portolan::serve::outdated::CandidateReader;
use rstest::rstest;

use super::{Fixture, On, chart, record, repository, rows};

/// Commits these charts. The unchanged ones of the deprecated have no row.
async fn sync(fixture: &Fixture, charts: Vec<ChartInfo>, decoded: Vec<ChartInfo>, unchanged: &[&str]) {
    let names = unchanged.iter().map(|name| format!("stable/{name}"));
    let current = decoded.iter().map(|info| info.id.clone()).chain(names).collect();
    commit(
        fixture,
        charts,
        DeprecatedCharts {
            current,
            rows: Some(Box::new(rows(decoded))),
            keeps_others: false,
        },
    )
    .await;
}

async fn commit(fixture: &Fixture, charts: Vec<ChartInfo>, deprecated: DeprecatedCharts) {
    let stored = fixture.catalog.record(&repository()).await.unwrap();
    let expected = stored.as_ref().map(|record| record.uid.clone());
    let mut commit = SyncCommit::new(stored.unwrap_or_else(record), expected, "checksum");
    commit.deprecated = deprecated;
    fixture.catalog.commit(commit, rows(charts)).await.unwrap();
}

async fn stored(fixture: &Fixture) -> Vec<String> {
    let select = "SELECT chart_id FROM portolan_deprecated_charts ORDER BY chart_id";
    fixture.tables.texts(select).await
}

async fn candidates(catalog: &Catalog, names: &[&str], origin: Option<&str>) -> Vec<Candidate> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut reader = CandidateReader::new(catalog, &names, origin).await.unwrap();
    let mut candidates = Vec::new();
    while let Some((_, of_name)) = reader.next().await.unwrap() {
        candidates.extend(of_name);
    }
    candidates
}

async fn find(fixture: &Fixture, name: &str) -> Vec<Candidate> {
    candidates(&fixture.catalog, &[name], None).await
}

#[rstest]
#[tokio::test]
async fn deprecated_charts_follow_the_index(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let old = || chart("old", &["2.0.0", "1.0.0"]);
    sync(
        &fixture,
        vec![chart("a", &["1.0.0"])],
        vec![old(), chart("older", &["1.0.0"])],
        &[],
    )
    .await;
    assert_eq!(stored(&fixture).await, ["stable/old", "stable/older"]);
    assert_eq!(fixture.chart_names().await, ["a"], "no list has them");

    sync(&fixture, vec![chart("a", &["1.0.0"])], vec![], &["old", "older"]).await;
    assert_eq!(stored(&fixture).await, ["stable/old", "stable/older"], "unchanged");
    let newer = chart("old", &["3.0.0"]);
    sync(&fixture, vec![chart("a", &["1.0.0"])], vec![newer], &[]).await;
    assert_eq!(stored(&fixture).await, ["stable/old"]);
    let found = find(&fixture, "old").await;
    assert_eq!(
        found[0]
            .versions
            .iter()
            .map(|listed| &*listed.version)
            .collect::<Vec<_>>(),
        ["3.0.0"]
    );

    // Its authors have changed their mind.
    sync(&fixture, vec![chart("a", &["1.0.0"]), old()], vec![], &[]).await;
    assert!(stored(&fixture).await.is_empty());
    assert_eq!(fixture.chart_names().await, ["a", "old"]);
}

#[rstest]
#[tokio::test]
async fn an_incomplete_list_of_a_registry_removes_no_deprecated_chart(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, vec![], vec![chart("old", &["1.0.0"])], &[]).await;
    let incomplete = DeprecatedCharts {
        keeps_others: true,
        ..DeprecatedCharts::default()
    };
    commit(&fixture, vec![], incomplete).await;
    assert_eq!(stored(&fixture).await, ["stable/old"]);
}

#[rstest]
#[tokio::test]
async fn deprecated_charts_count_as_stored_bytes_and_go_with_their_repository(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let counted = async || {
        let sum = "SELECT CAST(sum(charts) AS BIGINT) FROM portolan_stored_bytes";
        fixture.tables.number(sum).await
    };
    let many: Vec<String> = (0..300).map(|minor| format!("1.{minor}.0")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    sync(&fixture, vec![chart("a", &["1.0.0"])], vec![], &[]).await;
    let without = counted().await;
    // More than one batch.
    let decoded = (0..300).map(|number| chart(&format!("old{number}"), &many)).collect();
    sync(&fixture, vec![chart("a", &["1.0.0"])], decoded, &[]).await;
    let size = match on {
        On::Sqlite => "octet_length",
        On::Postgres => "pg_column_size",
    };
    let sum = format!("SELECT CAST(sum({size}(info)) AS BIGINT) FROM portolan_deprecated_charts");
    assert_eq!(counted().await - without, fixture.tables.number(&sum).await);
    assert_eq!(stored(&fixture).await.len(), 300);

    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    assert!(stored(&fixture).await.is_empty());
    let stray = "INSERT INTO portolan_deprecated_charts VALUES ('kubeapps', 'gone', 'gone/a', '{}')";
    fixture.tables.execute(stray).await;
    assert_eq!(fixture.catalog.collect_stray_rows(|_| false, false).await.unwrap(), 1);
    assert!(stored(&fixture).await.is_empty());
    sync(&fixture, vec![], vec![chart("old", &["1.0.0"])], &[]).await;
    fixture.catalog.recreate().await.unwrap();
    assert!(stored(&fixture).await.is_empty(), "the charts have to be decoded again");
}

#[rstest]
#[tokio::test]
async fn candidates_are_all_charts_of_a_name(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let web = ChartInfo {
        sources: Some(vec!["https://example.com/source".to_owned()]),
        ..chart("web", &["2.0.0", "1.0.0"])
    };
    let in_registry = chart("charts/tools/web", &["1.0.0"]);
    sync(
        &fixture,
        vec![web, in_registry, chart("website", &["1.0.0"])],
        vec![chart("old", &["1.0.0"])],
        &[],
    )
    .await;
    let found = find(&fixture, "web").await;
    assert_eq!(found.len(), 2, "{found:?}");
    let candidate = found.iter().find(|candidate| candidate.versions.len() == 2).unwrap();
    assert_eq!(
        (
            &*candidate.namespace,
            &*candidate.repository,
            &*candidate.chart,
            &*candidate.url
        ),
        ("kubeapps", "stable", "web", "https://charts.example.com")
    );
    assert_eq!(candidate.home.as_deref(), Some("https://example.com"));
    assert_eq!(candidate.icon.as_deref(), Some("https://example.com/icon.png"));
    assert_eq!(candidate.sources, ["https://example.com/source"]);
    assert_eq!(candidate.versions[0].digest.as_deref(), Some("digest-2.0.0"));
    assert!(!candidate.deprecated && !candidate.filtered);

    let old = find(&fixture, "old").await;
    assert!(old.len() == 1 && old[0].deprecated, "{old:?}");
    assert_eq!(old[0].versions[0].digest.as_deref(), Some("digest-1.0.0"));
    assert!(find(&fixture, "x' OR 1=1 --").await.is_empty());
}

#[rstest]
#[tokio::test]
async fn candidates_of_a_repository_that_leaves_versions_out_are_marked(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    for (field, count, expected) in [
        ("filtered", 0, false),
        ("filtered", 3, true),
        ("skippedCount", 0, false),
        ("skippedCount", 3, true),
    ] {
        let stored = fixture.catalog.record(&repository()).await.unwrap();
        let uid = stored.as_ref().map(|record| record.uid.clone());
        let record = Record {
            last_sync: Some(serde_json::json!({ field: count })),
            ..stored.unwrap_or_else(record)
        };
        let commit = SyncCommit::new(record, uid, "checksum");
        fixture
            .catalog
            .commit(commit, rows(vec![chart("web", &["1.0.0"])]))
            .await
            .unwrap();
        assert_eq!(find(&fixture, "web").await[0].filtered, expected);
    }
}

/// Namespaces of the same name in two clusters are not the same tenants.
#[rstest]
#[tokio::test]
async fn candidates_are_those_of_the_own_cluster(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    for (name, origin) in [("ours", "here"), ("theirs", "there")] {
        let record = Record {
            origin: origin.to_owned(),
            ..Record::new(NamespacedName::new("kubeapps", name), name)
        };
        let web = ChartInfo {
            id: format!("{name}/web"),
            ..chart("web", &["1.0.0"])
        };
        let commit = SyncCommit::new(record, None, "checksum");
        fixture.catalog.commit(commit, rows(vec![web])).await.unwrap();
    }
    let found = candidates(&fixture.catalog, &["web"], Some("here")).await;
    let repositories: Vec<&str> = found.iter().map(|candidate| &*candidate.repository).collect();
    assert_eq!(repositories, ["ours"]);
    assert_eq!(find(&fixture, "web").await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn a_database_of_an_earlier_release_has_no_deprecated_charts(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("web", &["1.0.0"])]).await;
    fixture.tables.execute("DROP TABLE portolan_deprecated_charts").await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    let found = candidates(&reader, &["web", "old"], None).await;
    assert_eq!(found.len(), 1);
}
