//! The settings of syncs: limits of downloads, and the content to import.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::non_empty;
use super::parse::{boolean, bytes, positive_duration};
use super::resources::ResourceFlags;
use crate::budget::Budgets;
use crate::catalog::FilesMode;
use crate::cmd::{Error, failed_to};
use crate::controllers::apprepository::SyncOptions;
use crate::controllers::apprepository::chart_files::{self, icon_decoder};
use crate::controllers::apprepository::spec::ProxyNamespaces;
use crate::controllers::apprepository::sync::filter_process::FilterProcesses;
use crate::controllers::apprepository::sync::object_limits::ObjectLimits;
use crate::helm::archive;
use crate::http::{self, FetchLimits, Fetcher};
use crate::jq;

/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// The addresses to which tenants and joined clusters may direct this process.
#[derive(Args, Clone, Debug)]
pub struct AddressFlags {
    /// Allow connections to private addresses; link-local addresses and cloud metadata services are always blocked
    #[arg(long, default_value_t = true)]
    pub allow_private_networks: bool,
    /// Allow connections to loopback addresses (default: only with --manifests, and for one-shot commands outside of a
    /// cluster)
    #[arg(long)]
    pub allow_loopback: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Fetching")]
pub struct FetchFlags {
    /// Maximum size of an index in bytes, compressed and decompressed; accepts units such as Mi
    #[arg(long, value_name = "BYTES", default_value = "100Mi", value_parser = bytes)]
    pub index_max_bytes: u64,
    /// Timeout for connecting to a server, including TLS
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    pub connect_timeout: Duration,
    /// Time within which a response begins; later, the time for which a download may be slower than 1 KiB/s
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    pub stall_timeout: Duration,
    /// Timeout for a download, including redirects
    #[arg(long, value_name = "DURATION", default_value = "180s", value_parser = positive_duration)]
    pub fetch_timeout: Duration,
    /// Maximum number of requests per second to one host
    #[arg(long, value_name = "N", default_value = "50")]
    pub host_requests_per_second: NonZeroU32,
    /// Maximum burst of requests to one host
    #[arg(long, value_name = "N", default_value = "100")]
    pub host_burst: NonZeroU32,
    /// Maximum number of concurrent requests to one host; half of it for a namespace while another one waits
    #[arg(long, value_name = "N", default_value = "8")]
    pub host_requests_at_once: NonZeroU32,
    #[command(flatten)]
    pub addresses: AddressFlags,
    /// Directory for indexes that are too large for memory (default: the directory for temporary files of the system)
    #[arg(long, value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
    /// Comment appended to the User-Agent header
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub user_agent_comment: String,
}

impl FetchFlags {
    /// Returns the User-Agent header, without characters that are not allowed in headers.
    pub fn user_agent(&self) -> String {
        let is_allowed = |c: &char| (' '..='~').contains(c);
        let comment: String = self.user_agent_comment.chars().filter(is_allowed).collect();
        http::user_agent(comment.trim())
    }

    /// Returns the options of syncs. `is_local` is true if only the operator chooses the URLs.
    pub fn sync_options(
        &self,
        content: &ContentFlags,
        resources: &ResourceFlags,
        is_local: bool,
    ) -> Result<SyncOptions, Error> {
        let budgets = resources.budgets()?;
        let (objects, lowered) = ObjectLimits::within(budgets.memory.limit());
        lowered.iter().for_each(|lowered| tracing::warn!("{lowered}"));
        Ok(SyncOptions {
            fetcher: self.fetcher(&budgets, self.addresses.allow_loopback || is_local)?,
            fetch_limits: self.limits(),
            verify_delta: content.verify_delta,
            check_digests: content.oci_check_digests,
            keep_removed: content.keep_removed_versions,
            spool_dir: self.spool_dir.clone(),
            budgets,
            objects,
            filters: FilterProcesses::new(PROGRAM.into(), objects.filter, jq::FilterLimits::default()),
        })
    }

    pub fn spool_dir(&self) -> Result<Option<&Path>, Error> {
        match self.spool_dir.as_deref() {
            Some(directory) if !directory.is_dir() => Err(Error::Usage(format!(
                "invalid value for --spool-dir: {} is not a directory",
                directory.display()
            ))),
            directory => Ok(directory),
        }
    }

    pub fn limits(&self) -> FetchLimits {
        FetchLimits {
            max_bytes: self.index_max_bytes,
            connect: self.connect_timeout,
            stall: self.stall_timeout,
            total: self.fetch_timeout,
        }
    }

