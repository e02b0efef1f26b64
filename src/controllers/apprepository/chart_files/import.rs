//! Imports chart files and icons of one repository in batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;

use super::Settings;
use super::archive::{ArchiveFetcher, BUSY_PAUSE, ImportError};
use super::icon::IconFetcher;
use crate::api::{Files, SkippedEntry};
use crate::catalog::{self, FilesMode, MissingFiles, MissingIcon, SaveOutcome};
use crate::controllers::apprepository::metrics::Metrics;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::SyncContext;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Fetcher;
use crate::runtime::workqueue::Backoff;
use crate::text::printable;

const BATCH_ARCHIVES: usize = 16;
/// Time after which a batch starts no more archives.
const BATCH_TIME: Duration = Duration::from_secs(5);
const CONCURRENCY: usize = 4;
const LOOKUP_LIMIT: usize = 1000;
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(24),
};
/// Deadline of writing the files of one version: a locked repository must not hold the memory of other imports.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an unreadable Secret, which the next sync reports.
const SECRET_ERROR_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// Minimum pause if all hosts asked for one.
const MIN_PAUSE: Duration = Duration::from_secs(5);
const MAX_PROBLEMS: usize = 5;

#[derive(Clone)]
pub struct Importer {
    context: SyncContext,
    settings: Settings,
    metrics: Metrics,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    More,
    /// All hosts asked for a pause.
    Deferred(Duration),
    /// Nothing is due before this time.
    Done(Option<Timestamp>),
    /// The repository stores as much as it may. The next changed sync tries again.
    QuotaExceeded(String),
}

/// Missing files and icons of one repository, as last looked up.
#[derive(Debug, Default, PartialEq)]
pub struct Worklist {
    files: VecDeque<MissingFiles>,
    icons: VecDeque<MissingIcon>,
    is_prepared: bool,
}

impl Importer {
    #[must_use]
    pub fn new(context: SyncContext, settings: Settings, metrics: Metrics) -> Self {
        Self {
            context,
            settings,
            metrics,
        }
    }

    pub async fn import_batch(
        &self,
        spec: &RepositorySpec,
        uid: &str,
        worklist: &mut Worklist,
    ) -> Result<Batch, catalog::Error> {
        let catalog = &self.context.catalog;
        // Without imported files, nothing reads the table, so that it needs no placeholders.
        if self.settings.mode != FilesMode::None && !std::mem::replace(&mut worklist.is_prepared, true) {
            catalog.skip_files(&spec.name, uid, self.settings.mode).await?;
        }
        let next_try = self.look_up(spec, worklist).await?;
        if worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.is_prepared = false;
            return Ok(Batch::Done(next_try));
        }
        let Ok(session) = self.session(spec).await else {
            return Ok(Batch::Done(Some(Timestamp::now() + SECRET_ERROR_PAUSE)));
        };
        let mut deferred = match self.import_files(spec, uid, &session, worklist).await {
            Err(error @ catalog::Error::QuotaExceeded { .. }) => {
                *worklist = Worklist::default();
                return Ok(Batch::QuotaExceeded(error.to_string()));
            }
            deferred => deferred?,
        };
        if deferred.is_none() && worklist.files.is_empty() {
            deferred = self.import_icons(spec, uid, &session, worklist).await?;
        }
        Ok(deferred.map_or(Batch::More, Batch::Deferred))
    }

    /// Returns the progress of the import; `None` if files are not imported.
    pub async fn progress(&self, spec: &RepositorySpec) -> Result<Option<Files>, catalog::Error> {
        if self.settings.mode == FilesMode::None {
            return Ok(None);
        }
        let catalog = &self.context.catalog;
        let progress = catalog.files_progress(&spec.name, self.settings.mode).await?;
        let problems = catalog.files_problems(&spec.name, MAX_PROBLEMS).await?;
        let problems = problems.into_iter().map(|(file, reason)| SkippedEntry {
            chart: printable(&file),
            version: None,
            reason: printable(&reason),
        });
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Some(Files {
            imported: number(progress.imported),
            total: number(progress.total),
            failed: number(progress.failed),
            problems: problems.collect(),
        }))
    }

    async fn look_up(
        &self,
        spec: &RepositorySpec,
        worklist: &mut Worklist,
    ) -> Result<Option<Timestamp>, catalog::Error> {
        let (catalog, name, now) = (&self.context.catalog, &spec.name, Timestamp::now());
        let mut next_try = None;
        if worklist.files.is_empty() {
            let mode = self.settings.mode;
            let missing = catalog.missing_files(name, mode, now, LOOKUP_LIMIT).await?;
            next_try = missing.next_try;
            worklist.files = missing.files.into();
        }
        if self.settings.icons && worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.icons = catalog.missing_icons(name, now, LOOKUP_LIMIT).await?.into();
            let icons = catalog.next_icon_try(name, now).await?;
            next_try = [next_try, icons].into_iter().flatten().min();
        }
        Ok(next_try)
    }

    async fn session(&self, spec: &RepositorySpec) -> Result<Fetcher, SyncError> {
        let (access, _) = self.context.credentials.access(spec).await?;
        Ok(self.context.fetcher.with(access)?)
    }

    async fn import_files(
        &self,
        spec: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let archives = ArchiveFetcher::new(&self.context, self.settings.archive, spec, session);
        let (catalog, name, archives) = (&self.context.catalog, &spec.name, &archives);
        run_batch(&mut worklist.files, |missing: MissingFiles| async move {
            // Versions that are gone are not written.
            let _: SaveOutcome = match archives.files(&missing).await {
                Ok((files, reservation)) => {
                    let saved = timeout(SAVE_TIMEOUT, catalog.save_files(name, uid, files)).await;
                    drop(reservation);
                    let Ok(saved) = saved else {
                        self.metrics.chart_files("deferred");
                        return Ok(Some((missing, BUSY_PAUSE)));
                    };
                    self.metrics.chart_files("imported");
                    saved?
                }
                Err(ImportError::Deferred(time)) => {
                    self.metrics.chart_files("deferred");
                    return Ok(Some((missing, time)));
                }
                Err(ImportError::Failed { message, retry_after }) => {
                    self.metrics.chart_files("failed");
                    tracing::debug!(chart = %printable(&missing.chart_id), version = %printable(&missing.version),
                        error = %printable(&message), "failed to import chart files");
                    let next_try = next_try(missing.tries, retry_after);
                    let saved = catalog.record_files_failure(name, uid, &missing, &message, next_try);
                    saved.await?
                }
            };
            Ok(None)
        })
        .await
    }

    async fn import_icons(
        &self,
        spec: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let (catalog, name) = (&self.context.catalog, &spec.name);
        let icons = &IconFetcher {
            session,
            budgets: &self.context.budgets,
            namespace: &spec.name.namespace,
            limits: self.settings.icon,
            fetch_limits: self.context.fetch_limits,
        };
        run_batch(&mut worklist.icons, |missing: MissingIcon| async move {
            let _: SaveOutcome = match icons.png(&missing).await {
                Ok(png) => catalog.save_icon(name, uid, &missing, &png).await?,
                Err(ImportError::Deferred(time)) => return Ok(Some((missing, time))),
                Err(ImportError::Failed { message, retry_after }) => {
                    tracing::debug!(chart = %printable(&missing.chart_id), error = %printable(&message), "failed to import icon");
                    let next_try = next_try(missing.tries, retry_after);
                    catalog.record_icon_failure(name, uid, &missing, &message, next_try).await?
                }
            };
            Ok(None)
        })
        .await
    }
}

