//! Evaluates CUE in processes of the program `portolan-cue` (evaluator/), or of another that speaks its
//! [`protocol`].
//!
//! ```text
//!  evaluate(namespace, source) ─► permit, namespaces in turn ─► thread ─► process ─► result or error
//!                                       ▲                          │
//!                                       └── yielded, if another ◄──┴─► killed: timeout, memory, canceled
//!                                           namespace waits
//! ```
//! Namespaces with slow templates together leave a process to the others ([`slow`]). A caller that others wait for ends with
//! its [`turn`].
//!
//! Templates are untrusted, and an evaluation can't be interrupted: it may never end, or take gigabytes. So each process
//! is watched and killed at a limit. It is replaced after a number of evaluations too, whatever they leave behind.

mod compat;
mod error;
mod metrics;
pub mod protocol;
mod rewritten;
mod schema;
mod slow;
mod source;
#[cfg(test)]
mod tests;
pub mod turn;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use error::{Error, TextErrors};
pub use protocol::{Inspection, TemplateKind, TextErrorKind};
pub use source::CueSource;

use crate::budget::{Budget, Reservation, ResourceMetrics, leave_runtime_if_large};
use crate::runtime::worker_process::{Framing, ProcessUsage, Program, Worker, WorkerError, WorkerProcesses};
use metrics::{EvaluatorMetrics, SUCCESS};
use rewritten::RewrittenTemplates;
use slow::SlowNamespaces;

/// The name of the program, and of its processes.
pub const PROGRAM: &str = "portolan-cue";
/// Bounds what may leak.
const MAX_EVALUATIONS: u32 = 20_000;
/// Interval between looks for waiting namespaces.
const POLL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct EvaluatorOptions {
    /// By default, [`PROGRAM`] beside the own executable or in PATH.
    pub program: Option<PathBuf>,
    /// Maximum number of processes.
    pub workers: NonZeroUsize,
    /// Time of one evaluation.
    pub timeout: Duration,
    /// Memory of one process in bytes.
    pub memory: u64,
}

impl Default for EvaluatorOptions {
    fn default() -> Self {
        Self {
            program: None,
            workers: NonZeroUsize::MIN.saturating_add(1),
            timeout: Duration::from_secs(10),
            memory: 512 * 1024 * 1024,
        }
    }
}

/// A pool of evaluator processes. Clones share it.
#[derive(Clone)]
pub struct Evaluator(Arc<Inner>);

struct Inner {
    timeout: Duration,
    memory: u64,
    /// Longest time for which a namespace uses more than its share of the processes while another waits.
    turn: Duration,
    processes: WorkerProcesses,
    permits: Budget,
    slow: SlowNamespaces,
    metrics: EvaluatorMetrics,
    rewritten: RewrittenTemplates,
    next_id: AtomicU64,
}

impl Evaluator {
    /// `waiting` measures the permits, of which each process in use takes one.
    #[must_use]
    pub fn new(options: EvaluatorOptions, waiting: ResourceMetrics) -> Self {
        Self::with_metrics(options, waiting, EvaluatorMetrics::default())
    }

    /// Creates another pool, whose evaluations are counted with those of this one.
    #[must_use]
    pub fn separate(&self, options: EvaluatorOptions, waiting: ResourceMetrics) -> Self {
        Self::with_metrics(options, waiting, self.0.metrics.clone())
    }

    fn with_metrics(options: EvaluatorOptions, waiting: ResourceMetrics, metrics: EvaluatorMetrics) -> Self {
        let workers = options.workers.get();
        waiting.set_limit(workers as u64);
        let processes = WorkerProcesses::new(program(&options), {
            let (metrics, memory) = (metrics.clone(), options.memory);
            move |usage| match reason_to_replace(usage, memory) {
                Some(cause) => {
                    metrics.count_restart(cause);
                    false
                }
                None => true,
            }
        });
        Self(Arc::new(Inner {
            timeout: options.timeout,
            memory: options.memory,
            turn: options.timeout / u32::try_from(workers).unwrap_or(u32::MAX),
            processes,
            permits: Budget::with_metrics("cue_workers", workers as u64, waiting),
            slow: SlowNamespaces::new(workers, options.timeout),
            metrics,
            rewritten: RewrittenTemplates::default(),
            next_id: AtomicU64::new(1),
        }))
    }

