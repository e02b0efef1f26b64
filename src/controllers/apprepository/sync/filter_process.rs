//! The child process that evaluates filters: this program with a private argument.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::jq::{self, Evaluator};
use crate::runtime::worker_process::{Limits, Program, WorkerProcesses, limit_cpu, serve};

/// Not a subcommand, so that help does not list it.
const ARGUMENT: &str = "__filter";
/// CPU time of all charts of a sync together.
pub(super) const CPU_TIME: Duration = Duration::from_secs(10);
const STACK: usize = 8 * 1024 * 1024;
/// Memory of the child's program besides stack and values.
const PROGRAM: u64 = 4 * 1024 * 1024;

/// Returns the memory of a child whose values take at most `memory`.
#[must_use]
pub const fn process_memory(memory: u64) -> u64 {
    memory + STACK as u64 + PROGRAM
}

/// The processes that evaluate filters, and the limits of a filter.
#[derive(Clone)]
pub struct FilterProcesses {
    pub(super) processes: WorkerProcesses,
    /// Memory of the values of one filter in bytes.
    pub(super) memory: u64,
    pub(super) limits: jq::Limits,
}

impl FilterProcesses {
    /// Uses the binary at `path`. Its children limit their values to `memory` bytes.
    #[must_use]
    pub fn new(path: PathBuf, memory: u64, limits: jq::Limits) -> Self {
        let arguments = vec![ARGUMENT.into(), memory.to_string().into()];
        Self {
            processes: WorkerProcesses::new(Program { path, arguments }),
            memory,
            limits,
        }
    }
}

/// Serves as the child if the arguments of the program say so.
pub fn serve_if_child(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let limits = Limits {
        memory: arguments.next()?.to_str()?.parse().ok()?,
        stack: STACK,
    };
    // Panics are answers; their messages would fill the pipe, which the parent reads only at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let mut evaluator = Evaluator::default();
    let answer = move |request: Vec<u8>| {
        if jq::is_load_request(&request) {
            // If it fails, the deadline of the parent remains.
            let _ = limit_cpu(CPU_TIME);
        }
        evaluator.answer(request)
    };
    Some(match serve(limits, answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}
