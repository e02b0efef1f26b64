mod jobs;
pub mod kubevela;
mod news;
mod options;
mod process;
mod serve;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;

use crate::cmd::flags::cluster::ClusterFlags;
use crate::cmd::flags::database::DatabaseFlags;
use crate::cmd::flags::deprecated::DeprecatedFlags;
use crate::cmd::flags::fetch::{ContentFlags, FetchFlags};
use crate::cmd::flags::jobs::JobFlags;
use crate::cmd::flags::leader::LeaderElectionFlags;
use crate::cmd::flags::parse::{boolean, duration, positive_duration, seconds};
use crate::cmd::flags::resources::ResourceFlags;
use crate::cmd::flags::serve::ServeFlags;
use crate::cmd::flags::traces::TraceFlags;
use crate::cmd::logging::{Logging, Traces};
use crate::cmd::output::progress;
use crate::cmd::reference::kubevela_help;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::application::kinds::ComponentKinds;
use crate::controllers::{application, apprepository, oam};
use crate::manager::{self, shutdown};
use crate::server::{ListenAddress, RESERVED_CONNECTIONS};
use kubevela::KubeVela;
use news::NewsFlags;

/// The flag that prints help. It has no environment variable, which would keep the controllers from running.
pub(super) const HELP_KUBEVELA: &str = "help_kubevela";

/// Run the controllers
///
/// The first SIGTERM or SIGINT ends the process within --drain-timeout, a second one immediately.
///
/// With oam in --controllers, all flags of KubeVela's vela-core are accepted with their defaults, and some of Portolan beside
/// them; --help-kubevela lists both. A flag that neither of both knows is then a warning, and so is one without effect that is
/// not at its default.
#[derive(Args, Debug)]
pub struct Run {
    /// Controllers to run; with --manifests or --once only apprepository runs
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        value_delimiter = ',',
        default_value = "apprepository,application"
    )]
    pub controllers: Vec<ControllerName>,
    /// Watch a directory of YAML manifests instead of a cluster
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Namespace to watch (default: all namespaces)
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Namespace of Kubeapps, with its copies of Secrets, its CronJobs and the Secret of the database (default: the
    /// namespace of the pod, or kubeapps outside of a pod)
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Kubeapps' namespace of global repositories, where only administrators write AppRepositories
    #[arg(long, value_name = "NAMESPACE")]
    pub global_repos_namespace: Option<String>,
    /// Watch the AppRepositories of all namespaces; if false, only those of --namespace
    #[arg(long, default_value_t = true)]
    pub repos_per_namespace: bool,
    /// Deprecated: see --controllers
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub applications: Option<bool>,
    /// Print the flags and feature gates of KubeVela's vela-core with their effect, and exit
    #[arg(long)]
    pub help_kubevela: bool,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// ID of this cluster, if several clusters with repositories of different names share one database
    #[arg(long, value_name = "ID", default_value = "", help_heading = "Cluster")]
    pub cluster_id: String,
    #[command(flatten)]
    pub api: ApiFlags,
    // Before the flags of syncs, which it reads: each group removes its own from the matches.
    #[command(flatten)]
    pub jobs: JobFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    /// Secret in --namespace with the password of Postgres, unless DB_PASSWORD is set (default: kubeapps-db if
    /// --database-url is HOST:PORT)
    #[arg(long, value_name = "NAME", help_heading = "Database")]
    pub database_secret_name: Option<String>,
    /// Key of the password in the Secret
    #[arg(
        long,
        value_name = "KEY",
        default_value = "postgresql-root-password",
        help_heading = "Database"
    )]
    pub database_secret_key: String,
    #[command(flatten)]
    pub syncing: SyncingFlags,
    #[command(flatten)]
    pub news: NewsFlags,
    #[command(flatten)]
    pub content: ContentFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
    #[command(flatten)]
    pub resources: ResourceFlags,
    /// Additional directory to which file: URLs can refer; can be repeated, requires --manifests
    #[arg(
        long,
        value_name = "DIR",
        value_delimiter = ',',
        help_heading = "Fetching",
        requires = "manifests"
    )]
    pub allow_file_root: Vec<PathBuf>,
    /// Use the proxies that AppRepositories of other namespaces than --namespace and --global-repos-namespace declare
    #[arg(long, help_heading = "Fetching")]
    pub allow_tenant_proxies: bool,
    /// Maximum number of concurrent reconciles of Applications
    #[arg(long, value_name = "N", default_value = "4", help_heading = "Applications")]
    pub application_workers: NonZeroU32,
    /// Kinds that may be components: +GROUP/KIND adds to the default list, * stands for all namespaced kinds, GROUP/KIND
    /// replaces the list; separated by commas (default: workloads, Services, Ingresses, ConfigMaps,
    /// PersistentVolumeClaims, HorizontalPodAutoscalers, PodDisruptionBudgets, Jobs and CronJobs)
    #[arg(long, value_name = "KINDS", help_heading = "Applications")]
    pub application_kinds: Option<ComponentKinds>,
    /// Polling interval for component kinds that cannot be watched, in seconds or as 2m
    #[arg(long, value_name = "DURATION", default_value = "120", value_parser = seconds, help_heading = "Applications")]
    pub sync_period: Duration,
    /// Address at which this process serves the catalog, as `portolan serve` does: HOST:PORT, or :PORT for all interfaces (default:
    /// none; with --manifests 127.0.0.1:8090, or another free port). Empty turns it off
    #[arg(long, value_name = "ADDRESS", help_heading = "Catalog")]
    pub serve: Option<String>,
    #[command(flatten)]
    pub catalog: ServeFlags,
    /// Watch the releases of Helm, Flux and Argo CD, for the metric portolan_release_outdated, and with --serve for the page /outdated
    /// and the API; requires permission to get, list and watch Secrets and ConfigMaps
    #[arg(long, help_heading = "Catalog")]
    pub releases: bool,
    #[command(flatten)]
    pub service: ServiceFlags,
    #[command(flatten)]
    pub leader: LeaderElectionFlags,
    #[command(flatten)]
    pub traces: TraceFlags,
    #[command(flatten)]
    pub deprecated: DeprecatedFlags,
    /// Set if the controller oam is enabled.
    #[arg(skip)]
    pub kubevela: Option<Box<KubeVela>>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Syncing")]
