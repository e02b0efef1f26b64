use std::{path::PathBuf, time::Duration};

use backon::{ExponentialBuilder, Retryable};
use clap::Args;
use jiff::Timestamp;
use prometheus_client::registry::Registry;

use super::flags::credentials::{credentials, filter};
use super::flags::database::DatabaseFlags;
use super::flags::declared::{DeclaredFlags, Obsolete, migrations};
use super::flags::deprecated::DeprecatedFlags;
use super::flags::fetch::{ContentFlags, FetchFlags};
use super::flags::parse::{CommaSeparated, Sensitive};
use super::flags::resources::ResourceFlags;
use super::{Error, failed_to, output};
use crate::api::NamespacedName;
use crate::catalog::{Catalog, ChangedCharts, Fence, Record};
use crate::controllers::apprepository::SyncOptions;
use crate::controllers::apprepository::chart_files::{BatchOutcome, Importer, Worklist};
use crate::controllers::apprepository::decision::{SyncDecision, SyncMode, decide};
use crate::controllers::apprepository::metrics::RepositoryMetrics;
use crate::controllers::apprepository::origin::ONE_SHOT;
use crate::controllers::apprepository::running_syncs;
use crate::controllers::apprepository::secrets::source::CredentialSource;
use crate::controllers::apprepository::spec::{
    Defaults, OneShot, ProxyNamespaces, RepositoryAccess, RepositoryKind, RepositorySpec, Requests,
};
use crate::controllers::apprepository::sync::Syncer;
use crate::controllers::apprepository::sync::location::{FileAccess, check_url};
use crate::controllers::apprepository::sync::request::{SyncAborted, SyncOutcome, SyncRequest, SyncResult};
use crate::http::Proxies;
use crate::manager::shutdown;
use crate::runtime::cron::Intervals;
use crate::runtime::kube_client::api_server_of_pod;
use crate::text::printable;

/// A schedule is part of every spec; a one-shot sync does not use it.
const CRONTAB: &str = "@daily";

/// Retries of syncs that conflict with another process, for about a minute. A wait for a lock takes five seconds itself.
const CONFLICT_BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(5))
    .with_max_times(15)
    .with_jitter();

/// Sync one repository and exit
///
/// Accepts the arguments of Kubeapps' asset-syncer, the password of Postgres in DB_PASSWORD, and credentials of the repository in
/// AUTHORIZATION_HEADER or DOCKER_CONFIG_JSON. With SQLite, stop `portolan run` first, or use `portolan resync`.
#[derive(Args, Debug)]
pub struct Sync {
    /// Name of the repository
    pub name: String,
    /// URL of the repository: http(s)://…, or oci://… if TYPE is oci
    pub url: String,
    /// Type of the repository: helm or oci
    #[arg(value_name = "TYPE")]
    pub kind: String,
    /// Namespace of the repository
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// OCI repositories below the URL, separated by commas (default: all that the registry lists)
    #[arg(long, value_name = "NAMES", help_heading = "Repository")]
    pub oci_repositories: Vec<CommaSeparated>,
    /// Accept the index with this digest although it shrank
    #[arg(long, value_name = "DIGEST", help_heading = "Repository")]
    pub allow_shrink: Option<String>,
    /// Sync only charts that match a jq filter: {"jq": "…", "variables": {"$name": "…"}}
    #[arg(long, value_name = "JSON", default_value = "", help_heading = "Repository")]
    pub filter_rules: String,
    /// Send credentials to other hosts that serve archives and icons too
    #[arg(long, help_heading = "Repository")]
    pub pass_credentials: bool,
    /// Proxy for http:// URLs, whose address is checked like that of the repository; --http-proxy and --https-proxy
    /// replace all proxies of the environment
    #[arg(long, value_name = "URL", help_heading = "Repository")]
    pub http_proxy: Option<Sensitive>,
    /// Same for https:// URLs
    #[arg(long, value_name = "URL", help_heading = "Repository")]
    pub https_proxy: Option<Sensitive>,
    /// Hosts to connect to without these proxies, as in NO_PROXY
    #[arg(long, value_name = "HOSTS", help_heading = "Repository")]
    pub no_proxy: Option<String>,
    /// Skip verification of TLS certificates
    #[arg(long, help_heading = "Repository")]
    pub tls_insecure_skip_verify: bool,
    /// PEM file with CA certificates to trust in addition to the system's (default:
    /// /usr/local/share/ca-certificates/ca.crt, the mount of Kubeapps, if it exists)
    #[arg(long, value_name = "FILE", help_heading = "Repository")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub declared: DeclaredFlags,
    #[command(flatten)]
    pub content: ContentFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
    #[command(flatten)]
    pub resources: ResourceFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    /// Without effect: charts belong to the namespace of their repository
    #[arg(long, hide = true)]
    pub global_repos_namespace: Option<String>,
    #[command(flatten)]
    pub deprecated: DeprecatedFlags,
}

