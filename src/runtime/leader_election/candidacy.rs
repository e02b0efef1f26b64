//! Contends for the Leases of all shards. This process may hold several.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::time::sleep;

use super::election::{Election, LeaseError, attempt};
use super::guard::Moment;
use super::marks::Marks;
use super::metrics::LeaderElectionMetrics;
use super::others::Others;
use super::{LeaderGuard, Timing, WriteFence};
use crate::runtime::jitter::jitter;
use crate::runtime::kube_client::is_api_server_unreachable;

/// Takes a further Lease only after it was free for one more retry period for each Lease that the process holds. Each
/// contender checks twice in that period, so processes that hold fewer come first.
#[derive(Debug)]
pub struct Candidacy {
    candidates: Vec<ShardCandidate>,
    held: u32,
    timing: Timing,
    others: Others,
    /// The last list had active Leases of another division.
    has_others: bool,
    is_known: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ShardCandidate {
    shard: u32,
    election: Election,
    seen_holder: Option<String>,
}

impl Candidacy {
    /// `identity` must be unique among all processes, even across restarts (see [`super::identity`]).
    #[must_use]
    pub fn new(
        client: &Client,
        namespace: &str,
        marks: &Marks,
        identity: &str,
        timing: Timing,
        (fence, metrics): (&WriteFence, &LeaderElectionMetrics),
    ) -> Self {
        let candidate = |shard| {
            let name = marks.lease_name(shard);
            let election = Election::new(client.clone(), namespace, &name, identity, timing);
            ShardCandidate {
                shard,
                election: election
                    .with_fence(fence.clone())
                    .with_metrics(metrics.clone())
                    .with_marks(marks.clone()),
                seen_holder: None,
            }
        };
        let mut candidates: Vec<ShardCandidate> = (0..marks.shards).map(candidate).collect();
        // Replicas that start together contend for different shards first.
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        let first = hasher.finish() % u64::from(marks.shards.max(1));
        candidates.rotate_left(usize::try_from(first).unwrap_or_default());
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        Self {
            candidates,
            held: 0,
            timing,
            others: Others::new(leases, marks.clone(), timing),
            has_others: false,
            is_known: Arc::default(),
        }
    }

    /// Returns a function that is true once the last attempts to acquire Leases showed who holds them.
    pub fn is_known(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let is_known = Arc::clone(&self.is_known);
        move || is_known.load(Ordering::Relaxed)
    }

    /// Returns one more Lease with its shard, or waits forever if this process holds all. Errors are logged and
    /// retried. Dropping the future interrupts the contention until the next call.
    pub async fn acquire(&mut self) -> (u32, LeaderGuard) {
        loop {
            if self.candidates.is_empty() {
                return std::future::pending().await;
            }
            if self.has_others {
                self.is_known.store(true, Ordering::Relaxed);
                self.has_others = self.others.are_active().await;
            }
            if !self.has_others
                && let Some(acquired) = self.attempt_each().await
            {
                return acquired;
            }
            // Twice as often as the holder renews: a released Lease is taken within the period.
            // Contenders do not send requests together.
            sleep(jitter(self.timing.retry_period / 2, 0.8..1.0)).await;
        }
    }

    async fn attempt_each(&mut self) -> Option<(u32, LeaderGuard)> {
        let mut is_known = true;
        for at in 0..self.candidates.len() {
            let (patience, started) = (self.timing.retry_period * self.held, Moment::now());
            let candidate = &mut self.candidates[at];
            let attempted = attempt(self.timing, candidate.election.take(patience)).await;
            is_known &= matches!(attempted, Ok(()) | Err(LeaseError::Taken(_) | LeaseError::LeftToOthers));
            if attempted.is_ok() {
                // Of two processes that take their first Lease at the same time, at least one sees the other.
                self.has_others = self.held == 0 && self.others.are_active().await;
                if !self.has_others {
                    let ShardCandidate {
                        shard,
                        election,
                        seen_holder,
                    } = self.candidates.remove(at);
                    self.held += 1;
                    self.is_known.store(true, Ordering::Relaxed);
                    tracing::info!(
                        lease = election.name(),
                        identity = election.identity(),
                        former_holder = seen_holder,
                        "started leading"
                    );
                    return Some((shard, LeaderGuard::start(election, started)));
                }
                if let Err(error) = self.candidates[at].election.release().await {
                    tracing::warn!(%error, "failed to release lease, it will expire");
                }
                break;
            }
            candidate.log(attempted);
        }
        self.is_known.store(is_known, Ordering::Relaxed);
        None
    }
}

impl ShardCandidate {
    fn log(&mut self, attempted: Result<(), LeaseError>) {
        let lease = self.election.name();
        match attempted {
            Ok(()) | Err(LeaseError::LeftToOthers) => {}
            Err(LeaseError::Taken(holder)) if self.seen_holder.as_ref() == Some(&holder) => {}
            Err(LeaseError::Taken(holder)) => {
                tracing::info!(lease, holder, "lease held by another replica, waiting");
                self.seen_holder = Some(holder);
            }
            Err(error) if is_api_server_unreachable() => {
                tracing::debug!(lease, %error, "failed to acquire lease, retrying")
            }
            Err(error) => tracing::warn!(lease, %error, "failed to acquire lease, retrying"),
        }
    }
}
