use std::path::PathBuf;

use clap::Args;
use url::Url;

use super::flags::{cluster::ClusterFlags, database::DatabaseFlags, non_empty};
use super::{Error, failed_to};
use crate::manager::serve::{self, ServeOptions};
use crate::manager::{Listener, SourceOptions, shutdown};
use crate::serve::access::AccessOptions;
use crate::server::ListenAddress;

/// Serve the catalog to programs: a REST API with search
///
/// It only reads the database of `portolan run`, so any number of replicas may run. A caller sends a token of the cluster, and
/// sees the namespaces in which its owner may list AppRepositories. /api/v1/openapi.json describes the API. README, values and
/// other files, icons, archives, a Helm repository and a web page are not served yet.
#[derive(Args, Debug)]
pub struct Serve {
    /// Address of the catalog: HOST:PORT, or :PORT for all interfaces (default: :8090; with --manifests 127.0.0.1:8090)
    #[arg(long, value_name = "ADDRESS")]
    pub serve: Option<ListenAddress>,
    /// Address of the health and metrics endpoints
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: ListenAddress,
    /// Serve the repositories of this directory of manifests, with which `portolan run` fills the database; everybody on this
    /// host sees them
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// Namespace whose repositories are served (default: all namespaces)
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    #[command(flatten)]
    pub access: AccessFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// ID of this cluster, as for `portolan run`
    #[arg(long, value_name = "ID", default_value = "", help_heading = "Cluster")]
    pub cluster_id: String,
    #[command(flatten)]
    pub database: DatabaseFlags,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
pub struct AccessFlags {
    /// URL at which clients reach the catalog: its path precedes /api, and requests must name its host
    #[arg(long, value_name = "URL")]
    pub external_url: Option<String>,
    /// Other hosts that requests may name, if the host is checked: with --external-url or --anonymous
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Namespaces that callers without a token see; * stands for all
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub anonymous: Vec<String>,
    /// Kubeapps' namespace of global repositories, which every caller with a valid token sees
    #[arg(long, value_name = "NAMESPACE")]
    pub global_repos_namespace: Option<String>,
}

impl Serve {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let options = self.options()?;
        let shutdown = shutdown::on_signal().map_err(failed_to("listen for signals"))?;
        Ok(serve::run(&options, shutdown).await?)
    }

    fn options(&self) -> Result<ServeOptions, Error> {
        self.database.settings()?;
        let external_url = self.access.external_url()?;
        let prefix = external_url.as_ref().map(|url| url.path().trim_end_matches('/'));
        Ok(ServeOptions {
            source: self.source()?,
            database: self.database.options(),
            cluster_id: self.cluster_id.trim().to_owned(),
            namespace: non_empty(self.watch_namespace.as_deref()).map(str::to_owned),
            address: self.address()?,
            listener: Listener {
                address: self.listen.clone(),
                flag: "--listen",
                has_probes: true,
                has_metrics: true,
            },
            prefix: prefix.unwrap_or_default().to_owned(),
            access: self.access.options(external_url.as_ref()),
        })
    }

    fn source(&self) -> Result<SourceOptions, Error> {
        let Some(directory) = &self.manifests else {
            return Ok(SourceOptions::Cluster(self.cluster.connect_options()?));
        };
        let access = &self.access;
        let flags = [
            ("--anonymous", !names(&access.anonymous).is_empty()),
            ("--allowed-hosts", !names(&access.allowed_hosts).is_empty()),
            ("--external-url", non_empty(access.external_url.as_deref()).is_some()),
            (
                "--global-repos-namespace",
                non_empty(access.global_repos_namespace.as_deref()).is_some(),
            ),
        ];
        match flags.into_iter().find(|(_, is_set)| *is_set) {
            None => Ok(SourceOptions::Directory(directory.clone())),
            Some((flag, _)) => Err(Error::Usage(format!(
                "{flag} requires a cluster and cannot be used with --manifests"
            ))),
        }
    }

