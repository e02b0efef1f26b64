//! Child processes for work on untrusted input that no limit inside a process can bound.
//!
//! ```text
//!  thread of the work ─► checkout ─► Worker::call ──frame──► child: reader ─► thread with its own stack ─► handler
//!                            ▲            │       ◄──frame──
//!                            └── idle ◄───┴─ error, deadline, cancellation, too much memory kept: killed
//! ```
//! A child is this program with a private argument. It has no environment, no files and no network, since its only
//! descriptors are a socket to its parent and a pipe for its last words. It limits its own memory and CPU time, and
//! ends when the socket closes, so that none outlives its parent. Children start on demand, one for each thread that works
//! (which holds a CPU permit), and end after [`IDLE`] without work.

mod child;
mod frame;
mod process;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use child::{Limits, limit_cpu, serve};
use process::Process;

/// A child without work ends after this time.
const IDLE: Duration = Duration::from_secs(60);
/// A child that keeps more memory than this after its work is replaced, so that the next one has its full limit.
const MAX_KEPT: u64 = 8 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
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
    idle: Mutex<Vec<(Instant, Process)>>,
}

impl WorkerProcesses {
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self(Arc::new(Inner {
            program,
            idle: Mutex::default(),
        }))
    }

    /// Returns an idle child, or starts one. Blocking.
    pub fn checkout(&self) -> Result<Worker, WorkerError> {
        loop {
            // The last one used: the others reach their end.
            let idle = self.0.idle.lock().pop();
            let process = match idle {
                Some((_, process)) if !process.is_running() => continue,
                Some((_, process)) => process,
                None => Process::start(&self.0.program).map_err(WorkerError::Start)?,
            };
            return Ok(Worker {
                pool: self.clone(),
                process: Some(process),
            });
        }
    }

    #[cfg(test)]
    fn idle(&self) -> usize {
        self.0.idle.lock().len()
    }

    fn give_back(&self, process: Process) {
        // Without a runtime nothing would end it.
        let Ok(runtime) = Handle::try_current() else { return };
        self.0.idle.lock().push((Instant::now(), process));
        let pool = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            tokio::time::sleep(IDLE).await;
            end_idle(&pool);
        });
    }
}

fn end_idle(pool: &Weak<Inner>) {
    let Some(pool) = pool.upgrade() else { return };
    let is_idle = |(since, _): &mut (Instant, Process)| since.elapsed() >= IDLE;
    let ended: Vec<_> = pool.idle.lock().extract_if(.., is_idle).collect();
    drop(ended);
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
        let response = process.call(request, deadline, cancel)?;
        self.process = Some(process);
        Ok(response)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.process.take()
            && process.resident_bytes().is_some_and(|bytes| bytes <= MAX_KEPT)
        {
            self.pool.give_back(process);
        }
    }
}
