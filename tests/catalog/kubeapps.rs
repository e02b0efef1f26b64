//! Compatibility with Kubeapps: its rows are taken over without a write, and its reader understands ours.

use std::fs;

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{Catalog, ChartInfo, ChartRow, FilesMode, Record, SyncCommit};
use serde::Deserialize;
use sqlx::PgPool;

use super::{Fixture, On, Tables, chart, commit::hostile_names, repository};
use crate::support::corpus;

#[derive(Deserialize)]
struct GoldenChart {
    chart_id: String,
    repo_name: String,
    repo_namespace: String,
    info: serde_json::Value,
}

/// Returns rows that Kubeapps' syncer wrote, from `PORTOLAN_GOLDENS` or the archive next to the project, or else rows of
/// the same format.
fn golden_charts() -> Vec<GoldenChart> {
    let text = corpus::goldens().map(|directory| fs::read_to_string(directory.join("grafana.charts.jsonl")).unwrap());
    match text {
        Some(text) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        None => ["alloy", "grafana", "loki"]
            .map(|name| chart(name, &["2.0.0", "1.0.0"]))
            .into_iter()
            .map(|info| GoldenChart {
                chart_id: info.id.clone(),
                repo_name: "stable".into(),
                repo_namespace: "kubeapps".into(),
                info: serde_json::to_value(info).unwrap(),
            })
            .collect(),
    }
}

#[tokio::test]
async fn rows_of_kubeapps_are_taken_over_without_a_write() {
    let fixture = Fixture::new(On::Postgres).await;
    let Tables::Postgres(pool) = &fixture.tables else {
        panic!("not Postgres")
    };
    let golden = golden_charts();
    let name = NamespacedName::new(&golden[0].repo_namespace, &golden[0].repo_name);
    sqlx::query("INSERT INTO repos (namespace, name, checksum, last_update) VALUES ($1, $2, 'digest', '2024-12-24 08:06:53 +0000 UTC m=+1.2')")
        .bind(&name.namespace)
        .bind(&name.name)
        .execute(pool)
        .await
        .unwrap();
    for row in &golden {
        sqlx::query("INSERT INTO charts (repo_namespace, repo_name, chart_id, info) VALUES ($1, $2, $3, $4)")
            .bind(&row.repo_namespace)
            .bind(&row.repo_name)
            .bind(&row.chart_id)
            .bind(&row.info)
            .execute(pool)
            .await
            .unwrap();
    }
    let before = (
        fixture.tables.writes("charts").await,
        fixture.tables.writes("repos").await,
    );
    let rows = golden.iter().map(|row| {
        let mut info: ChartInfo = serde_json::from_value(row.info.clone()).unwrap();
        // A rebuilt index has new creation times.
        for version in &mut info.chart_versions {
            version.created = "2030-01-01T00:00:00Z".into();
        }
        Ok(ChartRow {
            chart_id: row.chart_id.clone(),
            info,
        })
    });
    let commit = SyncCommit::new(Record::new(name.clone(), "uid"), None, "digest");
    let committed = fixture.catalog.commit(commit, rows).await.unwrap();
    assert_eq!(committed.unchanged as usize, golden.len());
    assert!(!committed.is_change() && committed.rejected.is_empty());
    assert_eq!(
        (
            fixture.tables.writes("charts").await,
            fixture.tables.writes("repos").await
        ),
        before
    );
    assert!(fixture.catalog.record(&name).await.unwrap().unwrap().trusted);

    // Our rows equal those of Kubeapps.
    let info = || {
        golden
            .iter()
            .map(|row| serde_json::from_value::<ChartInfo>(row.info.clone()).unwrap())
    };
    fixture.catalog.remove(&name, Fence::None).await.unwrap();
    let again = SyncCommit::new(Record::new(name, "uid"), None, "digest");
    fixture
        .catalog
        .commit(again, super::rows(info().collect()))
        .await
        .unwrap();
    let mut stored: Vec<(String, serde_json::Value)> = sqlx::query_as("SELECT chart_id, info FROM charts")
        .fetch_all(pool)
        .await
        .unwrap();
    stored.sort_by(|a, b| a.0.cmp(&b.0));
    let mut expected: Vec<_> = golden.into_iter().map(|row| (row.chart_id, row.info)).collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn malformed_rows_are_rewritten_and_rows_without_a_chart_id_deleted() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    fixture
        .tables
        .execute("UPDATE charts SET info = info - 'category' WHERE chart_id = 'stable/a'")
        .await;
    fixture
        .tables
        .execute(
            "INSERT INTO charts (repo_namespace, repo_name, chart_id, info) VALUES ('kubeapps', 'stable', NULL, '{}')",
        )
        .await;
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    assert_eq!((committed.changed, committed.unchanged, committed.removed), (1, 1, 1));
    assert_eq!(fixture.charts().await, [chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]);
}

