//! `portolan delete`: the charts of one repository.

use clap::Args;

use super::{Failure, database, output, sync::OneShotFlags, unused::UnusedFlags};
use crate::api::NamespacedName;

/// Remove a repository and its charts from the catalogue.
///
/// Takes the arguments and the environment (DB_PASSWORD) of Kubeapps' asset-syncer. With SQLite it can't run beside `portolan run`,
/// with Postgres it can. A repository that is still declared is synced again by `portolan run`.
#[derive(Args, Debug)]
pub struct Delete {
    /// The name of the repository
    pub name: String,
    #[command(flatten)]
    pub one_shot: OneShotFlags,
    #[command(flatten)]
    pub unused: UnusedFlags,
}

impl Delete {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        let (catalog, _lock) = database::open_to_write(&self.one_shot.database).await?;
        let name = NamespacedName {
            namespace: self.one_shot.namespace,
            name: self.name,
        };
        let removed = catalog.remove(&name, None).await;
        catalog.close().await;
        // A cleanup that is repeated finds nothing, which is what it is for.
        match removed {
            Ok(true) => output::print(&format!("{name}: removed\n")),
            Ok(false) => output::print(&format!("{name}: nothing to remove\n")),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }
}
