//! The charts of a repository in memory, and how they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::summary::ChartSummary;
use crate::catalog::query::{ChartsKey, RepositoryKeys};
use crate::catalog::{Catalog, Error};

/// Memory of the keys and the record of a repository, which are never left out.
const FIXED_BYTES: u64 = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// As they were found last. The charts may be those of an earlier key.
    pub keys: RepositoryKeys,
    /// By chart ID.
    pub charts: Arc<[ChartSummary]>,
    /// Number of rows that are not readable, and left out.
    pub unreadable: usize,
    /// Number of charts that do not fit into the memory of the namespace: those with the highest IDs.
    pub left_out: usize,
    /// Number of versions, also of charts that are left out.
    pub versions: usize,
    /// `None` until the charts are read.
    read: Option<ChartsKey>,
    /// Number of the attempt that read the charts, so that the repositories take turns.
    pub(super) attempt: u64,
    /// Memory of the charts, and of those that are left out too.
    size: u64,
    total_size: u64,
    limit: u64,
}

impl Repository {
    pub(super) fn unread(keys: RepositoryKeys) -> Self {
        Self {
            keys,
            charts: Arc::default(),
            unreadable: 0,
            left_out: 0,
            versions: 0,
            read: None,
            attempt: 0,
            size: FIXED_BYTES,
            total_size: FIXED_BYTES,
            limit: 0,
        }
    }

    /// Reads the charts into at most `limit` bytes. Returns `None` as soon as their size exceeds `small`.
    pub(super) async fn read(
        catalog: &Catalog,
        keys: RepositoryKeys,
        limit: u64,
        small: Option<u64>,
    ) -> Result<Option<Self>, Error> {
        let mut collector = Collector::new(limit);
        let mut after = String::new();
        loop {
            let svg_icons = catalog.charts_with_svg_icon(&keys.name, &after).await?;
            let visit = |chart_id: &str, info: &str| {
                let mut chart = ChartSummary::decode(chart_id, info);
                if let Some(chart) = &mut chart {
                    chart.has_icon |= svg_icons.contains(chart_id);
                }
                collector.add(chart);
            };
            match catalog.visit_page_of_charts(&keys.name, &after, visit).await? {
                None => break,
                Some(last) => after = last,
            }
            if small.is_some_and(|small| collector.total_size > small) {
                return Ok(None);
            }
        }
        collector.unreadable += catalog.count_charts_without_id(&keys.name).await?;
        Ok(Some(collector.finish(keys)))
    }

    /// Returns true if charts are missing in lists: they do not fit, or are not read yet.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.left_out > 0 || self.read.is_none()
    }

    /// Returns the number of charts, also of those that lists do not show.
    #[must_use]
    pub fn count(&self) -> usize {
        self.charts.len() + self.unreadable + self.left_out
    }

    pub(super) const fn is_read(&self) -> bool {
        self.read.is_some()
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) const fn total_size(&self) -> u64 {
        self.total_size
    }

    /// Returns true if the charts have changed, or if more of them would fit into `limit`.
    pub(super) fn is_due(&self, limit: u64) -> bool {
        self.has_changed() || (self.left_out > 0 && limit > self.limit)
    }

    pub(super) fn has_changed(&self) -> bool {
        self.read.as_ref() != Some(&self.keys.charts)
    }

    /// Leaves out the charts that do not fit into `limit`.
    pub(super) fn trim(&mut self, limit: u64) {
        if self.size <= limit {
            return;
        }
        let (mut size, mut count) = (FIXED_BYTES, 0);
        for chart in &*self.charts {
            let with_chart = size + chart.bytes();
            if with_chart > limit {
                break;
            }
            (size, count) = (with_chart, count + 1);
        }
        self.left_out += self.charts.len() - count;
        self.charts = self.charts.iter().take(count).cloned().collect();
        (self.size, self.limit) = (size, limit);
    }
}

