//! The child process that evaluates filters: this program with a private argument.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::jq::{self, FilterEvaluator};
use crate::runtime::worker_process::{
    Framing, ProcessLimits, ProcessUsage, Program, WorkerProcesses, limit_cpu, serve,
};

/// Not a subcommand, so that help does not list it.
const ARGUMENT: &str = "__filter";
const STACK: usize = 8 * 1024 * 1024;
/// Memory of the child's program besides stack and values.
const PROGRAM: u64 = 4 * 1024 * 1024;
const MAX_RESPONSE: usize = 1024 * 1024;
/// A child that keeps more memory than this after its work is replaced, so that the next child has its full limit.
const MAX_KEPT: u64 = 8 * 1024 * 1024;
/// glibc would otherwise reserve address space for each thread, which counts against the limit of the child.
const ENVIRONMENT: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// Returns the memory of a child whose values take at most `memory`.
#[must_use]
pub const fn process_memory(memory: u64) -> u64 {
    memory + STACK as u64 + PROGRAM
}

#[derive(Clone)]
pub struct FilterProcesses {
    pub(super) processes: WorkerProcesses,
    /// Memory of the values of one filter in bytes.
    pub(super) memory: u64,
    pub(super) limits: jq::FilterLimits,
}

impl FilterProcesses {
    /// Uses the binary at `path`. Its children limit their values to `memory` bytes.
    #[must_use]
    pub fn new(path: PathBuf, memory: u64, limits: jq::FilterLimits) -> Self {
        let program = Program {
            paths: vec![path],
            name: "portolan-worker",
            arguments: vec![
                ARGUMENT.into(),
                memory.to_string().into(),
                limits.cpu_seconds.to_string().into(),
            ],
            environment: ENVIRONMENT.map(|(name, value)| (name, value.to_owned())).into(),
            framing: Framing::LengthPrefix,
            max_response: MAX_RESPONSE,
            max_memory: None,
        };
        let is_reusable = |usage: ProcessUsage| usage.memory.is_some_and(|bytes| bytes <= MAX_KEPT);
        Self {
            processes: WorkerProcesses::new(program, is_reusable),
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
    let limits = ProcessLimits {
        memory: arguments.next()?.to_str()?.parse().ok()?,
        stack: STACK,
    };
    let cpu_time = Duration::from_secs(arguments.next()?.to_str()?.parse().ok()?);
    // Panics are answers; their messages would fill the pipe, which the parent reads only at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let mut evaluator = FilterEvaluator::default();
    let answer = move |request: Vec<u8>| {
        if jq::is_load_request(&request) {
            // If it fails, the deadline of the parent remains.
            let _ = limit_cpu(cpu_time);
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
