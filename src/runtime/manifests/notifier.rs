use std::{fs, os::unix::fs::MetadataExt, path::Path};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

pub struct Notifier {
    wake: mpsc::Sender<()>,
    watcher: Option<RecommendedWatcher>,
    watched: Option<FileId>,
}

impl Notifier {
    /// Creates an idle notifier. The receiver has a message if anything has changed since the last one.
    pub fn new() -> (Self, mpsc::Receiver<()>) {
        let (wake, wakeups) = mpsc::channel(1);
        (
            Self {
                wake,
                watcher: None,
                watched: None,
            },
            wakeups,
        )
    }

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
        let wake = self.wake.clone();
        let on_event = move |event: notify::Result<notify::Event>| {
            // Our own reads cause access events.
            if !event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                // A full channel already has a message.
                let _ = wake.try_send(());
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
