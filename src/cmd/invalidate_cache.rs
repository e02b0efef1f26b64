//! `portolan invalidate-cache`: all charts.

use clap::Args;

use super::deprecated_flags::ObsoleteFlags;
use super::flags::{DatabaseFlags, LogFlags};
use super::unused::UnusedFlags;
use super::{Failure, database, output};

/// Drop all charts of all repositories, and make the tables anew.
///
/// Takes the arguments and the environment (DB_PASSWORD) of Kubeapps' asset-syncer. With SQLite it can't run beside `portolan run`,
/// with Postgres it can: the running one notices and syncs every repository again.
#[derive(Args, Debug)]
pub struct InvalidateCache {
    #[command(flatten)]
    pub database: DatabaseFlags,
    /// The charts of all namespaces are dropped, whatever it is
    #[arg(long, short, hide = true, default_value = "")]
    pub namespace: String,
    /// The charts of all namespaces are dropped, whatever it is
    #[arg(long, hide = true, default_value = "")]
    pub global_repos_namespace: String,
    #[command(flatten)]
    pub logging: LogFlags,
    #[command(flatten)]
    pub obsolete: ObsoleteFlags,
    #[command(flatten)]
    pub unused: UnusedFlags,
}

impl InvalidateCache {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.obsolete.warn();
        let (catalog, _lock) = database::open_to_write(&self.database).await?;
        let recreated = catalog.recreate().await;
        catalog.close().await;
        recreated.map_err(|error| Failure::failed(error.to_string()))?;
        output::print("all charts were dropped\n")
    }
}
