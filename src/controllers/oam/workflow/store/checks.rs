//! Times since which checks of steps have had the same result. The keys are KubeVela's own: a check goes on under either
//! controller.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;

/// Keys of the times in seconds, after the id of the step. Zero is none.
const MET: &str = ".metrics.success.time";
const NOT_MET: &str = ".metrics.fail.time";

/// Results of a check that are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streak {
    pub is_met: bool,
    pub since: Timestamp,
}

/// Streaks by id of the step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks(BTreeMap<String, Streak>);

impl Checks {
    /// Decodes the entries of the ConfigMap. Ignores invalid entries.
    pub fn parse(data: &BTreeMap<String, String>) -> Self {
        let mut checks = Self::default();
        for (key, text) in data {
            for (suffix, is_met) in [(NOT_MET, false), (MET, true)] {
                let seconds = text.parse::<i64>().ok().filter(|seconds| *seconds != 0);
                let since = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
                if let (Some(id), Some(since)) = (key.strip_suffix(suffix), since) {
                    checks.set(id, Streak { is_met, since });
                }
            }
        }
        checks
    }

    pub fn to_data(&self) -> BTreeMap<String, String> {
        let entries = self.0.iter().map(|(id, streak)| {
            let suffix = if streak.is_met { MET } else { NOT_MET };
            (format!("{id}{suffix}"), streak.since.as_second().to_string())
        });
        entries.collect()
    }

    pub fn get(&self, id: &str) -> Option<Streak> {
        self.0.get(id).copied()
    }

    pub fn set(&mut self, id: &str, streak: Streak) {
        self.0.insert(id.to_owned(), streak);
    }

    pub fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub fn retain(&mut self, ids: &HashSet<&str>) {
        self.0.retain(|id, _| ids.contains(id.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let entries = entries
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        entries.collect()
    }

    fn streak(is_met: bool, seconds: i64) -> Option<Streak> {
        let since = Timestamp::from_second(seconds).unwrap();
        Some(Streak { is_met, since })
    }

    #[test]
    fn a_check_goes_on_with_the_times_that_kubevela_has_stored() {
        let stored = data(&[
            ("aaaaaaaaaa.metrics.success.time", "1700000000"),
            ("aaaaaaaaaa.metrics.fail.time", "0"),
            ("bbbbbbbbbb.metrics.fail.time", "1700000001"),
            ("cccccccccc.metrics.success.time", "soon"),
            ("vars", "\n"),
        ]);
        let checks = Checks::parse(&stored);
        assert_eq!(checks.get("aaaaaaaaaa"), streak(true, 1_700_000_000));
        assert_eq!(checks.get("bbbbbbbbbb"), streak(false, 1_700_000_001));
        assert_eq!(checks.get("cccccccccc"), None);
        assert_eq!(Checks::parse(&checks.to_data()), checks);
        assert_eq!(checks.to_data().len(), 2);
    }

    #[test]
    fn another_result_replaces_the_streak_and_steps_that_are_gone_have_none() {
        let mut checks = Checks::default();
        checks.set("a", streak(true, 1).unwrap());
        checks.set("a", streak(false, 2).unwrap());
        assert_eq!(checks.to_data(), data(&[("a.metrics.fail.time", "2")]));
        checks.retain(&HashSet::from(["b"]));
        assert_eq!(checks, Checks::default());
    }
}
