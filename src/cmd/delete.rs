use clap::Args;

use super::flags::database::DatabaseFlags;
use super::flags::declared::migrations;
use super::flags::deprecated::DeprecatedFlags;
use super::{Error, output};
use crate::api::NamespacedName;
use crate::catalog::Fence;

/// Delete a repository and its charts
///
/// Accepts the arguments of Kubeapps' asset-syncer, and the password of Postgres in DB_PASSWORD. With SQLite, stop `portolan run` first.
/// `portolan run` syncs the repository again if it is still declared.
#[derive(Args, Debug)]
pub struct Delete {
    /// Name of the repository
    pub name: String,
    /// Namespace of the repository
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// UID of the deleted AppRepository: only its rows are deleted, and its late syncs write nothing
    #[arg(long, value_name = "UID", help_heading = "Jobs")]
    pub uid: Option<String>,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub deprecated: DeprecatedFlags,
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

/// Delete all charts of all repositories and recreate the tables
///
/// Accepts the arguments of Kubeapps' asset-syncer, and the password of Postgres in DB_PASSWORD. With SQLite, stop `portolan run` first.
/// `portolan run` syncs all repositories again.
#[derive(Args, Debug)]
pub struct InvalidateCache {
    #[arg(long, short, hide = true)]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub deprecated: DeprecatedFlags,
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

/// Flags of Kubeapps' syncer that only `portolan sync` uses.
#[derive(Args, Debug)]
pub struct IgnoredFlags {
    #[arg(long, hide = true)]
    pub global_repos_namespace: Option<String>,
    #[arg(long, hide = true)]
    user_agent_comment: Option<String>,
    #[arg(long, hide = true)]
    filter_rules: Option<String>,
    #[arg(long, hide = true)]
    pass_credentials: bool,
    #[arg(long, hide = true)]
    tls_insecure_skip_verify: bool,
}

impl Delete {
    pub(super) async fn execute(self) -> Result<(), Error> {
        self.deprecated.warn();
        let name = NamespacedName::new(&self.namespace, &self.name);
        let is_removed = (self.database)
            .write_with(migrations(self.uid.as_deref()), async |catalog| {
                match self.uid.as_deref() {
                    Some(uid) => Ok(catalog.remove_deleted(&name, Fence::Uid(Some(uid)), uid).await?),
                    None => Ok(catalog.remove(&name, Fence::None).await?),
                }
            })
            .await?;
        // Kubeapps repeats its cleanup jobs, so a missing repository is not an error.
        let result = if is_removed { "deleted" } else { "not found" };
        output::print(&format!("{name}: {result}\n"))
    }
}

impl InvalidateCache {
    pub(super) async fn execute(self) -> Result<(), Error> {
        self.deprecated.warn();
        (self.database)
            .write(async |catalog| Ok(catalog.recreate().await?))
            .await?;
        output::print("all charts deleted\n")
    }
}
