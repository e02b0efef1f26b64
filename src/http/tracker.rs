//! Tracks the requests of one sync: the time without a response, and the bytes that arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Period of [`WaitingRequests::recent_bytes`].
pub const RECENT: Duration = Duration::from_secs(10);

/// The requests of one sync; a handle, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RequestTracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    aborted: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    /// The start of the first request in flight, or the end of the last request since.
    since: Option<Instant>,
    unanswered: Duration,
    /// Bytes by the second in which they arrived.
    received: VecDeque<(Instant, u64)>,
    /// The start of the first request.
    started: Option<Instant>,
    /// The sync that sends the request for which this sync waits, and its unanswered time before.
    shared: Option<(RequestTracker, Duration)>,
}

/// Requests in flight of a sync that sent its first request at least [`RECENT`] ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingRequests {
    pub recent_bytes: u64,
}

/// A request in flight. It counts as unanswered unless [`Self::answered`] is called.
#[derive(Debug)]
pub struct InFlight(Option<RequestTracker>);

impl RequestTracker {
    #[must_use]
    pub fn begin(&self) -> InFlight {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        if state.in_flight == 0 {
            state.since = Some(now);
        }
        state.started.get_or_insert(now);
        state.in_flight += 1;
        drop(state);
        InFlight(Some(self.clone()))
    }

    /// Begins to wait for a request that `sender` sends.
    #[must_use]
    pub fn join(&self, sender: &Self) -> InFlight {
        if !self.is_same(sender) {
            let before = sender.unanswered();
            self.0.state.lock().shared = Some((sender.clone(), before));
        }
        self.begin()
    }

    pub fn received(&self, bytes: u64) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        match state.received.back_mut() {
            Some((second, sum)) if now.duration_since(*second) < Duration::from_secs(1) => *sum += bytes,
            _ => state.received.push_back((now, bytes)),
        }
        state.forget_old(now);
    }

    /// Returns the time for which requests were in flight that never were answered.
    #[must_use]
    pub fn unanswered(&self) -> Duration {
        self.0.state.lock().unanswered
    }

    /// A sync whose request was answered a moment ago counts too: a server that answers one of many in time is as slow.
    #[must_use]
    pub fn waiting(&self) -> Option<WaitingRequests> {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        let is_recent = |started| now.duration_since(started) < RECENT;
        if state.in_flight == 0 || state.started.is_none_or(is_recent) {
            return None;
        }
        let (recent_bytes, shared) = (state.recent_bytes(now), state.shared.clone());
        // Not locked together with the state of the sender.
        drop(state);
        let Some((sender, _)) = shared else {
            return Some(WaitingRequests { recent_bytes });
        };
        // While the sender waits in a queue, no server is waited for.
        let mut sender = sender.0.state.lock();
        let shared = sender.recent_bytes(now);
        (sender.in_flight > 0).then_some(WaitingRequests {
            recent_bytes: recent_bytes + shared,
        })
    }

    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends all requests with an error, also later ones.
    pub fn abort(&self) {
        self.0.aborted.cancel();
    }

    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.0.aborted.is_cancelled()
    }

    pub async fn aborted(&self) {
        self.0.aborted.cancelled().await;
    }

    fn end(&self, is_answered: bool) {
        let now = Instant::now();
        let shared = self.0.state.lock().shared.take();
        // The sender does not count its time in queues.
        let of_sender = shared.map(|(sender, before)| sender.unanswered().saturating_sub(before));
        let mut state = self.0.state.lock();
        let waited = state.since.map_or(Duration::ZERO, |since| now.duration_since(since));
        if !is_answered {
            state.unanswered += of_sender.unwrap_or(waited).min(waited);
        }
        state.in_flight = state.in_flight.saturating_sub(1);
        state.since = (state.in_flight > 0).then_some(now);
    }
}

impl State {
    fn recent_bytes(&mut self, now: Instant) -> u64 {
        self.forget_old(now);
        self.received.iter().map(|(_, bytes)| bytes).sum()
    }

    fn forget_old(&mut self, now: Instant) {
        let is_old = |(second, _): &(Instant, u64)| now.duration_since(*second) >= RECENT;
        while self.received.front().is_some_and(is_old) {
            self.received.pop_front();
        }
    }
}

impl InFlight {
    pub fn answered(mut self) {
        if let Some(tracker) = self.0.take() {
            tracker.end(true);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(tracker) = self.0.take() {
            tracker.end(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn only_the_time_without_a_response_counts() {
        let tracker = RequestTracker::default();
        let answered = tracker.begin();
        advance(30 * SECOND).await;
        answered.answered();
        // Not in flight, as in a queue or in the database.
        advance(100 * SECOND).await;
        let failed = tracker.begin();
        advance(20 * SECOND).await;
        drop(failed);
        assert_eq!(tracker.unanswered(), 20 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_count_once_and_from_the_last_response() {
        let tracker = RequestTracker::default();
        let hanging = [tracker.begin(), tracker.begin()];
        advance(10 * SECOND).await;
        tracker.begin().answered();
        advance(25 * SECOND).await;
        drop(hanging);
        assert_eq!(tracker.unanswered(), 25 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_the_last_ten_seconds_count() {
        let tracker = RequestTracker::default();
        assert_eq!(tracker.waiting(), None);
        let _request = tracker.begin();
        tracker.received(1000);
        advance(9 * SECOND).await;
        tracker.received(5);
        tracker.begin().answered();
        assert_eq!(tracker.waiting(), None, "it began less than ten seconds ago");
        advance(SECOND).await;
        assert_eq!(tracker.waiting(), Some(WaitingRequests { recent_bytes: 5 }));
        for _ in 0..100 {
            advance(SECOND / 10).await;
            tracker.received(1);
        }
        assert!(tracker.0.state.lock().received.len() <= 11);
        assert_eq!(tracker.waiting(), Some(WaitingRequests { recent_bytes: 100 }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_joins_a_request_receives_its_bytes() {
        let (sender, joined) = (RequestTracker::default(), RequestTracker::default());
        let _requests = (sender.begin(), joined.join(&sender));
        advance(RECENT).await;
        sender.received(7);
        assert_eq!(joined.waiting(), Some(WaitingRequests { recent_bytes: 7 }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sync_that_joins_a_request_does_not_wait_while_that_is_queued() {
        let (sender, joined) = (RequestTracker::default(), RequestTracker::default());
        let joining = joined.join(&sender);
        advance(20 * SECOND).await;
        assert_eq!(joined.waiting(), None);
        let request = sender.begin();
        advance(5 * SECOND).await;
        assert_eq!(joined.waiting(), Some(WaitingRequests { recent_bytes: 0 }));
        drop(request);
        drop(joining);
        assert_eq!(joined.unanswered(), 5 * SECOND);
    }
}