    /// Compiles a CUE text, checks that it is valid, and exports it. Waits for a process; namespaces are served in turn.
    ///
    /// Dropping the future ends the evaluation.
    pub async fn evaluate(&self, namespace: &str, source: impl Into<CueSource>) -> Result<Value, Error> {
        let source = source.into();
        let (start, kind) = (Instant::now(), source.kind());
        leave_runtime_if_large(source.text().len()).await;
        let template = rewritten::RewrittenTemplate::of(&source);
        let result = self
            .request(namespace, source, protocol::evaluation, decode_result)
            .await;
        let result = match result {
            Ok((exported, bytes)) => {
                leave_runtime_if_large(bytes).await;
                if exported.is_rewritten {
                    self.0.metrics.count_rewritten(kind);
                    self.0.rewritten.log(namespace, template);
                }
                Ok(exported.value)
            }
            Err(error) => Err(error),
        };
        let label = result.as_ref().err().map_or(SUCCESS, Error::result);
        self.0.metrics.count_evaluation(label, kind, start.elapsed());
        result
    }

    /// Parses a template.
    pub async fn inspect(&self, namespace: &str, template: &str) -> Result<Inspection, Error> {
        let source = CueSource::of_template(template);
        self.request(namespace, source, protocol::inspection, protocol::decode_inspection)
            .await
    }

    /// Parses and compiles a template. Errors that parameters or the context may remove are ignored.
    pub async fn inspect_compiled(&self, namespace: &str, template: &str) -> Result<Inspection, Error> {
        let source = CueSource::of_template(template);
        self.request(
            namespace,
            source,
            protocol::checked_inspection,
            protocol::decode_inspection,
        )
        .await
    }

    async fn request<T: Send + 'static>(
        &self,
        namespace: &str,
        source: CueSource,
        encode: fn(u64, CueSource) -> Result<Vec<u8>, Error>,
        decode: fn(u64, &[u8]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let id = self.next_id();
        let request: Arc<[u8]> = encode(id, source)?.into();
        let call = move |evaluator: &Self, cancel: &CancellationToken| {
            let mut worker = evaluator.checkout()?;
            if worker.is_new() {
                evaluator.check_version(&mut worker, cancel)?;
            }
            let response = evaluator.call(&mut worker, &request, cancel)?;
            decode(id, &response).map_err(|error| evaluator.failed(&mut worker, error))
        };
        self.run(namespace, call).await
    }

    /// Starts a process unless one is running, and checks that it speaks the protocol.
    pub async fn check(&self) -> Result<(), Error> {
        let check = |evaluator: &Self, cancel: &CancellationToken| {
            let mut worker = evaluator.checkout()?;
            evaluator.check_version(&mut worker, cancel)
        };
        self.run("", check).await
    }