struct SyncSettings {
    spec: RepositorySpec,
    options: SyncOptions,
    credentials: CredentialSource,
}

impl Sync {
    pub(super) async fn execute(self) -> Result<(), Error> {
        self.deprecated.warn();
        let settings = self.settings().await?;
        let shutdown = shutdown::on_signal().map_err(failed_to("listen for signals"))?;
        let interrupted = |state| Error::Failed(format!("interrupted before {state}"));
        let migrations = migrations(self.declared.uid.as_deref());
        self.database
            .write_with(migrations, async |catalog| {
                // A canceled sync is rolled back.
                let synced = shutdown.run_until_cancelled(self.sync(catalog, &settings)).await;
                let synced = synced.ok_or_else(|| interrupted("the repository was synced; nothing was written"))??;
                let synced = match synced {
                    AttemptResult::Synced(synced) => synced,
                    obsolete => return self.report_obsolete(&obsolete),
                };
                self.report(&synced.result)?;
                let imported = shutdown.run_until_cancelled(synced.import()).await;
                imported
                    .ok_or_else(|| interrupted("all chart files were imported; the next sync imports the others"))?
            })
            .await
    }

    async fn settings(&self) -> Result<SyncSettings, Error> {
        let intervals = Intervals::default();
        let defaults = Defaults {
            crontab: intervals.parse(CRONTAB)?,
            intervals,
            min_interval: Duration::ZERO,
            index_max_bytes: self.fetch.index_max_bytes,
            proxy_namespaces: ProxyNamespaces::All,
            news_sinks: None,
        };
        let oci_repositories = self.oci_repositories.iter().flat_map(|names| names.0.iter().cloned());
        let arguments = OneShot {
            url: self.url.clone(),
            kind: if self.kind == RepositoryKind::Helm.as_str() {
                RepositoryKind::Helm
            } else {
                RepositoryKind::Oci
            },
            oci_repositories: oci_repositories.filter(|name| !name.is_empty()).collect(),
            filter: filter(&self.filter_rules)?,
            access: RepositoryAccess {
                insecure: self.tls_insecure_skip_verify,
                pass_credentials: self.pass_credentials,
                proxies: self.proxies(),
                ..RepositoryAccess::default()
            },
            allow_shrink: self.allow_shrink.clone(),
        };
        let api_server = api_server_of_pod();
        let mut options = self
            .fetch
            .sync_options(&self.content, &self.resources, api_server.is_none())?;
        if let Some(endpoint) = api_server {
            options.fetcher = options.fetcher.without_api_server(vec![endpoint]).await;
        }
        let name = NamespacedName::new(&self.namespace, &self.name);
        let spec = RepositorySpec::one_shot(name, arguments, &defaults);
        // Before anything is removed for another repository of this name.
        check_url(&spec, &options.fetcher).map_err(|error| {
            Error::Failed(format!(
                "failed to sync {}: {}: {}",
                self.name, error.reason, error.message
            ))
        })?;
        Ok(SyncSettings {
            spec,
            options,
            credentials: CredentialSource::Static(credentials(self.ca_file.as_deref())?),
        })
    }

    /// Returns the proxies of the repository, or `None` if those of the environment apply.
    fn proxies(&self) -> Option<Proxies> {
        let set = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let proxies = Proxies {
            http: set(self.http_proxy.as_ref().map(Sensitive::reveal)),
            https: set(self.https_proxy.as_ref().map(Sensitive::reveal)),
            no_proxy: set(self.no_proxy.as_deref()),
        };
        (proxies.http.is_some() || proxies.https.is_some()).then_some(proxies)
    }

