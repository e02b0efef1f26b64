use std::{fs, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

#[derive(Default)]
pub struct Notifier {
    pub changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    watched: Option<FileId>,
}

impl Notifier {
    pub fn is_watching(&self) -> bool {
        self.watcher.is_some()
    }

    pub fn watch(&mut self, directory: &Path) {
        let id = file_id(directory);
        if id == self.watched && (self.watcher.is_some() || id.is_none()) {
            return;
        }
        self.watcher = None;
        let first_failure = self.watched != id;
        self.watched = id;
        if id.is_none() {
            return;
        }
        let changed = Arc::clone(&self.changed);
        let on_event = move |event: notify::Result<notify::Event>| {
            // Our own reads cause access events.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                changed.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
            watcher.watch(directory, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) if first_failure => {
                tracing::warn!(directory = %directory.display(), %error, "file notifications not available, polling every second");
            }
            Err(error) => {
                tracing::debug!(directory = %directory.display(), %error, "file notifications still not available")
            }
        }
    }
}

type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
