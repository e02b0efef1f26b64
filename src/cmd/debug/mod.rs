//! `portolan debug`: data for a bug report.

mod archive;
mod catalog;
mod cluster;
mod process;
mod redact;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use tokio::time::timeout;

use super::flags::cluster::ClusterFlags;
use super::flags::database::DatabaseFlags;
use super::flags::non_empty;
use super::{Error, failed_to, output};
use archive::BundlePart;
pub use settings::public_argument;

const PART_TIMEOUT: Duration = Duration::from_secs(30);

/// Collect data for a bug report
#[derive(Args, Debug)]
pub struct Debug {
    #[command(subcommand)]
    command: DebugCommand,
}

#[derive(Subcommand, Debug)]
enum DebugCommand {
    Bundle(Box<Bundle>),
}

impl Debug {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            DebugCommand::Bundle(command) => command.execute().await,
        }
    }
}

/// Write an archive for a bug report
///
/// It contains the status of AppRepositories and Applications, events and Leases from the cluster, repositories and their last
/// syncs from the catalog, metrics and health of a running process, settings and version. Secrets are not read; passwords,
/// tokens and queries of URLs are removed from all texts. A part that cannot be read contains its error instead. Review the
/// archive before you publish it: it contains names of objects and hosts.
#[derive(Args, Debug)]
struct Bundle {
    /// File to write, or - for the standard output (default: portolan-debug-TIME.tar.gz)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Namespace of the objects (default: all namespaces)
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Address of --listen of the running process
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    metrics_url: String,
    /// Address of --debug-addr of the running process, for arguments.txt and log-filter.txt
    #[arg(long, value_name = "URL")]
    debug_url: Option<String>,
    /// File with a bearer token for the metrics, if the process runs with --metrics-auth
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    database: DatabaseFlags,
}

impl Bundle {
    async fn execute(self) -> Result<(), Error> {
        let now = Timestamp::now();
        let file = format!("portolan-debug-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ"));
        let path = self.out.clone().unwrap_or_else(|| file.into());
        let mut parts = vec![BundlePart::new("settings.txt", settings::text())];
        parts.extend(self.process_parts().await);
        parts.extend(within("catalog", self.catalog_parts(now)).await);
        parts.extend(self.cluster_parts().await);
        let summary: String = parts.iter().map(|part| part.summary() + "\n").collect();
        if path.as_os_str() == "-" {
            let written = archive::write(std::io::stdout().lock(), &parts, now);
            written.map_err(failed_to("write the archive to the standard output"))?;
            eprintln!("{summary}review the archive before you publish it");
            return Ok(());
        }
        let written = archive::write_file(&path, &parts, now);
        written.map_err(failed_to(format!("write {}", path.display())))?;
        output::print(&format!(
            "{summary}wrote {}; review it before you publish it\n",
            path.display()
        ))
    }

    fn namespace(&self) -> Option<&str> {
        non_empty(self.namespace.as_deref())
    }
}

/// Returns the parts, or one with the error.
async fn within(name: &'static str, parts: impl Future<Output = Result<Vec<BundlePart>, Error>>) -> Vec<BundlePart> {
    let result = timeout(PART_TIMEOUT, parts).await;
    let result = result.unwrap_or_else(|_| Err(Error::Failed(format!("no result within {PART_TIMEOUT:?}"))));
    result.unwrap_or_else(|error| vec![BundlePart::failed(format!("{name}.txt"), error)])
}
