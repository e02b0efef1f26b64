//! Groups of flags that several commands share.

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;

use super::parse::{Sensitive, bytes, positive_duration};
use crate::catalog::FilesMode;
use crate::controllers::apprepository::chart_files as files;
use crate::controllers::apprepository::chart_files::icon_decoder as icon;
use crate::helm::archive;
use crate::http as fetch;

/// Which database holds the catalogue.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Database")]
pub struct DatabaseFlags {
    /// The catalogue's database: sqlite://FILE, postgres://USER@HOST/NAME (with `?sslmode=verify-full` and the like), or HOST:PORT of a
    /// Postgres as Kubeapps' programs have it, with --database-user and --database-name
    #[arg(
        long,
        env = "PORTOLAN_DATABASE_URL",
        value_name = "URL",
        default_value = "sqlite://portolan.db"
    )]
    pub database_url: Sensitive,
    /// The user to log in to Postgres as, unless the URL names one. The password is read from the environment variable DB_PASSWORD
    #[arg(
        long,
        env = "PORTOLAN_DATABASE_USER",
        value_name = "USER",
        default_value = "postgres"
    )]
    pub database_user: String,
    /// The database in Postgres, unless the URL names one
    #[arg(long, env = "PORTOLAN_DATABASE_NAME", value_name = "NAME", default_value = "charts")]
    pub database_name: String,
    /// The most connections to Postgres that are held at once (SQLite has one writer and four readers)
    #[arg(long, env = "PORTOLAN_DATABASE_CONNECTIONS", value_name = "N", default_value = "10")]
    pub database_connections: NonZeroU32,
}

/// Where the API server is.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterFlags {
    /// The kubeconfig file; without it $KUBECONFIG, ~/.kube/config or, in a pod, its service account
    #[arg(long, env = "PORTOLAN_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<OsString>,
    /// The context of the kubeconfig to use instead of its current one
    #[arg(long, env = "PORTOLAN_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// The address of the API server, instead of the one that the kubeconfig or the pod's environment names
    #[arg(long, env = "PORTOLAN_APISERVER", value_name = "URL")]
    pub apiserver: Option<String>,
}

/// Bounds on what is fetched from chart repositories.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Fetching")]
pub struct FetchFlags {
    /// The largest index that is read, in bytes (units such as Mi are understood), before and after decompression
    #[arg(long, env = "PORTOLAN_INDEX_MAX_BYTES", value_name = "BYTES", default_value = "100Mi", value_parser = bytes)]
    pub index_max_bytes: u64,
    /// How long a connection to a server may take to be made, TLS included
    #[arg(long, env = "PORTOLAN_CONNECT_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = positive_duration)]
    pub connect_timeout: Duration,
    /// How long a server may send nothing before the download is given up
    #[arg(long, env = "PORTOLAN_STALL_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    pub stall_timeout: Duration,
    /// How long one download may take in all, redirects included
    #[arg(long, env = "PORTOLAN_FETCH_TIMEOUT", value_name = "DURATION", default_value = "180s", value_parser = positive_duration)]
    pub fetch_timeout: Duration,
    /// How many requests a second one host gets at most
    #[arg(
        long,
        env = "PORTOLAN_HOST_REQUESTS_PER_SECOND",
        value_name = "N",
        default_value = "50"
    )]
    pub host_requests_per_second: NonZeroU32,
    /// How many requests one host may get in a burst, above the rate
    #[arg(long, env = "PORTOLAN_HOST_BURST", value_name = "N", default_value = "100")]
    pub host_burst: NonZeroU32,
    /// How many requests one host gets at the same time
    #[arg(long, env = "PORTOLAN_HOST_REQUESTS_AT_ONCE", value_name = "N", default_value = "8")]
    pub host_requests_at_once: NonZeroU32,
    /// Whether servers at loopback and private addresses may be reached, where repositories of a cluster are. Addresses of the link and
    /// of cloud metadata services never are
    #[arg(long, env = "PORTOLAN_ALLOW_PRIVATE_NETWORKS", default_value_t = true)]
    pub allow_private_networks: bool,
    /// The folder for temporary files, into which goes what is too large for memory; the system's own without it
    #[arg(long, env = "PORTOLAN_SPOOL_DIR", value_name = "DIR")]
    pub spool_dir: Option<PathBuf>,
    /// What stands in parentheses after `portolan/VERSION` in the User-Agent header of requests
    #[arg(long, env = "PORTOLAN_USER_AGENT_COMMENT", value_name = "TEXT", default_value = "")]
    pub user_agent_comment: String,
}

impl FetchFlags {
    /// The User-Agent header. Characters that no header may hold are left out.
    #[must_use]
    pub fn user_agent(&self) -> String {
        let comment: String = self
            .user_agent_comment
            .chars()
            .filter(|c| (' '..='~').contains(c))
            .collect();
        fetch::user_agent(comment.trim())
    }
}

