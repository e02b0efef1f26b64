//! Releases waiting Jobs within the limits.
//!
//! All sync Jobs are created suspended, by us and by CronJobs, and released here: a tick that is due for all repositories
//! then starts no more pods than allowed. The namespace with the fewest running Jobs comes first.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::progress::JobView;
use super::{Jobs, Limits};

/// Interval after which a release that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

impl Jobs {
    /// Releases Jobs whenever one is added or ends. Never returns.
    pub async fn release_waiting(self: Arc<Self>) {
        // The UIDs of Jobs that the watch still shows as suspended.
        let mut released = HashSet::new();
        loop {
            let _ = tokio::time::timeout(RETRY, self.changed.notified()).await;
            if !self.is_synced() {
                continue;
            }
            let mut jobs = self.all();
            mark_released(&mut jobs, &mut released);
            for name in admitted(&jobs, self.settings.limits) {
                match self.release(&name).await {
                    Ok(()) => released.extend(jobs.iter().filter(|job| job.name == name).map(|job| job.uid.clone())),
                    Err(error) => tracing::warn!(%error, job = name, retry_in = ?RETRY, "failed to release a Job"),
                }
            }
        }
    }
}

/// Counts Jobs as running whose release the watch has not delivered. Forgets the others.
fn mark_released(jobs: &mut [JobView], released: &mut HashSet<String>) {
    released.retain(|uid| jobs.iter().any(|job| job.is_suspended && job.uid == *uid));
    for job in jobs {
        job.is_suspended &= !released.contains(&job.uid);
    }
}

/// Returns the names of the suspended Jobs that may run now.
fn admitted(jobs: &[JobView], limits: Limits) -> Vec<String> {
    let unfinished = jobs.iter().filter(|job| job.is_unfinished() && !job.is_deleted);
    let (mut waiting, running): (Vec<_>, Vec<_>) = unfinished.partition(|job| job.is_suspended);
    waiting.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &running {
        *by_namespace.entry(namespace(job)).or_default() += 1;
    }
    let mut total = running.len();
    let mut admitted = Vec::new();
    while total < limits.total {
        let count = |job: &JobView| by_namespace.get(namespace(job)).copied().unwrap_or_default();
        let candidates = waiting.iter().enumerate();
        let candidates = candidates.filter(|(_, job)| count(job) < limits.per_namespace);
        // The first of equal ones: the oldest.
        let Some((at, _)) = candidates.min_by_key(|(_, job)| count(job)) else {
            break;
        };
        let job = waiting.remove(at);
        *by_namespace.entry(namespace(job)).or_default() += 1;
        total += 1;
        admitted.push(job.name.clone());
    }
    admitted
}

fn namespace(job: &JobView) -> &str {
    job.repository.as_ref().map_or("", |name| name.namespace.as_str())
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::super::progress::Outcome;
    use super::*;
    use crate::api::NamespacedName;

    fn job(namespace: &str, name: &str, age: i64, is_suspended: bool) -> JobView {
        JobView {
            name: name.to_owned(),
            uid: name.to_owned(),
            repository: Some(NamespacedName::new(namespace, name)),
            repository_uid: None,
            generation: None,
            created: Timestamp::UNIX_EPOCH - SignedDuration::from_secs(age),
            started: None,
            is_suspended,
            is_deleted: false,
            outcome: None,
        }
    }

    const LIMITS: Limits = Limits {
        total: 4,
        per_namespace: 2,
    };

    #[test]
    fn a_namespace_with_many_jobs_leaves_room_for_others() {
        let mut jobs: Vec<_> = (0..9).map(|n| job("many", &format!("m{n}"), 100 - n, true)).collect();
        jobs.push(job("few", "f", 1, true));
        assert_eq!(admitted(&jobs, LIMITS), ["m0", "f", "m1"]);
    }

    #[test]
    fn jobs_that_run_count_and_finished_ones_do_not() {
        let mut jobs: Vec<_> = ["a", "b", "c"].map(|name| job(name, name, 9, false)).into();
        jobs.extend([job("d", "d", 5, true), job("e", "e", 4, true)]);
        assert_eq!(admitted(&jobs, LIMITS), ["d"]);
        jobs[0].outcome = Some(Outcome::Succeeded);
        assert_eq!(admitted(&jobs, LIMITS), ["d", "e"]);
    }

    #[test]
    fn a_released_job_counts_as_running_before_the_watch_shows_it() {
        let mut jobs = vec![job("a", "second", 5, true)];
        let mut released = HashSet::new();
        let limits = Limits {
            total: 4,
            per_namespace: 1,
        };
        assert_eq!(admitted(&jobs, limits), ["second"]);
        released.insert("second".to_owned());
        jobs.push(job("a", "first", 5, true));
        mark_released(&mut jobs, &mut released);
        assert!(admitted(&jobs, limits).is_empty());
        // Suspended by someone else after the watch has delivered the release.
        mark_released(&mut jobs, &mut released);
        assert!(released.is_empty());
    }

    #[test]
    fn the_oldest_of_a_namespace_comes_first() {
        let jobs = [
            job("a", "young", 1, true),
            job("a", "old", 9, true),
            job("a", "middle", 5, true),
        ];
        assert_eq!(admitted(&jobs, LIMITS), ["old", "middle"]);
    }
}
