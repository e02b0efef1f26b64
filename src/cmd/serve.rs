use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches, ValueEnum};

use super::flags::cluster::{ClusterFlags, kubeapps_namespace};
use super::flags::database::DatabaseFlags;
use super::flags::fetch::{FetchFlags, proxy_namespaces};
use super::flags::non_empty;
use super::flags::parse::bytes;
use super::flags::resources::ResourceFlags;
use super::flags::serve::{ServeContext, ServeFlags, fixed_address};
use super::{Error, failed_to};
use crate::budget::Budgets;
use crate::manager::archives::ArchiveOptions;
use crate::manager::serve::{self, ReceiverOptions, ServeOptions};
use crate::manager::{CatalogAddress, Listener, SourceOptions, shutdown};
use crate::server::ListenAddress;

/// The address of the catalog in a cluster.
const DEFAULT_ADDRESS: &str = ":8090";

/// Flags of syncs. The connections are those of --serve-connections.
const UNUSED: [&str; 4] = [
    "database_connections",
    "max_repository_bytes",
    "max_namespace_bytes",
    "index_max_bytes",
];

/// The part that `--only` serves.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedPart {
    /// Receivers of webhooks at /hooks, which request syncs of pushed repositories; without a catalog and a database
    Hooks,
}

/// Serve the catalog to programs: a REST API with search, and Helm repositories
///
/// It only reads the database of `portolan run`, so any number of replicas may run, also on a hot standby of Postgres. A caller
/// sends a token of the cluster, and sees the namespaces in which its owner may list AppRepositories. /api/v1/openapi.json
/// describes the API. `portolan run --serve` serves the same from the process of the controllers. Flags of fetching need
/// --archives=proxy, except --spool-dir.
#[derive(Args, Debug)]
pub struct Serve {
    // The first field: each field takes its values from the matches.
    #[command(flatten)]
    pub unused: UnusedFlags,
    /// Serve this part alone
    #[arg(long, value_name = "PART", value_enum)]
    pub only: Option<ServedPart>,
    /// Address of the catalog: HOST:PORT, or :PORT for all interfaces (default: :8090; with --manifests 127.0.0.1:8090, or another
    /// free port)
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<String>,
    /// Address of the health and metrics endpoints
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: ListenAddress,
    /// Serve the repositories of this directory of manifests, with which `portolan run` fills the database; everybody on this
    /// host sees them
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Namespace whose repositories are served (default: all namespaces); with --only=hooks a list, which is required
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Kubeapps' namespace of global repositories, which every caller with a valid token sees
    #[arg(long, value_name = "NAMESPACE")]
    pub global_repos_namespace: Option<String>,
    #[command(flatten)]
    pub catalog: ServeFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// ID of this cluster, as for `portolan run`
    #[arg(long, value_name = "ID", default_value = "", help_heading = "Cluster")]
    pub cluster_id: String,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub archives: ArchiveFlags,
    #[command(flatten)]
    pub fetch: FetchFlags,
    #[command(flatten)]
    pub resources: ResourceFlags,
}

/// Those of `portolan run` for archives of charts, besides [`FetchFlags`].
#[derive(Args, Debug)]
#[command(next_help_heading = "Fetching")]
pub struct ArchiveFlags {
    /// Namespace of Kubeapps, with its copies of Secrets (default: the namespace of the pod, or kubeapps outside of a pod)
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Maximum size of a chart archive in bytes
    #[arg(long, value_name = "BYTES", default_value = "20Mi", value_parser = bytes)]
    pub archive_max_bytes: u64,
    /// Additional directory to which file: URLs can refer; can be repeated, requires --manifests
    #[arg(long, value_name = "DIR", value_delimiter = ',', requires = "manifests")]
    pub allow_file_root: Vec<PathBuf>,
    /// Use the proxies that AppRepositories of other namespaces than --namespace and --global-repos-namespace declare
    #[arg(long)]
    pub allow_tenant_proxies: bool,
}

/// The flags of [`UNUSED`] that are set. They have no variables.
#[derive(Debug)]
pub struct UnusedFlags(Vec<String>);

