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
            fetcher: Fetcher::new(Settings {
                requests_per_second: NonZeroU32::MAX,
                burst: NonZeroU32::MAX,
                ..Settings::default()
            })
            .unwrap(),
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
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        Self {
            server,
            executor: InProcess::new(tools, metrics),
            declaration,
            tables: SqlitePool::connect(&url).await.unwrap(),
            _folder: folder,
        }
    }

    /// Serves a chart, whose list of tags is another matter.
    fn push(&self, repository: &str, tag: &str, more: &Value) {
        let mut config = json!({"name": repository.rsplit('/').next(), "version": tag, "apiVersion": "v2"});
        config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
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
        self.server.serve(&manifest(repository, tag), Page::new(document.to_string()));
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
        self.list(repository, &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
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
        self.attempt(if known.is_some() { Mode::Conditional } else { Mode::Complete })
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
    assert!(problems[0].starts_with("long 1.0.0: its metadata has 70"), "{problems:?}");
    let infos = site.infos().await;
    assert_eq!(infos.len(), 1);
    assert_eq!((&*infos[0].description, &*infos[0].category), ("a port", "Infrastructure"));
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
    assert!(matches!(finished.verdict, Verdict::NotModified), "{:?}", finished.verdict);
    assert_eq!(site.server.all_seen().len(), requests + 2);
}
