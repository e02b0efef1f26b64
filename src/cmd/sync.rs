//! `portolan sync`: one repository, once.

use std::{path::PathBuf, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use clap::Args;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::deprecated_flags::ObsoleteFlags;
use super::flags::{ContentFlags, DatabaseFlags, FetchFlags, LogFlags};
use super::parse::CommaSeparated;
use super::{Failure, database, env_credentials as given, output, sync_context as fetching};
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog, Record};
use crate::controllers::apprepository::chart_files::{Batch, Importer, Worklist};
use crate::controllers::apprepository::decision::{Decision, Mode, decide};
use crate::controllers::apprepository::metrics::Metrics;
use crate::controllers::apprepository::origin::ONE_SHOT;
use crate::controllers::apprepository::secrets::source::CredentialSource;
use crate::controllers::apprepository::spec::{Defaults, Kind, OneShot, RepositoryAccess, RepositorySpec, Requests};
use crate::controllers::apprepository::sync::Syncer;
use crate::controllers::apprepository::sync::location::FileAccess;
use crate::controllers::apprepository::sync::request::{SyncAborted, SyncOutcome, SyncRequest, SyncResult};
use crate::manager::shutdown;
use crate::runtime::cron::Intervals;
use crate::text::printable;

/// A declaration has a schedule; that of a one-shot sync is never asked.
const CRONTAB: &str = "@daily";

/// Delays between attempts that another process interferes with: six attempts within a few seconds.
const CONFLICT_BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_times(5)
    .with_jitter();

/// What the commands about one repository have in common.
#[derive(Args, Debug)]
pub struct OneShotFlags {
    /// The namespace of the repository, under which its charts are kept
    #[arg(
        long,
        short,
        env = "PORTOLAN_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "default"
    )]
    pub namespace: String,
    /// The namespace whose charts Kubeapps shows in every other. Charts are kept under --namespace whatever it is: accepted so that
    /// the arguments of Kubeapps' syncer fit
    #[arg(
        long,
        env = "PORTOLAN_GLOBAL_REPOS_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "kubeapps"
    )]
    pub global_repos_namespace: String,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
    #[command(flatten)]
    pub obsolete: ObsoleteFlags,
}

/// Sync one repository into the catalogue, once: its charts, and then their files.
///
/// Takes the arguments and the environment of Kubeapps' asset-syncer: DB_PASSWORD, and the credentials of the repository in
/// AUTHORIZATION_HEADER or DOCKER_CONFIG_JSON. With SQLite it can't run beside `portolan run`,
/// with Postgres it can.
#[derive(Args, Debug)]
pub struct Sync {
    /// The name of the repository
    pub name: String,
    /// Where it is: http(s)://… or, of type oci, oci://… as well
    pub url: String,
    /// Its type: helm, or oci
    #[arg(value_name = "TYPE")]
    pub kind: String,
    /// The OCI repositories below the URL, separated by commas; those that the registry lists, without it
    #[arg(
        long,
        env = "PORTOLAN_OCI_REPOSITORIES",
        value_name = "NAMES",
        help_heading = "Repository"
    )]
    pub oci_repositories: Vec<CommaSeparated>,
    /// Accept an index that has become much smaller or empty: the digest that the refusal names
    #[arg(
        long,
        env = "PORTOLAN_ALLOW_SHRINK",
        value_name = "DIGEST",
        help_heading = "Repository"
    )]
    pub allow_shrink: Option<String>,
    /// Only charts that this jq filter keeps, as JSON {"jq": "…", "variables": {"$name": "…"}}
    #[arg(
        long,
        env = "PORTOLAN_FILTER_RULES",
        value_name = "JSON",
        default_value = "",
        help_heading = "Repository"
    )]
    pub filter_rules: String,
    /// Send the credentials to other hosts too, where archives and icons may lie
    #[arg(long, env = "PORTOLAN_PASS_CREDENTIALS", help_heading = "Repository")]
    pub pass_credentials: bool,
    /// Trust any certificate
    #[arg(long, env = "PORTOLAN_TLS_INSECURE_SKIP_VERIFY", help_heading = "Repository")]
    pub tls_insecure_skip_verify: bool,
    /// Certificates in PEM of authorities that are trusted beside the system's. Without it the file that Kubeapps' controller mounts, if
    /// it is there: /usr/local/share/ca-certificates/ca.crt
    #[arg(long, env = "PORTOLAN_CA_FILE", value_name = "FILE", help_heading = "Repository")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub content: ContentFlags,
    #[command(flatten)]
    pub one_shot: OneShotFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
}

