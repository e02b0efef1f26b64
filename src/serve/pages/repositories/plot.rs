//! The history of a repository as a plot: its versions over time, and a mark for each sync.

use jiff::Timestamp;

use crate::catalog::HistoryEntry;
use crate::serve::pages::shown::{When, number};

const WIDTH: i128 = 600;
const HEIGHT: i128 = 120;
/// Around the plot, so that marks are not cut.
const MARGIN: i128 = 8;

/// The parts of an SVG of 600 by 120.
pub(super) struct Plot {
    /// The number of versions, as points of a polyline.
    pub(super) line: String,
    pub(super) marks: Vec<Mark>,
    pub(super) highest: String,
    pub(super) from: When,
    pub(super) to: When,
}

pub(super) struct Mark {
    pub(super) x: i128,
    pub(super) y: i128,
    pub(super) is_failed: bool,
}

impl Plot {
    /// Returns `None` if there are too few syncs to compare. `history` has the newest first.
    pub(super) fn new(history: &[HistoryEntry], now: Timestamp) -> Option<Self> {
        let (oldest, newest) = (history.last()?, history.first()?);
        let (from, to) = (oldest.started_at, newest.started_at);
        let span = i128::from(to.as_second()) - i128::from(from.as_second());
        if span <= 0 {
            return None;
        }
        let highest = history.iter().map(|entry| entry.versions).max()?;
        let x = |time: Timestamp| {
            let elapsed = i128::from(time.as_second()) - i128::from(from.as_second());
            MARGIN + elapsed.clamp(0, span) * (WIDTH - 2 * MARGIN) / span
        };
        let y = |versions: u64| {
            let height = i128::from(versions) * (HEIGHT - 2 * MARGIN) / i128::from(highest.max(1));
            HEIGHT - MARGIN - height
        };
        let (mut points, mut marks) = (Vec::new(), Vec::with_capacity(history.len()));
        let mut current = None;
        for entry in history.iter().rev() {
            let (x, is_failed) = (x(entry.started_at), is_failed(entry));
            // A failed sync changes nothing.
            let before = current.unwrap_or(HEIGHT - MARGIN);
            let now = if is_failed { before } else { y(entry.versions) };
            if !is_failed {
                if let Some(before) = current {
                    points.push(format!("{x},{before}"));
                }
                points.push(format!("{x},{now}"));
                current = Some(now);
            }
            marks.push(Mark { x, y: now, is_failed });
        }
        if let Some(last) = current {
            points.push(format!("{},{last}", WIDTH - MARGIN));
        }
        Some(Self {
            line: points.join(" "),
            marks,
            highest: number(usize::try_from(highest).unwrap_or(usize::MAX)),
            from: When::new(from, now),
            to: When::new(to, now),
        })
    }
}

pub(super) fn is_failed(entry: &HistoryEntry) -> bool {
    entry.result != "Succeeded"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(second: i64, result: &str, versions: u64) -> HistoryEntry {
        HistoryEntry {
            started_at: Timestamp::from_second(second).unwrap(),
            duration: Duration::ZERO,
            result: result.to_owned(),
            reason: String::new(),
            message: String::new(),
            digest: String::new(),
            charts: 1,
            versions,
            added: 0,
            changed: 0,
            removed: 0,
            skipped: 0,
        }
    }

    fn plot(history: &[HistoryEntry]) -> Option<Plot> {
        Plot::new(history, Timestamp::from_second(2000).unwrap())
    }

    #[test]
    fn the_line_steps_at_each_sync_and_stays_while_syncs_fail() {
        let history = [
            entry(1100, "Succeeded", 5),
            entry(1050, "Failed", 0),
            entry(1000, "Succeeded", 10),
        ];
        let plot = plot(&history).unwrap();
        assert_eq!(plot.line, "8,8 592,8 592,60 592,60");
        let marks: Vec<_> = plot.marks.iter().map(|mark| (mark.x, mark.y, mark.is_failed)).collect();
        assert_eq!(marks, [(8, 8, false), (300, 8, true), (592, 60, false)]);
        assert_eq!(plot.highest, "10");
    }

    #[test]
    fn extreme_numbers_stay_in_the_plot() {
        let history = [entry(1100, "Succeeded", u64::MAX), entry(1000, "Stalled", u64::MAX)];
        let plot = plot(&history).unwrap();
        assert!(
            plot.marks
                .iter()
                .all(|mark| (0..=WIDTH).contains(&mark.x) && (0..=HEIGHT).contains(&mark.y))
        );
    }

    #[test]
    fn one_sync_is_no_plot() {
        assert!(plot(&[]).is_none());
        assert!(plot(&[entry(1000, "Succeeded", 1)]).is_none());
        assert!(plot(&[entry(1000, "Succeeded", 1), entry(1000, "Failed", 0)]).is_none());
    }
}
