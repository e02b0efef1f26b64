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
mod import;
mod locate;
mod reconciler;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use import::{Importer, Turn, Worklist};
pub use reconciler::{FilesReconciler, Worklists};

use crate::api::Files;
use crate::catalog::{FilesMode, Handled, Record};
use crate::controller::{Key, Kind};
use crate::informer::ObjectName;
use crate::queue::{Priority, Queue};
use crate::repository::decide::has_charts;
use crate::repository::status::Imported;
use crate::source::{archive as packed, icon as picture};

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
pub fn key(name: &ObjectName) -> Key {
    Key {
        kind: Kind::ChartFiles,
        name: name.clone(),
    }
}

/// What syncs have to do with imports: whatever they change is to be looked at.
#[derive(Clone)]
pub struct Follower {
    /// Where the keys of imports go.
    pub queue: Queue<Key>,
    /// How far the imports are.
    pub progresses: Progresses,
    /// Of which charts each import was begun.
    begun: Arc<Mutex<HashMap<ObjectName, Charts>>>,
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

impl Follower {
    /// One that puts keys into `queue`.
    #[must_use]
    pub fn new(queue: Queue<Key>, progresses: Progresses) -> Self {
        Self {
            queue,
            progresses,
            begun: Arc::default(),
        }
    }

    /// Has the import of a repository looked at, where its charts are there, and are others than those of which it was begun; or
    /// where nobody has looked since the start.
    pub fn follow(&self, record: &Record) {
        let (name, charts) = (record.name.clone(), Charts::of(record));
        if has_charts(record) && self.begun().get(&name) != Some(&charts) {
            self.begun().insert(name.clone(), charts);
            self.queue.add(key(&name), Priority::LOW);
        }
    }

    /// Forgets that an import was begun: it was left, and is to be taken up by the next sync.
    pub fn leave(&self, name: &ObjectName) {
        self.begun().remove(name);
    }

    /// How far the import for `name` is.
    #[must_use]
    pub fn imported(&self, name: &ObjectName) -> Imported {
        self.progresses.get(name).map_or(Imported::Unseen, Imported::Seen)
    }

    /// Takes the memory of a repository away that is gone.
    pub fn forget(&self, name: &ObjectName) {
        self.begun().remove(name);
        self.progresses.forget(name);
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<ObjectName, Charts>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the imports are, as it was seen last: what a status shows of them. A handle, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Progresses(Arc<Mutex<HashMap<ObjectName, Files>>>);

impl Progresses {
    /// How far the import for `name` is, where that was looked at since the start.
    #[must_use]
    pub fn get(&self, name: &ObjectName) -> Option<Files> {
        self.lock().get(name).cloned()
    }

    /// Notes how far the import for `name` is. Says whether that is news.
    pub fn set(&self, name: &ObjectName, files: Files) -> bool {
        let mut all = self.lock();
        let is_news = all.get(name) != Some(&files);
        if is_news {
            all.insert(name.clone(), files);
        }
        is_news
    }

    /// Takes the memory of a repository away that is gone.
    pub fn forget(&self, name: &ObjectName) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, Files>> {
        // The map is whole between any two statements, so a panic elsewhere leaves nothing to mend.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
