//! `portolan show`: one chart.

use clap::Args;

use super::{
    Failure,
    flags::{DatabaseFlags, LogFlags, OutputFlags},
};

/// Show a chart of the catalogue with all its versions.
#[derive(Args, Debug)]
pub struct Show {
    /// The chart, as REPOSITORY/CHART
    #[arg(value_name = "REPOSITORY/CHART")]
    pub chart: String,
    /// The namespace of the repository; needed where several have a repository of that name
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Show {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