    /// Returns the HTTP client. `allow_loopback` is true if only the operator chooses the URLs.
    pub fn fetcher(&self, budgets: &Budgets, allow_loopback: bool) -> Result<Fetcher, Error> {
        let settings = http::Settings {
            user_agent: self.user_agent(),
            spool_dir: self.spool_dir()?.map(Path::to_owned),
            spool: budgets.spool.clone(),
            requests_per_second: self.host_requests_per_second,
            burst: self.host_burst,
            max_concurrent_requests: self.host_requests_at_once,
            request_metrics: (budgets.metrics()).of("host_requests", self.host_requests_at_once.get().into()),
            allow_private_networks: self.addresses.allow_private_networks,
            allow_loopback,
        };
        Fetcher::new(settings).map_err(failed_to("create the HTTP client"))
    }
}

/// Returns the namespaces whose proxies are used. Only the operator writes a directory of manifests.
pub fn proxy_namespaces(are_all_allowed: bool, global: Option<&str>, kubeapps: String) -> ProxyNamespaces {
    if are_all_allowed {
        return ProxyNamespaces::All;
    }
    let global = non_empty(global).map(str::to_owned);
    ProxyNamespaces::Only(global.into_iter().chain([kubeapps]).collect())
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Content")]
pub struct ContentFlags {
    /// Versions whose README, values and schema are imported; Kubeapps shows no details of other versions
    #[arg(long, value_name = "VERSIONS", value_enum, default_value_t)]
    pub chart_files: ChartFilesChoice,
    /// Maximum size of a chart archive in bytes; ten times as much when unpacked
    #[arg(long, value_name = "BYTES", default_value = "20Mi", value_parser = bytes)]
    pub archive_max_bytes: u64,
    /// Store raster icons as PNG images of 160 pixels, and SVG icons up to 128 KiB as they are (default: true if this process
    /// serves the catalog); Kubeapps uses the icons' URLs and does not need this
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = boolean)]
    pub icons: Option<bool>,
    /// Keep chart versions for this long after they disappear from the index
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub keep_removed_versions: Option<Duration>,
    /// Interval for checking if tags of OCI repositories were republished; a resync checks immediately
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive_duration)]
    pub oci_check_digests: Duration,
    /// Verify incremental decodes against a full decode (debugging; expensive)
    #[arg(long)]
    pub verify_delta: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartFilesChoice {
    /// All versions
    #[default]
    All,
    /// Newest version of each chart
    Latest,
    /// No versions
    None,
}

impl From<ChartFilesChoice> for FilesMode {
    fn from(versions: ChartFilesChoice) -> Self {
        match versions {
            ChartFilesChoice::All => Self::All,
            ChartFilesChoice::Latest => Self::Latest,
            ChartFilesChoice::None => Self::None,
        }
    }
}

impl ContentFlags {
    /// `serves` is true if pages of this process show the icons.
    pub fn settings(&self, objects: &ObjectLimits, serves: bool) -> chart_files::FilesSettings {
        chart_files::FilesSettings {
            mode: self.chart_files.into(),
            icons: self.icons.unwrap_or(serves),
            archive: archive::ArchiveLimits {
                packed_bytes: self.archive_max_bytes,
                unpacked_bytes: self.archive_max_bytes.saturating_mul(10),
                ..archive::ArchiveLimits::default()
            }
            .within(objects.archive),
            icon: icon_decoder::IconLimits::default().within(objects.icon),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Test {
        #[command(flatten)]
        fetch: FetchFlags,
    }

    #[test]
    fn the_user_agent_contains_the_comment_in_parentheses() {
        let user_agent = |comment: &str| {
            Test::try_parse_from(["test", &format!("--user-agent-comment={comment}")])
                .unwrap()
                .fetch
                .user_agent()
        };
        assert_eq!(user_agent(""), concat!("portolan/", env!("CARGO_PKG_VERSION")));
        assert_eq!(
            user_agent("kubeapps/2.12.1"),
            concat!("portolan/", env!("CARGO_PKG_VERSION"), " (kubeapps/2.12.1)")
        );
        assert_eq!(
            user_agent("a\r\nX-Evil: b\u{e9}"),
            concat!("portolan/", env!("CARGO_PKG_VERSION"), " (aX-Evil: b)")
        );
    }
}
