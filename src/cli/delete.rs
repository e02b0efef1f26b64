//! `portolan delete`: the charts of one repository.

use clap::Args;

use super::{Failure, sync::OneShotFlags};

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
}

impl Delete {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        self.one_shot.obsolete.warn();
        Ok(())
    }
}
