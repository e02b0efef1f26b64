//! The import of chart files (README, values, schema) and icons: low-priority work on the same queue, one key a repository.
//!
//! ```text
//!  sync has changed rows ─┐
//!  start ─────────────────┼─► key ─► what is wanted? (charts minus files) ─► one turn: some archives, some seconds ─┐
//!  a failed try is due ───┘             ▲                                                                          │
//!                                       └───────────────────────── more is wanted: the key again ◄─────────────────┘
//! ```
//! What is wanted is derived from the catalogue, so a process that dies in between goes on where it was; each write checks that
//! the version is still there, so nothing has to be cancelled when charts go.

mod archive;
mod budget;
mod icon;
pub mod icon_decoder;
mod import;
mod locate;
mod reconciler;

use std::mem;
use std::time::Instant;

pub use import::{Importer, Turn, Worklist};
pub use reconciler::FilesReconciler;

use super::decision::has_charts;
use super::event_handler as trigger;
use super::state::RepositoryStates;
use super::status::Imported;
use crate::api::Files;
use crate::api::NamespacedName;
use crate::catalog::{FilesMode, Handled, Record};
use crate::helm::archive as packed;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::{Priority, Queue};
use icon_decoder as picture;

/// What is imported, and within which bounds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The files of which versions.
    pub mode: FilesMode,
    /// Whether icons are.
    pub icons: bool,
    /// The bounds of one archive.
    pub archive: packed::Limits,
    /// The bounds of one icon.
    pub icon: picture::Limits,
}

/// The key of a repository's files in the queue.
#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: super::CHART_FILES,
        name: name.clone(),
    }
}

/// The state of one repository's import.
#[derive(Debug, Default, PartialEq)]
pub struct ImportState {
    /// Charts that the import was enqueued for.
    enqueued: Option<Charts>,
    /// Progress that the status shows; `None` until it was counted.
    progress: Option<Files>,
    /// Work left by the turn before.
    worklist: Worklist,
    /// Time of the last progress report of an import under way.
    reported: Option<Instant>,
}

/// What tells the charts of one sync from those of another, whoever made it.
#[derive(Debug, PartialEq, Eq)]
struct Charts {
    index_digest: String,
    change_key: String,
    last_sync: Option<serde_json::Value>,
    /// Whoever asks for a resync by hand asks for the archives too that would not come, although no chart may change.
    handled: Handled,
}

impl Charts {
    fn of(record: &Record) -> Self {
        Self {
            index_digest: record.index_digest.clone(),
            change_key: record.change_key.clone(),
            last_sync: record.last_sync.clone(),
            handled: record.handled.clone(),
        }
    }
}

/// Enqueues imports and keeps their state; a handle, cheap to clone.
#[derive(Clone)]
pub struct ImportQueue {
    queue: Queue<Key>,
    states: RepositoryStates,
}

impl ImportQueue {
    /// Returns one that adds keys to `queue`.
    #[must_use]
    pub fn new(queue: Queue<Key>, states: RepositoryStates) -> Self {
        Self { queue, states }
    }

    /// Enqueues the import of a repository that has charts, unless it was enqueued for the same charts since the start.
    pub fn enqueue(&self, record: &Record) {
        let (name, charts) = (record.name.clone(), Charts::of(record));
        if has_charts(record) && self.update(&name, |import| import.enqueued.replace(charts) != import.enqueued) {
            self.queue.add(key(&name), Priority::LOW);
        }
    }

    /// Forgets that an import was enqueued: it could not be made, and the next sync enqueues it again.
    fn abandon(&self, name: &NamespacedName) {
        self.update(name, |import| import.enqueued = None);
    }

    /// Takes the work left by the turn before, and the time of the last report.
    fn resume(&self, name: &NamespacedName) -> (Worklist, Option<Instant>) {
        self.update(name, |import| (mem::take(&mut import.worklist), import.reported.take()))
    }

    /// Keeps the work left for the next turn.
    fn suspend(&self, name: &NamespacedName, worklist: Worklist, reported: Option<Instant>) {
        self.update(name, |import| (import.worklist, import.reported) = (worklist, reported));
    }

    /// Returns the progress of the import.
    #[must_use]
    pub fn progress(&self, name: &NamespacedName) -> Imported {
        let progress = self.states.read(name, |state| state.import.progress.clone());
        progress.map_or(Imported::Unseen, Imported::Seen)
    }

    /// Stores the progress, and enqueues the repository if its status has to change.
    fn report(&self, name: &NamespacedName, files: Files) {
        if self.update(name, |import| import.progress.replace(files) != import.progress) {
            self.queue.add(trigger::key(name), Priority::LOW);
        }
    }

    /// Forgets the import of a repository that is gone.
    fn forget(&self, name: &NamespacedName) {
        self.update(name, mem::take);
    }

    fn update<T>(&self, name: &NamespacedName, change: impl FnOnce(&mut ImportState) -> T) -> T {
        self.states.update(name, |state| change(&mut state.import))
    }
}
