//! Imports chart files (README, values, schema) and icons, with one low-priority queue key per repository. The catalog
//! tells what is missing, so that an import resumes after a restart. Each write checks that the version still exists,
//! so that removed charts need no cancellation.

mod archive;
pub mod download;
mod icon;
pub mod icon_decoder;
mod import;
mod reconciler;
mod turn;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

pub use import::{BatchOutcome, Importer, Worklist};
pub use reconciler::FilesReconciler;

use super::decision::has_charts;
use super::event_handler;
use super::state::ObjectStates;
use super::status::ImportProgress;
use crate::api::Files;
use crate::api::NamespacedName;
use crate::catalog::{Catalog, ChangedCharts, FilesMode, Handled, Record};
use crate::helm::archive as helm_archive;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::{Priority, Queue};

#[derive(Clone, Copy, Debug)]
pub struct FilesSettings {
    pub mode: FilesMode,
    pub icons: bool,
    pub archive: helm_archive::ArchiveLimits,
    pub icon: icon_decoder::IconLimits,
}

impl FilesSettings {
    /// Returns true if a sync is followed by an import. Kubeapps' pages need at least an empty row of each version.
    #[must_use]
    pub fn has_imports(&self, catalog: &Catalog) -> bool {
        self.icons || catalog.needs_files(self.mode)
    }
}

#[must_use]
pub fn key(name: &NamespacedName) -> Key {
    Key {
        class: super::CHART_FILES,
        name: name.clone(),
    }
}

/// State of the import of one repository. A restart loses it: the catalog has what is missing.
#[derive(Debug, Default, PartialEq)]
struct ImportState {
    /// Sync that the import was enqueued for.
    enqueued: Option<SyncId>,
    /// Progress shown in the status; `None` until counted.
    progress: Option<Files>,
    worklist: Option<WaitingWorklist>,
    /// Charts whose versions may lack rows; `None`: all, since this process has not looked.
    unchecked: Option<ChangedCharts>,
    reported: Option<Instant>,
    is_over_quota: bool,
    /// A digest mismatch was reported since the last sync.
    has_warned: bool,
    /// Events that are not yet published: reason and message.
    events: Vec<(&'static str, String)>,
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

#[derive(Clone)]
pub struct ImportQueue {
    queue: Queue<Key>,
    states: Arc<ObjectStates<NamespacedName, ImportState>>,
    mode: FilesMode,
    /// Bytes of all worklists that wait for a turn.
    waiting: Arc<AtomicUsize>,
}

/// A worklist that does not fit is looked up again.
const MAX_WAITING_BYTES: usize = 32 << 20;

#[derive(Debug)]
struct WaitingWorklist {
    worklist: Worklist,
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl WaitingWorklist {
    fn new(worklist: Worklist, all: &Arc<AtomicUsize>) -> Option<Self> {
        let bytes = worklist.bytes();
        // Dropped if it does not fit.
        let waiting = Self {
            worklist,
            bytes,
            all: Arc::clone(all),
        };
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= MAX_WAITING_BYTES).then_some(waiting)
    }
}

impl Drop for WaitingWorklist {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl PartialEq for WaitingWorklist {
    fn eq(&self, other: &Self) -> bool {
        self.worklist == other.worklist
    }
}

impl ImportQueue {
    #[must_use]
    pub fn new(queue: Queue<Key>, mode: FilesMode) -> Self {
        Self {
            queue,
            states: Arc::default(),
            mode,
            waiting: Arc::default(),
        }
    }

    /// Enqueues the import, unless it was already enqueued for the same charts.
    pub fn enqueue(&self, record: &Record, changed: ChangedCharts) {
        let (name, charts) = (record.name.clone(), SyncId::of(record));
        let enqueue = |import: &mut ImportState| {
            if let Some(unchecked) = &mut import.unchecked {
                unchecked.append(changed);
            }
            let is_new = import.enqueued.as_ref() != Some(&charts);
            if is_new {
                import.enqueued = Some(charts);
                import.has_warned = false;
            }
            is_new
        };
        if has_charts(record) && self.update(&name, enqueue) {
            self.queue.add(key(&name), Priority::LOW);
        }
    }

    fn reset_enqueued(&self, name: &NamespacedName) {
        self.update(name, |import| import.enqueued = None);
    }

    fn resume(&self, name: &NamespacedName) -> (Worklist, Option<Instant>) {
        let (waiting, reported) = self.update(name, |import| (import.worklist.take(), import.reported.take()));
        let worklist = waiting.map(|mut waiting| mem::take(&mut waiting.worklist));
        (worklist.unwrap_or_default(), reported)
    }

    fn take_unchecked(&self, name: &NamespacedName) -> ChangedCharts {
        let taken = self.update(name, |import| import.unchecked.replace(ChangedCharts::default()));
        taken.unwrap_or(ChangedCharts::ALL)
    }

    fn restore_unchecked(&self, name: &NamespacedName, charts: ChangedCharts) {
        self.update(name, |import| {
            if let Some(unchecked) = &mut import.unchecked {
                unchecked.append(charts);
            }
        });
    }

    fn suspend(&self, name: &NamespacedName, worklist: Worklist, reported: Option<Instant>) {
        let waiting = WaitingWorklist::new(worklist, &self.waiting);
        self.update(name, |import| (import.worklist, import.reported) = (waiting, reported));
    }

    #[must_use]
    pub fn progress(&self, name: &NamespacedName) -> ImportProgress {
        if self.mode == FilesMode::None {
            return ImportProgress::Disabled;
        }
        let progress = self.states.read(name, |import| import.progress.clone());
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
        self.publish_once(name, "QuotaExceeded", message, |import| &mut import.is_over_quota);
    }

    /// Reports an archive with another digest than the index contains: once, since there may be thousands.
    fn warn(&self, name: &NamespacedName, message: String) {
        self.publish_once(name, "DigestMismatch", message, |import| &mut import.has_warned);
    }

    fn publish_once(
        &self,
        name: &NamespacedName,
        reason: &'static str,
        message: String,
        is_published: impl FnOnce(&mut ImportState) -> &mut bool,
    ) {
        let is_new = self.update(name, |import| {
            let is_new = !mem::replace(is_published(import), true);
            if is_new {
                import.events.push((reason, message));
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

    /// Returns reasons and messages of warning events, each once.
    #[must_use]
    pub fn take_events(&self, name: &NamespacedName) -> Vec<(&'static str, String)> {
        self.update(name, |import| mem::take(&mut import.events))
    }

    pub fn forget(&self, name: &NamespacedName) {
        self.update(name, mem::take);
    }

    fn update<T>(&self, name: &NamespacedName, change: impl FnOnce(&mut ImportState) -> T) -> T {
        self.states.update(name, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worklists_that_wait_for_a_turn_are_bounded_together() {
        let all = Arc::default();
        let worklist = || Worklist::of_files(60_000);
        let bytes = worklist().bytes();
        assert!(
            (MAX_WAITING_BYTES / 4..MAX_WAITING_BYTES / 2).contains(&bytes),
            "{bytes}"
        );
        let mut waiting = Vec::new();
        while let Some(fits) = WaitingWorklist::new(worklist(), &all) {
            waiting.push(fits);
        }
        assert!((2..=4).contains(&waiting.len()), "{}", waiting.len());
        waiting.pop();
        assert!(WaitingWorklist::new(worklist(), &all).is_some());
        waiting.clear();
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