/// Processes items until the batch is full. Deferred items do not count and return to the queue. Returns the pause if
/// all items were deferred.
async fn run_batch<W, F>(missing: &mut VecDeque<W>, work: impl Fn(W) -> F) -> Result<Option<Duration>, catalog::Error>
where
    F: Future<Output = Result<Option<(W, Duration)>, catalog::Error>>,
{
    let started = Instant::now();
    let done = AtomicUsize::new(0);
    let mut deferred = Vec::new();
    let next = || {
        let has_room = started.elapsed() < BATCH_TIME && done.load(Ordering::Relaxed) < BATCH_ARCHIVES;
        has_room.then(|| missing.pop_front()).flatten()
    };
    let mut batch = stream::iter(std::iter::from_fn(next))
        .map(work)
        .buffer_unordered(CONCURRENCY);
    while let Some(result) = batch.next().await {
        match result? {
            Some(item) => deferred.push(item),
            None => {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    drop(batch);
    let shortest = deferred.iter().map(|(_, time)| *time).min();
    missing.extend(deferred.into_iter().map(|(missing, _)| missing));
    let was_idle = done.load(Ordering::Relaxed) == 0;
    Ok(shortest.filter(|_| was_idle).map(|time| time.max(MIN_PAUSE)))
}

/// Returns the time of the next try after `before` failures, respecting the server's `Retry-After`.
fn next_try(before: u32, retry_after: Option<Duration>) -> Timestamp {
    // The fetcher limits `Retry-After`, so that the time can't overflow.
    Timestamp::now() + RETRY_BACKOFF.delay(before).max(retry_after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: &[u32]) -> VecDeque<u32> {
        items.iter().copied().collect()
    }

    #[tokio::test]
    async fn deferred_items_block_nothing_and_return_to_the_queue() {
        let mut missing = queue(&[1, 2, 3, 4, 5, 6]);
        let started = parking_lot::Mutex::new(Vec::new());
        let wait = run_batch(&mut missing, |number| {
            started.lock().push(number);
            async move { Ok((number <= 4).then_some((number, Duration::ZERO))) }
        });
        assert_eq!(wait.await.unwrap(), None);
        assert_eq!(*started.lock(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            missing.into_iter().collect::<std::collections::BTreeSet<_>>(),
            [1, 2, 3, 4].into()
        );
    }

    #[tokio::test]
    async fn the_next_batch_waits_if_all_items_were_deferred() {
        let mut missing = queue(&[1, 2]);
        let wait = run_batch(&mut missing, |number| async move {
            Ok(Some((number, Duration::from_secs(if number == 1 { 60 } else { 0 }))))
        });
        assert_eq!(wait.await.unwrap(), Some(MIN_PAUSE));
        assert_eq!(missing.len(), 2);
    }

    #[tokio::test]
    async fn a_batch_ends_before_a_long_queue() {
        let mut missing: VecDeque<u32> = (0..100).collect();
        assert_eq!(run_batch(&mut missing, |_| async { Ok(None) }).await.unwrap(), None);
        assert!(
            (100 - BATCH_ARCHIVES - CONCURRENCY..100).contains(&missing.len()),
            "{}",
            missing.len()
        );
    }

    #[test]
    fn retry_after_extends_the_backoff() {
        let hour = Timestamp::now() + SignedDuration::from_mins(59);
        assert!(next_try(0, Some(Duration::from_secs(3600))) > hour);
        assert!(next_try(0, Some(Duration::ZERO)) < hour);
    }

    #[test]
    fn retries_of_an_archive_back_off() {
        let pauses: Vec<u64> = [0, 1, 2, 10, u32::MAX]
            .into_iter()
            .map(|tries| RETRY_BACKOFF.delay(tries).as_secs() / 60)
            .collect();
        assert_eq!(pauses, [1, 2, 4, 1024, 24 * 60]);
    }
}