    async fn sync(&self, catalog: &Catalog, settings: &SyncSettings) -> Result<AttemptResult, Error> {
        let attempt = || self.attempt(catalog, settings);
        let synced = attempt
            .retry(CONFLICT_BACKOFF)
            .when(is_conflict)
            .notify(|error, delay| {
                tracing::info!(%error, retry_in = ?delay, "repository changed during the sync, retrying");
            });
        Ok(synced.await?)
    }

    async fn attempt(&self, catalog: &Catalog, settings: &SyncSettings) -> Result<AttemptResult, SyncAborted> {
        let mut spec = settings.spec.clone();
        if let Some(uid) = &self.declared.uid
            && catalog.deleted_at(uid).await?.is_some()
        {
            return Ok(AttemptResult::Deleted);
        }
        let stored = catalog.record(&spec.name).await?;
        if let Some(obsolete) = stored.as_ref().and_then(|stored| self.declared.obsolete(stored)) {
            return Ok(AttemptResult::Obsolete(obsolete));
        }
        self.declared.identify(&mut spec, stored.as_ref());
        let previous = match stored {
            // A changed URL of the same object: its rows are replaced by the commit.
            Some(record) if self.declared.uid.as_deref() == Some(record.uid.as_str()) => Some(record),
            Some(record) if record.url == spec.url && record.kind == spec.kind.as_str() => {
                if self.declared.uid.is_none() {
                    inherit_identity(&mut spec, &record);
                }
                Some(record)
            }
            Some(record) => {
                tracing::info!(namespace = %record.name.namespace, name = %record.name.name,
                    "removing charts of a previous repository with the same name");
                catalog.remove(&record.name, Fence::Uid(Some(&record.uid))).await?;
                None
            }
            None => None,
        };
        let stored_origin = previous.as_ref().map_or(ONE_SHOT, |record| &record.origin);
        let origin = self.declared.origin.as_deref().unwrap_or(stored_origin).to_owned();
        let started = Timestamp::now();
        let mode = match decide(&spec, previous.as_ref(), started) {
            SyncDecision::Sync(mode) => mode,
            _ => SyncMode::Conditional,
        };
        let request = SyncRequest {
            spec: spec.clone(),
            expected_uid: previous.as_ref().map(|record| record.uid.clone()),
            previous,
            mode,
            started,
            fresh_since: started,
        };
        let (options, credentials) = (settings.options.clone(), settings.credentials.clone());
        let context = options.context(catalog.clone(), credentials, FileAccess::Never, origin);
        let metrics = RepositoryMetrics::register(&mut Registry::default());
        let result = sync_completely(&Syncer::new(context.clone(), metrics.clone()), request).await?;
        Ok(AttemptResult::Synced(Box::new(Synced {
            importer: Importer::new(
                context,
                self.content.settings(&settings.options.objects, false),
                metrics,
            ),
            spec,
            result,
        })))
    }

    /// Reports that nothing is left to do. That is no failure: a Job must not be repeated for it.
    fn report_obsolete(&self, attempt: &AttemptResult) -> Result<(), Error> {
        let reason = match attempt {
            AttemptResult::Synced(_) => return Ok(()),
            AttemptResult::Deleted => "the repository was deleted".to_owned(),
            AttemptResult::Obsolete(Obsolete::Generation(generation)) => {
                format!("generation {generation} was synced already")
            }
            AttemptResult::Obsolete(Obsolete::Other(uid)) => {
                format!("the charts belong to the repository with UID {uid}")
            }
        };
        output::print(&format!("{}: nothing to do: {}\n", self.name, printable(&reason)))
    }

    fn report(&self, result: &SyncResult) -> Result<(), Error> {
        let change = match &result.outcome {
            SyncOutcome::NotModified => "not modified",
            SyncOutcome::Synced { .. } => "synced",
            SyncOutcome::Failed(error) | SyncOutcome::Interrupted(error) => {
                return Err(Error::Failed(format!(
                    "failed to sync {}: {}: {}{}",
                    self.name,
                    error.reason,
                    error.message,
                    confirmation(&result.record, &error.reason)
                )));
            }
        };
        let message = printable(&result.record.state.message);
        output::print(&format!("{}: {change}. {message}\n", self.name))
    }
}

