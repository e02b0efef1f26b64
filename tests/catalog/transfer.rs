//! Exports and imports between SQLite and Postgres.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::process::Stdio;

use portolan::catalog::transfer::{ImportMode, Transferred};
use portolan::catalog::{Catalog, ChartInfo, Error, ErrorKind, FilesMode};
use rstest::rstest;
use serde_json::Value;

use tokio::io::AsyncWriteExt;

use super::commit::insert_file;
use super::files::{fail, of, save, wanted};
use super::{Fixture, On, chart, history, record, repository};
use crate::support::portolan::{command, run};

/// The tables, each with the expression that identifies a row.
const TABLES: [&str; 17] = [
    "repos",
    "charts",
    "files",
    "portolan_repositories",
    "portolan_syncs",
    "portolan_files",
    "portolan_chart_metadata",
    "portolan_icons",
    "portolan_svg_icons",
    "portolan_kept_versions",
    "portolan_index_cache",
    "portolan_chart_digests",
    "portolan_deprecated_charts",
    "portolan_oci_repositories",
    "portolan_oci_tags",
    "portolan_stored_bytes",
    "portolan_news",
];

async fn export(fixture: &Fixture) -> Vec<u8> {
    export_of(&fixture.catalog).await
}

async fn export_of(catalog: &Catalog) -> Vec<u8> {
    let mut out = Vec::new();
    catalog.export(&mut out).await.unwrap();
    out
}

async fn import(fixture: &Fixture, export: &[u8], mode: ImportMode) -> Result<Transferred, Error> {
    fixture.catalog.import(export, mode).await
}

/// One has a value that is longer than a line.
fn charts() -> Vec<ChartInfo> {
    let mut long = chart("b", &["1.0.0"]);
    long.description = "ä\"\\\n😀".repeat(20_000);
    vec![chart("a", &["2.0.0", "1.0.0"]), long]
}

/// Returns the last ID of the charts that an export records.
fn last_id(export: &[u8]) -> i64 {
    let lines = export.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let mut sequences = lines.filter(|line| line["sequence"]["table"] == "charts");
    sequences.next().unwrap()["sequence"]["value"].as_i64().unwrap()
}

/// A catalog with rows in all tables, odd texts, and a value longer than a line.
async fn filled(on: On) -> Fixture {
    let fixture = Fixture::new(on).await;
    let mut long = chart("long", &["1.0.0"]);
    long.description = "ä\"\\\n😀".repeat(20_000);
    fixture
        .sync(vec![
            chart("gone", &["1.0.0"]),
            chart("a", &["2.0.0", "1.0.0"]),
            long.clone(),
        ])
        .await;
    // The highest ID is that of a row that is gone.
    fixture
        .sync(vec![chart("a", &["2.0.0", "1.0.0"]), long, chart("b", &["1.0.0"])])
        .await;
    fixture
        .sync(vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])])
        .await;
    let mut stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    stored.url = "https://charts.example.com/ü?a=1".to_owned();
    let uid = record().uid;
    let entry = history("odd\ttext 'quoted'");
    fixture.catalog.save(&stored, Some(&uid), Some(&entry)).await.unwrap();
    let missing = wanted(&fixture, FilesMode::All).await;
    assert!(!missing.files.is_empty());
    assert!(save(&fixture, &of("a", "2.0.0"), &"readme ß ".repeat(30_000)).await);
    fail(&fixture, &of("b", "1.0.0"), 60).await;
    insert_file(&fixture, "stable", "a", "1.0.0").await;
    fixture
        .tables
        .execute(
            "INSERT INTO portolan_icons VALUES ('kubeapps', 'stable', 'stable/a', 'u', 1, 2, 'm');
             INSERT INTO portolan_svg_icons VALUES ('kubeapps', 'stable', 'stable/a', 'https://example.com/icon.png', 'PHN2Zy8+');
             INSERT INTO portolan_kept_versions VALUES ('kubeapps', 'stable', 'stable/a', '1.0.0', 5, 9223372036854775807);
             INSERT INTO portolan_oci_repositories VALUES ('kubeapps', 'stable', 'r', 's', NULL, NULL, '2026-01-01T00:00:00Z');
             INSERT INTO portolan_oci_tags VALUES ('kubeapps', 'stable', 'r', 't', 'd', NULL, 'p', 3, NULL);
             INSERT INTO portolan_news VALUES ('id', 'here', 'kubeapps', 'stable', 'kubeapps/hook', '{\"kind\":\"failed\"}', 1, 2, 3);
             INSERT INTO portolan_index_cache VALUES ('kubeapps', 'stable', 'k', 'd') ON CONFLICT DO NOTHING;
             INSERT INTO portolan_chart_digests VALUES ('kubeapps', 'stable', 'key', 'd', '{}', NULL, 7);
             INSERT INTO portolan_deprecated_charts VALUES ('kubeapps', 'stable', 'stable/old', '{\"home\": \"h\"}')",
        )
        .await;
    fixture
}

