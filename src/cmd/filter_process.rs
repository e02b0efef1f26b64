//! The child process that evaluates filters: this program with a private argument.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::controllers::apprepository::sync::filter::process_limits;
use crate::jq::Evaluator;
use crate::runtime::worker_process::{Program, WorkerProcesses, serve};

/// Not a subcommand, so that help does not list it.
const ARGUMENT: &str = "__filter";
/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Returns the processes of filters whose values take at most `memory` bytes.
pub fn processes(memory: u64) -> WorkerProcesses {
    WorkerProcesses::new(Program {
        path: PROGRAM.into(),
        arguments: vec![ARGUMENT.into(), memory.to_string().into()],
    })
}

/// Serves as the child if the arguments say so.
pub fn serve_if_child(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let memory = arguments.next().and_then(|memory| memory.to_str()?.parse().ok())?;
    let mut evaluator = Evaluator::default();
    Some(
        match serve(process_limits(memory), move |request| evaluator.answer(request)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
    )
}