impl FromArgMatches for UnusedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_set = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let flag = |id: &str| format!("--{}", id.replace('_', "-"));
        Ok(Self(UNUSED.into_iter().filter(is_set).map(flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for UnusedFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// Hides the flags that change nothing here. They share their groups with others.
pub(super) fn hide_other_flags(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        let is_unused = UNUSED.contains(&argument.get_id().as_str());
        if is_unused { argument.hide(true) } else { argument }
    })
}

impl Serve {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let signal = || shutdown::on_signal().map_err(failed_to("listen for signals"));
        if self.only == Some(ServedPart::Hooks) {
            return Ok(serve::run_receivers(&self.receivers()?, signal()?).await?);
        }
        let options = self.options()?;
        for flag in &self.unused.0 {
            tracing::warn!("{flag} has no effect on portolan serve");
        }
        Ok(serve::run(&options, signal()?).await?)
    }

    fn receivers(&self) -> Result<ReceiverOptions, Error> {
        if self.manifests.is_some() {
            return Err(Error::Usage(
                "--only=hooks requires a cluster and cannot be used with --manifests".to_owned(),
            ));
        }
        let namespaces = self.watch_namespace.as_deref().unwrap_or_default().split(',');
        let namespaces: Vec<String> = namespaces
            .filter_map(|name| non_empty(Some(name)).map(str::to_owned))
            .collect();
        if namespaces.is_empty() {
            return Err(Error::Usage(
                "--only=hooks requires --watch-namespace: the namespaces whose repositories have receivers, separated by commas"
                    .to_owned(),
            ));
        }
        Ok(ReceiverOptions {
            cluster: self.cluster.connect_options()?,
            namespaces,
            address: self.address()?,
            trusted_proxies: self.catalog.trusted_proxies()?,
            budgets: self.resources.budgets()?,
            listener: self.listener(),
        })
    }

    fn listener(&self) -> Listener {
        Listener {
            address: self.listen.clone(),
            flag: "--listen",
            has_probes: true,
            has_metrics: true,
        }
    }

    fn options(&self) -> Result<ServeOptions, Error> {
        self.database.settings()?;
        let budgets = self.resources.budgets()?;
        let archives = self.catalog.fetches_archives().then(|| self.archives(&budgets));
        let context = ServeContext {
            address: self.address()?,
            namespace: non_empty(self.watch_namespace.as_deref()),
            global_repos_namespace: non_empty(self.global_repos_namespace.as_deref()),
            archives: archives.transpose()?,
            spool_dir: self.fetch.spool_dir()?,
            has_manifests: self.manifests.is_some(),
        };
        if context.has_manifests && context.global_repos_namespace.is_some() {
            return Err(Error::Usage(
                "--global-repos-namespace requires a cluster and cannot be used with --manifests".to_owned(),
            ));
        }
        Ok(ServeOptions {
            source: self.source()?,
            database: self.database.options(),
            cluster_id: self.cluster_id.trim().to_owned(),
            catalog: self.catalog.options(context)?,
            budgets,
            listener: self.listener(),
        })
    }

    fn source(&self) -> Result<SourceOptions, Error> {
        match &self.manifests {
            Some(directory) => Ok(SourceOptions::Directory(directory.clone())),
            None => Ok(SourceOptions::Cluster(self.cluster.connect_options()?)),
        }
    }

    fn archives(&self, budgets: &Budgets) -> Result<ArchiveOptions, Error> {
        let has_manifests = self.manifests.is_some();
        let kubeapps_namespace = kubeapps_namespace(self.archives.namespace.as_deref());
        let allow_loopback = self.fetch.addresses.allow_loopback || has_manifests;
        Ok(ArchiveOptions {
            fetcher: self.fetch.fetcher(budgets, allow_loopback)?,
            fetch_limits: self.fetch.limits(),
            max_bytes: self.archives.archive_max_bytes,
            proxy_namespaces: proxy_namespaces(
                self.archives.allow_tenant_proxies || has_manifests,
                self.global_repos_namespace.as_deref(),
                kubeapps_namespace.clone(),
            ),
            kubeapps_namespace,
            allowed_directories: self.archives.allow_file_root.clone(),
        })
    }

    fn address(&self) -> Result<CatalogAddress, Error> {
        let address = match non_empty(self.serve.as_deref()) {
            None if self.manifests.is_some() => return Ok(CatalogAddress::FreePort),
            address => address.unwrap_or(DEFAULT_ADDRESS),
        };
        fixed_address(address)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        serve: Serve,
    }

    fn address(flags: &[&str]) -> Result<CatalogAddress, Error> {
        let flags = Test::try_parse_from(["test"].iter().chain(flags)).unwrap().serve;
        flags.options().map(|options| options.catalog.address)
    }

    #[test]
    fn each_flag_without_effect_is_named() {
        let unused = |flags: &[&str]| {
            let test = Test::try_parse_from(["test"].iter().chain(flags)).unwrap();
            test.serve.unused.0
        };
        assert_eq!(unused(&["--serve=:1"]), [""; 0]);
        let flags = [
            "--database-connections=10",
            "--max-repository-bytes=1",
            "--max-namespace-bytes=1",
            "--index-max-bytes=100Mi",
        ];
        let names = flags.map(|flag| flag.split('=').next().unwrap());
        assert_eq!(unused(&flags), names);
        assert_eq!(names.len(), UNUSED.len());
    }

    #[test]
    fn receivers_need_a_cluster_and_a_list_of_namespaces() {
        let receivers = |flags: &[&str]| {
            let flags = Test::try_parse_from(["test", "--only=hooks"].iter().chain(flags)).unwrap();
            flags.serve.receivers().map(|options| options.namespaces)
        };
        assert_eq!(
            receivers(&["--watch-namespace=team-a, team-b,"]),
            Ok(vec!["team-a".to_owned(), "team-b".to_owned()])
        );
        let refused: [&[&str]; 3] = [
            &[],
            &["--watch-namespace=,"],
            &["--watch-namespace=a", "--manifests=examples"],
        ];
        for refused in refused {
            assert!(matches!(receivers(refused), Err(Error::Usage(_))), "{refused:?}");
        }
    }

    #[test]
    fn without_an_api_server_only_this_host_may_connect() {
        let all_interfaces = CatalogAddress::Fixed(DEFAULT_ADDRESS.parse().unwrap());
        assert_eq!(address(&[]), Ok(all_interfaces.clone()));
        assert_eq!(address(&["--serve="]), Ok(all_interfaces));
        let manifests = |more: &[&str]| address(&[&["--manifests=examples"], more].concat());
        assert_eq!(manifests(&[]), Ok(CatalogAddress::FreePort));
        assert!(manifests(&["--serve=localhost:1"]).is_ok());
        for refused in [
            "--serve=:8090",
            "--serve=here",
            "--anonymous=*",
            "--allowed-hosts=charts.example",
            "--global-repos-namespace=kubeapps",
        ] {
            assert!(matches!(manifests(&[refused]), Err(Error::Usage(_))), "{refused}");
        }
    }
}