/// All rows of a table, with JSON in a form that does not depend on the engine.
async fn rows(fixture: &Fixture, table: &str) -> Vec<Value> {
    let export = export(fixture).await;
    let mut current = String::new();
    let mut rows = Vec::new();
    let mut chunks = String::new();
    for line in export.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).unwrap();
        if let Some(name) = line["table"]["name"].as_str() {
            name.clone_into(&mut current);
        } else if let Some(chunk) = line["chunk"].as_str() {
            chunks.push_str(chunk);
        } else if let Some(row) = line["row"].as_array() {
            let mut row = row.clone();
            for value in &mut row {
                if value.is_object() {
                    *value = Value::String(std::mem::take(&mut chunks));
                }
                if let Some(Ok(parsed)) = value.as_str().map(serde_json::from_str::<Value>)
                    && parsed.is_object()
                {
                    *value = parsed;
                }
            }
            if current == table {
                rows.push(Value::Array(row));
            }
        }
    }
    rows.sort_by_key(Value::to_string);
    rows
}

async fn all_rows(fixture: &Fixture) -> BTreeMap<&'static str, Vec<Value>> {
    let mut all = BTreeMap::new();
    for table in TABLES.into_iter().filter(|table| *table != "portolan_stored_bytes") {
        all.insert(table, rows(fixture, table).await);
    }
    all
}

#[rstest]
#[case::to_postgres_and_back([On::Sqlite, On::Postgres, On::Sqlite])]
#[case::to_sqlite_and_back([On::Postgres, On::Sqlite, On::Postgres])]
#[tokio::test]
async fn a_catalog_moves_between_engines_without_loss(#[case] engines: [On; 3]) {
    let first = filled(engines[0]).await;
    let before = all_rows(&first).await;
    for (table, rows) in &before {
        assert!(!rows.is_empty(), "no rows in {table}");
    }
    let second = Fixture::new(engines[1]).await;
    let exported = export(&first).await;
    let last_id = last_id(&exported);
    let imported = import(&second, &exported, ImportMode::Empty).await.unwrap();
    assert_eq!(imported.repositories, 1);
    assert_eq!(
        imported.rows,
        before.values().map(|rows| rows.len() as u64).sum::<u64>()
    );
    assert_eq!(all_rows(&second).await, before);
    let third = Fixture::new(engines[2]).await;
    import(&third, &export(&second).await, ImportMode::Empty).await.unwrap();
    assert_eq!(all_rows(&third).await, before);

    let synced = first.sync(charts()).await;
    let unchanged = (synced.unchanged, synced.changed, synced.added);
    // The record is trusted, an unchanged sync writes nothing, and no ID is used again.
    for fixture in [&second, &third] {
        let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
        assert!(stored.trusted);
        let bytes = "SELECT CAST(sum(charts) AS BIGINT) FROM portolan_stored_bytes";
        assert!(fixture.tables.number(bytes).await > 0);
        let synced = fixture.sync(charts()).await;
        assert_eq!((synced.unchanged, synced.changed, synced.added), unchanged);
        let highest = "SELECT CAST(max(id) AS BIGINT) FROM charts";
        fixture.sync([charts(), vec![chart("c", &["1.0.0"])]].concat()).await;
        assert!(fixture.tables.number(highest).await > last_id);
    }
    let sizes = "SELECT charts || ' ' || files FROM portolan_stored_bytes";
    assert_eq!(
        first.tables.texts(sizes).await.len(),
        third.tables.texts(sizes).await.len()
    );
}

