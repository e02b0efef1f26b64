//! The share of joined clusters in the workers: a slow cluster must not hold those that other Applications need.
//!
//! A pass that meets a full share ends, since others need its worker. Its Application is woken once the share has room.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::NamespacedName;

/// Enqueues an Application.
pub type Wake = Arc<dyn Fn(&NamespacedName) + Send + Sync>;

/// The passes that use joined clusters: at most half of the workers for all clusters, and a quarter for each.
#[derive(Clone)]
pub struct ClusterPasses(Arc<Shared>);

struct Shared {
    limits: Limits,
    wake: Wake,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct Limits {
    total: usize,
    per_cluster: usize,
}

#[derive(Default)]
struct State {
    running: RunningPasses,
    /// Each Application once. In a cluster, namespaces take turns: one that was served stands behind the others.
    waiting: Vec<WaitingApplication>,
}

#[derive(Clone, Default)]
struct RunningPasses {
    all: usize,
    by_cluster: HashMap<String, usize>,
}

struct WaitingApplication {
    name: NamespacedName,
    clusters: BTreeSet<String>,
}

impl ClusterPasses {
    #[must_use]
    pub fn new(workers: usize, wake: Wake) -> Self {
        let limits = Limits {
            total: (workers / 2).max(1),
            per_cluster: (workers / 4).max(1),
        };
        Self(Arc::new(Shared {
            limits,
            wake,
            state: Mutex::default(),
        }))
    }

    /// Returns the part of one pass, which uses no joined cluster yet.
    pub fn begin(&self, application: &NamespacedName) -> ClusterPass {
        ClusterPass {
            passes: self.clone(),
            application: application.clone(),
            clusters: BTreeSet::new(),
            is_refused: false,
        }
    }

    /// Removes an Application that has no passes any more.
    pub fn forget(&self, application: &NamespacedName) {
        self.0.change(|state| state.forget(application));
    }
}

/// The joined clusters that a pass uses, until it is dropped.
pub struct ClusterPass {
    passes: ClusterPasses,
    application: NamespacedName,
    clusters: BTreeSet<String>,
    is_refused: bool,
}

impl ClusterPass {
    pub fn clusters(&self) -> &BTreeSet<String> {
        &self.clusters
    }

    /// Adds clusters; none of them, and false, if other passes use them up. The Application is then woken after these.
    pub fn try_use(&mut self, clusters: &BTreeSet<String>) -> bool {
        let added = clusters - &self.clusters;
        if added.is_empty() {
            return true;
        }
        let shared = &self.passes.0;
        let mut state = shared.state.lock();
        let is_first = self.clusters.is_empty();
        if !state.running.have_room(shared.limits, is_first, &added) {
            state.wait(&self.application, &self.clusters | &added);
            self.is_refused = true;
            return false;
        }
        state.running.add(is_first, &added);
        self.clusters.extend(added);
        true
    }
}

impl Drop for ClusterPass {
    fn drop(&mut self) {
        self.passes.0.change(|state| {
            state.running.remove(&self.clusters);
            if !self.is_refused {
                state.forget(&self.application);
            }
        });
    }
}

impl Shared {
    /// Wakes the Applications that have room after the change. Also after the end of a pass that used no cluster: it may
    /// have been woken for the room that it left to others.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let woken = state.take_woken(self.limits);
        drop(state);
        for application in &woken {
            (self.wake)(application);
        }
    }
}

impl State {
    fn wait(&mut self, application: &NamespacedName, clusters: BTreeSet<String>) {
        match self.waiting.iter_mut().find(|waiting| waiting.name == *application) {
            Some(waiting) => waiting.clusters = clusters,
            None => self.waiting.push(WaitingApplication {
                name: application.clone(),
                clusters,
            }),
        }
    }

    fn forget(&mut self, application: &NamespacedName) {
        self.waiting.retain(|waiting| waiting.name != *application);
    }

