//! The progress line: what is being synced right now, on a terminal.

use std::{
    io::{self, IsTerminal},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text::{printable, truncate};

/// How many names are shown before the rest is only counted.
const NAMED: usize = 3;
/// The longest name that is shown, in bytes.
const MAX_NAME: usize = 40;

/// The line that is on the terminal, if there is one. There is one standard error output, so there is one of these.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A progress line; it goes when this is dropped.
pub struct Progress(());

impl Progress {
    /// Shows a line, if the standard error output is a terminal.
    #[must_use]
    pub fn show() -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        *shown() = Some(bar);
        Some(Self(()))
    }

    /// Says what is being synced, and how many are done.
    pub fn set<'a>(&self, done: usize, names: impl ExactSizeIterator<Item = &'a str>) {
        if let Some(bar) = &*shown() {
            bar.set_message(message(done, names));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = shown().take() {
            bar.finish_and_clear();
        }
    }
}

/// Writes above the progress line, so that neither tears the other apart.
pub(super) fn above<T>(write: impl FnOnce() -> T) -> T {
    match &*shown() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message<'a>(done: usize, names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let mut shown: Vec<String> = names
        .take(NAMED)
        .map(|name| truncate(&printable(name), MAX_NAME))
        .collect();
    if count > NAMED {
        shown.push(format!("and {} more", count - NAMED));
    }
    match count {
        0 => format!("{done} synced"),
        _ => format!("{done} synced, syncing {}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_are_shown_and_the_rest_is_counted() {
        assert_eq!(message(0, [].into_iter()), "0 synced");
        assert_eq!(message(2, ["a", "b\u{1b}["].into_iter()), "2 synced, syncing a, b [");
        assert_eq!(
            message(2, ["a", "b", "c", "d", "e"].into_iter()),
            "2 synced, syncing a, b, c, and 2 more"
        );
    }
}
