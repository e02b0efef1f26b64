//! `portolan status`: how the repositories are.

use clap::Args;

use super::{
    Failure,
    flags::{DatabaseFlags, LogFlags, OutputFlags},
};

/// Show the repositories of the catalogue: whether each is ready, and why not; its charts; when it was and will be synced.
#[derive(Args, Debug)]
pub struct Status {
    /// Only the repositories of this name
    pub name: Option<String>,
    /// Only those of this namespace; of all without it
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Status {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
