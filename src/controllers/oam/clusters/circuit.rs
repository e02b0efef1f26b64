//! Stops requests to a cluster that does not respond.
//!
//! ```text
//!           failure                 probe                 response
//!  closed ──────────► open ──────────────────► half open ──────────► closed
//!                       ▲        failure           │
//!                       └──────────────────────────┘
//! ```
//! After a rare failure, a probe closes it at once. A request without a response is no failure yet if it may be due to an
//! aggregated API server.
//!
//! Half open, one request is sent at a time. Requests that were sent before the circuit opened change nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Requests in a row without a response that open the circuit, although an aggregated API server may serve the last one.
const MAX_TIMEOUTS: u32 = 3;

#[derive(Default)]
pub(super) struct Circuit {
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// The number of times that the circuit opened.
    openings: u64,
    /// A request, which is no probe, got a response since the last call of [`Circuit::take_success`].
    has_succeeded: bool,
    /// The number of requests without a response since the last response.
    timeouts: u32,
}

#[derive(Default)]
enum Phase {
    #[default]
    Closed,
    HalfOpen {
        is_busy: bool,
    },
    Open {
        problem: String,
    },
}

impl Circuit {
    /// Returns the reason why no request is sent.
    pub(super) fn problem(&self) -> Option<String> {
        match &self.state.lock().phase {
            Phase::Open { problem } => Some(problem.clone()),
            Phase::Closed | Phase::HalfOpen { .. } => None,
        }
    }

    /// Admits a request that has `limit` until its response, or returns the reason why it must not be sent.
    pub(super) fn admit(self: &Arc<Self>, limit: Duration, may_be_aggregated: bool) -> Result<Attempt, String> {
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Open { problem } => return Err(problem.clone()),
            Phase::HalfOpen { is_busy: true } => {
                return Err(
                    "the cluster was unreachable, and the first request since then has no response yet".to_owned(),
                );
            }
            Phase::HalfOpen { is_busy } => *is_busy = true,
            Phase::Closed => {}
        }
        Ok(Attempt {
            circuit: Arc::clone(self),
            openings: state.openings,
            started: Instant::now(),
            limit,
            may_be_aggregated,
            is_over: false,
        })
    }

    /// Waits until the circuit is open. For one waiter.
    pub(super) async fn opened(&self) {
        while self.problem().is_none() {
            self.opened.notified().await;
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().phase = Phase::Closed;
    }

    pub(super) fn set_half_open(&self) {
        self.state.lock().phase = Phase::HalfOpen { is_busy: false };
    }

    pub(super) fn set_open(&self, problem: String) {
        self.state.lock().phase = Phase::Open { problem };
    }

    pub(super) fn take_success(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_succeeded)
    }

    fn record_success(&self, openings: u64) {
        let mut state = self.state.lock();
        if state.openings == openings {
            state.phase = Phase::Closed;
            state.has_succeeded = true;
            state.timeouts = 0;
        }
    }

    fn record_failure(&self, openings: u64, problem: String) {
        let mut state = self.state.lock();
        if state.openings == openings {
            state.phase = Phase::Open { problem };
            state.openings += 1;
            self.opened.notify_one();
        }
    }

    /// Counts a request without a response. Returns true if the cluster may respond to others.
    fn tolerates_timeout(&self, may_be_aggregated: bool) -> bool {
        let mut state = self.state.lock();
        state.timeouts = state.timeouts.saturating_add(1);
        may_be_aggregated && state.timeouts < MAX_TIMEOUTS
    }

    fn release(&self, openings: u64) {
        let mut state = self.state.lock();
        if state.openings == openings
            && let Phase::HalfOpen { is_busy } = &mut state.phase
        {
            *is_busy = false;
        }
    }
}

/// A request in flight. Dropped before its time limit, it tells nothing about the cluster; later, it is a failure.
pub(super) struct Attempt {
    circuit: Arc<Circuit>,
    openings: u64,
    started: Instant,
    limit: Duration,
    may_be_aggregated: bool,
    is_over: bool,
}

impl Attempt {
    pub(super) fn succeed(mut self) {
        self.is_over = true;
        self.circuit.record_success(self.openings);
    }

    /// Ends a request that tells nothing about the cluster.
    pub(super) fn release(mut self) {
        self.is_over = true;
        self.circuit.release(self.openings);
    }