/// Keeps the charts with the lowest IDs that fit into a limit, in whatever order they come.
struct Collector {
    limit: u64,
    kept: BTreeMap<Box<str>, ChartSummary>,
    /// The lowest ID that does not fit. Higher ones do not either.
    end: Option<Box<str>>,
    size: u64,
    total_size: u64,
    versions: usize,
    left_out: usize,
    unreadable: usize,
}

impl Collector {
    const fn new(limit: u64) -> Self {
        Self {
            limit,
            kept: BTreeMap::new(),
            end: None,
            size: FIXED_BYTES,
            total_size: FIXED_BYTES,
            versions: 0,
            left_out: 0,
            unreadable: 0,
        }
    }

    fn add(&mut self, chart: Option<ChartSummary>) {
        let Some(chart) = chart else {
            self.unreadable += 1;
            return;
        };
        let size = chart.bytes();
        self.total_size += size;
        self.versions += chart.versions;
        if self.end.as_ref().is_some_and(|end| chart.chart_id >= *end) {
            self.left_out += 1;
            return;
        }
        self.size += size;
        self.kept.insert(chart.chart_id.clone(), chart);
        while self.size > self.limit
            && let Some((chart_id, chart)) = self.kept.pop_last()
        {
            self.size -= chart.bytes();
            self.left_out += 1;
            self.end = Some(chart_id);
        }
    }

    fn finish(self, keys: RepositoryKeys) -> Repository {
        Repository {
            charts: self.kept.into_values().collect(),
            unreadable: self.unreadable,
            left_out: self.left_out,
            versions: self.versions,
            read: Some(keys.charts.clone()),
            size: self.size,
            total_size: self.total_size,
            limit: self.limit,
            ..Repository::unread(keys)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::api::NamespacedName;

    fn keys(name: &NamespacedName) -> RepositoryKeys {
        RepositoryKeys {
            name: name.clone(),
            charts: ChartsKey::default(),
            record: None,
        }
    }

    fn chart(number: usize, description: usize) -> ChartSummary {
        let info = json!({"name": "web", "description": "x".repeat(description), "chartVersions": [{}]});
        ChartSummary::decode(&format!("stable/{number:04}"), &info.to_string()).unwrap()
    }

    /// A repository with this number of charts of about a kilobyte.
    pub(in super::super) fn repository(name: &NamespacedName, charts: usize, limit: u64) -> Repository {
        let mut collector = Collector::new(limit);
        (0..charts).for_each(|number| collector.add(Some(chart(number, 400))));
        collector.finish(keys(name))
    }

    fn ids(repository: &Repository) -> Vec<&str> {
        repository.charts.iter().map(|chart| &*chart.chart_id).collect()
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let name = NamespacedName::new("team", "stable");
        let all = repository(&name, 10, u64::MAX);
        assert!(!all.is_incomplete());
        let mut some = repository(&name, 10, all.size() / 2);
        assert!(some.is_incomplete() && some.size() <= all.size() / 2);
        assert_eq!((some.count(), some.versions, some.total_size()), (10, 10, all.size()));
        assert_eq!(ids(&some), ids(&all)[..some.charts.len()]);
        assert!(some.is_due(all.size()) && !some.is_due(all.size() / 2));
        some.trim(0);
        assert_eq!((some.charts.len(), some.count(), some.versions), (0, 10, 10));
    }

    proptest! {
        #[test]
        fn the_same_charts_are_left_out_in_every_order(
            order in Just((0..30).collect::<Vec<usize>>()).prop_shuffle(),
            sizes in prop::collection::vec(0_usize..500, 30),
            limit in 0_u64..60_000,
        ) {
            let name = NamespacedName::new("team", "stable");
            let collect = |order: &[usize], limit| {
                let mut collector = Collector::new(limit);
                order.iter().for_each(|number| collector.add(Some(chart(*number, sizes[*number]))));
                collector.finish(keys(&name))
            };
            let shuffled = collect(&order, limit);
            let mut sorted: Vec<usize> = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(&shuffled, &collect(&sorted, limit));
            let mut trimmed = collect(&order, u64::MAX);
            trimmed.trim(limit);
            prop_assert_eq!(ids(&trimmed), ids(&shuffled));
        }
    }
}
