use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Status;
use super::watched::{JudgedReleases, WatchedReleases};
use crate::budget::interleave;

/// Series of releases that are out of date.
const MAX_SERIES: usize = 1000;

/// Collector of the releases that are out of date, as they were compared last.
#[derive(Debug)]
pub struct ReleaseMetrics(pub WatchedReleases);

impl Collector for ReleaseMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let releases = self.0.get();
        let mut outdated = outdated(&releases);
        let omitted = outdated.len().saturating_sub(MAX_SERIES);
        outdated.truncate(MAX_SERIES);
        let help = "Releases that are out of date, by kind: patch, minor, major or withdrawn; at most 1,000, of the namespaces in \
                    turn";
        let mut family = encoder.encode_descriptor("portolan_release_outdated", help, None, MetricType::Gauge)?;
        for (namespace, release, kind) in outdated {
            let labels = [("namespace", namespace), ("release", release), ("kind", kind)];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        let help = "Current number of releases that are out of date and have no series of portolan_release_outdated";
        let gauge = ConstGauge::new(count(omitted));
        gauge.encode(encoder.encode_descriptor(
            "portolan_release_outdated_omitted",
            help,
            None,
            MetricType::Gauge,
        )?)?;
        let help = "Current number of releases by state: watched, left_out because there are too many, or unreadable";
        let mut family = encoder.encode_descriptor("portolan_releases", help, None, MetricType::Gauge)?;
        for (state, amount) in [
            ("watched", releases.items.len()),
            ("left_out", releases.left_out),
            ("unreadable", releases.unreadable_count),
        ] {
            ConstGauge::new(count(amount)).encode(family.encode_family(&[("state", state)])?)?;
        }
        Ok(())
    }
}

/// Returns namespace, name and kind of each release that is out of date, of the namespaces in turn. A name has one series,
/// with the worst kind of its releases.
fn outdated(releases: &JudgedReleases) -> Vec<(&str, &str, &'static str)> {
    let mut worst = BTreeMap::<(&str, &str), Status>::new();
    for item in &releases.items {
        let verdict = item
            .judgement(|_| true)
            .and_then(|judgement| judgement.verdict.as_ref());
        if let Some(status) = verdict.map(|verdict| verdict.status)
            && kind(status).is_some()
        {
            let name = (item.release.namespace.as_str(), item.release.name.as_str());
            let worst = worst.entry(name).or_insert(status);
            *worst = status.max(*worst);
        }
    }
    let series = worst.into_iter();
    interleave(series.filter_map(|((namespace, name), status)| Some((namespace, (namespace, name, kind(status)?)))))
}

const fn kind(status: Status) -> Option<&'static str> {
    match status {
        Status::Patch => Some("patch"),
        Status::Minor => Some("minor"),
        Status::Major => Some("major"),
        Status::Withdrawn => Some("withdrawn"),
        Status::Current | Status::NotListed => None,
    }
}

fn count(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::releases::watched::WatchedRelease;
    use crate::releases::{Candidate, InstalledChart, ListedVersion, Release, ReleaseKind, ReleaseState};

    fn watched(namespace: &str, name: &str, installed: &str, listed: &[&str]) -> WatchedRelease {
        let release = Release {
            kind: ReleaseKind::Helm,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state: ReleaseState::Deployed,
            revision: Some(1),
            chart: InstalledChart {
                name: "web".to_owned(),
                version: installed.to_owned(),
                home: Some("https://web.example".to_owned()),
                ..InstalledChart::default()
            },
        };
        let versions = listed.iter().map(|version| ListedVersion {
            version: (*version).to_owned(),
            digest: None,
        });
        let candidate = Candidate {
            namespace: namespace.to_owned(),
            repository: "stable".to_owned(),
            chart: "web".to_owned(),
            home: Some("https://web.example".to_owned()),
            versions: versions.collect(),
            ..Candidate::default()
        };
        WatchedRelease::of_chart(vec![Arc::new(release)], &[candidate], None).remove(0)
    }

    fn text(items: Vec<WatchedRelease>) -> String {
        let releases = WatchedReleases::default();
        releases.set(JudgedReleases {
            items,
            ..JudgedReleases::default()
        });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ReleaseMetrics(releases)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    fn series(text: &str) -> Vec<&str> {
        text.lines()
            .filter(|line| line.starts_with("portolan_release_outdated{"))
            .collect()
    }

    #[test]
    fn a_release_that_is_out_of_date_has_a_series_with_its_kind() {
        let text = text(vec![
            watched("sea", "current", "1.0.0", &["1.0.0"]),
            watched("sea", "old", "1.0.0", &["1.0.0", "1.0.1"]),
            watched("sea", "unknown", "1.0.0", &[]),
        ]);
        let expected = r#"portolan_release_outdated{namespace="sea",release="old",kind="patch"} 1"#;
        assert_eq!(series(&text), [expected], "{text}");
        assert!(text.contains("portolan_releases{state=\"watched\"} 3"), "{text}");
    }

    #[test]
    fn a_namespace_with_many_outdated_releases_leaves_series_to_others() {
        let many =
            (0..MAX_SERIES + 5).map(|number| watched("hoard", &format!("web-{number}"), "1.0.0", &["1.0.0", "2.0.0"]));
        let other = watched("sea", "web", "1.0.0", &["1.0.0", "2.0.0"]);
        let text = text(many.chain([other]).collect());
        let series = series(&text);
        assert_eq!(series.len(), MAX_SERIES);
        assert!(series.iter().any(|line| line.contains("namespace=\"sea\"")));
        assert!(text.contains("portolan_release_outdated_omitted 6"), "{text}");
    }
}
