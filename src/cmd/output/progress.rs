//! The progress line on a terminal: the running syncs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::NamespacedName;
use crate::controllers::apprepository::running_syncs::SyncAttempt;
use crate::text::{printable, truncate};

const MAX_NAMES: usize = 3;
const MAX_NAME_BYTES: usize = 40;

/// The visible line. Log lines are written above it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Shows the running syncs if the standard error output is a terminal. Returns when the sender is dropped.
pub async fn show(mut running: watch::Receiver<BTreeMap<NamespacedName, SyncAttempt>>) {
    if !io::stderr().is_terminal() {
        return;
    }
    let mut tally = Tally::default();
    let _line = ProgressLine;
    loop {
        let names: Vec<_> = running.borrow_and_update().keys().cloned().collect();
        ProgressLine::set(tally.update(&names));
        if running.changed().await.is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Tally {
    running: BTreeSet<NamespacedName>,
    finished: usize,
}

impl Tally {
    /// Replaces the running syncs. Returns the line, or `None` without running syncs.
    fn update(&mut self, names: &[NamespacedName]) -> Option<String> {
        let now: BTreeSet<NamespacedName> = names.iter().cloned().collect();
        self.finished += self.running.difference(&now).count();
        self.running = now;
        if self.running.is_empty() {
            return None;
        }
        let mut shown: Vec<String> = self
            .running
            .iter()
            .take(MAX_NAMES)
            .map(|name| truncate(&printable(&name.name), MAX_NAME_BYTES))
            .collect();
        if self.running.len() > MAX_NAMES {
            shown.push(format!("and {} more", self.running.len() - MAX_NAMES));
        }
        Some(format!("{} synced, syncing {}", self.finished, shown.join(", ")))
    }
}

/// Removes the line from the terminal when dropped.
struct ProgressLine;

impl ProgressLine {
    fn set(text: Option<String>) {
        let mut shown = SHOWN.lock();
        match text {
            Some(text) => shown.get_or_insert_with(bar).set_message(text),
            None => {
                if let Some(bar) = shown.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        Self::set(None);
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Writes above the progress line.
pub(in crate::cmd) fn above<T>(write: impl FnOnce() -> T) -> T {
    match &*SHOWN.lock() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<NamespacedName> {
        names.iter().map(|name| NamespacedName::new("default", *name)).collect()
    }

    #[test]
    fn the_first_names_are_shown_and_the_others_counted() {
        let mut tally = Tally::default();
        assert_eq!(
            tally.update(&names(&["a", "b\u{1b}["])).unwrap(),
            "0 synced, syncing a, b ["
        );
        assert_eq!(
            tally.update(&names(&["a", "c", "d", "e", "f"])).unwrap(),
            "1 synced, syncing a, c, d, and 2 more"
        );
    }

    #[test]
    fn there_is_no_line_without_syncs_and_the_count_continues() {
        let mut tally = Tally::default();
        assert_eq!(tally.update(&[]), None);
        tally.update(&names(&["a"]));
        assert_eq!(tally.update(&[]), None);
        assert_eq!(tally.update(&names(&["a"])).unwrap(), "1 synced, syncing a");
    }
}
