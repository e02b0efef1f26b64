//! Imports chart files and icons of one repository in batches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};

use super::Settings;
use super::archive::{Archives, Miss};
use super::budget::Budget;
use super::icon::Icons;
use crate::api::{Files, SkippedEntry};
use crate::catalog::{self, FilesMode, Saved, WantedFiles, WantedIcon};
use crate::controllers::apprepository::metrics::Metrics;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::SyncContext;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Fetcher;
use crate::runtime::workqueue::Backoff;
use crate::text::printable;

const ARCHIVES_A_TURN: usize = 16;
/// Time after which a batch starts no more archives.
const TURN: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 4;
const LOOKED_UP: usize = 1000;
const TRIED_AGAIN: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(24),
};
/// Pause after an unreadable Secret, which the next sync reports.
const WITHOUT_KEYS: SignedDuration = SignedDuration::from_mins(5);
/// Minimum pause if all hosts asked for one.
const SHORTEST_HOLD: Duration = Duration::from_secs(5);
const NAMED: usize = 5;

#[derive(Clone)]
pub struct Importer {
    tools: SyncContext,
    settings: Settings,
    metrics: Metrics,
    budget: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    More,
    /// All hosts asked for a pause.
    Held(Duration),
    /// Nothing is due before this time.
    Done(Option<Timestamp>),
}

/// Missing files and icons of one repository, as last looked up.
#[derive(Debug, Default, PartialEq)]
pub struct Worklist {
    files: VecDeque<WantedFiles>,
    icons: VecDeque<WantedIcon>,
    is_prepared: bool,
}

impl Importer {
    #[must_use]
    pub fn new(tools: SyncContext, settings: Settings, metrics: Metrics) -> Self {
        Self {
            tools,
            settings,
            metrics,
            budget: Budget::default(),
        }
    }

    /// Imports one batch, for rows that belong to the object `uid`.
    pub async fn turn(
        &self,
        declaration: &RepositorySpec,
        uid: &str,
        worklist: &mut Worklist,
    ) -> Result<Turn, catalog::Error> {
        let catalog = &self.tools.catalog;
        // Without imported files, nothing reads the table, so that it needs no placeholders.
        if self.settings.mode != FilesMode::None && !std::mem::replace(&mut worklist.is_prepared, true) {
            catalog
                .leave_out_files(&declaration.name, uid, self.settings.mode)
                .await?;
        }
        let next_try = self.look_up(declaration, worklist).await?;
        if worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.is_prepared = false;
            return Ok(Turn::Done(next_try));
        }
        let session = match self.session(declaration).await {
            Ok(session) => session,
            // The next sync reports the error.
            Err(_) => return Ok(Turn::Done(Some(Timestamp::now() + WITHOUT_KEYS))),
        };
        let held = self.files(declaration, uid, &session, worklist).await?;
        if let Some(held) = held {
            return Ok(Turn::Held(held));
        }
        if worklist.files.is_empty() {
            let held = self.icons(declaration, uid, &session, worklist).await?;
            if let Some(held) = held {
                return Ok(Turn::Held(held));
            }
        }
        Ok(Turn::More)
    }

    /// Returns the progress of the import; `None` if files are not imported.
    pub async fn progress(&self, declaration: &RepositorySpec) -> Result<Option<Files>, catalog::Error> {
        if self.settings.mode == FilesMode::None {
            return Ok(None);
        }
        let catalog = &self.tools.catalog;
        let progress = catalog.files_progress(&declaration.name, self.settings.mode).await?;
        let problems = catalog.files_problems(&declaration.name, NAMED).await?;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Some(Files {
            imported: number(progress.imported),
            total: number(progress.total),
            failed: number(progress.failed),
            problems: problems
                .into_iter()
                .map(|(file, reason)| SkippedEntry {
                    chart: printable(&file),
                    version: None,
                    reason: printable(&reason),
                })
                .collect(),
        }))
    }

    async fn look_up(
        &self,
        declaration: &RepositorySpec,
        worklist: &mut Worklist,
    ) -> Result<Option<Timestamp>, catalog::Error> {
        let (catalog, name, now) = (&self.tools.catalog, &declaration.name, Timestamp::now());
        let mut next_try = None;
        if worklist.files.is_empty() {
            let wanted = catalog.files_wanted(name, self.settings.mode, now, LOOKED_UP).await?;
            next_try = wanted.next_try;
            worklist.files = wanted.files.into();
        }
        if self.settings.icons && worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.icons = catalog.icons_wanted(name, now, LOOKED_UP).await?.into();
            let icons = catalog.icons_next_try(name, now).await?;
            next_try = [next_try, icons].into_iter().flatten().min();
        }
        Ok(next_try)
    }

    async fn session(&self, declaration: &RepositorySpec) -> Result<Fetcher, SyncError> {
        let (access, _) = self.tools.keys.access(declaration).await?;
        Ok(self.tools.fetcher.with(access)?)
    }

    async fn files(
        &self,
        declaration: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let archives = Archives::new(&self.tools, &self.budget, self.settings.archive, declaration, session);
        let (catalog, name, archives) = (&self.tools.catalog, &declaration.name, &archives);
        take(&mut worklist.files, |wanted: WantedFiles| async move {
            // Versions that are gone are not written.
            let _: Saved = match archives.files(&wanted).await {
                Ok((files, reservation)) => {
                    self.metrics.chart_files("imported");
                    let saved = catalog.save_files(name, uid, files).await?;
                    drop(reservation);
                    saved
                }
                Err(Miss::Held(time)) => {
                    self.metrics.chart_files("held");
                    return Ok(Some((wanted, time)));
                }
                Err(Miss::Failed { message, again }) => {
                    self.metrics.chart_files("failed");
                    tracing::debug!(chart = %printable(&wanted.chart_id), version = %printable(&wanted.version),
                        error = %printable(&message), "failed to import chart files");
                    let next_try = next_try(wanted.tries, again);
                    catalog.files_failed(name, uid, &wanted, &message, next_try).await?
                }
            };
            Ok(None)
        })
        .await
    }

    async fn icons(
        &self,
        declaration: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let (catalog, name) = (&self.tools.catalog, &declaration.name);
        let icons = &Icons {
            session,
            budget: &self.budget,
            limits: self.settings.icon,
            fetch_limits: self.tools.fetch_limits,
        };
        take(&mut worklist.icons, |wanted: WantedIcon| async move {
            let _: Saved = match icons.png(&wanted).await {
                Ok(png) => catalog.save_icon(name, uid, &wanted, &png).await?,
                Err(Miss::Held(time)) => return Ok(Some((wanted, time))),
                Err(Miss::Failed { message, again }) => {
                    tracing::debug!(chart = %printable(&wanted.chart_id), error = %printable(&message), "failed to import icon");
                    let next_try = next_try(wanted.tries, again);
                    catalog.icon_failed(name, uid, &wanted, &message, next_try).await?
                }
            };
            Ok(None)
        })
        .await
    }
}

