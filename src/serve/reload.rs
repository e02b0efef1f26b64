//! Reads what has changed in the database.
//!
//! ```text
//!  keys, records ─► due repositories ─┬─ small ─► one after the other, within the check ─┬─► State::next ─► publish
//!                                     └─ large ─► one at a time, beside later checks ────┘
//! ```
//! So the repositories of a tenant who has many charts, or changes them all the time, delay those of others only little. A
//! repository whose charts are not read yet is listed at once, and lists of charts say that they are incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::live::{Live, PATIENCE, State};
use super::repository::Repository;
use crate::api::NamespacedName;
use crate::catalog::query::RepositoryKeys;
use crate::catalog::{Catalog, Error, ErrorKind, Record};

/// Time in which a small repository is read.
const SMALL_READ: Duration = Duration::from_secs(1);
/// Time after which a check leaves the other changes to the next one.
const MAX_CHECK: Duration = Duration::from_secs(2);
/// Between publications while changes are read.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// Above this number of changed records, all are read at once.
const MAX_SINGLE_READS: usize = 16;

#[derive(Default)]
pub(super) struct Reloads {
    /// Repositories that took long to read, or much memory.
    large: BTreeSet<NamespacedName>,
    /// Repositories whose charts can't be read.
    failing: BTreeSet<NamespacedName>,
    /// The task that reads large repositories.
    task: Option<JoinHandle<()>>,
    /// Large repositories that change all the time take at most half of a thread.
    rests_until: Option<Instant>,
}

impl State {
    fn next_large(&self) -> Option<RepositoryKeys> {
        let mut due = self.next.snapshot.due().into_iter();
        due.find(|keys| self.reloads.large.contains(&keys.name))
    }
}

impl Live {
    pub(super) async fn load(self: &Arc<Self>) -> Result<(), Error> {
        let catalog = self.catalog().await?;
        // A newer release may store rows in another form.
        catalog.schema_versions().await?;
        let at = Instant::now();
        let found = self.empty.find(&catalog).await?;
        let mut records = self.state.lock().next.records.clone();
        refresh_records(&catalog, &found.keys, &mut records).await?;
        let is_first = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let is_first = state.found.replace(at).is_none();
            state.next.snapshot.apply(found);
            let repositories = state.next.snapshot.repositories();
            state.reloads.large.retain(|name| repositories.contains_key(name));
            state.reloads.failing.retain(|name| repositories.contains_key(name));
            state.next.namespaces = namespaces(repositories.keys());
            state.next.records = records;
            is_first
        };
        self.read_small(&catalog, is_first).await?;
        self.publish();
        self.start_large_reads(&catalog);
        if is_first {
            self.wait_for_large_reads().await;
        }
        Ok(())
    }

    async fn read_small(&self, catalog: &Catalog, is_first: bool) -> Result<(), Error> {
        let due = self.state.lock().next.snapshot.due();
        let small = self.empty.memory().small();
        let started = Instant::now();
        let (mut unpublished, mut published) = (0, started);
        for keys in due {
            if !is_first && started.elapsed() > MAX_CHECK {
                break;
            }
            if self.state.lock().reloads.large.contains(&keys.name) {
                continue;
            }
            let name = keys.name.clone();
            let read = timeout(SMALL_READ, self.read(catalog, keys, Some(small))).await;
            match read.unwrap_or(Ok(None)) {
                Ok(Some(size)) => unpublished += size,
                Ok(None) => {
                    self.state.lock().reloads.large.insert(name);
                }
                Err(error) if is_of_database(&error) => return Err(error),
                Err(error) => self.warn(&name, &error),
            }
            if unpublished > small || published.elapsed() > PUBLISH_INTERVAL {
                self.publish();
                (unpublished, published) = (0, Instant::now());
            }
        }
        Ok(())
    }

    fn start_large_reads(self: &Arc<Self>, catalog: &Catalog) {
        let mut state = self.state.lock();
        let is_running = state.reloads.task.as_ref().is_some_and(|task| !task.is_finished());
        let is_resting = state.reloads.rests_until.is_some_and(|end| Instant::now() < end);
        if is_running || is_resting || state.next_large().is_none() {
            return;
        }
        let (live, catalog, runtime) = (Arc::clone(self), catalog.clone(), Handle::current());
        let task = spawn_blocking(move || runtime.block_on(live.read_large(&catalog)));
        state.reloads.task = Some(task);
    }

    async fn wait_for_large_reads(&self) {
        let task = self.state.lock().reloads.task.take();
        if let Some(mut task) = task
            && timeout(PATIENCE, &mut task).await.is_err()
        {
            self.state.lock().reloads.task = Some(task);
        }
    }

    async fn read_large(&self, catalog: &Catalog) {
        loop {
            let Some(keys) = self.state.lock().next_large() else {
                return;
            };
            let (name, started) = (keys.name.clone(), Instant::now());
            let was_read = self.is_read(&name);
            let read = self.read(catalog, keys, None).await;
            self.publish();
            match read {
                Ok(Some(size)) if size <= self.empty.memory().small() && started.elapsed() < SMALL_READ => {
                    self.state.lock().reloads.large.remove(&name);
                }
                Ok(_) => {}
                Err(error) => {
                    // The next check starts again, and reports faults of the database.
                    if !is_of_database(&error) {
                        self.warn(&name, &error);
                    }
                    return;
                }
            }
            if was_read {
                self.state.lock().reloads.rests_until = Some(Instant::now() + started.elapsed());
                return;
            }
        }
    }

    fn is_read(&self, name: &NamespacedName) -> bool {
        let state = self.state.lock();
        let repository = state.next.snapshot.repositories().get(name);
        repository.is_some_and(Repository::is_read)
    }

    /// Reads the charts of a repository for the next publication, and returns their size. Returns `None` if it is not small.
    async fn read(&self, catalog: &Catalog, keys: RepositoryKeys, small: Option<u64>) -> Result<Option<u64>, Error> {
        let (name, started) = (keys.name.clone(), Instant::now());
        let limit = self.state.lock().next.snapshot.reading_limit(&name);
        let read = Repository::read(catalog, keys, limit, small).await;
        let mut state = self.state.lock();
        match read {
            Ok(Some(repository)) => {
                self.metrics.observe_reload(started.elapsed());
                let size = repository.total_size();
                state.next.snapshot.insert(repository);
                state.reloads.failing.remove(&name);
                Ok(Some(size))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                state.next.snapshot.postpone(&name);
                Err(error)
            }
        }
    }

    fn publish(&self) {
        let mut state = self.state.lock();
        state.publish();
        self.metrics.set_snapshot(&state.next.snapshot);
    }

    /// Reports the repository once. It stays as it was, and the others are served.
    fn warn(&self, repository: &NamespacedName, error: &Error) {
        if self.state.lock().reloads.failing.insert(repository.clone()) {
            tracing::warn!(%repository, %error, "failed to read the charts of a repository, serving those that were read before");
        }
    }
}