    /// Without an API server no caller can be refused, so other hosts can't connect.
    fn address(&self) -> Result<ListenAddress, Error> {
        let default = if self.manifests.is_some() {
            "127.0.0.1:8090"
        } else {
            ":8090"
        };
        let address = match &self.serve {
            Some(address) => address.clone(),
            None => default.parse()?,
        };
        if self.manifests.is_some() && !address.is_loopback() {
            return Err(Error::Usage(format!(
                "--serve={address} is reachable from other hosts, and with --manifests everybody sees everything; use 127.0.0.1"
            )));
        }
        Ok(address)
    }
}

impl AccessFlags {
    fn external_url(&self) -> Result<Option<Url>, Error> {
        let Some(text) = non_empty(self.external_url.as_deref()) else {
            return Ok(None);
        };
        // The path becomes a pattern of routes.
        let is_plain_path = |path: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
            path.bytes().all(is_plain) && !path.contains("//")
        };
        let url = Url::parse(text).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
                && is_plain_path(url.path())
        });
        let invalid =
            || Error::Usage("invalid value for --external-url; use https://HOST or https://HOST/PATH".to_owned());
        url.map(Some).ok_or_else(invalid)
    }

    fn options(&self, external_url: Option<&Url>) -> AccessOptions {
        AccessOptions {
            anonymous: names(&self.anonymous).into_iter().collect(),
            global_repos_namespace: non_empty(self.global_repos_namespace.as_deref()).map(str::to_owned),
            external_host: external_url.and_then(Url::host_str).map(str::to_owned),
            allowed_hosts: names(&self.allowed_hosts),
            ..AccessOptions::default()
        }
    }
}

fn names(names: &[String]) -> Vec<String> {
    let names = names.iter().filter_map(|name| non_empty(Some(name)));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::serve::access::Visible;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        serve: Serve,
    }

    fn options(flags: &[&str]) -> Result<ServeOptions, Error> {
        Test::try_parse_from(["test"].iter().chain(flags))
            .unwrap()
            .serve
            .options()
    }

    #[test]
    fn without_an_api_server_only_this_host_may_connect() {
        assert_eq!(options(&[]).unwrap().address.to_string(), ":8090");
        let manifests = |more: &[&str]| options(&[&["--manifests=examples"], more].concat());
        assert_eq!(manifests(&[]).unwrap().address.to_string(), "127.0.0.1:8090");
        for refused in ["--serve=:8090", "--anonymous=*", "--allowed-hosts=charts.example"] {
            assert!(matches!(manifests(&[refused]), Err(Error::Usage(_))), "{refused}");
        }
    }

    #[test]
    fn the_external_url_gives_the_host_and_the_path() {
        let served = options(&["--external-url=https://Charts.example:8443/catalog/"]).unwrap();
        assert_eq!(served.prefix, "/catalog");
        assert_eq!(served.access.external_host.as_deref(), Some("charts.example"));
        assert_eq!(options(&["--external-url=https://charts.example"]).unwrap().prefix, "");
        assert_eq!(options(&["--external-url="]).unwrap().access.external_host, None);
        for invalid in [
            "charts.example",
            "ftp://charts.example",
            "https://me:secret@charts.example",
            "https://charts.example/{path}",
            "https://charts.example/a?b",
        ] {
            let refused = options(&[&format!("--external-url={invalid}")]);
            assert!(matches!(refused, Err(Error::Usage(_))), "{invalid}");
        }
    }

    #[test]
    fn nothing_is_visible_without_a_token_by_default() {
        assert!(!options(&[]).unwrap().access.anonymous.contains("default"));
        let anonymous = options(&["--anonymous=team-a,team-b"]).unwrap().access.anonymous;
        assert!(anonymous.contains("team-b") && !anonymous.contains("default"));
        let all = options(&["--anonymous=*"]).unwrap().access.anonymous;
        assert!(matches!(all, Visible::All));
    }
}
