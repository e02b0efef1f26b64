//! `portolan invalidate-cache`: all charts.

use clap::Args;

use super::{Failure, database, output, sync::OneShotFlags};

/// Drop all charts of all repositories, and make the tables anew.
///
/// Takes the arguments and the environment (DB_PASSWORD) of Kubeapps' asset-syncer. A running `portolan run` on the same Postgres
/// notices and syncs every repository again.
#[derive(Args, Debug)]
pub struct InvalidateCache {
    #[command(flatten)]
    pub one_shot: OneShotFlags,
}

impl InvalidateCache {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        let (catalog, _lock) = database::open_to_write(&self.one_shot.database).await?;
        let recreated = catalog.recreate().await;
        catalog.close().await;
        recreated.map_err(|error| Failure::failed(error.to_string()))?;
        output::print("all charts were dropped\n")
    }
}