pub struct SyncingFlags {
    /// Schedule of repositories without spec.interval: a cron expression in UTC, or a duration such as 10m
    #[arg(long, value_name = "CRON", default_value = "*/10 * * * *")]
    pub crontab: String,
    /// Minimum sync interval; shorter spec.interval values fall back to --crontab
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub min_interval: Duration,
    /// Maximum number of concurrent syncs; most of them wait for a server
    #[arg(long, value_name = "N", default_value = "256")]
    pub sync_workers: NonZeroU32,
    /// Maximum number of concurrent imports of chart files
    #[arg(long, value_name = "N", default_value = "4")]
    pub files_workers: NonZeroU32,
    /// Maximum number of retries and requeues per second
    #[arg(long, value_name = "N", default_value = "10")]
    pub queue_rate: NonZeroU32,
    /// Maximum burst of retries and requeues
    #[arg(long, value_name = "N", default_value = "100")]
    pub queue_burst: NonZeroU32,
    /// Sync all repositories once and exit, with 1 if a sync failed; does not listen on a port
    #[arg(long)]
    pub once: bool,
    /// Allow the first comparison after the start to delete more than half of the repositories
    #[arg(long)]
    pub confirm_removals: bool,
    /// Interval of garbage collections, besides the one at the start; see `portolan gc`
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = positive_duration)]
    pub gc_interval: Duration,
    /// Sync repositories as soon as a referenced Secret changes; requires permission to list and watch Secrets
    #[arg(long)]
    pub watch_secrets: bool,
    /// Delete the CronJob that Kubeapps created for a repository after its first sync
    #[arg(long)]
    pub adopt_kubeapps: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ApiFlags {
    /// Maximum number of requests to the API server in flight, without watches and the Lease
    #[arg(long, value_name = "N", default_value = "64")]
    pub kube_api_inflight: NonZeroU32,
    /// Maximum number of requests per second to the API server; 0 for no limit besides its own
    #[arg(long, value_name = "N", default_value = "0")]
    pub kube_api_qps: u32,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Service")]
pub struct ServiceFlags {
    /// Address of the health and metrics endpoints: HOST:PORT, or :PORT for all interfaces
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: ListenAddress,
    /// Separate address of the metrics endpoint (default: the address of --listen)
    #[arg(long, value_name = "ADDRESS")]
    pub metrics_bind_address: Option<ListenAddress>,
    /// Require a bearer token for metrics whose owner may get the non-resource URL /metrics
    #[arg(long)]
    pub metrics_auth: bool,
    /// Maximum number of connections to each of these addresses; 8 are reserved for probes
    #[arg(long, value_name = "N", default_value = "256", value_parser = http_connections)]
    pub http_connections: usize,
    /// Address of the debug endpoints: log filter and CPU profiles, without authentication (default: none)
    #[arg(long, value_name = "ADDRESS")]
    pub debug_addr: Option<String>,
    /// Name of --listen in kubernetes-sigs/application; takes precedence
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pub metrics_addr: Option<ListenAddress>,
    /// Graceful shutdown timeout; unfinished syncs are rolled back
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain_timeout: Duration,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// Syncs chart repositories
    #[value(name = apprepository::NAME)]
    AppRepository,
    /// Reports the readiness of Applications (app.k8s.io)
    #[value(name = application::NAME)]
    Application,
    /// Deploys Applications (core.oam.dev)
    #[value(name = oam::NAME)]
    Oam,
}

fn http_connections(text: &str) -> Result<usize, String> {
    let connections = text
        .parse()
        .ok()
        .filter(|connections| *connections > RESERVED_CONNECTIONS);
    connections
        .ok_or_else(|| format!("expected a number greater than {RESERVED_CONNECTIONS}, which are reserved for probes"))
}

impl Run {
    pub(in crate::cmd) async fn execute(self, logging: Logging) -> Result<(), Error> {
        if self.help_kubevela {
            return output::print(&kubevela_help());
        }
        self.deprecated.warn();
        if self.applications.is_some() {
            tracing::warn!("--applications is deprecated, use --controllers=apprepository to disable Applications");
        }
        let mut options = self.options()?;
        options.log_filter = Some(logging.filter);
        options.spans = logging.traces.as_ref().map(Traces::metrics);
        if let Some(kubevela) = self.kubevela.as_ref().filter(|_| options.oam.is_some()) {
            kubevela.log();
        }
        let shutdown = shutdown::on_signal().map_err(failed_to("listen for signals"))?;
        let running = options
            .apprepository
            .as_ref()
            .map(|options| options.running.subscribe());
        let progress = running.map(|names| tokio::spawn(progress::show(names)));
        let exported = CancellationToken::new();
        let traces = logging.traces.map(|traces| tokio::spawn(traces.run(exported.clone())));
        let result = if self.syncing.once {
            manager::once::run(&options, shutdown).await
        } else {
            manager::run(&options, shutdown).await
        };
        exported.cancel();
        if let Some(traces) = traces {
            // A panic has been logged.
            let _ = traces.await;
        }
        if let Some(progress) = progress {
            progress.abort();
            let _ = progress.await;
        }
        Ok(result?)
    }
}
