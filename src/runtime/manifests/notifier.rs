//! Being told that something has changed in the folder.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// The operating system's notifications.
pub struct Notifier {
    wake: mpsc::Sender<()>,
    watcher: Option<RecommendedWatcher>,
    /// What is watched: a folder that was removed and made again has another id, and is not watched any more.
    watched: Option<FileId>,
}

impl Notifier {
    /// Watches nothing yet. What is received says that something has changed since it was received last.
    pub fn new() -> (Self, mpsc::Receiver<()>) {
        let (wake, woken) = mpsc::channel(1);
        (
            Self {
                wake,
                watcher: None,
                watched: None,
            },
            woken,
        )
    }

    /// Whether changes are notified.
    pub fn is_watching(&self) -> bool {
        self.watcher.is_some()
    }

    /// Watches the folder, if that is not so already.
    pub fn watch(&mut self, folder: &Path) {
        let id = file_id(folder);
        if id == self.watched && (self.watcher.is_some() || id.is_none()) {
            return;
        }
        self.watcher = None;
        let first_failure = self.watched != id;
        self.watched = id;
        if id.is_none() {
            return;
        }
        let wake = self.wake.clone();
        let on_event = move |event: notify::Result<notify::Event>| {
            // To read is no change: the looking itself would tell that there is something to look at.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                // A full channel says already what this would say.
                let _ = wake.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(on_event).and_then(|mut watcher| {
            watcher.watch(folder, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) if first_failure => {
                tracing::warn!(folder = %folder.display(), %error, "changes of the folder are not notified: their metadata is compared every second instead");
            }
            Err(error) => {
                tracing::debug!(folder = %folder.display(), %error, "changes of the folder are still not notified")
            }
        }
    }
}

type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
