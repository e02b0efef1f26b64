//! Attempts against a registry that is made up: what it serves, refuses and has too much of is for each test to say.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use portolan::catalog::{Catalog, ChartInfo, Database, Login, RepositoryName, Settings as CatalogSettings};
use portolan::filter;
use portolan::repository::access::Keys;
use portolan::repository::decide::Mode;
use portolan::repository::declaration::{Declaration, Defaults, Kind, OneShot};
use portolan::repository::execute::{Attempt, Execute, Finished, Verdict};
use portolan::repository::in_process::{InProcess, Tools};
use portolan::repository::locate::FileAccess;
use portolan::repository::metrics::Metrics;
use portolan::schedule;
use portolan::source::fetch::{Fetcher, Limits, Settings};
use portolan::source::index::DecodeLimits;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::chart_server::{ChartServer, Fault, Page};

/// A registry, and a catalogue that is kept in step with it.
struct Site {
    server: ChartServer,
    executor: InProcess,
    tools: Tools,
    declaration: Declaration,
    tables: SqlitePool,
    _folder: TempDir,
}

fn name() -> RepositoryName {
    RepositoryName::new("kubeapps", "ports")
}

fn list(repository: &str) -> String {
    format!("/v2/ports/{repository}/tags/list")
}

fn manifest(repository: &str, tag: &str) -> String {
    format!("/v2/ports/{repository}/manifests/{tag}")
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn fetcher() -> Fetcher {
    let settings = Settings {
        requests_per_second: NonZeroU32::MAX,
        burst: NonZeroU32::MAX,
        ..Settings::default()
    };
    Fetcher::new(settings).unwrap()
}

fn executor(tools: &Tools) -> InProcess {
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    InProcess::new(tools.clone(), metrics)
}

impl Site {
    /// Of these repositories of the registry, none of which is there yet.
    async fn new(repositories: &[&str]) -> Self {
        let server = ChartServer::start().await;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("portolan.db").display());
        let database = Database::parse(&url, &Login::default()).unwrap();
        let catalog = Catalog::open(&CatalogSettings::new(database)).await.unwrap();
        let defaults = Defaults {
            crontab: schedule::parse("*/10 * * * *").unwrap(),
            min_interval: Duration::from_secs(60),
            index_max_bytes: 1 << 20,
        };
        let given = OneShot {
            url: server.url("/ports"),
            kind: Kind::Oci,
            oci_repositories: repositories.iter().map(|name| (*name).to_owned()).collect(),
            ..OneShot::default()
        };
        let declaration = Declaration {
            uid: "uid-1".to_owned(),
            ..Declaration::one_shot(name(), given, &defaults)
        };
        let tools = Tools {
            catalog,
            fetcher: fetcher(),
            keys: Keys::Given(Default::default()),
            fetch_limits: Limits::default(),
            decode_limits: DecodeLimits::default(),
            filter_limits: filter::Limits::default(),
            check_digests: Duration::from_secs(24 * 3600),
            keep_removed: None,
            spool_dir: None,
            files: FileAccess::Never,
            origin: "test".to_owned(),
        };
        Self {
            server,
            executor: executor(&tools),
            tools,
            declaration,
            tables: SqlitePool::connect(&url).await.unwrap(),
            _folder: folder,
        }
    }

    /// Serves a chart, whose list of tags is another matter.
    fn push(&self, repository: &str, tag: &str, more: &Value) {
        let mut config = json!({"name": repository.rsplit('/').next(), "version": tag, "apiVersion": "v2"});
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().cloned().unwrap_or_default());
        let config = config.to_string().into_bytes();
        let document = json!({
            "schemaVersion": 2,
            "config": {
                "mediaType": "application/vnd.cncf.helm.config.v1+json",
                "digest": digest(&config),
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "digest": digest(b""),
                "size": 0,
            }],
        });
        self.server
            .serve(&manifest(repository, tag), Page::new(document.to_string()));
        let blob = format!("/v2/ports/{repository}/blobs/{}", digest(&config));
        self.server.serve(&blob, Page::new(config));
    }

    fn list(&self, repository: &str, tags: &[String]) {
        let tags = json!({"name": format!("ports/{repository}"), "tags": tags});
        self.server.serve(&list(repository), Page::new(tags.to_string()));
    }

    /// Serves these versions of a chart.
    fn publish(&self, repository: &str, tags: &[&str]) {
        for tag in tags {
            self.push(repository, tag, &json!({}));
        }
        self.list(
            repository,
            &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>(),
        );
    }

    async fn attempt(&self, mode: Mode) -> Finished {
        let previous = self.executor.record(&name()).await.unwrap();
        let attempt = Attempt {
            declaration: self.declaration.clone(),
            expected_uid: previous.as_ref().map(|record| record.uid.clone()),
            previous,
            mode,
            started: Timestamp::now(),
        };
        self.executor.attempt(attempt, CancellationToken::new()).await.unwrap()
    }

    async fn sync(&self) -> Finished {
        let known = self.executor.record(&name()).await.unwrap();
        self.attempt(if known.is_some() {
            Mode::Conditional
        } else {
            Mode::Complete
        })
        .await
    }

    async fn infos(&self) -> Vec<ChartInfo> {
        let select = sqlx::query_scalar("SELECT CAST(info AS TEXT) FROM charts ORDER BY chart_id");
        let infos: Vec<String> = select.fetch_all(&self.tables).await.unwrap();
        infos.iter().map(|info| serde_json::from_str(info).unwrap()).collect()
    }

    /// The charts with their versions: `harbour 1.1.0 1.0.0`.
    async fn charts(&self) -> Vec<String> {
        let shown = |info: &ChartInfo| {
            let versions: Vec<&str> = info.chart_versions.iter().map(|version| &*version.version).collect();
            format!("{} {}", info.name, versions.join(" "))
        };
        self.infos().await.iter().map(shown).collect()
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.tables).await.unwrap()
    }
}

