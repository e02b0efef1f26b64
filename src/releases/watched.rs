//! The watched releases with their judgements, for all readers in the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;

use super::watch::Unreadable;
use super::{Candidate, JudgeOptions, Judgement, Match, Release, ReleaseKind, judge};

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
    /// By their keys.
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
    pub release: Arc<Release>,
    near: Judgement,
    all: Judgement,
    /// The namespaces of the near and of all candidates, which the judgements reveal. All releases of a chart share the latter.
    near_namespaces: BTreeSet<String>,
    all_namespaces: Arc<BTreeSet<String>>,
}

impl WatchedRelease {
    /// Judges the releases of a chart. `candidates` are the charts of its name in the catalog.
    #[must_use]
    pub fn of_chart(
        releases: Vec<Arc<Release>>,
        candidates: &[Candidate],
        global_namespace: Option<&str>,
    ) -> Vec<Self> {
        let namespaces = candidates.iter().map(|candidate| candidate.namespace.clone());
        let namespaces: Arc<BTreeSet<String>> = Arc::new(namespaces.collect());
        let releases = releases.into_iter();
        let judged = releases.map(|release| Self::new(release, candidates, &namespaces, global_namespace));
        judged.collect()
    }

    fn new(
        release: Arc<Release>,
        candidates: &[Candidate],
        namespaces: &Arc<BTreeSet<String>>,
        global_namespace: Option<&str>,
    ) -> Self {
        let judge = |candidates: &[Candidate]| judge_deployed(&release, candidates);
        let is_near = |candidate: &&Candidate| {
            candidate.namespace == release.namespace || Some(candidate.namespace.as_str()) == global_namespace
        };
        let all = judge(candidates);
        let near_count = candidates.iter().filter(is_near).count();
        let near = if near_count == candidates.len() {
            all.clone()
        } else {
            let near: Vec<Candidate> = candidates.iter().filter(is_near).cloned().collect();
            judge(&near)
        };
        let near_namespaces = candidates.iter().filter(is_near);
        Self {
            near_namespaces: near_namespaces.map(|candidate| candidate.namespace.clone()).collect(),
            all_namespaces: Arc::clone(namespaces),
            release,
            near,
            all,
        }
    }

    /// Returns the identity of the item: an Application of Argo CD may have several charts, and versions of one.
    #[must_use]
    pub fn key(&self) -> (&str, &str, ReleaseKind, [&str; 2]) {
        let Release {
            kind,
            namespace,
            name,
            chart,
            ..
        } = &*self.release;
        (namespace, name, *kind, [&chart.name, &chart.version])
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

/// Without a deployed revision there is nothing to upgrade.
fn judge_deployed(release: &Release, candidates: &[Candidate]) -> Judgement {
    let judgement = judge(&release.chart, candidates, &JudgeOptions::default());
    Judgement {
        verdict: judgement.verdict.filter(|_| release.is_deployed()),
        ..judgement
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::releases::{InstalledChart, ListedVersion, ReleaseState};

    const HOME: &str = "https://web.example";

    fn release() -> Arc<Release> {
        Arc::new(Release {
            kind: ReleaseKind::Helm,
            namespace: "sea".to_owned(),
            name: "web".to_owned(),
            state: ReleaseState::Deployed,
            revision: Some(1),
            chart: InstalledChart {
                name: "web".to_owned(),
                version: "1.0.0".to_owned(),
                home: Some(HOME.to_owned()),
                ..InstalledChart::default()
            },
        })
    }

    fn candidate(namespace: &str, versions: &[&str]) -> Candidate {
        let versions = versions.iter().map(|version| ListedVersion {
            version: (*version).to_owned(),
            digest: None,
        });
        Candidate {
            namespace: namespace.to_owned(),
            repository: "stable".to_owned(),
            url: format!("https://{namespace}.example"),
            chart: "web".to_owned(),
            home: Some(HOME.to_owned()),
            versions: versions.collect(),
            ..Candidate::default()
        }
    }

    fn judged(release: Arc<Release>, candidates: &[Candidate], global_namespace: Option<&str>) -> WatchedRelease {
        WatchedRelease::of_chart(vec![release], candidates, global_namespace).remove(0)
    }

    fn newest(judgement: Option<&Judgement>) -> Option<&str> {
        judgement?.verdict.as_ref()?.newest_major.as_deref()
    }

    fn repositories(judgement: Option<&Judgement>) -> Vec<String> {
        let repositories = judgement.into_iter().flat_map(|judgement| &judgement.repositories);
        repositories.map(ToString::to_string).collect()
    }

    #[test]
    fn another_tenants_repository_changes_no_judgement() {
        let candidates = [
            candidate("sea", &["1.0.0", "2.0.0"]),
            candidate("land", &["1.0.0", "9.0.0"]),
        ];
        let watched = judged(release(), &candidates, None);
        for judgement in [
            watched.judgement(|_| true),
            watched.judgement(|namespace| namespace == "sea"),
        ] {
            assert_eq!(newest(judgement), Some("2.0.0"));
            assert_eq!(repositories(judgement), ["sea/stable"]);
        }
    }

    #[test]
    fn a_judgement_reveals_no_repository_that_the_caller_does_not_see() {
        let watched = judged(release(), &[candidate("land", &["1.0.0", "9.0.0"])], None);
        assert_eq!(newest(watched.judgement(|_| true)), Some("9.0.0"));
        let hidden = watched.judgement(|namespace| namespace == "sea");
        assert_eq!((newest(hidden), repositories(hidden)), (None, Vec::new()));
        let own = judged(release(), &[candidate("sea", &["1.0.0"])], None);
        assert!(own.judgement(|_| false).is_none());
    }

    #[test]
    fn the_global_repositories_are_near_to_all_namespaces() {
        let candidates = [
            candidate("global", &["1.0.0", "3.0.0"]),
            candidate("land", &["1.0.0", "9.0.0"]),
        ];
        let watched = judged(release(), &candidates, Some("global"));
        let judgement = watched.judgement(|namespace| namespace == "global");
        assert_eq!(newest(judgement), Some("3.0.0"));
    }

    #[test]
    fn a_declared_url_decides_wherever_its_repository_is() {
        let mut declared = Release::clone(&release());
        declared.chart.url = Some("https://land.example/".to_owned());
        let candidates = [
            candidate("sea", &["1.0.0", "2.0.0"]),
            candidate("land", &["1.0.0", "9.0.0"]),
        ];
        let watched = judged(Arc::new(declared), &candidates, None);
        assert_eq!(newest(watched.judgement(|_| true)), Some("9.0.0"));
        // No judgement names a repository that the caller does not see.
        let hidden = watched.judgement(|namespace| namespace == "sea");
        assert!(!repositories(hidden).contains(&"land/stable".to_owned()));
    }
}
