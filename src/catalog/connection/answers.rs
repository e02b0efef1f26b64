//! The time at which the server last answered. A pool whose connections are all in use is busy if it answers, and stuck
//! if it does not.

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
