//! The clock of rate limiters, which tests can pause.

use std::time::Instant;

use governor::clock::Clock;

#[derive(Clone, Copy, Debug)]
pub struct TokioClock;

impl Clock for TokioClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
