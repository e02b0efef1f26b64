//! The time of the last answer. A pool with all connections in use is busy if the server answers, and stuck if not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A handle; clones share the time.
#[derive(Clone, Debug, Default)]
pub(super) struct LastAnswer(Arc<Mutex<Option<Instant>>>);

impl LastAnswer {
    pub(super) fn touch(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    pub(super) fn is_within(&self, age: Duration) -> bool {
        self.0.lock().is_some_and(|last| last.elapsed() <= age)
    }
}
