//! `portolan resync`: ask for a sync by hand.

use std::path::PathBuf;

use clap::Args;

use super::{
    Failure,
    flags::{ClusterFlags, LogFlags},
};

/// Ask for a repository to be synced now, everything compared anew; the running `portolan run` does it.
#[derive(Args, Debug)]
pub struct Resync {
    /// The name of the AppRepository
    pub name: String,
    /// Its namespace; without it that of the kubeconfig's context, and `default` for a folder
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The folder of manifests that declares it, instead of a cluster
    #[arg(long, env = "PORTOLAN_MANIFESTS", value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Resync {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
