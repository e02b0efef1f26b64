//! `portolan crds`: the definitions of the custom resources.

use clap::{ArgAction, Args};

use super::{
    Failure,
    flags::{ClusterFlags, LogFlags},
    values::boolean,
};

/// Print the definitions of the custom resources, as for `portolan crds | kubectl apply -f -`, or install them.
#[derive(Args, Debug)]
pub struct Crds {
    /// Install the definitions, or upgrade those of Kubeapps, by server-side apply; wait until the API server serves them
    #[arg(long, env = "PORTOLAN_APPLY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = ArgAction::Set, value_parser = boolean)]
    pub apply: bool,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Crds {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        Ok(())
    }
}
