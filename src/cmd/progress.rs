//! The progress line: what is being synced right now, on a terminal.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::api::NamespacedName;
use crate::text::{printable, truncate};

/// How many names are shown before the rest is only counted.
const NAMED: usize = 3;
/// The longest name that is shown, in bytes.
const MAX_NAME: usize = 40;

/// The line that is on the terminal, if there is one. There is one standard error output, so there is one of these.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Shows what is being synced as long as anything is, if the standard error output is a terminal. Ends with the sender.
pub async fn follow(mut names: watch::Receiver<Vec<NamespacedName>>) {
    if !io::stderr().is_terminal() {
        return;
    }
    let mut tally = Tally::default();
    let _line = Line;
    loop {
        let line = tally.see(&names.borrow_and_update());
        Line::set(line);
        if names.changed().await.is_err() {
            return;
        }
    }
}

/// How many syncs have ended since anything began.
#[derive(Default)]
struct Tally {
    running: BTreeSet<NamespacedName>,
    ended: usize,
}

impl Tally {
    /// What to show of `names`, which are being synced now; nothing when there are none.
    fn see(&mut self, names: &[NamespacedName]) -> Option<String> {
        let now: BTreeSet<NamespacedName> = names.iter().cloned().collect();
        self.ended += self.running.difference(&now).count();
        self.running = now;
        if self.running.is_empty() {
            return None;
        }
        let mut shown: Vec<String> = self
            .running
            .iter()
            .take(NAMED)
            .map(|name| truncate(&printable(&name.name), MAX_NAME))
            .collect();
        if self.running.len() > NAMED {
            shown.push(format!("and {} more", self.running.len() - NAMED));
        }
        Some(format!("{} synced, syncing {}", self.ended, shown.join(", ")))
    }
}

/// The line on the terminal; it goes when this is dropped.
struct Line;

impl Line {
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

impl Drop for Line {
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

/// Writes above the progress line, so that neither tears the other apart.
pub(super) fn above<T>(write: impl FnOnce() -> T) -> T {
    match &*SHOWN.lock() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<NamespacedName> {
        names
            .iter()
            .map(|name| NamespacedName {
                namespace: "default".to_owned(),
                name: (*name).to_owned(),
            })
            .collect()
    }

    #[test]
    fn the_first_names_are_shown_and_the_rest_is_counted() {
        let mut tally = Tally::default();
        assert_eq!(
            tally.see(&names(&["a", "b\u{1b}["])).unwrap(),
            "0 synced, syncing a, b ["
        );
        assert_eq!(
            tally.see(&names(&["a", "c", "d", "e", "f"])).unwrap(),
            "1 synced, syncing a, c, d, and 2 more"
        );
    }

    #[test]
    fn nothing_is_shown_at_rest_and_the_count_goes_on() {
        let mut tally = Tally::default();
        assert_eq!(tally.see(&[]), None);
        tally.see(&names(&["a"]));
        assert_eq!(tally.see(&[]), None);
        assert_eq!(tally.see(&names(&["a"])).unwrap(), "1 synced, syncing a");
    }
}