#[rstest]
#[tokio::test]
async fn a_cut_or_edited_export_changes_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let source = filled(On::Sqlite).await;
    let export = export(&source).await;
    let target = Fixture::new(on).await;
    let lines: Vec<&[u8]> = export.split_inclusive(|byte| *byte == b'\n').collect();
    let without = |dropped: usize| {
        let kept = lines.iter().enumerate().filter(|(at, _)| *at != dropped);
        kept.flat_map(|(_, line)| line.iter().copied()).collect::<Vec<u8>>()
    };
    let text = String::from_utf8(export.clone()).unwrap();
    let is_repos = |line: &&[u8]| line.starts_with(b"{\"table\":{\"name\":\"repos\"");
    let repository_row = lines.iter().position(is_repos).unwrap() + 1;
    let last_row = lines.iter().rposition(|line| line.starts_with(b"{\"row\"")).unwrap();
    for (damaged, expected) in [
        (without(lines.len() - 1), "it was cut"),
        (export[..export.len() / 2].to_vec(), "cut"),
        (without(last_row), "the digest differs"),
        (without(repository_row), "the rows before are damaged or incomplete"),
        (
            text.replace("https://charts.example.com/", "https://charts.example.org/")
                .into_bytes(),
            "the digest differs",
        ),
        (without(0), "not an export"),
        (Vec::new(), "not an export"),
        (
            [export.as_slice(), b"{\"row\":[]}\n"].concat(),
            "more lines after the end",
        ),
        (
            text.replace("\"format\":1", "\"format\":99").into_bytes(),
            "use that release or a newer one",
        ),
        (
            text.replacen("\"schema\":", "\"schema\":9", 1).into_bytes(),
            "use that release or a newer one",
        ),
        (
            text.replace("\"portolan_icons\"", "\"portolan_clusters\"").into_bytes(),
            "unknown table",
        ),
    ] {
        let error = import(&target, &damaged, ImportMode::Empty).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Transfer { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}, not {expected}");
        for table in TABLES {
            assert_eq!(target.tables.count(table).await, 0, "{table} after {expected}");
        }
    }
    import(&target, &export, ImportMode::Empty).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn a_catalog_with_rows_is_only_replaced_on_request(#[values(On::Sqlite, On::Postgres)] on: On) {
    let source = filled(On::Sqlite).await;
    let export = export(&source).await;
    let target = Fixture::new(on).await;
    target.sync(vec![chart("other", &["1.0.0"])]).await;
    let error = import(&target, &export, ImportMode::Empty).await.unwrap_err();
    assert!(error.to_string().contains("--replace"), "{error}");
    assert_eq!(target.chart_names().await, ["other"]);
    // A failed replacement keeps the rows.
    let cut = &export[..export.len() - 200];
    import(&target, cut, ImportMode::Replace).await.unwrap_err();
    assert_eq!(target.chart_names().await, ["other"]);
    import(&target, &export, ImportMode::Replace).await.unwrap();
    assert_eq!(all_rows(&target).await, all_rows(&source).await);
}

