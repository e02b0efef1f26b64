//! `portolan run`: runs the controllers.

#[cfg(test)]
mod schedule_tests;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;

use super::deprecated_flags::ObsoleteFlags;
use super::flags::{ClusterFlags, ContentFlags, DatabaseFlags, FetchFlags, LogFlags};
use super::parse::{boolean, duration, seconds};
use super::{Failure, cluster, count, database, progress, sync_context};
use crate::api::NamespacedName;
use crate::controllers::apprepository::running_syncs::RunningSyncs;
use crate::controllers::apprepository::spec::Defaults;
use crate::controllers::{application, apprepository};
use crate::manager::{self, DatabaseOptions, Options, PasswordSecret, SourceOptions, shutdown};
use crate::runtime::cron::Intervals;
use crate::server::ListenAddress;

/// The default Secret of a database that is set by Kubeapps' flags.
const KUBEAPPS_SECRET: &str = "kubeapps-db";

/// Run the controllers
///
/// The first SIGTERM or SIGINT ends the process within --drain-timeout, a second one immediately.
#[derive(Args, Debug)]
pub struct Run {
    /// Run these controllers: apprepository syncs chart repositories, application reports the readiness of Applications of
    /// app.k8s.io. With --manifests or --once only apprepository runs
    #[arg(
        long,
        env = "PORTOLAN_CONTROLLERS",
        value_name = "NAME",
        value_enum,
        value_delimiter = ',',
        default_value = "apprepository,application"
    )]
    pub controllers: Vec<ControllerName>,
    /// Watch a folder of YAML manifests instead of a cluster
    #[arg(long, env = "PORTOLAN_MANIFESTS", value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Watch this namespace only; all are watched without it
    #[arg(long, env = "PORTOLAN_WATCH_NAMESPACE", value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Kubeapps' namespace, with its copies of Secrets, its CronJobs and the Secret of the database. Without it that of the pod, and
    /// `kubeapps` outside of a pod
    #[arg(long, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Whether the AppRepositories of all namespaces are watched; false watches those of --namespace only
    #[arg(long, env = "PORTOLAN_REPOS_PER_NAMESPACE", default_value_t = true)]
    pub repos_per_namespace: bool,
    /// The namespace whose charts Kubeapps shows in every other. Charts are kept under the namespace of their AppRepository whatever
    /// it is: accepted so that the arguments of Kubeapps' controller fit
    #[arg(
        long,
        env = "PORTOLAN_GLOBAL_REPOS_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "kubeapps"
    )]
    pub global_repos_namespace: String,
    #[command(flatten)]
    pub cluster: ClusterFlags,

    #[command(flatten)]
    pub database: DatabaseFlags,
    /// The Secret in --namespace that holds the password of Postgres, read through the API server when DB_PASSWORD is not set. Without
    /// it `kubeapps-db` for a --database-url of the form HOST:PORT, and none for other forms
    #[arg(
        long,
        env = "PORTOLAN_DATABASE_SECRET_NAME",
        value_name = "NAME",
        help_heading = "Database"
    )]
    pub database_secret_name: Option<String>,
    /// The key of the password in that Secret
    #[arg(
        long,
        env = "PORTOLAN_DATABASE_SECRET_KEY",
        value_name = "KEY",
        default_value = "postgresql-root-password",
        help_heading = "Database"
    )]
    pub database_secret_key: String,

    /// When repositories are synced that declare no interval: a cron expression in UTC, or a length of time such as 10m
    #[arg(
        long,
        env = "PORTOLAN_CRONTAB",
        value_name = "CRON",
        default_value = "*/10 * * * *",
        help_heading = "Syncing"
    )]
    pub crontab: String,
    /// The shortest interval that a repository may declare; one that declares a shorter one is synced by --crontab
    #[arg(long, env = "PORTOLAN_MIN_INTERVAL", value_name = "DURATION", default_value = "60s", value_parser = duration, help_heading = "Syncing")]
    pub min_interval: Duration,
    /// How many repositories are synced at the same time
    #[arg(
        long,
        env = "PORTOLAN_SYNC_WORKERS",
        value_name = "N",
        default_value = "8",
        help_heading = "Syncing"
    )]
    pub sync_workers: NonZeroU32,
    /// How many retries and requeues a second are let through, all repositories together
    #[arg(
        long,
        env = "PORTOLAN_QUEUE_RATE",
        value_name = "N",
        default_value = "10",
        help_heading = "Syncing"
    )]
    pub queue_rate: NonZeroU32,
    /// How many retries and requeues are let through in a burst, above the rate
    #[arg(
        long,
        env = "PORTOLAN_QUEUE_BURST",
        value_name = "N",
        default_value = "100",
        help_heading = "Syncing"
    )]
    pub queue_burst: NonZeroU32,
    /// Sync all that is declared once, and exit: with 1 if any of it failed. No port is listened on
    #[arg(long, env = "PORTOLAN_ONCE", help_heading = "Syncing")]
    pub once: bool,
    /// Let the charts of undeclared repositories be removed although they are more than half of all: for the first comparison after
    /// the start only
    #[arg(long, env = "PORTOLAN_CONFIRM_REMOVALS", help_heading = "Syncing")]
    pub confirm_removals: bool,

    #[command(flatten)]
    pub content: ContentFlags,
    /// How many repositories have their chart files imported at the same time
    #[arg(
        long,
        env = "PORTOLAN_FILES_WORKERS",
        value_name = "N",
        default_value = "4",
        help_heading = "Content"
    )]
    pub files_workers: NonZeroU32,
    /// Sync repositories as soon as a Secret changes that they name. It takes the right to list and watch Secrets; without it a new
    /// password counts from the next sync on
    #[arg(long, env = "PORTOLAN_WATCH_SECRETS", help_heading = "Syncing")]
    pub watch_secrets: bool,
    /// Remove the CronJobs by which Kubeapps has synced a repository, once it was synced from here. They are in --namespace
    #[arg(long, env = "PORTOLAN_ADOPT_KUBEAPPS", help_heading = "Kubeapps")]
    pub adopt_kubeapps: bool,

    /// Reconcile at most N Applications concurrently
    #[arg(
        long,
        env = "PORTOLAN_APPLICATION_WORKERS",
        value_name = "N",
        default_value = "4",
        help_heading = "Applications"
    )]
    pub application_workers: NonZeroU32,
    /// Polling interval for component kinds that cannot be watched, in seconds or as 2m
    #[arg(long, env = "PORTOLAN_SYNC_PERIOD", value_name = "DURATION", default_value = "120", value_parser = seconds,
          help_heading = "Applications")]
    pub sync_period: Duration,
    /// Deprecated: see --controllers
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub applications: Option<bool>,

    #[command(flatten)]
    pub fetch: FetchFlags,
    /// A folder besides --manifests from which `file:` URLs may read; may be given more than once. Only with --manifests
    #[arg(
        long,
        env = "PORTOLAN_ALLOW_FILE_ROOT",
        value_name = "DIR",
        value_delimiter = ',',
        help_heading = "Fetching",
        requires = "manifests"
    )]
    pub allow_file_root: Vec<PathBuf>,

    /// Where health (/livez, /readyz) and metrics (/metrics) are served: HOST:PORT, or :PORT for all interfaces
    #[arg(
        long,
        env = "PORTOLAN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        help_heading = "Service"
    )]
    pub listen: ListenAddress,
    /// The same as --listen, under the name that it has for kubernetes-sigs/application's controller; it comes before --listen
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pub metrics_addr: Option<ListenAddress>,
    /// How long syncs under way may take to end when the process is asked to; what is not done then is given up, and nothing of it written
    #[arg(long, env = "PORTOLAN_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = duration, help_heading = "Service")]
    pub drain_timeout: Duration,
    /// Work only while the Lease `portolan` is held, so that of several processes one works and the others take over when it ends. It is in
    /// the namespace of the pod, and in --namespace outside of one
    #[arg(long, env = "PORTOLAN_ENABLE_LEADER_ELECTION", help_heading = "Service")]
    pub enable_leader_election: bool,
    #[command(flatten)]
    pub logging: LogFlags,
    #[command(flatten)]
    pub obsolete: ObsoleteFlags,
}