/// What was left out, by `repository: reason`.
fn skipped(finished: &Finished) -> Vec<String> {
    let Verdict::Synced { skipped, .. } = &finished.verdict else {
        panic!("{:?}", finished.verdict)
    };
    let named = skipped.first.iter();
    named
        .map(|skip| match &skip.version {
            Some(version) => format!("{} {version}: {}", skip.chart, skip.reason),
            None => format!("{}: {}", skip.chart, skip.reason),
        })
        .collect()
}

#[tokio::test]
async fn of_a_charts_metadata_only_what_a_catalogue_needs_is_remembered_and_no_more_than_64_kib_of_that() {
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
    assert!(
        problems[0].starts_with("long 1.0.0: its metadata has 70"),
        "{problems:?}"
    );
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
async fn an_unchanged_registry_costs_the_lists_of_its_tags_and_writes_no_tag() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["2.0.0"]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 2.0.0"]);
    let requests = site.server.all_seen().len();
    let finished = site.sync().await;
    assert!(
        matches!(finished.verdict, Verdict::NotModified),
        "{:?}",
        finished.verdict
    );
    assert_eq!(site.server.all_seen().len(), requests + 2);
}

#[tokio::test]
async fn one_bad_repository_is_told_of_and_the_others_are_synced() {
    let site = Site::new(&["forbidden", "gone", "harbour", "locked", "odd"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server.break_path(&list("forbidden"), Fault::status(403));
    site.server.break_path(&list("locked"), Fault::status(401));
    site.server.serve(&list("odd"), Page::new("<html>"));
    let problems = skipped(&site.sync().await);
    let told: Vec<&str> = problems.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(told, ["forbidden", "gone", "locked", "odd"], "{problems:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);

    site.server.break_path(&list("harbour"), Fault::status(403));
    let finished = site.sync().await;
    let Verdict::Failed(failed) = finished.verdict else {
        panic!("{:?}", finished.verdict)
    };
    assert!(!failed.transient && failed.message.contains("403"), "{failed:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
}

#[tokio::test]
async fn charts_of_a_repository_that_is_not_for_us_any_more_stay_and_that_is_told_once() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    assert!(skipped(&site.sync().await).is_empty());
    site.server.break_path(&list("quay"), Fault::status(401));
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("quay: "), "{problems:?}");
    let record = site.executor.record(&name()).await.unwrap().unwrap();
    assert!(record.state.message.contains("1 entry"), "{}", record.state.message);
    assert!(matches!(site.sync().await.verdict, Verdict::NotModified));
    // Its digests are not asked for, which would be refused one after the other.
    assert!(skipped(&site.attempt(Mode::Complete).await)[0].starts_with("quay: "));
    assert_eq!(site.server.count(&manifest("quay", "1.0.0")), 1);
    assert_eq!(site.charts().await, ["harbour 1.0.0", "quay 1.0.0"]);
    site.server.repair(&list("quay"));
    assert!(skipped(&site.sync().await).is_empty());
}

#[tokio::test]
async fn pulls_that_are_refused_leave_what_is_remembered_and_stop_for_that_repository() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags: Vec<String> = (0..50).map(|number| format!("1.{number}.0")).collect();
    site.publish("harbour", &["1.0.0"]);
    site.list("quay", &tags);
    for tag in &tags {
        site.server.break_path(&manifest("quay", tag), Fault::status(401));
    }
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let pulls = site.server.all_seen();
    let pulls = pulls
        .iter()
        .filter(|seen| seen.path.starts_with("/v2/ports/quay/manifests/"));
    assert!(pulls.count() < 30);
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
    // When it may be pulled again, nothing hides that it never was.
    for tag in &tags {
        site.server.repair(&manifest("quay", tag));
        site.push("quay", tag, &json!({}));
    }
    site.sync().await;
    assert_eq!(site.infos().await[1].chart_versions.len(), 50);
}

#[tokio::test]
async fn what_is_no_chart_is_remembered_without_a_second_request() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "2.0.0"]);
    let image = json!({"schemaVersion": 2, "manifests": []}).to_string();
    site.server
        .serve(&manifest("harbour", "2.0.0"), Page::new(image.clone()));
    let problems = skipped(&site.sync().await);
    assert!(problems[0].contains("no Helm chart"), "{problems:?}");
    assert_eq!(site.server.count(&manifest("harbour", "2.0.0")), 1);
    let remembered = sqlx::query_scalar::<_, String>("SELECT digest FROM portolan_oci_tags WHERE tag = '2.0.0'");
    assert_eq!(
        remembered.fetch_one(&site.tables).await.unwrap(),
        digest(image.as_bytes())
    );
}