/// What of a repository is taken into the catalogue beside its charts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Content")]
pub struct ContentFlags {
    /// Of which versions the files (README, values, schema) are imported, for which their archives are downloaded. Kubeapps shows no
    /// details of a version without
    #[arg(
        long,
        env = "PORTOLAN_CHART_FILES",
        value_name = "WHICH",
        value_enum,
        default_value_t
    )]
    pub chart_files: ChartFiles,
    /// The largest chart archive that is read, in bytes. Unpacked it may have ten times as much
    #[arg(long, env = "PORTOLAN_ARCHIVE_MAX_BYTES", value_name = "BYTES", default_value = "20Mi", value_parser = bytes)]
    pub archive_max_bytes: u64,
    /// Import icons that are raster images into the catalogue, as PNG of 160 pixels. Kubeapps shows icons from where they are
    #[arg(long, env = "PORTOLAN_ICONS")]
    pub icons: bool,
    /// How long versions are kept that have left their repository, so that what is installed of them can still be managed; not at
    /// all without it
    #[arg(long, env = "PORTOLAN_KEEP_REMOVED_VERSIONS", value_name = "DURATION", value_parser = positive_duration)]
    pub keep_removed_versions: Option<Duration>,
    /// How often the tags of an OCI repository are asked whether they were published anew with other content, which the list of tags
    /// does not tell. A resync by hand asks at once
    #[arg(long, env = "PORTOLAN_OCI_CHECK_DIGESTS", value_name = "DURATION", default_value = "24h", value_parser = positive_duration)]
    pub oci_check_digests: Duration,
    /// Decode each changed index as a whole too, and hold what came of its changes against that: for who doubts. It costs what is
    /// else saved; a difference is logged, counted in portolan_index_verification_failures_total, and the whole counts
    #[arg(long, env = "PORTOLAN_VERIFY_DELTA")]
    pub verify_delta: bool,
}

/// Of which versions the files are imported.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChartFiles {
    /// Of all versions.
    #[default]
    All,
    /// Of the newest version of each chart.
    Latest,
    /// Of none.
    None,
}

impl From<ChartFiles> for FilesMode {
    fn from(which: ChartFiles) -> Self {
        match which {
            ChartFiles::All => Self::All,
            ChartFiles::Latest => Self::Latest,
            ChartFiles::None => Self::None,
        }
    }
}

impl ContentFlags {
    /// What is imported.
    #[must_use]
    pub fn settings(&self) -> files::Settings {
        files::Settings {
            mode: self.chart_files.into(),
            icons: self.icons,
            archive: archive::Limits {
                packed_bytes: self.archive_max_bytes,
                unpacked_bytes: self.archive_max_bytes.saturating_mul(10),
                ..archive::Limits::default()
            },
            icon: icon::Limits::default(),
        }
    }

    /// Whether anything is imported.
    #[must_use]
    pub fn imports(&self) -> bool {
        self.icons || self.chart_files != ChartFiles::None
    }
}

/// What is logged, and how.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logging")]
pub struct LogFlags {
    /// The form of log lines on the standard error output
    #[arg(
        long,
        env = "PORTOLAN_LOG_FORMAT",
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or a list of target=level as in `info,portolan::source=debug`. Without it RUST_LOG
    /// is used, and `info` without that
    #[arg(long, env = "PORTOLAN_LOG_LEVEL", value_name = "FILTER")]
    pub log_level: Option<String>,
    /// The same as --log-level=debug, as Kubeapps' syncer has it
    #[arg(long, env = "PORTOLAN_DEBUG")]
    pub debug: bool,
}

/// The form of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// How a reading command shows what it found.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputFlags {
    /// A table for people, or JSON for programs
    #[arg(
        long,
        short,
        env = "PORTOLAN_OUTPUT",
        value_name = "FORM",
        value_enum,
        default_value_t
    )]
    pub output: OutputForm,
}

/// The form of what a reading command shows.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputForm {
    /// A table.
    #[default]
    Table,
    /// JSON, one document.
    Json,
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
    fn the_user_agent_holds_the_comment_in_parentheses() {
        let of = |comment: &str| {
            Test::try_parse_from(["test", &format!("--user-agent-comment={comment}")])
                .unwrap()
                .fetch
                .user_agent()
        };
        assert_eq!(of(""), concat!("portolan/", env!("CARGO_PKG_VERSION")));
        assert_eq!(
            of("kubeapps/2.12.1"),
            concat!("portolan/", env!("CARGO_PKG_VERSION"), " (kubeapps/2.12.1)")
        );
        assert_eq!(
            of("a\r\nX-Evil: b\u{e9}"),
            concat!("portolan/", env!("CARGO_PKG_VERSION"), " (aX-Evil: b)")
        );
    }
}