#[tokio::test]
async fn the_tables_match_those_of_kubeapps() {
    let fixture = Fixture::new(On::Postgres).await;
    let constraints = fixture
        .tables
        .texts(
            "SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
             WHERE conrelid IN ('repos'::regclass, 'charts'::regclass, 'files'::regclass) AND contype IN ('p', 'u', 'f')
             ORDER BY conname",
        )
        .await;
    assert_eq!(
        constraints,
        [
            "charts_pkey PRIMARY KEY (id)",
            "charts_repo_name_repo_namespace_chart_id_key UNIQUE (repo_name, repo_namespace, chart_id)",
            "charts_repo_name_repo_namespace_fkey FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos(name, namespace) ON DELETE CASCADE",
            "files_pkey PRIMARY KEY (id)",
            "files_repo_name_repo_namespace_chart_id_fkey FOREIGN KEY (repo_name, repo_namespace, chart_id) REFERENCES charts(repo_name, repo_namespace, chart_id) ON DELETE CASCADE",
            "files_repo_name_repo_namespace_fkey FOREIGN KEY (repo_name, repo_namespace) REFERENCES repos(name, namespace) ON DELETE CASCADE",
            "files_repo_namespace_chart_files_id_key UNIQUE (repo_namespace, chart_files_id)",
            "repos_namespace_name_key UNIQUE (namespace, name)",
            "repos_pkey PRIMARY KEY (id)",
        ]
    );
    let columns = fixture
        .tables
        .texts(
            "SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns
             WHERE table_name IN ('repos', 'charts', 'files') ORDER BY table_name, ordinal_position",
        )
        .await;
    assert_eq!(
        columns,
        [
            "charts.id integer",
            "charts.repo_name character varying",
            "charts.repo_namespace character varying",
            "charts.chart_id character varying",
            "charts.info jsonb",
            "files.id integer",
            "files.chart_id character varying",
            "files.repo_name character varying",
            "files.repo_namespace character varying",
            "files.chart_files_id character varying",
            "files.info jsonb",
            "repos.id integer",
            "repos.namespace character varying",
            "repos.name character varying",
            "repos.checksum character varying",
            "repos.last_update character varying",
        ]
    );
    let foreign = "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text LIKE 'portolan%'
        AND confrelid IN ('repos'::regclass, 'charts'::regclass, 'files'::regclass)";
    assert_eq!(fixture.tables.number(foreign).await, 0);
}

/// Runs the statements of Kubeapps' plugin on our rows, some with hostile names.
#[tokio::test]
async fn every_statement_of_kubeapps_reader_works_on_our_rows() {
    let fixture = Fixture::new(On::Postgres).await;
    let Tables::Postgres(pool) = &fixture.tables else {
        panic!("not Postgres")
    };
    let mut charts: Vec<ChartInfo> = hostile_names().iter().map(|name| chart(name, &["1.0.0"])).collect();
    let mut wordpress = chart("wordpress", &["2.0.0+b1", "1.0.0"]);
    wordpress.category = "CMS".into();
    wordpress.sources = Some(vec!["https://git.example.com/wp".into()]);
    charts.push(wordpress.clone());
    charts.push(chart("team/nginx", &["1.0.0"]));
    let total = charts.len();
    fixture.sync(charts.clone()).await;
    super::commit::insert_file(&fixture, "stable", "wordpress", "1.0.0").await;

    let listed = infos(pool, "SELECT info FROM charts WHERE (repo_namespace = $1 OR repo_namespace = $2) ORDER BY (info->>'name') ASC LIMIT 100 OFFSET 0", &["team", "kubeapps"]).await;
    assert_eq!(listed.len(), total);
    assert!(
        listed
            .iter()
            .all(|info| !info.name.is_empty() && !info.chart_versions.is_empty())
    );

    let categories: Vec<(String, i64)> = sqlx::query_as(
        "SELECT (info ->> 'category') AS name, COUNT((info ->> 'category')) AS count FROM charts
         WHERE (repo_namespace = $1 OR repo_namespace = $2) GROUP BY (info ->> 'category') ORDER BY (info ->> 'category') ASC",
    )
    .bind("team")
    .bind("kubeapps")
    .fetch_all(pool)
    .await
    .unwrap();
    assert_eq!(categories, [(String::new(), total as i64 - 1), ("CMS".into(), 1)]);

    let by_version = infos(
        pool,
        "SELECT info FROM charts WHERE (info->>'name' = $1) AND (info->'chartVersions' @> $2::jsonb) ORDER BY (info->>'name') ASC",
        &["wordpress", r#"[{"version":"2.0.0+b1","app_version":"app-2.0.0+b1"}]"#],
    )
    .await;
    assert_eq!(by_version, [wordpress.clone()]);
    let in_category = "SELECT info FROM charts WHERE (repo_name = $1) AND (info->>'category' = $2)";
    assert_eq!(infos(pool, in_category, &["stable", "CMS"]).await.len(), 1);

    let search = "SELECT info FROM charts WHERE (info ->> 'name' ILIKE $1) OR (info ->> 'description' ILIKE $1)
        OR (info -> 'repo' ->> 'name' ILIKE $1) OR (info ->> 'keywords' ILIKE $1) OR (info ->> 'sources' ILIKE $1)
        OR (info -> 'maintainers' ->> 'name' ILIKE $1) ORDER BY (info->>'name') ASC";
    assert_eq!(infos(pool, search, &["%git.example.com%"]).await, [wordpress.clone()]);
    assert_eq!(infos(pool, search, &["%cms%"]).await.len(), total);

    let one = "SELECT info FROM charts WHERE repo_namespace = $1 AND chart_id = $2";
    for info in &charts {
        assert_eq!(
            infos(pool, one, &["kubeapps", &info.id]).await,
            std::slice::from_ref(info)
        );
    }
    let fallback = "SELECT info FROM charts WHERE repo_namespace = $1 AND chart_id ILIKE $2";
    assert_eq!(infos(pool, fallback, &["kubeapps", "stable%wordpress"]).await.len(), 1);
    let files =
        "SELECT count(*) FROM files WHERE repo_namespace = 'kubeapps' AND chart_files_id = 'stable/wordpress-1.0.0'";
    assert_eq!(fixture.tables.number(files).await, 1);
}

async fn infos(pool: &PgPool, statement: &'static str, values: &[&str]) -> Vec<ChartInfo> {
    let mut query = sqlx::query_scalar::<_, sqlx::types::Json<ChartInfo>>(statement);
    for value in values {
        query = query.bind(*value);
    }
    query
        .fetch_all(pool)
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.0)
        .collect()
}