impl Sync {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        // What can't be used is told before anything is touched.
        let given = self.given()?;
        let keys = CredentialSource::Static(given::credentials(self.ca_file.as_deref())?);
        let shutdown =
            shutdown::on_signal().map_err(|error| Failure::failed(format!("signals can't be listened to: {error}")))?;
        let (catalog, _lock) = database::open_to_write(&self.one_shot.database).await?;
        // What is dropped on the way has written nothing: a transaction under way is rolled back.
        let synced = shutdown.run_until_cancelled(self.sync(&catalog, given, keys)).await;
        let done = match synced {
            None => Err(Failure::failed(
                "ended by a signal before the repository was synced; nothing was written",
            )),
            Some(Err(failure)) => Err(failure),
            Some(Ok(synced)) => match self.tell(&synced.finished) {
                Err(failure) => Err(failure),
                Ok(()) => shutdown.run_until_cancelled(synced.import()).await.unwrap_or_else(|| {
                    Err(Failure::failed(
                        "ended by a signal before all chart files were imported; what is missing is imported the next time",
                    ))
                }),
            },
        };
        catalog.close().await;
        done
    }

    /// Syncs the repository, and begins again while another process writes its record between the read and the commit.
    async fn sync(&self, catalog: &Catalog, given: OneShot, keys: CredentialSource) -> Result<Synced, Failure> {
        let mut delays = CONFLICT_BACKOFF.build();
        loop {
            match self.attempt(catalog, given.clone(), keys.clone()).await? {
                Ok(synced) => return Ok(synced),
                Err(SyncAborted::Catalog(error))
                    if is_conflict(&error)
                        && let Some(delay) = delays.next() =>
                {
                    tracing::info!(%error, retry_in = ?delay, "repository changed during the sync, retrying");
                    tokio::time::sleep(delay).await;
                }
                Err(error) => return Err(Failure::failed(error.to_string())),
            }
        }
    }

    async fn attempt(
        &self,
        catalog: &Catalog,
        given: OneShot,
        keys: CredentialSource,
    ) -> Result<Result<Synced, SyncAborted>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
        let name = NamespacedName {
            namespace: self.one_shot.namespace.clone(),
            name: self.name.clone(),
        };
        let record = catalog.record(&name).await.map_err(|error| failed(&error))?;
        let intervals = Intervals::default();
        let defaults = Defaults {
            crontab: intervals.parse(CRONTAB).map_err(|error| failed(&error))?,
            intervals,
            min_interval: Duration::ZERO,
            index_max_bytes: fetching::limits(&self.fetch).max_bytes,
        };
        let mut declaration = RepositorySpec::one_shot(name, given, &defaults);
        let (previous, origin) = match record {
            Some(record) if record.url == declaration.url && record.kind == declaration.kind.as_str() => {
                speak_for(&mut declaration, &record);
                let origin = record.origin.clone();
                (Some(record), origin)
            }
            Some(record) => {
                tracing::info!(namespace = %record.name.namespace, name = %record.name.name,
                    "removing charts of a previous repository with the same name");
                catalog
                    .remove(&record.name, Some(&record.uid))
                    .await
                    .map_err(|error| failed(&error))?;
                (None, ONE_SHOT.to_owned())
            }
            None => (None, ONE_SHOT.to_owned()),
        };
        let now = Timestamp::now();
        let mode = match decide(&declaration, previous.as_ref(), now) {
            Decision::Sync(mode) => mode,
            _ => Mode::Conditional,
        };
        let expected_uid = previous.as_ref().map(|record| record.uid.clone());
        let request = SyncRequest {
            spec: declaration.clone(),
            previous,
            expected_uid,
            mode,
            started: now,
            fresh_since: now,
        };
        let tools =
            fetching::options(&self.fetch, &self.content)?.context(catalog.clone(), keys, FileAccess::Never, origin);
        let metrics = Metrics::register(&mut Registry::default());
        let syncer = Syncer::new(tools.clone(), metrics.clone());
        Ok(sync_all(&syncer, request).await.map(|finished| Synced {
            importer: Importer::new(tools, self.content.settings(), metrics),
            declaration,
            finished,
        }))
    }

    /// Tells how the sync has ended.
    fn tell(&self, finished: &SyncResult) -> Result<(), Failure> {
        match &finished.outcome {
            SyncOutcome::NotModified => output::print(&format!(
                "{}: not modified. {}\n",
                self.name,
                printable(&finished.record.state.message)
            )),
            SyncOutcome::Synced { .. } => output::print(&format!(
                "{}: synced. {}\n",
                self.name,
                printable(&finished.record.state.message)
            )),
            SyncOutcome::Failed(failure) | SyncOutcome::Interrupted(failure) => Err(Failure::failed(format!(
                "{}: {}: {}{}",
                self.name,
                failure.reason,
                failure.message,
                confirmation(&finished.record, &failure.reason)
            ))),
        }
    }

    /// What the arguments say of the repository.
    fn given(&self) -> Result<OneShot, Failure> {
        Ok(OneShot {
            url: self.url.clone(),
            kind: if self.kind == Kind::Helm.as_str() {
                Kind::Helm
            } else {
                Kind::Oci
            },
            oci_repositories: (self.oci_repositories.iter())
                .flat_map(|names| names.0.iter().cloned())
                .filter(|name| !name.is_empty())
                .collect(),
            filter: given::filter(&self.filter_rules)?,
            access: RepositoryAccess {
                insecure: self.tls_insecure_skip_verify,
                pass_credentials: self.pass_credentials,
                ..RepositoryAccess::default()
            },
            allow_shrink: self.allow_shrink.clone(),
        })
    }
}