/// `1.0.0`, `1.1.0` and so on.
fn versions(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("1.{number}.0")).collect()
}

impl Site {
    /// Serves so many versions of a chart.
    fn publish_many(&self, repository: &str, count: usize) {
        let tags = versions(count);
        self.publish(repository, &tags.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// A process that knows nothing of hosts that want to be left alone.
    fn restart(&mut self) {
        self.tools.fetcher = fetcher();
        self.executor = executor(&self.tools);
    }

    async fn shown(&self, chart: usize) -> usize {
        self.infos()
            .await
            .get(chart)
            .map_or(0, |info| info.chart_versions.len())
    }

    async fn successes(&self) -> i64 {
        self.number("SELECT count(*) FROM portolan_syncs WHERE result = 'Succeeded'")
            .await
    }

    /// What a restored backup, or tables that were dropped, take away.
    async fn forget(&self, tables: &[&'static str]) {
        for delete in tables {
            sqlx::query(*delete).execute(&self.tables).await.unwrap();
        }
    }
}

fn interrupted(finished: &Finished) -> (&str, Option<Duration>, &str) {
    match &finished.verdict {
        Verdict::Interrupted(failed) if failed.transient => (&failed.reason, failed.retry_after, &failed.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_pulled_before_a_rate_limit_is_shown_and_the_failure_told() {
    let mut site = Site::new(&["harbour"]).await;
    site.publish_many("harbour", 60);
    site.server
        .break_path(&manifest("harbour", "1.9.0"), Fault::retry_after(429, "60"));
    let finished = site.sync().await;
    let (reason, retry_after, message) = interrupted(&finished);
    assert_eq!(
        (reason, retry_after),
        ("TooManyRequests", Some(Duration::from_secs(60)))
    );
    assert!(message.contains(" of 60 versions are pulled"), "{message}");
    let shown = site.shown(0).await;
    assert!((30..60).contains(&shown), "{shown}");
    let record = site.executor.record(&name()).await.unwrap().unwrap();
    assert_eq!((record.state.ready, record.state.stalled), (Some(false), false));
    assert_eq!((&*record.state.reason, record.state.failures), ("TooManyRequests", 1));

    site.server.repair(&manifest("harbour", "1.9.0"));
    site.restart();
    let Verdict::Synced { is_complete: true, .. } = site.sync().await.verdict else {
        panic!("it is repaired")
    };
    assert_eq!(site.shown(0).await, 60);
    assert!(matches!(site.sync().await.verdict, Verdict::NotModified));
    assert_eq!(
        site.server
            .all_seen()
            .iter()
            .filter(|seen| seen.path.contains("/1.59.0"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_rate_limit_before_anything_was_pulled_is_a_failure_and_nothing_else() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::retry_after(429, "60"));
    for _ in 0..2 {
        let finished = site.sync().await;
        assert!(matches!(&finished.verdict, Verdict::Failed(failed) if failed.transient));
        assert!(finished.record.last_success.is_none());
    }
    assert_eq!(site.number("SELECT count(*) FROM portolan_syncs").await, 1);
}

#[tokio::test]
async fn a_large_registry_is_pulled_in_parts_that_are_one_sync_and_nothing_goes_before_its_end() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", 700);
    site.publish("quay", &["1.0.0"]);
    let first = site.sync().await;
    assert!(matches!(first.verdict, Verdict::Synced { is_complete: false, .. }));
    let state = &first.record.state;
    assert_eq!((state.ready, &*state.reason), (None, "Pulling"));
    assert!(
        state.message.starts_with("500 of 701 versions are pulled"),
        "{}",
        state.message
    );
    assert_eq!((site.shown(0).await, site.successes().await), (499, 0));
    site.sync().await;
    assert_eq!((site.shown(0).await, site.successes().await), (700, 1));
    let told = "SELECT added * 100 + changed * 10 + removed FROM portolan_syncs WHERE result = 'Succeeded'";
    assert_eq!(
        site.number(told).await,
        200,
        "two charts were added, whatever became of them in between"
    );

    // The memory is lost, and one of the charts has left the registry meanwhile.
    site.forget(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.list("quay", &[]);
    site.push("harbour", "1.3.0", &json!({"appVersion": "another"}));
    let part = site.attempt(Mode::Complete).await;
    assert!(matches!(part.verdict, Verdict::Synced { is_complete: false, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 1, 1)
    );
    let whole = site.sync().await;
    assert!(matches!(whole.verdict, Verdict::Synced { is_complete: true, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 0, 2)
    );
    assert_eq!(site.number("SELECT count(*) FROM portolan_kept_versions").await, 0);
}

#[tokio::test]
async fn tags_that_were_published_anew_are_found_when_everything_is_compared_although_that_was_cut_off() {
    let mut site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.push("quay", "1.0.0", &json!({"appVersion": "another"}));
    assert!(
        matches!(site.sync().await.verdict, Verdict::NotModified),
        "it is not seen in the list"
    );
    site.server.break_path(&list("quay"), Fault::retry_after(503, "1"));
    let Verdict::Failed(failed) = site.attempt(Mode::Complete).await.verdict else {
        panic!("a list can't be had")
    };
    assert!(failed.transient);
    site.server.repair(&list("quay"));
    site.restart();
    site.sync().await;
    assert_eq!(site.infos().await[1].chart_versions[0].app_version, "another");

    // The same where the look at the digests is what is cut off: what is looked at before counts.
    site.push("harbour", "1.1.0", &json!({"appVersion": "another"}));
    site.server
        .break_times(&manifest("quay", "1.0.0"), Fault::retry_after(503, "1"), 1);
    interrupted(&site.attempt(Mode::Complete).await);
    let asked = site.server.count(&manifest("harbour", "1.0.0"));
    site.restart();
    site.sync().await;
    assert_eq!(site.server.count(&manifest("harbour", "1.0.0")), asked);
    assert_eq!(site.infos().await[0].chart_versions[0].app_version, "another");
}
