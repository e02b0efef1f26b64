//! Leader election: of several processes, the one that holds a Lease works, and the others wait for it.
//!
//! The rules are those of client-go's `tools/leaderelection`, so that any other client which keeps them can contend for
//! the same Lease:
//!
//! - Whoever leads renews the Lease every [`Timing::retry_period`]. Who could not for [`Timing::renew_deadline`] leads no
//!   more.
//! - Whoever waits looks at the Lease as often, and takes it when it has no holder, or when nothing in it has changed for
//!   as long as its holder asked for. That is measured from when *this* process first saw it so: the times that stand in a
//!   Lease are never compared with a clock here, since they are of another one.
//! - Each write names the resource version that it is made from, so of two that take a Lease at once one fails.
//! - Who ends in order empties the holder, so that the next one need not wait.
//!
//! In one thing this is stricter: the deadline counts from when the last renewal that succeeded was *sent*, while client-go
//! counts from its first attempt after that. So a leader has stopped before anybody else can have waited long enough,
//! provided that the two clocks run about equally fast, and that this process runs at all. A process that was frozen for
//! longer learns of its loss when it thaws: the Lease is no fence, and what must not happen twice needs one of its own.

mod election;
mod guard;
mod record;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use kube::{Api, Client};

use election::Election;

pub use guard::{LeaderGuard, Lost};

/// The times of an election, each longer than the one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a Lease stands that is not renewed. In a Lease it stands in whole seconds, rounded up.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How often a leader renews, and how often the others look.
    pub retry_period: Duration,
}

impl Default for Timing {
    /// Those of Kubernetes' own components.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A Lease that this process may come to hold.
#[derive(Debug)]
pub struct Lease {
    election: Election,
}

impl Lease {
    /// The Lease `name` in `namespace`, contended for as `identity`: no other process, not even this one after a restart,
    /// may have the same (see [`identity`]).
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, timing: Timing) -> Self {
        Self {
            election: Election::new(Api::namespaced(client, namespace), name, identity, timing),
        }
    }

    /// Waits until this process holds the Lease, however long that takes; errors are logged and tried again. Dropping the
    /// future ends the contention.
    pub async fn acquire(self) -> LeaderGuard {
        let (election, since) = self.election.win().await;
        LeaderGuard::start(election, since)
    }
}

/// An identity for this process: a name that tells people which it is, such as the pod's, and something random, since a
/// container that is restarted keeps its pod's name.
#[must_use]
pub fn identity(name: &str) -> String {
    format!("{name}_{:016x}", random())
}

/// Its keys come from the system's source of randomness.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
