//! The versions that a commit adds and removes.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use super::{ChartNews, MAX_LISTED, VersionChange};
use crate::catalog::{ChartInfo, ChartVersion};
use crate::text::{printable, truncate};

/// Names and versions of an index can be long.
const FIELD_BYTES: usize = 256;

/// Changes in the order of the commit: the first ones, their number, and a hash of all.
#[derive(Clone, Default)]
pub(in crate::catalog) struct ChangeLog {
    pub(super) listed: Vec<ChartNews>,
    pub(super) count: u64,
    pub(super) hash: Sha256,
}

impl ChangeLog {
    pub(in crate::catalog) fn of_chart(chart_id: &str, before: &[String], after: &ChartInfo) -> Self {
        let mut log = Self::default();
        let old: HashSet<&str> = before.iter().map(String::as_str).collect();
        let new: HashSet<&str> = after.versions().collect();
        let added = after.chart_versions.iter();
        for version in added.filter(|version| !old.contains(&*version.version)) {
            log.add(chart_id, version, VersionChange::Added);
        }
        log.remove(
            chart_id,
            before.iter().filter(|version| !new.contains(version.as_str())),
        );
        log
    }

    /// Returns the changes of a chart that is deleted.
    pub(in crate::catalog) fn of_deleted(chart_id: &str, versions: &[String]) -> Self {
        let mut log = Self::default();
        log.remove(chart_id, versions.iter());
        log
    }

    fn remove<'a>(&mut self, chart_id: &str, versions: impl Iterator<Item = &'a String>) {
        for version in versions {
            let version = ChartVersion {
                version: version.clone(),
                ..ChartVersion::default()
            };
            self.add(chart_id, &version, VersionChange::Removed);
        }
    }

    fn add(&mut self, chart_id: &str, version: &ChartVersion, change: VersionChange) {
        let kind = match change {
            VersionChange::Added => "+",
            VersionChange::Removed => "-",
        };
        for text in [kind, chart_id, &version.version, &version.digest] {
            feed(&mut self.hash, text);
        }
        self.count += 1;
        if self.listed.len() < MAX_LISTED {
            let optional = |text: &str| (!text.is_empty()).then(|| shown(text));
            self.listed.push(ChartNews {
                chart: shown(&chart_name(chart_id)),
                version: shown(&version.version),
                app_version: optional(&version.app_version),
                digest: optional(&version.digest),
                change,
            });
        }
    }

    pub(in crate::catalog) fn append(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.hash.update(other.hash.finalize());
        self.count += other.count;
        let free = MAX_LISTED - self.listed.len();
        self.listed.extend(other.listed.into_iter().take(free));
    }
}

/// Feeds the length too, so that no two lists of texts have the same hash.
pub(super) fn feed(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Returns the name of a chart as the index has it, from `<repository>/<name>`.
fn chart_name(chart_id: &str) -> String {
    let name = chart_id.split_once('/').map_or(chart_id, |(_, name)| name);
    name.replace("%2F", "/")
}

fn shown(text: &str) -> String {
    truncate(&printable(text), FIELD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(versions: &[&str]) -> ChartInfo {
        let version = |version: &&str| ChartVersion {
            version: (*version).to_owned(),
            ..ChartVersion::default()
        };
        ChartInfo {
            chart_versions: versions.iter().map(version).collect(),
            ..ChartInfo::default()
        }
    }

    fn versions(log: &ChangeLog) -> Vec<(&str, VersionChange)> {
        let listed = log.listed.iter();
        listed.map(|news| (news.version.as_str(), news.change)).collect()
    }

    #[test]
    fn added_versions_come_before_removed_ones() {
        let before = ["1.0.0", "2.0.0"].map(str::to_owned);
        let log = ChangeLog::of_chart("stable/a%2Fb", &before, &chart(&["3.0.0", "2.0.0"]));
        let expected = [("3.0.0", VersionChange::Added), ("1.0.0", VersionChange::Removed)];
        assert_eq!(versions(&log), expected);
        assert_eq!(log.listed[0].chart, "a/b");
        assert_eq!(
            ChangeLog::of_chart("stable/a", &before, &chart(&["1.0.0", "2.0.0"])).count,
            0
        );
    }

    #[test]
    fn changes_beyond_the_limit_are_counted_and_hashed() {
        let versions: Vec<String> = (0..MAX_LISTED + 5).map(|at| format!("{at}.0.0")).collect();
        let all = ChangeLog::of_deleted("stable/a", &versions);
        let fewer = ChangeLog::of_deleted("stable/a", &versions[..MAX_LISTED + 4]);
        assert_eq!((all.listed.len(), all.count), (MAX_LISTED, 25));
        assert_eq!(all.listed, fewer.listed);
        assert_ne!(all.hash.clone().finalize(), fewer.hash.clone().finalize());
        let mut both = all.clone();
        both.append(fewer);
        assert_eq!((both.listed.len(), both.count), (MAX_LISTED, 49));
    }
}
