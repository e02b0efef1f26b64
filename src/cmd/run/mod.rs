//! `portolan run`: the controller.

mod applications;
mod assembly;
mod catalogue;
mod leadership;
mod once;
mod patience;
mod service;
mod source;

#[cfg(test)]
mod schedule_tests;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;

use super::deprecated_flags::ObsoleteFlags;
use super::flags::{ClusterFlags, ContentFlags, DatabaseFlags, FetchFlags, LogFlags};
use super::parse::duration;
use super::{Failure, shutdown};
use crate::server::ListenAddress;

/// Keep the catalogue in step with the AppRepositories of a cluster, or of a folder of manifests.
///
/// The first SIGTERM or SIGINT ends it orderly within --drain-timeout, a second one at once.
#[derive(Args, Debug)]
pub struct Run {
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

    #[command(flatten)]
    pub applications: applications::ApplicationFlags,

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

impl Run {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.obsolete.warn();
        let shutdown = shutdown::on_signal()?;
        if self.once {
            once::run(&self, shutdown).await
        } else {
            service::run(&self, shutdown).await
        }
    }
}
