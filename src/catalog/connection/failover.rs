//! Replaces all connections after a fail-over.
//!
//! A demoted primary refuses writes (SQLSTATE 25006), and connections to it stay up. New connections resolve the host
//! again, and reach the new primary.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// Generations in a row after which it is no fail-over: the database itself is read-only.
const MAX_IN_A_ROW: u32 = 3;

/// The generation of connections: connections that were opened before its start are retired.
#[derive(Debug, Default)]
pub(in crate::catalog) struct ConnectionGeneration(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    started: Option<Instant>,
    in_a_row: u32,
}

impl ConnectionGeneration {
    /// Starts a new generation, at most once in five seconds.
    pub(in crate::catalog) fn retire_all(&self) {
        let mut state = self.0.lock();
        if state.started.is_some_and(|started| started.elapsed() < MIN_INTERVAL) {
            return;
        }
        tracing::warn!("database refuses writes, opening new connections");
        state.started = Some(Instant::now());
        state.in_a_row = state.in_a_row.saturating_add(1);
    }

    pub(super) fn is_retired(&self, age: Duration) -> bool {
        let started = self.0.lock().started;
        started.is_some_and(|started| age > started.elapsed())
    }

    pub(in crate::catalog) fn record_write(&self) {
        self.0.lock().in_a_row = 0;
    }

    pub(in crate::catalog) fn is_futile(&self) -> bool {
        self.0.lock().in_a_row >= MAX_IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_connections_are_retired_and_new_ones_are_not() {
        let generation = ConnectionGeneration::default();
        assert!(!generation.is_retired(Duration::from_secs(60)));
        generation.retire_all();
        assert!(generation.is_retired(Duration::from_secs(60)));
        assert!(!generation.is_retired(Duration::ZERO));
    }

    #[test]
    fn a_generation_starts_at_most_once_in_five_seconds() {
        let generation = ConnectionGeneration::default();
        for _ in 0..10 {
            generation.retire_all();
        }
        assert_eq!(generation.0.lock().in_a_row, 1);
        assert!(!generation.is_futile());
    }

    #[test]
    fn a_write_ends_the_count_of_generations() {
        let generation = ConnectionGeneration::default();
        for _ in 0..MAX_IN_A_ROW {
            generation.0.lock().started = None;
            generation.retire_all();
        }
        assert!(generation.is_futile());
        generation.record_write();
        assert!(!generation.is_futile());
    }
}
