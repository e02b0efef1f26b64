use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::runtime::cron;

/// Annotation: `true`, a time, or a duration after the end of each run.
pub const RESTART: &str = "app.oam.dev/restart-workflow";
/// Shortest time between the end of a run and the next run.
const MIN_RESTART: Duration = Duration::from_secs(10);

/// Annotation: the longest time between two passes over an Application.
pub const RECONCILE_INTERVAL: &str = "app.oam.dev/reconcile-interval";
const MIN_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartRequest {
    Once(Timestamp),
    /// The request stays for the runs that follow.
    AfterEachRun(Timestamp),
}

impl RestartRequest {
    /// Parses a request. `end` is the end of the last run. Returns `None` if there is nothing to schedule.
    pub fn parse(text: &str, now: Timestamp, end: Option<Timestamp>) -> Option<Self> {
        let text = text.trim();
        if text == "true" {
            // Times are in whole seconds. A time that is not after the end belongs to an earlier run.
            let earliest = end.and_then(|end| end.checked_add(Duration::from_secs(1)).ok());
            return Some(Self::Once(earliest.map_or(now, |earliest| now.max(earliest))));
        }
        if let Ok(time) = text.parse() {
            return Some(Self::Once(time));
        }
        let interval = cron::parse_duration(text)?.max(MIN_RESTART);
        end?.checked_add(interval).ok().map(Self::AfterEachRun)
    }
}

/// Returns the interval that an Application asks for, or the text that is no interval.
pub fn requested_interval(annotations: &BTreeMap<String, String>) -> Option<Result<Duration, &str>> {
    let text = annotations.get(RECONCILE_INTERVAL)?.trim();
    let interval = cron::parse_duration(text).map(|interval| interval.max(MIN_INTERVAL));
    Some(interval.ok_or(text))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::shorter("30s", Ok(Duration::from_secs(30)))]
    #[case::longer(" 2h ", Ok(Duration::from_hours(2)))]
    #[case::shortest("10s", Ok(MIN_INTERVAL))]
    #[case::too_short("1s", Ok(MIN_INTERVAL))]
    #[case::zero("0s", Ok(MIN_INTERVAL))]
    #[case::negative("-1h", Err("-1h"))]
    #[case::no_duration("soon", Err("soon"))]
    #[case::empty("", Err(""))]
    fn an_application_sets_its_interval_down_to_ten_seconds(
        #[case] text: &str,
        #[case] expected: Result<Duration, &str>,
    ) {
        let annotations = BTreeMap::from([(RECONCILE_INTERVAL.to_owned(), text.to_owned())]);
        assert_eq!(requested_interval(&annotations), Some(expected));
        assert_eq!(requested_interval(&BTreeMap::new()), None);
    }

    #[rstest]
    #[case::now("true", Some(RestartRequest::Once(at("2026-01-02T03:00:00Z"))))]
    #[case::at_a_time("2026-01-03T00:00:00Z", Some(RestartRequest::Once(at("2026-01-03T00:00:00Z"))))]
    #[case::each_hour("1h", Some(RestartRequest::AfterEachRun(at("2026-01-02T02:30:00Z"))))]
    #[case::at_most_each_ten_seconds("1ms", Some(RestartRequest::AfterEachRun(at("2026-01-02T01:30:10Z"))))]
    #[case::negative("-1h", None)]
    #[case::unknown("false", None)]
    fn a_restart_is_requested_once_or_after_each_run(#[case] text: &str, #[case] expected: Option<RestartRequest>) {
        let (now, end) = (at("2026-01-02T03:00:00Z"), at("2026-01-02T01:30:00Z"));
        assert_eq!(RestartRequest::parse(text, now, Some(end)), expected);
    }

    #[test]
    fn a_restart_that_is_requested_in_the_second_in_which_a_run_ended_comes_after_it() {
        let end = at("2026-01-02T03:00:00Z");
        let expected = RestartRequest::Once(at("2026-01-02T03:00:01Z"));
        assert_eq!(RestartRequest::parse("true", end, Some(end)), Some(expected));
    }

    #[test]
    fn a_run_that_has_not_ended_is_not_repeated() {
        let now = at("2026-01-02T03:00:00Z");
        assert_eq!(RestartRequest::parse("1h", now, None), None);
        assert_eq!(
            RestartRequest::parse("true", now, None),
            Some(RestartRequest::Once(now))
        );
    }
}
