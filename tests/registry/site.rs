//! A fake registry and a catalog synced with it.

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::Timestamp;
use portolan::api::NamespacedName;
use portolan::budget::Budgets;
use portolan::catalog::{Catalog, CatalogSettings, ChartInfo, Database, Login};
use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::metrics::RepositoryMetrics;
use portolan::controllers::apprepository::running_syncs::SyncAttempt;
use portolan::controllers::apprepository::secrets::source::CredentialSource;
use portolan::controllers::apprepository::spec::{Defaults, OneShot, ProxyNamespaces, RepositoryKind, RepositorySpec};
use portolan::controllers::apprepository::sync::filter_process::FilterProcesses;
use portolan::controllers::apprepository::sync::location::FileAccess;
use portolan::controllers::apprepository::sync::request::{SyncOutcome, SyncRequest, SyncResult};
use portolan::controllers::apprepository::sync::{SyncContext, Syncer};
use portolan::helm::index::DecodeLimits;
use portolan::http::{FetchLimits, Fetcher, Settings};
use portolan::jq as filter;
use portolan::runtime::cron::Intervals;
use serde_json::{Value, json};
use sqlx::SqlitePool;
use tempfile::TempDir;

use crate::support::archives::sha256;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::BINARY;

/// A fake registry and a catalog synced with it.
pub struct Site {
    pub server: ChartServer,
    pub syncer: Syncer,
    pub context: SyncContext,
    pub declaration: RepositorySpec,
    pub tables: SqlitePool,
    _directory: TempDir,
}

pub fn name() -> NamespacedName {
    NamespacedName::new("kubeapps", "ports")
}

pub fn list(repository: &str) -> String {
    format!("/v2/ports/{repository}/tags/list")
}

pub fn manifest(repository: &str, tag: &str) -> String {
    format!("/v2/ports/{repository}/manifests/{tag}")
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}

pub fn fetcher() -> Fetcher {
    let settings = Settings {
        requests_per_second: NonZeroU32::MAX,
        burst: NonZeroU32::MAX,
        ..Settings::default()
    };
    Fetcher::new(settings).unwrap()
}

pub fn syncer(context: &SyncContext) -> Syncer {
    let metrics = RepositoryMetrics::register(&mut prometheus_client::registry::Registry::default());
    Syncer::new(context.clone(), metrics)
}

/// Returns a spec with these repositories of the registry.
fn declared(server: &ChartServer, repositories: &[&str]) -> RepositorySpec {
    let intervals = Intervals::default();
    let defaults = Defaults {
        crontab: intervals.parse("*/10 * * * *").unwrap(),
        intervals,
        min_interval: Duration::from_secs(60),
        index_max_bytes: 1 << 20,
        proxy_namespaces: ProxyNamespaces::All,
        news_sinks: None,
    };
    let arguments = OneShot {
        url: server.url("/ports"),
        kind: RepositoryKind::Oci,
        oci_repositories: repositories.iter().map(|name| (*name).to_owned()).collect(),
        ..OneShot::default()
    };
    RepositorySpec {
        uid: "uid-1".to_owned(),
        ..RepositorySpec::one_shot(name(), arguments, &defaults)
    }
}

