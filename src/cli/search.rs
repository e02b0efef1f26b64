//! `portolan search`: charts by words.

use std::num::NonZeroU32;

use clap::Args;

use super::{
    Failure,
    flags::{DatabaseFlags, LogFlags, OutputFlags},
};

/// Search the charts of the catalogue by name, description and keywords.
#[derive(Args, Debug)]
pub struct Search {
    /// The words to look for; a chart is found that has all of them. Without any, all charts
    pub words: Vec<String>,
    /// Only the charts of this namespace; of all without it
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How many charts are shown at most
    #[arg(long, env = "PORTOLAN_LIMIT", value_name = "N", default_value = "100")]
    pub limit: NonZeroU32,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Search {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
