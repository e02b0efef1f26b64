//! The server of the catalog, in `portolan serve` and in `portolan run`.

use std::num::NonZeroU32;
use std::path::Path;

use clap::{Args, ValueEnum};
use url::Url;

use super::non_empty;
use super::parse::bytes;
use crate::cmd::Error;
use crate::manager::archives::ArchiveOptions;
use crate::manager::{CatalogAddress, CatalogOptions};
use crate::serve::access::AccessOptions;
use crate::serve::limits::{RequestLimits, TrustedProxies, TrustedProxy};
use crate::server::ListenAddressError;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Catalog")]
pub struct ServeFlags {
    /// URL at which clients reach the catalog: its path precedes all routes, and requests must name its host
    #[arg(long, value_name = "URL")]
    pub external_url: Option<String>,
    /// Other hosts that requests may name, if the host is checked: with --external-url or --anonymous
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    /// Namespaces that callers without a token see; * stands for all
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    pub anonymous: Vec<String>,
    /// Way in which clients get archives of charts
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub archives: ArchivesChoice,
    /// Proxies in front of the catalog, as addresses or CIDRs: the client's address is read from their X-Forwarded-For
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,
    /// Maximum number of requests per second of a caller
    #[arg(long, value_name = "N", default_value = "50")]
    pub serve_rate: NonZeroU32,
    /// Maximum burst of requests of a caller
    #[arg(long, value_name = "N", default_value = "200")]
    pub serve_burst: NonZeroU32,
    /// Maximum number of connections to Postgres for the catalog
    #[arg(long, value_name = "N", default_value = "4")]
    pub serve_connections: NonZeroU32,
    /// Maximum size of the summaries of charts in memory; charts beyond it are left out of lists and searches
    #[arg(long, value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub catalog_memory: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchivesChoice {
    /// From the repository, to which they are redirected; not of repositories with credentials
    #[default]
    Redirect,
    /// From this process, which fetches them with the credentials of the repository
    Proxy,
}

/// Returns the address of a value of `--serve`.
pub fn fixed_address(text: &str) -> Result<CatalogAddress, Error> {
    let address = text.parse().map(CatalogAddress::Fixed);
    address.map_err(|error: ListenAddressError| Error::Usage(format!("invalid value for --serve: {error}")))
}

/// The settings that both commands have as flags of their own.
pub struct ServeContext<'a> {
    pub address: CatalogAddress,
    pub namespace: Option<&'a str>,
    pub global_repos_namespace: Option<&'a str>,
    /// Only with `--archives=proxy`.
    pub archives: Option<ArchiveOptions>,
    pub spool_dir: Option<&'a Path>,
    /// Repositories are declared in a directory of manifests.
    pub has_manifests: bool,
}

impl ServeFlags {
    pub fn fetches_archives(&self) -> bool {
        self.archives == ArchivesChoice::Proxy
    }

    pub fn options(&self, context: ServeContext<'_>) -> Result<CatalogOptions, Error> {
        if context.has_manifests {
            self.refuse_without_api_server(&context.address)?;
        }
        let external_url = self.external_url()?;
        let external_url = external_url.as_ref();
        let prefix = external_url.map(|url| url.path().trim_end_matches('/'));
        Ok(CatalogOptions {
            address: context.address,
            namespace: context.namespace.map(str::to_owned),
            prefix: prefix.unwrap_or_default().to_owned(),
            external_origin: external_url.map(|url| url.origin().ascii_serialization()),
            access: AccessOptions {
                anonymous: names(&self.anonymous).map(str::to_owned).collect(),
                global_repos_namespace: context.global_repos_namespace.map(str::to_owned),
                external_host: external_url.and_then(Url::host_str).map(str::to_owned),
                allowed_hosts: names(&self.allowed_hosts).map(str::to_owned).collect(),
                ..AccessOptions::default()
            },
            limits: RequestLimits {
                rate: self.serve_rate,
                burst: self.serve_burst,
            },
            trusted_proxies: self.trusted_proxies()?,
            archives: context.archives,
            spool_dir: context.spool_dir.map(Path::to_owned),
            database_connections: self.serve_connections.get(),
            memory: self.catalog_memory,
        })
    }

    /// Returns a flag that is set of those that tell who connects, and how.
    pub fn callers_flag(&self) -> Option<&'static str> {
        let flags = [
            ("--anonymous", names(&self.anonymous).next().is_some()),
            ("--allowed-hosts", names(&self.allowed_hosts).next().is_some()),
            ("--external-url", non_empty(self.external_url.as_deref()).is_some()),
        ];
        flags.into_iter().find_map(|(flag, is_set)| is_set.then_some(flag))
    }

    /// Without an API server no caller can be refused, so other hosts can't connect.
    fn refuse_without_api_server(&self, address: &CatalogAddress) -> Result<(), Error> {
        if let Some(flag) = self.callers_flag() {
            return Err(Error::Usage(format!(
                "{flag} requires a cluster and cannot be used with --manifests"
            )));
        }
        match address {
            CatalogAddress::Fixed(address) if !address.is_loopback() => Err(Error::Usage(format!(
                "--serve={address} is reachable from other hosts, and with --manifests everybody sees everything; use 127.0.0.1"
            ))),
            _ => Ok(()),
        }
    }

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

    pub fn trusted_proxies(&self) -> Result<TrustedProxies, Error> {
        let parse = |text: &str| {
            text.parse::<TrustedProxy>().map_err(|error| {
                Error::Usage(format!(
                    "invalid value for --trusted-proxies: {error}; use an address or a CIDR such as 10.0.0.0/8"
                ))
            })
        };
        names(&self.trusted_proxies).map(parse).collect()
    }
}

fn names(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().filter_map(|name| non_empty(Some(name)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::serve::access::Visible;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        serve: ServeFlags,
    }

    fn options(flags: &[&str]) -> Result<CatalogOptions, Error> {
        let flags = Test::try_parse_from(["test"].iter().chain(flags)).unwrap().serve;
        flags.options(ServeContext {
            address: CatalogAddress::FreePort,
            namespace: None,
            global_repos_namespace: None,
            archives: None,
            spool_dir: None,
            has_manifests: false,
        })
    }

    #[test]
    fn the_external_url_gives_the_origin_the_host_and_the_path() {
        let served = options(&["--external-url=https://Charts.example:8443/catalog/"]).unwrap();
        assert_eq!(served.prefix, "/catalog");
        assert_eq!(served.external_origin.as_deref(), Some("https://charts.example:8443"));
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

    #[test]
    fn a_flag_that_lets_callers_in_is_found() {
        let flag = |arguments: &[&str]| {
            let flags = Test::try_parse_from(["test"].iter().chain(arguments)).unwrap().serve;
            flags.callers_flag()
        };
        assert_eq!(flag(&["--archives=proxy", "--external-url=", "--anonymous="]), None);
        assert_eq!(flag(&["--anonymous=*"]), Some("--anonymous"));
        assert_eq!(flag(&["--external-url=https://charts.example"]), Some("--external-url"));
    }

    #[test]
    fn an_invalid_proxy_is_invalid_usage() {
        assert!(options(&["--trusted-proxies=10.0.0.0/8,192.0.2.1"]).is_ok());
        assert!(options(&["--trusted-proxies="]).is_ok());
        assert!(matches!(options(&["--trusted-proxies=proxy"]), Err(Error::Usage(_))));
    }
}
