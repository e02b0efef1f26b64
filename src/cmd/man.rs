use std::{fs, path::PathBuf};

use clap::Args;

use super::{Error, failed_to};

/// Write a man page for each command
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct Man {
    /// Directory of the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(super) fn execute(self) -> Result<(), Error> {
        let directory = self.directory.display();
        fs::create_dir_all(&self.directory).map_err(failed_to(format!("create {directory}")))?;
        clap_mangen::generate_to(super::command(), &self.directory)
            .map_err(failed_to(format!("write man pages to {directory}")))
    }
}