    /// Removes as many Applications as there is room for. If another pass takes it first, the woken one waits again.
    fn take_woken(&mut self, limits: Limits) -> Vec<NamespacedName> {
        let mut woken = Vec::new();
        if self.waiting.is_empty() {
            return woken;
        }
        let mut running = self.running.clone();
        let fits =
            |running: &RunningPasses, waiting: &WaitingApplication| running.have_room(limits, true, &waiting.clusters);
        while let Some(at) = self.waiting.iter().position(|waiting| fits(&running, waiting)) {
            let WaitingApplication { name, clusters } = self.waiting.remove(at);
            running.add(true, &clusters);
            self.waiting.sort_by_key(|waiting| {
                waiting.name.namespace == name.namespace && !waiting.clusters.is_disjoint(&clusters)
            });
            woken.push(name);
        }
        woken
    }
}

impl RunningPasses {
    /// Returns true if a pass may add clusters; `is_first` if it uses none yet.
    fn have_room(&self, limits: Limits, is_first: bool, added: &BTreeSet<String>) -> bool {
        let used = |cluster: &String| self.by_cluster.get(cluster).copied().unwrap_or_default();
        (!is_first || self.all < limits.total) && added.iter().all(|cluster| used(cluster) < limits.per_cluster)
    }

    fn add(&mut self, is_first: bool, added: &BTreeSet<String>) {
        self.all += usize::from(is_first);
        for cluster in added {
            *self.by_cluster.entry(cluster.clone()).or_default() += 1;
        }
    }

