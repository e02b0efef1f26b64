//! Imports chart files (README, values, schema) and icons, with one low-priority queue key per repository.
//!
//! Missing files are derived from the catalog, so that an import resumes after a restart. Each write checks that the
//! version still exists, so that removed charts need no cancellation.

mod archive;
mod icon;
pub mod icon_decoder;
mod import;
mod locate;
mod reconciler;

use std::mem;
use std::time::Instant;

pub use import::{Batch, Importer, Worklist};
pub use reconciler::FilesReconciler;

use super::decision::has_charts;
use super::event_handler;
use super::state::RepositoryStates;
use super::status::ImportProgress;
use crate::api::Files;
use crate::api::NamespacedName;
use crate::catalog::{FilesMode, Handled, Record};
use crate::helm::archive as helm_archive;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::{Priority, Queue};

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub mode: FilesMode,
    pub icons: bool,
    pub archive: helm_archive::Limits,
    pub icon: icon_decoder::Limits,
}

#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: super::CHART_FILES,
        name: name.clone(),
    }
}

#[derive(Debug, Default, PartialEq)]
pub struct ImportState {
    /// Sync that the import was enqueued for.
    enqueued: Option<SyncId>,
    /// Progress shown in the status; `None` until counted.
    progress: Option<Files>,
    worklist: Worklist,
    reported: Option<Instant>,
    is_over_quota: bool,
    /// Not yet published.
    quota_event: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct SyncId {
    index_digest: String,
    change_key: String,
    last_sync: Option<serde_json::Value>,
    /// A requested sync also retries failed archives, even if no chart changed.
    handled: Handled,
}

impl SyncId {
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
    #[must_use]
    pub fn new(queue: Queue<Key>, states: RepositoryStates) -> Self {
        Self { queue, states }
    }

    /// Enqueues the import, unless it was already enqueued for the same charts.
    pub fn enqueue(&self, record: &Record) {
        let (name, charts) = (record.name.clone(), SyncId::of(record));
        if has_charts(record) && self.update(&name, |import| import.enqueued.replace(charts) != import.enqueued) {
            self.queue.add(key(&name), Priority::LOW);
        }
    }

    fn reset_enqueued(&self, name: &NamespacedName) {
        self.update(name, |import| import.enqueued = None);
    }

    fn resume(&self, name: &NamespacedName) -> (Worklist, Option<Instant>) {
        self.update(name, |import| (mem::take(&mut import.worklist), import.reported.take()))
    }

    fn suspend(&self, name: &NamespacedName, worklist: Worklist, reported: Option<Instant>) {
        self.update(name, |import| (import.worklist, import.reported) = (worklist, reported));
    }

    #[must_use]
    pub fn progress(&self, name: &NamespacedName) -> ImportProgress {
        let progress = self.states.read(name, |state| state.import.progress.clone());
        progress.map_or(ImportProgress::Unknown, ImportProgress::Counted)
    }

    /// Stores the progress, and enqueues the repository if its status changes.
    fn report(&self, name: &NamespacedName, files: Files) {
        if self.update(name, |import| import.progress.replace(files) != import.progress) {
            self.queue.add(event_handler::key(name), Priority::LOW);
        }
    }

    /// Stops the import, and enqueues the repository for one event.
    fn stop(&self, name: &NamespacedName, message: String) {
        let is_new = self.update(name, |import| {
            let is_new = !mem::replace(&mut import.is_over_quota, true);
            if is_new {
                import.quota_event = Some(message);
            }
            is_new
        });
        if is_new {
            self.queue.add(event_handler::key(name), Priority::LOW);
        }
    }

    fn resume_within_quota(&self, name: &NamespacedName) {
        self.update(name, |import| import.is_over_quota = false);
    }

    /// Returns the message of an import that has stopped, once.
    #[must_use]
    pub fn take_quota_event(&self, name: &NamespacedName) -> Option<String> {
        self.update(name, |import| import.quota_event.take())
    }

    fn forget(&self, name: &NamespacedName) {
        self.update(name, mem::take);
    }

    fn update<T>(&self, name: &NamespacedName, change: impl FnOnce(&mut ImportState) -> T) -> T {
        self.states.update(name, |state| change(&mut state.import))
    }
}