/// A controller, as `--controllers` names it.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// Syncs chart repositories.
    #[value(name = apprepository::NAME)]
    AppRepository,
    /// Reports the readiness of Applications.
    #[value(name = application::NAME)]
    Application,
}

impl Run {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.obsolete.warn();
        if self.applications.is_some() {
            tracing::warn!("--applications is deprecated, use --controllers=apprepository to disable Applications");
        }
        let options = self.options()?;
        let shutdown =
            shutdown::on_signal().map_err(|error| Failure::failed(format!("signals can't be listened to: {error}")))?;
        let running = options.apprepository.as_ref().map(|options| options.running.names());
        let line = running.map(|names| tokio::spawn(progress::follow(names)));
        let result = if self.once {
            manager::once::run(&options, shutdown).await
        } else {
            manager::run(&options, shutdown).await
        };
        if let Some(line) = line {
            line.abort();
            let _ = line.await;
        }
        result.map_err(|error| Failure::failed(error.to_string()))
    }

    /// Returns the options of the manager.
    ///
    /// # Errors
    /// Invalid usage: flags contradict each other, or a value is invalid.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let source = match &self.manifests {
            Some(directory) => SourceOptions::Directory(directory.clone()),
            None => SourceOptions::Cluster(cluster::connect_options(&self.cluster)?),
        };
        if self.enable_leader_election && self.manifests.is_some() {
            return Err(Failure::usage(
                "--enable-leader-election needs an API server, and --manifests has none: leave one of them out",
            ));
        }
        let runs = |name| self.controllers.contains(&name);
        let apprepository = runs(ControllerName::AppRepository).then(|| self.apprepository());
        let has_applications = runs(ControllerName::Application) && self.applications != Some(false);
        let can_run_applications = self.manifests.is_none() && !self.once;
        if apprepository.is_none() && !(has_applications && can_run_applications) {
            return Err(Failure::usage(
                "no controller to run: --manifests and --once need --controllers=apprepository",
            ));
        }
        let application = (has_applications && can_run_applications).then(|| application::Options {
            workers: count(self.application_workers),
            sync_period: self.sync_period,
            namespace: cluster::given(self.watch_namespace.as_deref()).map(str::to_owned),
        });
        let namespace = self.namespace.as_deref();
        Ok(Options {
            source,
            apprepository: apprepository.transpose()?,
            application,
            database: self.database()?,
            queue_rate: self.queue_rate,
            queue_burst: self.queue_burst,
            listen: self.metrics_addr.as_ref().unwrap_or(&self.listen).clone(),
            drain_timeout: self.drain_timeout,
            lease_namespace: self.enable_leader_election.then(|| cluster::pod_namespace(namespace)),
        })
    }

    fn apprepository(&self) -> Result<apprepository::Options, Failure> {
        let intervals = Intervals::default();
        let crontab = intervals
            .parse(&self.crontab)
            .map_err(|error| Failure::usage(format!("--crontab can't be used: {error}")))?;
        let own_namespace = cluster::own_namespace(self.namespace.as_deref());
        let watched = cluster::given(self.watch_namespace.as_deref()).map(str::to_owned);
        Ok(apprepository::Options {
            workers: count(self.sync_workers),
            files_workers: count(self.files_workers),
            namespace: watched.or_else(|| (!self.repos_per_namespace).then(|| own_namespace.clone())),
            kubeapps_namespace: own_namespace,
            defaults: Defaults {
                crontab,
                intervals,
                min_interval: self.min_interval,
                index_max_bytes: self.fetch.index_max_bytes,
            },
            sync: sync_context::options(&self.fetch, &self.content)?,
            chart_files: self.content.settings(),
            import_after_sync: self.content.imports() && !self.once,
            allowed_directories: self.allow_file_root.clone(),
            confirm_removals: self.confirm_removals,
            watch_secrets: self.watch_secrets,
            adopt_kubeapps: self.adopt_kubeapps,
            running: RunningSyncs::default(),
        })
    }

    fn database(&self) -> Result<DatabaseOptions, Failure> {
        let password = database::password_of_environment();
        let needs_password = password.is_none() && self.manifests.is_none();
        let mut options = database::options(&self.database, password);
        options
            .settings(None)
            .map_err(|error| Failure::usage(error.to_string()))?;
        if needs_password && !options.is_sqlite() {
            options.password_secret = self.password_secret();
        }
        Ok(options)
    }

    /// Returns the Secret with the password of Postgres. A URL may hold a password itself, or need none; Kubeapps' `HOST:PORT` has
    /// a default Secret.
    fn password_secret(&self) -> Option<PasswordSecret> {
        let has_scheme = self.database.database_url.reveal().contains("://");
        let default = (!has_scheme).then_some(KUBEAPPS_SECRET);
        let name = cluster::given(self.database_secret_name.as_deref()).or(default)?;
        let namespace = cluster::own_namespace(self.namespace.as_deref());
        Some(PasswordSecret {
            name: NamespacedName::new(&namespace, name),
            key: self.database_secret_key.clone(),
        })
    }
}