/// Returns true if other repositories can't be read either.
fn is_of_database(error: &Error) -> bool {
    error.fault().is_some() || error.is_busy_pool()
}

/// Returns the namespaces of sorted names.
fn namespaces<'a>(names: impl Iterator<Item = &'a NamespacedName>) -> Vec<String> {
    let mut namespaces: Vec<String> = Vec::new();
    for name in names {
        if namespaces.last() != Some(&name.namespace) {
            namespaces.push(name.namespace.clone());
        }
    }
    namespaces
}

/// Reads the records that have changed: a sync that finds the same charts changes the record only.
async fn refresh_records(
    catalog: &Catalog,
    found: &[RepositoryKeys],
    records: &mut BTreeMap<NamespacedName, Arc<Record>>,
) -> Result<(), Error> {
    let found = found
        .iter()
        .filter_map(|keys| Some((&keys.name, keys.record.as_ref()?)));
    let found: BTreeMap<_, _> = found.collect();
    records.retain(|name, _| found.contains_key(name));
    let mut changed = Vec::new();
    for (name, key) in &found {
        let is_current = |record: &Arc<Record>| record.uid == key.uid && record.revision == Some(key.revision);
        if !records.get(*name).is_some_and(is_current) {
            changed.push(*name);
        }
    }
    if changed.len() > MAX_SINGLE_READS {
        let all = catalog.records().await?.into_iter();
        records.extend(
            all.filter(|record| found.contains_key(&record.name))
                .map(|record| (record.name.clone(), Arc::new(record))),
        );
        return Ok(());
    }
    for name in changed {
        match catalog.record(name).await {
            Ok(Some(record)) => {
                records.insert(name.clone(), Arc::new(record));
            }
            Ok(None) => {
                records.remove(name);
            }
            Err(error) if matches!(error.kind(), ErrorKind::UnreadableRecord { .. }) => {
                records.remove(name);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
