use clap::Args;
use clap_complete::{Shell, generate};

use super::{Error, PROGRAM, output};

/// Print the completion script of a shell
///
/// For the current bash: `source <(portolan completion bash)`
#[derive(Args, Debug)]
pub struct Completion {
    /// Shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(super) fn execute(self) -> Result<(), Error> {
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), PROGRAM, &mut script);
        output::print(&String::from_utf8_lossy(&script))
    }
}
