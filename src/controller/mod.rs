//! The worker pool: dispatch, outcome, back-off, panic guard, lanes.
