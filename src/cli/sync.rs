//! `portolan sync`: one repository, once.

use std::time::Duration;

use clap::{ArgAction, Args};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::{
    Failure, database, fetching,
    flags::{DatabaseFlags, FetchFlags, LogFlags},
    obsolete::ObsoleteFlags,
    output, shutdown,
    values::{CommaSeparated, boolean},
};
use crate::{
    catalog::{Catalog, Record, RepositoryName},
    repository::{
        decide::{Decision, Mode, decide},
        declaration::{Declaration, Defaults, Kind, Requests},
        execute::{Attempt, Execute, Verdict},
        in_process::{InProcess, Tools},
        locate::FileAccess,
        metrics::Metrics,
        origin::ONE_SHOT,
    },
    schedule,
    source::index::DecodeLimits,
    text::printable,
};

/// What Kubeapps' controller hands to its syncer when a repository needs credentials.
const SECRETS: [&str; 2] = ["AUTHORIZATION_HEADER", "DOCKER_CONFIG_JSON"];
/// A declaration has a schedule; that of a one-shot sync is never asked.
const CRONTAB: &str = "@daily";

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

/// Sync one Helm repository into the catalogue, once.
///
/// Takes the arguments and the environment (DB_PASSWORD) of Kubeapps' asset-syncer. With SQLite it can't run beside `portolan run`,
/// with Postgres it can.
#[derive(Args, Debug)]
pub struct Sync {
    /// The name of the repository
    pub name: String,
    /// Where it is: http(s)://…
    pub url: String,
    /// Its type: helm
    #[arg(value_name = "TYPE")]
    pub kind: String,
    /// The OCI repositories below the URL, separated by commas. OCI is not supported yet
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
    /// Only charts that this jq filter keeps, as JSON {"jq": "…", "variables": {…}}. Not supported yet: a filter is refused rather than ignored
    #[arg(
        long,
        env = "PORTOLAN_FILTER_RULES",
        value_name = "JSON",
        default_value = "",
        help_heading = "Repository"
    )]
    pub filter_rules: String,
    /// Send credentials to other hosts too. Credentials are not supported yet
    #[arg(long, env = "PORTOLAN_PASS_CREDENTIALS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = ArgAction::Set, value_parser = boolean, help_heading = "Repository")]
    pub pass_credentials: bool,
    /// Trust any certificate. Not supported yet: certificates are verified, and one that is not trusted fails the sync
    #[arg(long, env = "PORTOLAN_TLS_INSECURE_SKIP_VERIFY", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", default_value_t = false, action = ArgAction::Set, value_parser = boolean, help_heading = "Repository")]
    pub tls_insecure_skip_verify: bool,
    #[command(flatten)]
    pub one_shot: OneShotFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
}