/// Kubeapps' syncer upserts charts, and finally its row in `repos`.
#[tokio::test]
async fn changes_of_kubeapps_syncer_are_detected_and_reverted() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    fixture
        .tables
        .execute(
            "INSERT INTO charts (repo_namespace, repo_name, chart_id, info) VALUES ('kubeapps', 'stable', 'stable/old', '{\"name\": \"old\"}');
             UPDATE charts SET info = jsonb_set(info, '{description}', '\"theirs\"') WHERE chart_id = 'stable/a';
             UPDATE repos SET checksum = 'theirs', last_update = '2024-12-24 08:06:53 +0000 UTC m=+1.2'",
        )
        .await;
    assert!(!fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
    let committed = fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    assert_eq!((committed.changed, committed.removed, committed.unchanged), (1, 1, 1));
    assert_eq!(fixture.charts().await, [chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]);
}

#[tokio::test]
async fn a_user_without_permission_gets_an_error_with_advice() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.tables.execute("DROP TABLE portolan_syncs").await;
    let url = url::Url::parse(&fixture.url).unwrap();
    let password = url.password().unwrap_or_default();
    let database = fixture.tables.texts("SELECT current_database()::text").await.remove(0);
    fixture
        .tables
        .execute(&format!(
            "CREATE ROLE reader_{database} LOGIN PASSWORD '{password}'; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
        ))
        .await;
    let url = format!("{}?user=reader_{database}", fixture.url);
    let catalog = Catalog::open(&super::settings(&url)).await;
    let error = catalog.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("grant the user permission"), "{error}");
}

/// Kubeapps' user owns the tables, and ours may only read and write them.
#[tokio::test]
async fn tables_of_another_user_are_used_without_our_index() {
    let fixture = Fixture::new(On::Postgres).await;
    let url = url::Url::parse(&fixture.url).unwrap();
    let password = url.password().unwrap_or_default();
    let database = fixture.tables.texts("SELECT current_database()::text").await.remove(0);
    fixture
        .tables
        .execute(&format!(
            "DROP INDEX portolan_files_content; DROP TABLE portolan_syncs, portolan_repositories, portolan_files, portolan_icons,
                portolan_oci_repositories, portolan_oci_tags, portolan_kept_versions, portolan_index_cache, portolan_chart_digests,
                portolan_stored_bytes, portolan_clusters, portolan_fences,
                portolan_tombstones, portolan_chart_metadata, portolan_svg_icons, portolan_deprecated_charts, portolan_news,
                portolan_migrations;
             CREATE ROLE writer_{database} LOGIN PASSWORD '{password}'; GRANT CREATE, USAGE ON SCHEMA public TO writer_{database};
             GRANT ALL ON repos, charts, files TO writer_{database};
             GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO writer_{database}"
        ))
        .await;
    let url = format!("{}?user=writer_{database}", fixture.url);
    let catalog = Catalog::open(&super::settings(&url)).await.unwrap();
    let commit = SyncCommit::new(super::record(), None, "x");
    let charts = super::rows(vec![chart("a", &["1.0.0"])]);
    catalog.commit(commit, charts).await.unwrap();
    let wanted = catalog
        .missing_files(&repository(), FilesMode::All, super::at(0), 1)
        .await;
    assert_eq!(wanted.unwrap().files.len(), 1);
}