    fn remove(&mut self, clusters: &BTreeSet<String>) {
        self.all = self.all.saturating_sub(usize::from(!clusters.is_empty()));
        for cluster in clusters {
            if let Some(used) = self.by_cluster.get_mut(cluster) {
                *used = used.saturating_sub(1);
            }
        }
        self.by_cluster.retain(|_, used| *used > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        passes: ClusterPasses,
        woken: Arc<Mutex<Vec<String>>>,
    }

    impl Bench {
        fn new(workers: usize) -> Self {
            let woken = Arc::new(Mutex::new(Vec::new()));
            let added = Arc::clone(&woken);
            let wake = move |application: &NamespacedName| added.lock().push(application.to_string());
            Self {
                passes: ClusterPasses::new(workers, Arc::new(wake)),
                woken,
            }
        }

        /// Runs a pass until it uses the clusters; `None` if it is refused.
        fn started(&self, application: &str, clusters: &[&str]) -> Option<ClusterPass> {
            let mut pass = self.passes.begin(&name(application));
            pass.try_use(&names(clusters)).then_some(pass)
        }

        fn refused(&self, application: &str, clusters: &[&str]) {
            assert!(self.started(application, clusters).is_none(), "{application}");
        }

        fn woken(&self) -> Vec<String> {
            std::mem::take(&mut *self.woken.lock())
        }

        fn assert_empty(&self) {
            let state = self.passes.0.state.lock();
            assert!(state.waiting.is_empty() && state.running.by_cluster.is_empty());
            assert_eq!(state.running.all, 0);
        }
    }

    fn name(application: &str) -> NamespacedName {
        let (namespace, name) = application.split_once('/').unwrap();
        NamespacedName::new(namespace, name)
    }

    fn names(clusters: &[&str]) -> BTreeSet<String> {
        clusters.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_cluster_takes_a_quarter_of_the_workers_and_all_clusters_a_half() {
        let bench = Bench::new(8);
        let slow = [bench.started("a/1", &["slow"]), bench.started("a/2", &["slow"])];
        assert!(slow.iter().all(Option::is_some));
        bench.refused("a/3", &["slow"]);
        bench.refused("a/4", &["slow", "fast"]);
        let fast = [bench.started("a/5", &["fast"]), bench.started("a/6", &["fast"])];
        assert!(fast.iter().all(Option::is_some));
        // Half of the workers are for the own cluster.
        bench.refused("a/7", &["third"]);
        drop(slow);
        assert!(bench.started("a/4", &["slow", "third"]).is_some());
        drop(fast);
        bench.assert_empty();
    }

    #[test]
    fn a_pass_counts_once_and_may_add_clusters() {
        let bench = Bench::new(1);
        let mut pass = bench.passes.begin(&name("a/1"));
        assert!(pass.try_use(&names(&[])));
        assert!(pass.try_use(&names(&["a"])) && pass.try_use(&names(&["a", "b"])));
        bench.refused("a/2", &["c"]);
        assert_eq!(bench.passes.0.state.lock().running.by_cluster.len(), 2);
        drop(pass);
        assert!(bench.started("a/2", &["c"]).is_some());
        bench.assert_empty();
    }

    #[test]
    fn the_end_of_a_pass_wakes_the_application_that_waits_longest_for_its_clusters() {
        let bench = Bench::new(8);
        let (east, _other) = (bench.started("a/1", &["east"]), bench.started("a/2", &["east"]));
        let west = [bench.started("a/3", &["west"]), bench.started("a/4", &["west"])];
        for (application, cluster) in [("a/5", "east"), ("a/6", "west"), ("a/7", "east")] {
            bench.refused(application, &[cluster]);
        }
        assert_eq!(bench.woken(), Vec::<String>::new());
        drop(east);
        assert_eq!(bench.woken(), ["a/5"]);
        let _next = bench.started("a/5", &["east"]);
        drop(west);
        assert_eq!(bench.woken(), ["a/6"]);
    }

    #[test]
    fn each_cluster_that_has_room_wakes_its_application() {
        let bench = Bench::new(4);
        let both = bench.started("a/1", &["east", "west"]);
        for (application, cluster) in [("a/2", "east"), ("a/3", "east"), ("a/4", "west")] {
            bench.refused(application, &[cluster]);
        }
        drop(both);
        assert_eq!(bench.woken(), ["a/2", "a/4"]);
    }

    #[test]
    fn namespaces_are_woken_in_turn_and_an_application_that_is_refused_again_waits_once() {
        let bench = Bench::new(4);
        let mut running = bench.started("z/0", &["east"]);
        for application in ["a/1", "a/2", "a/3", "b/1", "a/1"] {
            bench.refused(application, &["east"]);
        }
        for next in ["a/1", "b/1", "a/2", "a/3"] {
            drop(running);
            assert_eq!(bench.woken(), [next]);
            running = bench.started(next, &["east"]);
            assert!(running.is_some());
        }
        drop(running);
        assert_eq!(bench.woken(), Vec::<String>::new());
        bench.assert_empty();
    }

    #[test]
    fn the_turn_of_a_namespace_in_one_cluster_is_none_in_another() {
        let bench = Bench::new(4);
        let (east, west) = (bench.started("z/1", &["east"]), bench.started("z/2", &["west"]));
        for (application, cluster) in [("a/1", "east"), ("b/1", "east"), ("a/2", "west")] {
            bench.refused(application, &[cluster]);
        }
        drop(west);
        assert_eq!(bench.woken(), ["a/2"]);
        drop(east);
        assert_eq!(bench.woken(), ["a/1"]);
    }

    #[test]
    fn an_application_that_needs_no_cluster_any_more_leaves_its_turn_to_the_next() {
        let bench = Bench::new(4);
        let running = bench.started("z/0", &["east"]);
        for application in ["a/1", "a/2", "a/3", "a/4"] {
            bench.refused(application, &["east"]);
        }
        // Its passes use the own cluster only.
        drop(bench.passes.begin(&name("a/1")));
        drop(running);
        assert_eq!(bench.woken(), ["a/2"]);
        // It ends without a use of the cluster, because its template fails.
        drop(bench.passes.begin(&name("a/2")));
        assert_eq!(bench.woken(), ["a/3"]);
        // It is deleted before its pass.
        bench.passes.forget(&name("a/3"));
        assert_eq!(bench.woken(), ["a/4"]);
        bench.assert_empty();
    }

    #[test]
    fn a_pass_that_was_refused_in_its_middle_waits_for_all_clusters_that_it_needs() {
        let bench = Bench::new(8);
        let [east, _other] = ["a/1", "a/2"].map(|application| bench.started(application, &["east"]));
        let mut pass = bench.started("a/3", &["west"]).unwrap();
        assert!(!pass.try_use(&names(&["east"])));
        drop(pass);
        assert_eq!(bench.woken(), Vec::<String>::new());
        let [_west, west] = ["a/4", "a/5"].map(|application| bench.started(application, &["west"]));
        drop(east);
        assert_eq!(bench.woken(), Vec::<String>::new());
        drop(west);
        assert_eq!(bench.woken(), ["a/3"]);
    }
}