impl Sync {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        let secrets = SECRETS
            .into_iter()
            .find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        self.refuse_unsupported(secrets)?;
        let shutdown = shutdown::on_signal()?;
        let (catalog, _lock) = database::open_to_write(&self.one_shot.database).await?;
        // What is dropped on the way has written nothing: a transaction under way is rolled back.
        let synced = shutdown.run_until_cancelled(self.sync(&catalog)).await;
        catalog.close().await;
        synced.unwrap_or_else(|| {
            Err(Failure::failed(
                "ended by a signal before the repository was synced; nothing was written",
            ))
        })
    }

    /// What can't be honoured yet is refused before anything is touched: to ignore it would publish what was meant to be hidden, or fail
    /// in ways that are hard to tell.
    fn refuse_unsupported(&self, secret: Option<&str>) -> Result<(), Failure> {
        let what = if self.kind != Kind::Helm.as_str() {
            format!("type {} (only helm is)", self.kind)
        } else if !self.filter_rules.trim().is_empty() {
            "--filter-rules".to_owned()
        } else if let Some(secret) = secret {
            format!("a repository with credentials ({secret})")
        } else {
            if self.tls_insecure_skip_verify {
                tracing::warn!("--tls-insecure-skip-verify is not supported yet: the certificate is verified");
            }
            return Ok(());
        };
        Err(Failure::failed(format!(
            "{what} is not supported yet; the charts of {} stay as they are",
            self.name
        )))
    }

    async fn sync(&self, catalog: &Catalog) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
        let name = RepositoryName {
            namespace: self.one_shot.namespace.clone(),
            name: self.name.clone(),
        };
        let record = catalog.record(&name).await.map_err(|error| failed(&error))?;
        let defaults = Defaults {
            crontab: schedule::parse(CRONTAB).map_err(|error| failed(&error))?,
            min_interval: Duration::ZERO,
            index_max_bytes: fetching::limits(&self.fetch).max_bytes,
        };
        let mut declaration = Declaration::one_shot(name, &self.url, Kind::Helm, self.allow_shrink.clone(), &defaults);
        let (previous, origin) = match record {
            Some(record) if record.url == declaration.url && record.kind == declaration.kind.as_str() => {
                speak_for(&mut declaration, &record);
                let origin = record.origin.clone();
                (Some(record), origin)
            }
            Some(record) => {
                tracing::info!(repository = %record.name, "removing the charts of the repository that had this name before");
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
        let attempt = Attempt {
            declaration,
            previous,
            expected_uid,
            mode,
            started: now,
        };
        let executor = InProcess::new(
            self.tools(catalog, origin)?,
            Metrics::register(&mut Registry::default()),
        );
        let finished = executor
            .attempt(attempt, CancellationToken::new())
            .await
            .map_err(|error| failed(&error))?;
        match finished.verdict {
            Verdict::NotModified => output::print(&format!(
                "{}: not modified. {}\n",
                self.name,
                printable(&finished.record.state.message)
            )),
            Verdict::Synced { .. } => output::print(&format!(
                "{}: synced. {}\n",
                self.name,
                printable(&finished.record.state.message)
            )),
            Verdict::Failed(failure) => Err(Failure::failed(format!(
                "{}: {}: {}{}",
                self.name,
                failure.reason,
                failure.message,
                confirmation(&finished.record, &failure.reason)
            ))),
        }
    }

    fn tools(&self, catalog: &Catalog, origin: String) -> Result<Tools, Failure> {
        Ok(Tools {
            catalog: catalog.clone(),
            fetcher: fetching::fetcher(&self.fetch)?,
            fetch_limits: fetching::limits(&self.fetch),
            decode_limits: DecodeLimits::default(),
            spool_dir: self.fetch.spool_dir.clone(),
            files: FileAccess::Never,
            origin,
        })
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
fn speak_for(declaration: &mut Declaration, record: &Record) {
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        sync: Sync,
    }

    fn refusal(arguments: &[&str], secret: Option<&str>) -> Option<Failure> {
        let arguments = ["test"].iter().chain(arguments);
        Test::try_parse_from(arguments)
            .unwrap()
            .sync
            .refuse_unsupported(secret)
            .err()
    }

    #[test]
    fn what_is_not_supported_yet_is_refused_and_named() {
        let helm = ["bitnami", "https://charts.example", "helm"];
        for (arguments, secret, named) in [
            (&["bitnami", "oci://charts.example", "oci"][..], None, "type oci"),
            (
                &[&helm[..], &["--filter-rules={\"jq\":\".name\"}"]].concat(),
                None,
                "--filter-rules",
            ),
            (
                &[&helm[..], &["--pass-credentials"]].concat(),
                Some("DOCKER_CONFIG_JSON"),
                "DOCKER_CONFIG_JSON",
            ),
        ] {
            let refused = refusal(arguments, secret).unwrap();
            assert_eq!(refused.exit_code(), 1);
            assert!(
                refused.to_string().contains(named) && refused.to_string().contains("not supported yet"),
                "{refused}"
            );
        }
        assert_eq!(refusal(&helm, None), None);
    }

    #[test]
    fn a_sync_by_hand_leaves_a_declared_repository_whose_it_is() {
        let record = Record {
            uid: "uid".to_owned(),
            generation: 7,
            spec_hash: Some("hash".to_owned()),
            ..Record::default()
        };
        let defaults = Defaults {
            crontab: schedule::parse(CRONTAB).unwrap(),
            min_interval: Duration::ZERO,
            index_max_bytes: 1,
        };
        let mut declaration = Declaration::one_shot(
            record.name.clone(),
            "https://charts.example",
            Kind::Helm,
            None,
            &defaults,
        );
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
