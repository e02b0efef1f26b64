//! The snapshot that all requests share. A request that finds it older than a second checks the database, once for all that
//! wait, so that nothing runs without requests. `reload` reads what has changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::memory::CatalogMemory;
use super::metrics::ServeMetrics;
use super::reload::Reloads;
use super::snapshot::Snapshot;
use crate::api::NamespacedName;
use crate::catalog::{Catalog, CatalogSettings, Error, Record};

/// Age up to which a snapshot is not checked.
const FRESH: Duration = Duration::from_secs(1);
/// Age up to which the last snapshot is served while the database can't be read.
const MAX_STALE: Duration = Duration::from_secs(15 * 60);
/// Time that a request waits for the database.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Time that a request waits for changes. The check goes on: another tenant may have changed much.
const SHORT_PATIENCE: Duration = Duration::from_millis(100);

/// The database can't be read, and no snapshot is recent enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database of the catalog can't be read")]
pub struct Unavailable;

#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub snapshot: Snapshot,
    /// Without repositories that only Kubeapps' syncer has written.
    pub records: BTreeMap<NamespacedName, Arc<Record>>,
    /// The namespaces with repositories, sorted.
    pub namespaces: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct View {
    pub loaded: Arc<Loaded>,
    /// The age of the snapshot, while the database can't be read.
    pub stale: Option<Duration>,
}

pub struct LiveOptions {
    pub settings: CatalogSettings,
    /// A snapshot without repositories, limited to a namespace and an origin.
    pub empty: Snapshot,
    pub metrics: ServeMetrics,
    /// Bytes of the snapshot, and of charts that are being read.
    pub memory: u64,
}

/// Opens the database lazily, for reading only.
pub struct Live {
    settings: CatalogSettings,
    pub(super) empty: Snapshot,
    pub(super) metrics: ServeMetrics,
    opened: tokio::sync::Mutex<Option<Opened>>,
    pub(super) state: Mutex<State>,
}

struct Opened {
    catalog: Catalog,
    file: Option<FileId>,
}

/// Device and inode of a SQLite file.
type FileId = (u64, u64);

#[derive(Default)]
pub(super) struct State {
    /// The snapshot that requests see, and the time of its keys.
    last: Option<(Arc<Loaded>, Instant)>,
    /// The next one: what has changed is read into it.
    pub(super) next: Loaded,
    /// The time of the keys of `next`.
    pub(super) found: Option<Instant>,
    pub(super) reloads: Reloads,
    checked: Option<Instant>,
    is_failing: bool,
    check: Option<Shared<BoxFuture<'static, ()>>>,
}

impl State {
    /// Shows `next` to requests.
    pub(super) fn publish(&mut self) {
        self.next.snapshot.trim();
        let found = self.found.unwrap_or_else(Instant::now);
        self.last = Some((Arc::new(self.next.clone()), found));
    }

    /// Returns the time that a request waits for a check.
    fn patience(&self) -> Duration {
        match &self.last {
            Some(_) if self.is_failing => Duration::ZERO,
            Some((_, read)) if read.elapsed() <= MAX_STALE => SHORT_PATIENCE,
            // There is none, or after a long time without requests none that may be served.
            _ => PATIENCE,
        }
    }

    fn view(&self) -> Result<View, Unavailable> {
        let (loaded, read) = self.last.as_ref().ok_or(Unavailable)?;
        let age = read.elapsed();
        let is_stale = self.is_failing || age >= FRESH + PATIENCE;
        if is_stale && age > MAX_STALE {
            return Err(Unavailable);
        }
        Ok(View {
            loaded: Arc::clone(loaded),
            stale: is_stale.then_some(age),
        })
    }
}