enum AttemptResult {
    Synced(Box<Synced>),
    Deleted,
    Obsolete(Obsolete),
}

/// A synced repository and the importer of its chart files.
struct Synced {
    result: SyncResult,
    spec: RepositorySpec,
    importer: Importer,
}

impl Synced {
    async fn import(self) -> Result<(), Error> {
        let mut worklist = Worklist::default();
        let (name, uid) = (&self.spec.name, &self.result.record.uid);
        self.importer.skip_files(name, uid, &ChangedCharts::ALL).await?;
        loop {
            let batch = self.importer.import_batch(&self.spec, uid, &mut worklist).await?;
            if let Some(message) = worklist.take_warning() {
                tracing::warn!(reason = "DigestMismatch", "{message}");
            }
            match batch {
                BatchOutcome::More => {}
                BatchOutcome::QuotaExceeded(message) => return Err(Error::Failed(message)),
                BatchOutcome::Deferred(_) | BatchOutcome::Done(_) => return Ok(()),
            }
        }
    }
}

/// Returns true if another process changed the repository or the tables during the sync, or holds a lock on them.
fn is_conflict(error: &SyncAborted) -> bool {
    matches!(error, SyncAborted::Catalog(error) if error.is_conflict())
}

/// Repeats the sync of a registry that has more charts than one sync pulls.
async fn sync_completely(syncer: &Syncer, mut request: SyncRequest) -> Result<SyncResult, SyncAborted> {
    loop {
        let result = syncer
            .sync(request.clone(), running_syncs::SyncAttempt::default())
            .await?;
        let SyncOutcome::Synced { is_complete: false, .. } = result.outcome else {
            return Ok(result);
        };
        request.expected_uid = Some(result.record.uid);
        // The stored record has the current revision.
        request.previous = syncer.record(&request.spec.name).await?;
        request.mode = SyncMode::Conditional;
    }
}

/// Returns the flag that accepts a refused index. The message names only the annotation of an AppRepository.
fn confirmation(record: &Record, reason: &str) -> String {
    let refused = record.refused.as_ref().filter(|refused| refused.reason == reason);
    let confirm = refused.and_then(|refused| refused.confirm.as_deref());
    confirm.map_or_else(String::new, |digest| {
        format!("; with this command, use --allow-shrink={digest}")
    })
}

/// Keeps the stored identity, so that the controller of a declared repository finds nothing changed.
fn inherit_identity(spec: &mut RepositorySpec, record: &Record) {
    spec.uid.clone_from(&record.uid);
    spec.generation = Some(record.generation);
    if let Some(spec_hash) = &record.spec_hash {
        spec.spec_hash.clone_from(spec_hash);
    }
    spec.requests = Requests {
        resync_requests: record.handled.resync_requests.unwrap_or_default(),
        requested_at: record.handled.requested_at.clone(),
        flux_requested_at: record.handled.flux_requested_at.clone(),
        poll_at: record.poll.at.clone(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_shot_sync_keeps_the_identity_of_a_declared_repository() {
        let record = Record {
            uid: "uid".to_owned(),
            generation: 7,
            spec_hash: Some("hash".to_owned()),
            ..Record::default()
        };
        let intervals = Intervals::default();
        let defaults = Defaults {
            crontab: intervals.parse(CRONTAB).unwrap(),
            intervals,
            min_interval: Duration::ZERO,
            index_max_bytes: 1,
            proxy_namespaces: ProxyNamespaces::All,
            news_sinks: None,
        };
        let arguments = OneShot {
            url: "https://charts.example".to_owned(),
            ..OneShot::default()
        };
        let mut spec = RepositorySpec::one_shot(record.name.clone(), arguments, &defaults);
        inherit_identity(&mut spec, &record);
        assert_eq!(
            (spec.uid.as_str(), spec.generation, spec.spec_hash.as_str()),
            ("uid", Some(7), "hash")
        );
        assert_eq!(spec.requests, Requests::default());
    }
}