    pub(super) fn fail(mut self, problem: String) {
        self.is_over = true;
        self.circuit.record_failure(self.openings, problem);
    }

    /// Ends a request that got no response within its limit.
    pub(super) fn time_out(mut self) {
        self.is_over = true;
        self.record_timeout();
    }

    fn record_timeout(&self) {
        if self.circuit.tolerates_timeout(self.may_be_aggregated) {
            self.circuit.release(self.openings);
        } else {
            let problem = NoResponse(self.limit).to_string();
            self.circuit.record_failure(self.openings, problem);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.started.elapsed() < self.limit {
            self.circuit.release(self.openings);
        } else {
            self.record_timeout();
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no response within {}s", .0.as_secs())]
pub(super) struct NoResponse(pub(super) Duration);

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn admitted(circuit: &Arc<Circuit>) -> Attempt {
        circuit.admit(LIMIT, false).ok().unwrap()
    }

    fn refusal(circuit: &Arc<Circuit>) -> String {
        circuit.admit(LIMIT, false).err().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_stops_all_requests_until_a_probe_succeeds() {
        let circuit = Arc::new(Circuit::default());
        assert!(circuit.opened().now_or_never().is_none());
        admitted(&circuit).fail("connection refused".to_owned());
        circuit.opened().await;
        assert_eq!(refusal(&circuit), "connection refused");
        circuit.set_open("connection reset".to_owned());
        assert_eq!(circuit.problem().as_deref(), Some("connection reset"));
        circuit.set_half_open();
        assert_eq!(circuit.problem(), None);
        admitted(&circuit).succeed();
        let (_one, _other) = (admitted(&circuit), admitted(&circuit));
        assert!(circuit.opened().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_it_admits_one_request_at_a_time() {
        let circuit = Arc::new(Circuit::default());
        admitted(&circuit).fail("connection refused".to_owned());
        circuit.set_half_open();
        let canceled = admitted(&circuit);
        assert!(refusal(&circuit).contains("no response yet"));
        drop(canceled);
        let failed = admitted(&circuit);
        failed.fail("connection reset".to_owned());
        assert_eq!(refusal(&circuit), "connection reset");
        circuit.set_half_open();
        admitted(&circuit).succeed();
        assert!(circuit.take_success() && !circuit.take_success());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_request_is_a_failure_only_after_its_limit() {
        let circuit = Arc::new(Circuit::default());
        let attempt = admitted(&circuit);
        advance(LIMIT - Duration::from_millis(1)).await;
        drop(attempt);
        assert_eq!(circuit.problem(), None);
        let attempt = admitted(&circuit);
        advance(LIMIT).await;
        drop(attempt);
        assert_eq!(circuit.problem().as_deref(), Some("no response within 5s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_aggregated_api_that_hangs_opens_it_unless_others_get_responses() {
        let circuit = Arc::new(Circuit::default());
        let time_out = || circuit.admit(LIMIT, true).ok().unwrap().time_out();
        for _ in 0..5 {
            time_out();
            time_out();
            assert_eq!(circuit.problem(), None);
            admitted(&circuit).succeed();
        }
        for _ in 0..MAX_TIMEOUTS {
            time_out();
        }
        assert_eq!(circuit.problem().as_deref(), Some("no response within 5s"));
        // Until a response, each of its requests confirms the outage.
        circuit.set_half_open();
        time_out();
        assert!(circuit.problem().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_a_request_to_an_aggregated_api_makes_way_for_the_next() {
        let circuit = Arc::new(Circuit::default());
        admitted(&circuit).fail("connection refused".to_owned());
        circuit.set_half_open();
        circuit.admit(LIMIT, true).ok().unwrap().time_out();
        admitted(&circuit).succeed();
        assert_eq!(circuit.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_sent_before_an_outage_neither_end_nor_extend_it() {
        let circuit = Arc::new(Circuit::default());
        let (slow, slower) = (admitted(&circuit), admitted(&circuit));
        admitted(&circuit).fail("connection refused".to_owned());
        slow.succeed();
        assert!(circuit.problem().is_some() && !circuit.take_success());
        circuit.set_half_open();
        slower.fail("connection reset".to_owned());
        assert_eq!(circuit.problem(), None);
    }
}