impl Live {
    #[must_use]
    pub fn new(options: LiveOptions) -> Self {
        let empty = options.empty.with_memory(CatalogMemory::new(options.memory));
        let state = State {
            next: Loaded {
                snapshot: empty.clone(),
                ..Loaded::default()
            },
            ..State::default()
        };
        Self {
            settings: options.settings,
            empty,
            metrics: options.metrics,
            opened: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Returns a snapshot that is at most a second old, or else the last one. While the database can't be read, no request
    /// waits for it, and none waits long for the changes of others.
    pub async fn view(self: &Arc<Self>) -> Result<View, Unavailable> {
        let (check, patience) = {
            let mut state = self.state.lock();
            if state.checked.is_some_and(|checked| checked.elapsed() < FRESH) {
                return state.view();
            }
            let running = state.check.take().filter(|check| check.peek().is_none());
            let check = running.unwrap_or_else(|| self.start_check());
            state.check = Some(check.clone());
            (check, state.patience())
        };
        // Without a result in time, the last snapshot counts.
        let _ = timeout(patience, check).await;
        self.state.lock().view()
    }

    /// Checks on a thread beside the runtime: decoding takes long, and goes on if the client that waits for it goes away.
    fn start_check(self: &Arc<Self>) -> Shared<BoxFuture<'static, ()>> {
        let (live, runtime) = (Arc::clone(self), Handle::current());
        let check = spawn_blocking(move || runtime.block_on(live.check()));
        // A panic has been logged.
        check.map(drop).boxed().shared()
    }

    async fn check(self: &Arc<Self>) {
        let result = self.load().await;
        self.metrics.count_check(result.is_ok());
        let mut state = self.state.lock();
        state.checked = Some(Instant::now());
        let was_failing = std::mem::replace(&mut state.is_failing, result.is_err());
        match result {
            Ok(()) if was_failing => tracing::info!("recovered, reading the catalog again"),
            Ok(()) => {}
            Err(error) if !was_failing => {
                tracing::warn!(%error, "failed to read the catalog, serving what was read before");
            }
            Err(error) => tracing::debug!(%error, "failed to read the catalog"),
        }
    }

    /// Opens the database if that has not succeeded yet, or if another file is at its path.
    pub async fn catalog(&self) -> Result<Catalog, Error> {
        let mut opened = self.opened.lock().await;
        let file = self.file();
        match opened.take() {
            Some(same) if same.file == file => Ok(opened.insert(same).catalog.clone()),
            other => {
                if let Some(replaced) = other {
                    replaced.catalog.close().await;
                }
                let catalog = Catalog::open_read_only_lazy(&self.settings).await?;
                Ok(opened.insert(Opened { catalog, file }).catalog.clone())
            }
        }
    }

    fn file(&self) -> Option<FileId> {
        let metadata = fs::metadata(self.settings.database.sqlite_path()?).ok()?;
        Some((metadata.dev(), metadata.ino()))
    }

    pub async fn close(&self) {
        if let Some(opened) = self.opened.lock().await.take() {
            opened.catalog.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_snapshot_is_served_for_15_minutes_while_the_database_is_away() {
        assert_eq!(State::default().view().unwrap_err(), Unavailable);
        let mut state = State {
            last: Some((Arc::default(), Instant::now())),
            ..State::default()
        };
        assert_eq!(state.view().unwrap().stale, None);
        state.is_failing = true;
        tokio::time::advance(MAX_STALE).await;
        assert_eq!(state.view().unwrap().stale, Some(MAX_STALE));
        tokio::time::advance(FRESH).await;
        assert_eq!(state.view().unwrap_err(), Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_check_if_nothing_else_can_be_served() {
        assert_eq!(State::default().patience(), PATIENCE);
        let mut state = State {
            last: Some((Arc::default(), Instant::now())),
            ..State::default()
        };
        assert_eq!(state.patience(), SHORT_PATIENCE);
        tokio::time::advance(MAX_STALE + FRESH).await;
        assert_eq!(state.patience(), PATIENCE, "after a night without requests");
        state.is_failing = true;
        assert_eq!(state.patience(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_is_stale_if_the_database_does_not_answer_in_time() {
        let state = State {
            last: Some((Arc::default(), Instant::now())),
            ..State::default()
        };
        tokio::time::advance(FRESH + PATIENCE).await;
        assert_eq!(state.view().unwrap().stale, Some(FRESH + PATIENCE));
    }
}
