//! The share of joined clusters in the workers: a slow cluster must not hold those that other Applications need.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// The passes that use joined clusters: at most half of the workers for all clusters, and a quarter for each.
#[derive(Clone)]
pub struct ClusterPasses(Arc<Shared>);

struct Shared {
    total: usize,
    per_cluster: usize,
    running: Mutex<RunningPasses>,
}

#[derive(Default)]
struct RunningPasses {
    all: usize,
    by_cluster: HashMap<String, usize>,
}

impl ClusterPasses {
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self(Arc::new(Shared {
            total: (workers / 2).max(1),
            per_cluster: (workers / 4).max(1),
            running: Mutex::default(),
        }))
    }

    /// Returns the part of one pass, which uses no joined cluster yet.
    pub fn begin(&self) -> ClusterPass {
        ClusterPass {
            passes: self.clone(),
            clusters: BTreeSet::new(),
        }
    }
}

/// The joined clusters that a pass uses, until it is dropped.
pub struct ClusterPass {
    passes: ClusterPasses,
    clusters: BTreeSet<String>,
}

impl ClusterPass {
    pub fn clusters(&self) -> &BTreeSet<String> {
        &self.clusters
    }

    /// Adds clusters; none of them, and false, if other passes use them up.
    pub fn try_use(&mut self, clusters: &BTreeSet<String>) -> bool {
        let added: Vec<&String> = clusters.difference(&self.clusters).collect();
        if added.is_empty() {
            return true;
        }
        let shared = &self.passes.0;
        let mut running = shared.running.lock();
        let used = |cluster: &str| running.by_cluster.get(cluster).copied().unwrap_or_default();
        let is_first = self.clusters.is_empty();
        if (is_first && running.all >= shared.total) || added.iter().any(|name| used(name) >= shared.per_cluster) {
            return false;
        }
        running.all += usize::from(is_first);
        for cluster in &added {
            *running.by_cluster.entry((*cluster).clone()).or_default() += 1;
        }
        let added: Vec<String> = added.into_iter().cloned().collect();
        self.clusters.extend(added);
        true
    }
}

impl Drop for ClusterPass {
    fn drop(&mut self) {
        if self.clusters.is_empty() {
            return;
        }
        let mut running = self.passes.0.running.lock();
        running.all = running.all.saturating_sub(1);
        for cluster in &self.clusters {
            if let Some(used) = running.by_cluster.get_mut(cluster) {
                *used = used.saturating_sub(1);
            }
        }
        running.by_cluster.retain(|_, used| *used > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_cluster_takes_a_quarter_of_the_workers_and_all_clusters_a_half() {
        let passes = ClusterPasses::new(8);
        let started = |names: &[&str]| {
            let mut pass = passes.begin();
            pass.try_use(&clusters(names)).then_some(pass)
        };
        let slow = [started(&["slow"]), started(&["slow"])];
        assert!(slow.iter().all(Option::is_some));
        assert!(started(&["slow"]).is_none());
        assert!(started(&["slow", "fast"]).is_none());
        let fast = [started(&["fast"]), started(&["fast"])];
        assert!(fast.iter().all(Option::is_some));
        assert!(
            started(&["third"]).is_none(),
            "half of the workers are for the own cluster"
        );
        drop(slow);
        assert!(started(&["slow", "third"]).is_some());
        drop(fast);
        assert!(passes.0.running.lock().by_cluster.is_empty());
        assert_eq!(passes.0.running.lock().all, 0);
    }

    #[test]
    fn a_pass_counts_once_and_may_add_clusters() {
        let passes = ClusterPasses::new(1);
        let mut pass = passes.begin();
        assert!(pass.try_use(&clusters(&[])));
        assert!(pass.try_use(&clusters(&["a"])) && pass.try_use(&clusters(&["a", "b"])));
        assert!(!passes.begin().try_use(&clusters(&["c"])));
        assert_eq!(passes.0.running.lock().by_cluster.len(), 2);
        drop(pass);
        assert!(passes.begin().try_use(&clusters(&["c"])));
    }
}