    /// Returns the resident memory of all processes besides the program itself.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.0.processes.resident_bytes()
    }

    /// Runs `work` on a blocking thread when it is the turn of the namespace; again, if it had to yield.
    async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl Fn(&Self, &CancellationToken) -> Result<T, AttemptEnd> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        loop {
            let slow = self.0.slow.acquire(namespace).await;
            let permit = self.0.permits.acquire(namespace, 1).await;
            if slow.is_none() && self.0.slow.contains(namespace) {
                // Known since it waits.
                continue;
            }
            match self.attempt(namespace, permit, work.clone()).await {
                Ok(result) => return Ok(result),
                Err(AttemptEnd::Failed(error)) => return Err(error),
                Err(AttemptEnd::Canceled) => {}
            }
        }
    }

    async fn attempt<T: Send + 'static>(
        &self,
        namespace: &str,
        permit: Reservation,
        work: impl FnOnce(&Self, &CancellationToken) -> Result<T, AttemptEnd> + Send + 'static,
    ) -> Result<T, AttemptEnd> {
        let cancel = CancellationToken::new();
        // Ends the process when the caller is gone. The thread returns the permit when it has really ended.
        let _canceled_on_drop = cancel.clone().drop_guard();
        let evaluator = self.clone();
        let canceled = cancel.clone();
        let owner = namespace.to_owned();
        let mut thread = tokio::task::spawn_blocking(move || {
            let timer = evaluator.0.slow.time(&owner);
            let result = work(&evaluator, &canceled);
            // Before others get the permit.
            drop(timer);
            drop(permit);
            result
        });
        let result = tokio::select! {
            result = &mut thread => result,
            () = self.must_yield(namespace) => {
                cancel.cancel();
                thread.await
            }
        };
        result.unwrap_or_else(|_| Err(AttemptEnd::Failed(Error::Crashed("the evaluation panicked".to_owned()))))
    }

    /// Returns when a namespace that uses more than its share of the processes keeps another from its turn.
    async fn must_yield(&self, namespace: &str) {
        sleep(self.0.turn).await;
        while !self.0.permits.is_over_share(namespace) {
            sleep(POLL).await;
        }
    }

    fn check_version(&self, worker: &mut Worker, cancel: &CancellationToken) -> Result<(), AttemptEnd> {
        let id = self.next_id();
        let response = self.call(worker, &protocol::version_request(id), cancel)?;
        protocol::check_version(id, &response).map_err(|error| self.failed(worker, error))
    }

    fn checkout(&self) -> Result<Worker, AttemptEnd> {
        self.0.processes.checkout().map_err(|error| self.stopped(error))
    }

    fn call(&self, worker: &mut Worker, request: &[u8], cancel: &CancellationToken) -> Result<Vec<u8>, AttemptEnd> {
        let deadline = Instant::now() + self.0.timeout;
        let response = worker.call(request, deadline, cancel);
        response.map_err(|error| {
            let stop = self.stopped(error);
            self.0.metrics.count_restart(match &stop {
                AttemptEnd::Failed(error) => error.result(),
                AttemptEnd::Canceled => "canceled",
            });
            stop
        })
    }

    fn stopped(&self, error: WorkerError) -> AttemptEnd {
        Error::of_worker(error, self.0.timeout, self.0.memory).map_or(AttemptEnd::Canceled, AttemptEnd::Failed)
    }

    /// Keeps a process that reports an error of its text, and ends one that breaks the protocol.
    fn failed(&self, worker: &mut Worker, error: Error) -> AttemptEnd {
        if !matches!(error, Error::Failed { .. }) {
            worker.discard();
            self.0.metrics.count_restart(error.result());
        }
        AttemptEnd::Failed(error)
    }

    fn next_id(&self) -> u64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evaluator")
            .field("timeout", &self.0.timeout)
            .field("memory", &self.0.memory)
            .field("permits", &self.0.permits)
            .finish_non_exhaustive()
    }
}

/// The end of an attempt without a result.
enum AttemptEnd {
    Failed(Error),
    /// The attempt yielded, or its caller is gone.
    Canceled,
}

/// Returns the result of an evaluation with its size as JSON.
fn decode_result(id: u64, response: &[u8]) -> Result<(protocol::Exported, usize), Error> {
    protocol::decode_result(id, response).map(|exported| (exported, response.len()))
}

fn reason_to_replace(usage: ProcessUsage, memory: u64) -> Option<&'static str> {
    // So that the next evaluation has most of its memory.
    let max_kept = memory / 4;
    match usage {
        ProcessUsage { calls, .. } if calls >= MAX_EVALUATIONS => Some("evaluations"),
        ProcessUsage { memory, .. } if memory.is_none_or(|bytes| bytes > max_kept) => Some("memory_kept"),
        _ => None,
    }
}

fn program(options: &EvaluatorOptions) -> Program {
    // The collector works harder before the process is killed.
    let soft_memory = options.memory / 5 * 4;
    Program {
        paths: match &options.program {
            // Processes run in another directory.
            Some(path) => vec![std::path::absolute(path).unwrap_or_else(|_| path.clone())],
            None => default_paths(),
        },
        name: PROGRAM,
        arguments: Vec::new(),
        environment: vec![("GOMEMLIMIT", soft_memory.to_string()), ("GOMAXPROCS", "1".to_owned())],
        framing: Framing::Lines,
        max_response: protocol::MAX_RESPONSE,
        max_memory: Some(options.memory),
    }
}

fn default_paths() -> Vec<PathBuf> {
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Relative entries would depend on the directory of the process.
    let directories = beside.into_iter().chain(std::env::split_paths(&path));
    directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM))
        .collect()
}
