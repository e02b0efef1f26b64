use std::collections::BTreeSet;

/// Longer lists are not kept: then all charts count.
const MAX: usize = 256;

/// Charts that were written, by `chart_id`, whose versions may lack rows of files. By default none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedCharts(Option<BTreeSet<String>>);

impl Default for ChangedCharts {
    fn default() -> Self {
        Self(Some(BTreeSet::new()))
    }
}

impl ChangedCharts {
    pub const ALL: Self = Self(None);

    pub fn extend(&mut self, charts: impl IntoIterator<Item = String>) {
        let Some(listed) = &mut self.0 else { return };
        listed.extend(charts);
        if listed.len() > MAX {
            self.0 = None;
        }
    }

    pub fn append(&mut self, other: Self) {
        match other.0 {
            Some(charts) => self.extend(charts),
            None => self.0 = None,
        }
    }

    /// Returns the charts; `None` for all.
    #[must_use]
    pub const fn listed(&self) -> Option<&BTreeSet<String>> {
        self.0.as_ref()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_some_and(BTreeSet::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_charts_become_all() {
        let mut charts = ChangedCharts::default();
        assert!(charts.is_empty());
        charts.extend((0..MAX).map(|n| n.to_string()));
        assert_eq!(charts.listed().map(BTreeSet::len), Some(MAX));
        charts.append(ChangedCharts::default());
        assert_ne!(charts, ChangedCharts::ALL);
        charts.extend(["one more".to_owned()]);
        assert_eq!(charts, ChangedCharts::ALL);
        charts.append(ChangedCharts::default());
        assert_eq!(charts, ChangedCharts::ALL);
    }
}