/// Processes items until the batch is full. Deferred items do not count and return to the queue. Returns the pause if
/// all items were deferred.
async fn take<W, F>(wanted: &mut VecDeque<W>, work: impl Fn(W) -> F) -> Result<Option<Duration>, catalog::Error>
where
    F: Future<Output = Result<Option<(W, Duration)>, catalog::Error>>,
{
    let started = Instant::now();
    let done = AtomicUsize::new(0);
    let mut held = Vec::new();
    let next = || {
        let goes_on = started.elapsed() < TURN && done.load(Ordering::Relaxed) < ARCHIVES_A_TURN;
        goes_on.then(|| wanted.pop_front()).flatten()
    };
    let mut turn = stream::iter(std::iter::from_fn(next))
        .map(work)
        .buffer_unordered(AT_ONCE);
    while let Some(result) = turn.next().await {
        match result? {
            Some(kept) => held.push(kept),
            None => {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    drop(turn);
    let shortest = held.iter().map(|(_, time)| *time).min();
    wanted.extend(held.into_iter().map(|(wanted, _)| wanted));
    let was_idle = done.load(Ordering::Relaxed) == 0;
    Ok(shortest.filter(|_| was_idle).map(|time| time.max(SHORTEST_HOLD)))
}

/// Returns the time of the next try after `before` failures, respecting the server's `Retry-After`.
fn next_try(before: u32, again: Option<Duration>) -> Timestamp {
    // The fetcher limits `Retry-After`, so that the time can't overflow.
    Timestamp::now() + TRIED_AGAIN.delay(before).max(again.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: &[u32]) -> VecDeque<u32> {
        items.iter().copied().collect()
    }

    #[tokio::test]
    async fn what_is_held_keeps_nothing_else_waiting_and_comes_last() {
        let mut wanted = queue(&[1, 2, 3, 4, 5, 6]);
        let asked = parking_lot::Mutex::new(Vec::new());
        let wait = take(&mut wanted, |number| {
            asked.lock().push(number);
            async move { Ok((number <= 4).then_some((number, Duration::ZERO))) }
        });
        assert_eq!(wait.await.unwrap(), None);
        assert_eq!(*asked.lock(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            wanted.into_iter().collect::<std::collections::BTreeSet<_>>(),
            [1, 2, 3, 4].into()
        );
    }

    #[tokio::test]
    async fn where_all_is_held_the_next_turn_waits_and_never_for_no_time() {
        let mut wanted = queue(&[1, 2]);
        let wait = take(&mut wanted, |number| async move {
            Ok(Some((number, Duration::from_secs(if number == 1 { 60 } else { 0 }))))
        });
        assert_eq!(wait.await.unwrap(), Some(SHORTEST_HOLD));
        assert_eq!(wanted.len(), 2);
    }

    #[tokio::test]
    async fn a_turn_ends_before_a_long_list_does() {
        let mut wanted: VecDeque<u32> = (0..100).collect();
        assert_eq!(take(&mut wanted, |_| async { Ok(None) }).await.unwrap(), None);
        assert!(
            (100 - ARCHIVES_A_TURN - AT_ONCE..100).contains(&wanted.len()),
            "{}",
            wanted.len()
        );
    }

    #[test]
    fn a_server_that_asks_for_patience_gets_it() {
        let hour = Timestamp::now() + SignedDuration::from_mins(59);
        assert!(next_try(0, Some(Duration::from_secs(3600))) > hour);
        assert!(next_try(0, Some(Duration::ZERO)) < hour);
    }

    #[test]
    fn an_archive_that_fails_again_and_again_is_tried_less_and_less_often() {
        let pauses: Vec<u64> = [0, 1, 2, 10, u32::MAX]
            .into_iter()
            .map(|tries| TRIED_AGAIN.delay(tries).as_secs() / 60)
            .collect();
        assert_eq!(pauses, [1, 2, 4, 1024, 24 * 60]);
    }
}
