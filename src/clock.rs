//! Tokio's clock for rate limiters, so that tests can pause it.

use std::time::Instant;

use governor::clock::Clock;

/// Reads the time from tokio.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock;

impl Clock for TokioClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
