//! The watched releases with their judgements, for all readers in the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

use super::watch::Unreadable;
use super::{Candidate, JudgeOptions, Judgement, Match, Release, judge};

/// A handle; clones share the releases.
#[derive(Clone, Debug, Default)]
pub struct WatchedReleases(Arc<RwLock<Arc<JudgedReleases>>>);

impl WatchedReleases {
    #[must_use]
    pub fn get(&self) -> Arc<JudgedReleases> {
        Arc::clone(&self.0.read())
    }

    pub fn set(&self, releases: JudgedReleases) {
        *self.0.write() = Arc::new(releases);
    }
}

/// The result of a comparison with the catalog.
#[derive(Clone, Debug, Default)]
pub struct JudgedReleases {
    /// By namespace and name.
    pub items: Vec<WatchedRelease>,
    /// The namespaces of the items, sorted.
    pub namespaces: Vec<String>,
    pub left_out: usize,
    pub unreadable_count: usize,
    pub unreadable: Vec<Unreadable>,
    /// False until all releases were listed and compared once.
    pub is_complete: bool,
}

/// A release with two judgements. One is by the repositories of its own namespace and the global ones, so that no other
/// tenant can change it.
#[derive(Clone, Debug)]
pub struct WatchedRelease {
    pub release: Release,
    near: Judgement,
    all: Judgement,
    /// The namespaces of the near and of all candidates, which the judgements reveal.
    near_namespaces: BTreeSet<String>,
    all_namespaces: BTreeSet<String>,
}

impl WatchedRelease {
    /// `candidates` are the charts of the release's name in the catalog.
    #[must_use]
    pub fn new(release: Release, candidates: &[Candidate], global_namespace: Option<&str>) -> Self {
        let options = JudgeOptions::default();
        let is_near = |candidate: &&Candidate| {
            candidate.namespace == release.namespace || Some(candidate.namespace.as_str()) == global_namespace
        };
        let all = judge(&release.chart, candidates, &options);
        let near_count = candidates.iter().filter(is_near).count();
        let near = if near_count == candidates.len() {
            all.clone()
        } else {
            let near: Vec<Candidate> = candidates.iter().filter(is_near).cloned().collect();
            judge(&release.chart, &near, &options)
        };
        let namespaces = |candidate: &Candidate| candidate.namespace.clone();
        Self {
            near_namespaces: candidates.iter().filter(is_near).map(namespaces).collect(),
            all_namespaces: candidates.iter().map(namespaces).collect(),
            release,
            near,
            all,
        }
    }

    /// Returns the judgement for a caller who sees the repositories of these namespaces, `None` if it would reveal others. The
    /// near repositories decide, unless only another one has the declared URL.
    #[must_use]
    pub fn judgement(&self, is_visible: impl Fn(&str) -> bool) -> Option<&Judgement> {
        let are_visible = |namespaces: &BTreeSet<String>| namespaces.iter().all(|namespace| is_visible(namespace));
        let is_decided_by_all = self.all.matched == Match::Exact || self.near.matched == Match::Unknown;
        if is_decided_by_all && are_visible(&self.all_namespaces) {
            Some(&self.all)
        } else {
            are_visible(&self.near_namespaces).then_some(&self.near)
        }
    }
}
