//! Deliveries in progress, and what is remembered of sinks between them.

use std::collections::HashMap;

use tokio::task::{Id, JoinError, JoinSet};

use super::request::{Failure, FailureKind};
use super::{MAX_ROWS, RowEnd, SHARE};
use crate::catalog::news::NewsRow;

/// Sinks that are remembered. Each has failed recently.
const MAX_STATES: usize = 10_000;

/// Lost at the end of the process: the messages of the row are then sent again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SinkState {
    row: String,
    /// The messages before this one were accepted or dropped.
    pub(super) next_message: usize,
    /// Rejections of the next message.
    pub(super) rejections: u32,
    /// Failures in a row, also of earlier rows.
    pub(super) failures: u32,
    reported: Option<&'static str>,
}

impl SinkState {
    pub(super) fn begin(&mut self, row: &NewsRow) {
        if self.row != row.id {
            self.row.clone_from(&row.id);
            self.next_message = 0;
            self.rejections = 0;
        }
    }

    pub(super) fn accepted(&mut self, message: usize) {
        self.failures = 0;
        self.reported = None;
        self.skip(message);
    }

    pub(super) const fn skip(&mut self, message: usize) {
        self.next_message = message + 1;
        self.rejections = 0;
    }

    /// Counts a failure. Returns true if it is new: the last one had another reason.
    pub(super) fn failed(&mut self, failure: &Failure) -> bool {
        self.failures = self.failures.saturating_add(1);
        if failure.kind == FailureKind::Rejected {
            self.rejections += 1;
        }
        self.reported.replace(failure.reason) != Some(failure.reason)
    }

    pub(super) fn end(&mut self, end: &RowEnd) {
        *self = match end {
            RowEnd::Postponed(_) => return,
            RowEnd::Delivered => Self {
                failures: self.failures,
                reported: self.reported,
                ..Self::default()
            },
            RowEnd::SinkGone => Self::default(),
        };
    }
}

/// At most one row of a sink at once.
#[derive(Default)]
pub(super) struct Deliveries {
    tasks: JoinSet<SinkState>,
    running: HashMap<Id, String>,
    states: HashMap<String, SinkState>,
}

impl Deliveries {
    pub(super) fn sinks(&self) -> Vec<String> {
        self.running.values().cloned().collect()
    }

    /// Starts the delivery of a row, unless its namespace has its share of rows in progress.
    pub(super) fn start<F>(&mut self, row: NewsRow, deliver: impl FnOnce(NewsRow, SinkState) -> F)
    where
        F: Future<Output = SinkState> + Send + 'static,
    {
        let namespace = |sink: &str| sink.split('/').next().unwrap_or_default().to_owned();
        let of_row = namespace(&row.sink);
        let in_namespace = self.running.values().filter(|sink| namespace(sink) == of_row);
        if self.running.len() >= MAX_ROWS || in_namespace.count() >= SHARE {
            return;
        }
        let state = self.states.remove(&row.sink).unwrap_or_default();
        let sink = row.sink.clone();
        let task = self.tasks.spawn(deliver(row, state));
        self.running.insert(task.id(), sink);
    }

    /// Waits for the end of a delivery; forever without one. Others that have ended need no look of their own.
    pub(super) async fn next_end(&mut self) {
        match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(ended) => self.end(ended),
        }
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<(Id, SinkState), JoinError>) {
        // A panic has been logged.
        let (id, state) = ended.unwrap_or_else(|error| (error.id(), SinkState::default()));
        let sink = self.running.remove(&id);
        if let Some(sink) = sink.filter(|_| state != SinkState::default() && self.states.len() < MAX_STATES) {
            self.states.insert(sink, state);
        }
    }

    /// Forgets the sinks, when no row is left.
    pub(super) fn forget(&mut self) {
        self.states.clear();
    }
}
