//! Completion of command lines: shells and kubectl ask this program for the words that can follow.

mod names;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;
use clap_complete::engine::complete;
use clap_complete::env::{CompleteEnv, Shells};

use super::{Error, PROGRAM, failed_to, output};
pub(super) use names::{add_names, complete_namespace};

/// Set by the scripts to the name of the shell.
const VARIABLE: &str = "_PORTOLAN_COMPLETE";
/// The program that kubectl runs to complete `kubectl portolan`, with the words after it. It is a link to this one.
const KUBECTL_COMPLETION: &str = "kubectl_complete-portolan";
/// Cobra's directive to complete no names of files.
const NO_FILES: &str = ":4\n";

/// Print the completion script of a shell
///
/// For the current bash: `source <(portolan completion bash)`. The script runs `portolan` from PATH. It also completes names of
/// namespaces, AppRepositories and Applications of the cluster, and of charts of the database, if these respond within a second.
#[derive(Args, Debug)]
pub struct Completion {
    /// Shell that reads the script
    #[arg(value_enum)]
    shell: Shell,
}

impl Completion {
    pub(super) fn execute(self) -> Result<(), Error> {
        let shells = Shells::builtins();
        let name = self.shell.to_string();
        let shell = shells
            .completer(&name)
            .ok_or_else(|| Error::Usage(format!("no completion for {name}")))?;
        let mut script = Vec::new();
        shell
            .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
            .map_err(failed_to("write the completion script"))?;
        output::print(String::from_utf8_lossy(&script).trim_start())
    }
}

/// Answers a shell or kubectl. Returns `None` for other calls of this program. Errors would appear in the command line.
pub(super) fn answer(arguments: &[OsString]) -> Option<ExitCode> {
    let program = Path::new(arguments.first()?).file_name()?;
    if program == KUBECTL_COMPLETION {
        return Some(ExitCode::from(u8::from(complete_for_kubectl(arguments).is_none())));
    }
    let environment = CompleteEnv::with_factory(super::command).var(VARIABLE);
    let current_dir = std::env::current_dir().ok();
    match environment.try_complete(arguments, current_dir.as_deref()) {
        Ok(false) => None,
        answered => Some(ExitCode::from(u8::from(answered.is_err()))),
    }
}

fn complete_for_kubectl(arguments: &[OsString]) -> Option<()> {
    let mut words = arguments.to_vec();
    if words.len() < 2 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    let candidates = complete(&mut super::command(), words, last, None).ok()?;
    let mut lines: String = candidates
        .iter()
        .map(|candidate| format!("{}\n", candidate.get_value().to_string_lossy()))
        .collect();
    lines.push_str(NO_FILES);
    output::print(&lines).ok()
}
