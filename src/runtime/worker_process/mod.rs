//! Child processes for work on untrusted input that no limit inside a process can bound.
//!
//! ```text
//!  thread of the work ─► checkout ─► Worker::call ──message──► child: reader ─► thread with its own stack ─► handler
//!                            ▲            │       ◄──message──
//!                            └── idle ◄───┴─ error, deadline, cancellation, too much memory, not reusable: killed
//! ```
//! A child is this program with a private argument, or another program. It has no files and no network, since its only
//! descriptors are a socket to its parent and a pipe for its last words, and only the environment that its runtime needs.
//! It limits its own memory (and CPU time), and ends when the socket closes, so that none outlives its parent. Children
//! start on demand, one for each thread that works (which holds a permit), and end after [`IDLE`] without work.

mod child;
mod frame;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use child::{ProcessLimits, limit_cpu, serve};
pub use frame::Framing;
use process::{Process, resident_bytes};

/// A child without work ends after this time.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct Program {
    /// The first that exists is started.
    pub paths: Vec<PathBuf>,
    /// The name of the process for `ps`.
    pub name: &'static str,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(&'static str, String)>,
    pub framing: Framing,
    /// Maximum length of a response: the child may be under the control of its input.
    pub max_response: usize,
    /// A child that uses more during a call is killed. For programs that can't be trusted to limit themselves.
    pub max_memory: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    pub calls: u32,
    /// Resident bytes besides the program itself, if known.
    pub memory: Option<u64>,
}

/// The reason why a child gave no answer. It is killed in each case.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("failed to start a child process: {0}")]
    Start(std::io::Error),
    #[error("canceled")]
    Canceled,
    #[error("deadline exceeded")]
    Deadline,
    #[error("CPU time limit exceeded")]
    Cpu,
    #[error("memory limit exceeded")]
    Memory,
    #[error("stack limit exceeded")]
    Stack,
    #[error("child process failed: {0}")]
    Failed(String),
}

/// Starts and keeps children of one program. Clones share them.
#[derive(Clone)]
pub struct WorkerProcesses(Arc<Inner>);

struct Inner {
    program: Program,
    is_reusable: Box<dyn Fn(ProcessUsage) -> bool + Send + Sync>,
    idle: Mutex<Idle>,
    running: Arc<RunningProcesses>,
}

type RunningProcesses = Mutex<BTreeSet<u32>>;

#[derive(Default)]
struct Idle {
    processes: Vec<(Instant, Process)>,
    has_reaper: bool,
}

impl WorkerProcesses {
    /// A child is replaced after a call unless `is_reusable`.
    #[must_use]
    pub fn new(program: Program, is_reusable: impl Fn(ProcessUsage) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            program,
            is_reusable: Box::new(is_reusable),
            idle: Mutex::default(),
            running: Arc::default(),
        }))
    }

    /// Returns an idle child, or starts one. Blocking.
    pub fn checkout(&self) -> Result<Worker, WorkerError> {
        loop {
            // The child that was used last: the others reach their end.
            let idle = self.0.idle.lock().processes.pop();
            let process = match idle {
                Some((_, process)) if !process.is_running() => continue,
                Some((_, process)) => process,
                None => Process::start(&self.0.program, &self.0.running).map_err(WorkerError::Start)?,
            };
            return Ok(Worker {
                pool: self.clone(),
                process: Some(process),
            });
        }
    }

    /// Returns the resident memory of all children besides the program itself.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let running = self.0.running.lock().clone();
        running.into_iter().filter_map(resident_bytes).sum()
    }

    #[cfg(test)]
    fn idle(&self) -> usize {
        self.0.idle.lock().processes.len()
    }

    fn give_back(&self, process: Process) {
        // Without a runtime nothing would end it.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut idle = self.0.idle.lock();
        idle.processes.push((Instant::now(), process));
        if !std::mem::replace(&mut idle.has_reaper, true) {
            runtime.spawn(end_idle(Arc::downgrade(&self.0)));
        }
    }

    /// Ends the children without work since [`IDLE`]. Returns the time until the next child ends, if there is any.
    fn end_idle(&self) -> Option<Duration> {
        let mut state = self.0.idle.lock();
        let is_idle = |(since, _): &mut (Instant, Process)| since.elapsed() >= IDLE;
        let ended: Vec<_> = state.processes.extract_if(.., is_idle).collect();
        let oldest = state.processes.iter().map(|(since, _)| *since).min();
        state.has_reaper = oldest.is_some();
        drop(state);
        drop(ended);
        oldest.map(|since| IDLE.saturating_sub(since.elapsed()))
    }
}

async fn end_idle(pool: Weak<Inner>) {
    let mut next = Some(IDLE);
    while let Some(wait) = next {
        tokio::time::sleep(wait).await;
        let Some(pool) = pool.upgrade() else { return };
        next = WorkerProcesses(pool).end_idle();
    }
}

/// A child in use. Returned on drop, unless a call failed.
pub struct Worker {
    pool: WorkerProcesses,
    process: Option<Process>,
}

impl Worker {
    /// Sends a request and waits for its response. Blocking. After an error, all further calls fail.
    pub fn call(
        &mut self,
        request: &[u8],
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, WorkerError> {
        let failed = || WorkerError::Failed("an earlier call failed".to_owned());
        let mut process = self.process.take().ok_or_else(failed)?;
        let response = process.call(&self.pool.0.program, request, deadline, cancel)?;
        self.process = Some(process);
        Ok(response)
    }

    #[must_use]
    pub fn is_new(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_new)
    }

    pub fn discard(&mut self) {
        self.process = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.process.take()
            && (self.pool.0.is_reusable)(process.usage())
        {
            self.pool.give_back(process);
        }
    }
}
