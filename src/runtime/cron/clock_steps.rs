//! Steps of the wall clock, which timers do not follow.

use std::time::{Duration, Instant, SystemTime};

#[derive(Debug)]
pub struct StepDetector {
    monotonic: Instant,
    wall: SystemTime,
    /// Kept between calls, which may be canceled more often than it fires.
    next_check: Option<tokio::time::Instant>,
}

/// Smaller differences are adjustments.
const MIN_STEP: Duration = Duration::from_secs(2);
const STEP_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Default for StepDetector {
    fn default() -> Self {
        Self {
            monotonic: Instant::now(),
            wall: SystemTime::now(),
            next_check: None,
        }
    }
}

impl StepDetector {
    pub async fn wait_for_step(&mut self) {
        loop {
            let next = *self
                .next_check
                .get_or_insert_with(|| tokio::time::Instant::now() + STEP_CHECK_INTERVAL);
            tokio::time::sleep_until(next).await;
            self.next_check = None;
            if self.detect_step(Instant::now(), SystemTime::now()) {
                tracing::info!("the wall clock was set, rebuilding the schedule");
                return;
            }
        }
    }

    fn detect_step(&mut self, monotonic: Instant, wall: SystemTime) -> bool {
        let expected = self.wall + monotonic.saturating_duration_since(self.monotonic);
        (self.monotonic, self.wall) = (monotonic, wall);
        let step = wall.duration_since(expected).unwrap_or_else(|error| error.duration());
        step > MIN_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_in_both_directions_are_detected_once_and_adjustments_are_not() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut detector = StepDetector::default();
        let (mut monotonic, mut wall) = (detector.monotonic, detector.wall);
        let mut detect_step = |forward: Duration, back: Duration| {
            monotonic += 5 * SECOND;
            wall = wall + 5 * SECOND + forward - back;
            detector.detect_step(monotonic, wall)
        };
        assert!(!detect_step(SECOND, Duration::ZERO));
        assert!(!detect_step(Duration::ZERO, SECOND));
        assert!(detect_step(7200 * SECOND, Duration::ZERO));
        assert!(!detect_step(Duration::ZERO, Duration::ZERO));
        assert!(detect_step(Duration::ZERO, 7200 * SECOND));
        assert!(!detect_step(Duration::ZERO, Duration::ZERO));
    }
}
