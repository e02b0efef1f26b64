//! Leader election with a Lease, compatible with client-go's `tools/leaderelection`:
//!
//! - The leader renews the Lease every [`Timing::retry_period`] and stops leading if it fails for
//!   [`Timing::renew_deadline`].
//! - Other processes check the Lease equally often. They take it if it has no holder, or if it was unchanged for its
//!   own duration. The duration is measured from the first observation of *this* process; timestamps in a Lease come
//!   from another clock and are never compared.
//! - Every write has a resource version, so concurrent writes fail.
//! - A leader that shuts down clears the holder.
//!
//! Stricter than client-go: the deadline is measured from the time at which the last successful renewal was *sent*. A
//! leader therefore stops before another process can take over, provided that both clocks run at about the same speed
//! and the process runs at all. A process that was suspended notices the loss only when it resumes. Two fences stop its
//! writes until then: [`WriteFence`] refuses requests to the API server after the deadline, and the [`Generation`] of
//! the Lease is for the check of another store.

mod candidacy;
mod election;
mod generation;
mod guard;
mod holder;
mod marks;
mod metrics;
mod others;
mod record;

use std::time::Duration;

use super::jitter::random;
pub use super::kube_client::write_fence::WriteFence;
pub use candidacy::Candidacy;
pub use generation::Generation;
pub use guard::{LeaderGuard, Lost};
pub use holder::{active_holder, active_holder_of_any};
pub use marks::Marks;
pub use metrics::LeaderElectionMetrics;

/// The maximum number of shards. Each replica asks for the Lease of each shard that it does not hold, every second.
pub const MAX_SHARDS: u32 = 32;

/// Each must be longer than the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Validity of a Lease that is not renewed. Rounded up to whole seconds in the Lease.
    pub lease_duration: Duration,
    /// Time a leader keeps trying to renew before it stops leading.
    pub renew_deadline: Duration,
    /// Interval of renewals, and of checks by other processes.
    pub retry_period: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Adds a random suffix to a name such as the pod's, since a restarted container keeps that.
#[must_use]
pub fn identity(name: &str) -> String {
    format!("{name}_{:016x}", random())
}