impl Site {
    /// Creates an empty registry and a spec with these repositories.
    pub async fn new(repositories: &[&str]) -> Self {
        let server = ChartServer::start().await;
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("portolan.db").display());
        let database = Database::parse(&url, &Login::default()).unwrap();
        let catalog = Catalog::open(&CatalogSettings::new(database)).await.unwrap();
        let declaration = declared(&server, repositories);
        let context = SyncContext {
            catalog,
            fetcher: fetcher(),
            credentials: CredentialSource::Static(Default::default()),
            fetch_limits: FetchLimits::default(),
            decode_limits: DecodeLimits::default(),
            budgets: Budgets::default(),
            index_memory: 64 * 1024 * 1024,
            filters: FilterProcesses::new(BINARY.into(), 32 * 1024 * 1024, filter::FilterLimits::default()),
            verify_delta: true,
            check_digests: Duration::from_secs(24 * 3600),
            keep_removed: None,
            spool_dir: None,
            files: FileAccess::Never,
            origin: "test".to_owned(),
        };
        Self {
            server,
            syncer: syncer(&context),
            context,
            declaration,
            tables: SqlitePool::connect(&url).await.unwrap(),
            _directory: directory,
        }
    }

    /// Changes `spec.ociRepositories`.
    pub fn declare(&mut self, repositories: &[&str]) {
        self.declaration = declared(&self.server, repositories);
    }

    /// Serves a chart version without listing its tag.
    pub fn push(&self, repository: &str, tag: &str, more: &Value) {
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

    pub fn list(&self, repository: &str, tags: &[String]) {
        let tags = json!({"name": format!("ports/{repository}"), "tags": tags});
        self.server.serve(&list(repository), Page::new(tags.to_string()));
    }

    /// Serves and lists these versions of a chart.
    pub fn publish(&self, repository: &str, tags: &[&str]) {
        for tag in tags {
            self.push(repository, tag, &json!({}));
        }
        self.list(
            repository,
            &tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>(),
        );
    }

    pub async fn attempt(&self, mode: SyncMode) -> SyncResult {
        self.attempt_as(mode, SyncAttempt::default()).await
    }

    pub async fn attempt_as(&self, mode: SyncMode, attempt: SyncAttempt) -> SyncResult {
        let previous = self.syncer.record(&name()).await.unwrap();
        let request = SyncRequest {
            spec: self.declaration.clone(),
            expected_uid: previous.as_ref().map(|record| record.uid.clone()),
            previous,
            mode,
            started: Timestamp::now(),
            fresh_since: Timestamp::now(),
        };
        self.syncer.sync(request, attempt).await.unwrap()
    }

    pub async fn sync(&self) -> SyncResult {
        let record = self.syncer.record(&name()).await.unwrap();
        self.attempt(if record.is_some() {
            SyncMode::Conditional
        } else {
            SyncMode::Complete
        })
        .await
    }

    pub async fn infos(&self) -> Vec<ChartInfo> {
        let select = sqlx::query_scalar("SELECT CAST(info AS TEXT) FROM charts ORDER BY chart_id");
        let infos: Vec<String> = select.fetch_all(&self.tables).await.unwrap();
        infos.iter().map(|info| serde_json::from_str(info).unwrap()).collect()
    }

    /// Returns the charts with their versions: `harbour 1.1.0 1.0.0`.
    pub async fn charts(&self) -> Vec<String> {
        let summary = |info: &ChartInfo| {
            let versions: Vec<&str> = info.chart_versions.iter().map(|version| &*version.version).collect();
            format!("{} {}", info.name, versions.join(" "))
        };
        self.infos().await.iter().map(summary).collect()
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.tables).await.unwrap()
    }

    /// Serves and lists `count` versions of a chart.
    pub fn publish_many(&self, repository: &str, count: usize) {
        let tags = versions(count);
        self.publish(repository, &tags.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Replaces the fetcher and the syncer, which drops caches and backoffs.
    pub fn restart(&mut self) {
        self.context.fetcher = fetcher();
        self.syncer = syncer(&self.context);
    }

    pub async fn version_count(&self, chart: usize) -> usize {
        self.infos()
            .await
            .get(chart)
            .map_or(0, |info| info.chart_versions.len())
    }

    pub async fn successes(&self) -> i64 {
        self.number("SELECT count(*) FROM portolan_syncs WHERE result = 'Succeeded'")
            .await
    }

    /// Makes the retries of failed pulls due.
    pub async fn make_retries_due(&self) {
        let due = "UPDATE portolan_oci_tags SET next_try = '2020-01-01T00:00:00Z' WHERE next_try IS NOT NULL";
        self.execute(&[due]).await;
    }

    /// Makes the check of all digests due.
    pub async fn make_digest_checks_due(&self) {
        let due = "UPDATE portolan_oci_repositories SET digests_checked = '2020-01-01T00:00:00Z'";
        self.execute(&[due]).await;
    }

    /// Runs statements on the tables, as a restored backup would.
    pub async fn execute(&self, tables: &[&'static str]) {
        for delete in tables {
            sqlx::query(*delete).execute(&self.tables).await.unwrap();
        }
    }
}

/// Returns skipped entries as `repository version: reason`.
pub fn skipped(finished: &SyncResult) -> Vec<String> {
    let SyncOutcome::Synced { skipped, .. } = &finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    let named = skipped.first.iter();
    named
        .map(|skip| match &skip.version {
            Some(version) => format!("{} {version}: {}", skip.chart, skip.reason),
            None => format!("{}: {}", skip.chart, skip.reason),
        })
        .collect()
}

/// Returns `1.0.0`, `1.1.0` and so on.
pub fn versions(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("1.{number}.0")).collect()
}

pub fn is_complete(finished: &SyncResult) -> bool {
    match &finished.outcome {
        SyncOutcome::Synced { is_complete, .. } => *is_complete,
        other => panic!("{other:?}"),
    }
}

pub fn interrupted(finished: &SyncResult) -> (&str, Option<Duration>, &str) {
    match &finished.outcome {
        SyncOutcome::Interrupted(failed) if failed.transient => (&failed.reason, failed.retry_after, &failed.message),
        other => panic!("{other:?}"),
    }
}