/// A repository that was synced, and whose files are to be imported.
struct Synced {
    finished: SyncResult,
    declaration: RepositorySpec,
    importer: Importer,
}

impl Synced {
    /// Imports what can be had now.
    async fn import(self) -> Result<(), Failure> {
        let mut worklist = Worklist::default();
        let uid = &self.finished.record.uid;
        loop {
            let turn = self.importer.import_batch(&self.declaration, uid, &mut worklist).await;
            if turn.map_err(|error| Failure::failed(error.to_string()))? != Batch::More {
                return Ok(());
            }
        }
    }
}

/// Returns true if another process changed the repository or the tables during the sync.
const fn is_conflict(error: &catalog::Error) -> bool {
    matches!(error, catalog::Error::Superseded { .. } | catalog::Error::TablesRebuilt)
}

/// Syncs until nothing is left that one sync can't take.
async fn sync_all(syncer: &Syncer, mut request: SyncRequest) -> Result<SyncResult, SyncAborted> {
    loop {
        let finished = syncer.sync(request.clone(), CancellationToken::new()).await?;
        let SyncOutcome::Synced { is_complete: false, .. } = finished.outcome else {
            return Ok(finished);
        };
        request.expected_uid = Some(finished.record.uid.clone());
        // The record as it is stored counts its writes.
        request.previous = syncer.record(&request.spec.name).await?;
        request.mode = Mode::Conditional;
    }
}

/// How what was refused is let through by this command: the message itself names the annotation of an object, and here may be none.
fn confirmation(record: &Record, reason: &str) -> String {
    let refused = record.refused.as_ref().filter(|refused| refused.reason == reason);
    let confirm = refused.and_then(|refused| refused.confirm.as_deref());
    confirm.map_or_else(String::new, |digest| {
        format!(" (with this command: --allow-shrink={digest})")
    })
}

/// Lets the sync of a repository that is known already leave it whose it is: an object that declares it finds its charts current, its
/// requests as it left them, and nothing to do.
fn speak_for(declaration: &mut RepositorySpec, record: &Record) {
    declaration.uid.clone_from(&record.uid);
    declaration.generation = Some(record.generation);
    if let Some(spec_hash) = &record.spec_hash {
        declaration.spec_hash.clone_from(spec_hash);
    }
    declaration.requests = Requests {
        resync_requests: record.handled.resync_requests.unwrap_or_default(),
        requested_at: record.handled.requested_at.clone(),
        flux_requested_at: record.handled.flux_requested_at.clone(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_by_hand_leaves_a_declared_repository_whose_it_is() {
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
        };
        let given = OneShot {
            url: "https://charts.example".to_owned(),
            ..OneShot::default()
        };
        let mut declaration = RepositorySpec::one_shot(record.name.clone(), given, &defaults);
        speak_for(&mut declaration, &record);
        assert_eq!(
            (
                declaration.uid.as_str(),
                declaration.generation,
                declaration.spec_hash.as_str()
            ),
            ("uid", Some(7), "hash")
        );
        assert_eq!(declaration.requests, Requests::default());
    }
}
