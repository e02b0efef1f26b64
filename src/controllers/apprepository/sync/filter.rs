//! The filter of a sync, evaluated in a child process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::filter_process::FilterProcesses;
use super::request::SyncError;
use super::{Prepared, SyncerRun, resource_exhausted};
use crate::budget::WorkError;
use crate::catalog::Record;
use crate::jq::{self, FilterError, JqRule};
use crate::runtime::worker_process::{Worker, WorkerError};
use crate::text::{printable, truncate};

/// Time of all charts of a sync together. A filter ends earlier by its CPU time, unless the machine is overloaded.
const TIME: Duration = Duration::from_secs(60);
const NAME_BYTES: usize = 256;

pub struct ChartFilter {
    processes: FilterProcesses,
    rule: Arc<JqRule>,
    cancel: CancellationToken,
    worker: Option<Worker>,
    spent: Duration,
}

impl ChartFilter {
    #[must_use]
    pub fn new(processes: FilterProcesses, rule: Arc<JqRule>, cancel: CancellationToken) -> Self {
        Self {
            processes,
            rule,
            cancel,
            worker: None,
            spent: Duration::ZERO,
        }
    }

    pub fn reset(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Compiles the rule. Blocking.
    pub fn compile(&mut self) -> Result<(), FilterError> {
        self.worker = None;
        let processes = &self.processes;
        let mut worker = processes.processes.checkout().map_err(|error| self.failed(error, ""))?;
        let request = jq::load_request(&self.rule, processes.limits);
        let answer = self.call(&mut worker, &request, "")?;
        jq::decode_answer(&answer, 0)?;
        self.worker = Some(worker);
        Ok(())
    }

    /// Returns true for each chart to keep. `request` is a [`jq::charts_request`] with these charts. Blocking.
    pub fn keeps(&mut self, request: &[u8], names: &[&str]) -> Result<Vec<bool>, FilterError> {
        if self.worker.is_none() {
            self.compile()?;
        }
        let Some(mut worker) = self.worker.take() else {
            return Ok(Vec::new());
        };
        let place = place(names);
        let answer = self.call(&mut worker, request, &place)?;
        let kept = jq::decode_answer(&answer, names.len())?;
        self.worker = Some(worker);
        Ok(kept)
    }

    fn call(&mut self, worker: &mut Worker, request: &[u8], place: &str) -> Result<Vec<u8>, FilterError> {
        let started = Instant::now();
        let deadline = started + TIME.saturating_sub(self.spent);
        let answer = worker.call(request, deadline, &self.cancel);
        self.spent += started.elapsed();
        answer.map_err(|error| self.failed(error, place))
    }

    fn failed(&self, error: WorkerError, place: &str) -> FilterError {
        let cause = match error {
            WorkerError::Canceled | WorkerError::Deadline | WorkerError::Start(_) | WorkerError::Failed(_) => {
                return FilterError::Process(error.to_string());
            }
            WorkerError::Cpu => {
                let seconds = self.processes.limits.cpu_seconds;
                format!("it takes more than {seconds} seconds of CPU time for all charts together")
            }
            WorkerError::Memory => format!("it takes more than {} bytes of memory", self.processes.memory),
            WorkerError::Stack => "its calls or values are nested too deeply".to_owned(),
        };
        let place = place.to_owned();
        FilterError::LimitExceeded { place, cause }
    }
}

/// Compiles a filter that was not used before, before anything is fetched: an invalid one costs no request.
pub(super) async fn check_filter(run: &SyncerRun<'_>) -> Result<(), Prepared> {
    let Some(mut filter) = run.filter().filter(|_| run.last_success().is_none()) else {
        return Ok(());
    };
    let permits = match run.reserve(0).await {
        Ok(permits) => permits,
        Err(error) => return Err(Prepared::Failed(resource_exhausted(&error))),
    };
    let compile = move || {
        let compiled = filter.compile();
        drop(permits);
        compiled
    };
    let failed = match run.compute(compile).await {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => filter_failed(run.request.previous.as_ref(), &error),
        Err(WorkError::Exhausted(error)) => resource_exhausted(&error),
        Err(WorkError::Panicked) => {
            let message = "filter compiler panicked; please report this bug with the filter";
            SyncError::stalled("InternalError", message)
        }
    };
    Err(Prepared::Failed(failed))
}

/// Returns a transient error if a retry may mend the failure, until it occurs the third time in a row.
pub(super) fn filter_failed(previous: Option<&Record>, error: &FilterError) -> SyncError {
    let previous = previous.map(|previous| &previous.state);
    let is_third = previous.is_some_and(|state| state.reason == error.reason() && state.failures >= 2);
    SyncError {
        transient: error.is_transient() && !is_third,
        ..SyncError::stalled(error.reason(), error.to_string())
    }
}

fn place(names: &[&str]) -> String {
    let shown = |name: &str| truncate(&printable(name), NAME_BYTES);
    match names {
        [] => String::new(),
        [name] => format!(" at chart {}", shown(name)),
        [first, .., last] => format!(" at one of the charts from {} to {}", shown(first), shown(last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_named_by_its_first_and_last_chart() {
        assert_eq!(place(&["a"]), " at chart a");
        assert_eq!(place(&["a", "b", "c\u{1b}"]), " at one of the charts from a to c ");
        assert_eq!(place(&[]), "");
    }
}