/// The tables of the release before `portolan_chart_metadata`.
#[rstest]
#[tokio::test]
async fn an_export_of_an_earlier_schema_is_imported(#[values(On::Sqlite, On::Postgres)] on: On) {
    let source = filled(on).await;
    source
        .tables
        .execute(
            "DROP TABLE portolan_chart_metadata; DROP TABLE portolan_svg_icons; DROP TABLE portolan_deprecated_charts;
             DELETE FROM portolan_migrations WHERE version > 4",
        )
        .await;
    let reader = Catalog::open_read_only(&source.settings).await.unwrap();
    let export = export_of(&reader).await;
    let text = String::from_utf8(export.clone()).unwrap();
    assert!(text.contains("\"schema\":4") && !text.contains("chart_metadata") && !text.contains("svg_icons"));
    assert!(!text.contains("deprecated_charts"));
    let target = Fixture::new(on).await;
    import(&target, &export, ImportMode::Empty).await.unwrap();
    assert_eq!(target.tables.count("portolan_chart_metadata").await, 0);
    assert_eq!(target.tables.count("portolan_svg_icons").await, 0);
    let missing = wanted(&target, FilesMode::All).await;
    let last = missing.files.last().unwrap();
    assert_eq!((last.chart_id.as_str(), last.version.as_str()), ("stable/a", "2.0.0"));
}

#[tokio::test]
async fn an_import_is_refused_while_a_controller_uses_the_database() {
    let source = filled(On::Sqlite).await;
    let export = export(&source).await;
    let target = Fixture::new(On::Postgres).await;
    target.catalog.claim("main", "origin").await.unwrap();
    let error = import(&target, &export, ImportMode::Empty).await.unwrap_err();
    assert!(error.to_string().contains("stop it"), "{error}");
    assert_eq!(target.tables.count("repos").await, 0);
    target
        .tables
        .execute("UPDATE portolan_clusters SET renewed = renewed - 121000")
        .await;
    import(&target, &export, ImportMode::Empty).await.unwrap();
    assert_eq!(target.tables.count("portolan_clusters").await, 1, "claims stay");
}

/// An input that ends with an error, as a broken pipe.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other(format!("broken after {} bytes", self.0)))
    }
}

#[rstest]
#[tokio::test]
async fn an_input_that_fails_in_the_middle_changes_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let source = filled(On::Sqlite).await;
    let export = export(&source).await;
    let half = export.len() / 2;
    let target = Fixture::new(on).await;
    let input = BufReader::new(export[..half].chain(Broken(half)));
    let error = target.catalog.import(input, ImportMode::Empty).await.unwrap_err();
    assert!(error.to_string().contains("broken after"), "{error}");
    assert_eq!(target.tables.count("repos").await, 0);
}

#[rstest]
#[tokio::test]
async fn a_killed_import_leaves_an_empty_catalog(#[values(On::Sqlite, On::Postgres)] on: On) {
    let source = filled(On::Sqlite).await;
    let export = export(&source).await;
    let target = Fixture::new(on).await;
    let import_command = command(["catalog", "import", "--database-url", &target.url]);
    let mut child = tokio::process::Command::from(import_command)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds, so that the process has read most of it.
    input.write_all(&export[..export.len() - 10]).await.unwrap();
    child.kill().await.unwrap();
    drop(input);
    for table in TABLES {
        assert_eq!(target.tables.count(table).await, 0, "{table}");
    }
    import(&target, &export, ImportMode::Empty).await.unwrap();
    assert_eq!(all_rows(&target).await, all_rows(&source).await);
}

#[tokio::test]
async fn the_commands_move_a_catalog_by_a_file_that_is_never_overwritten() {
    let source = filled(On::Sqlite).await;
    let target = Fixture::new(On::Postgres).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("catalog.jsonl").display().to_string();
    let transfer = |verb: &str, url: &str| run(command(["catalog", verb, &file, "--database-url", url]));
    let exported = transfer("export", &source.url).await;
    assert!(exported.status.success(), "{exported:?}");
    let again = transfer("export", &source.url).await;
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let imported = transfer("import", &target.url).await;
    assert!(imported.status.success(), "{imported:?}");
    let printed = String::from_utf8(imported.stderr).unwrap();
    assert!(printed.contains("imported 1 repositories"), "{printed}");
    assert_eq!(all_rows(&target).await, all_rows(&source).await);
}
