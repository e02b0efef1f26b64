//! A turn of the import for one repository.

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
use crate::catalog::{self, FilesMode, MissingFiles, MissingIcon, SaveOutcome};
use crate::controllers::apprepository::metrics::Metrics;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::SyncContext;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Fetcher;
use crate::runtime::workqueue::Backoff;
use crate::text::printable;

/// Archives that one turn fetches at most.
const ARCHIVES_A_TURN: usize = 16;
/// How long a turn begins new ones.
const TURN: Duration = Duration::from_secs(5);
/// Archives of one repository that are under way at once, within the limits of their hosts.
const AT_ONCE: usize = 4;
/// What is looked up at a time of what is wanted; the rest is found again when these are done.
const LOOKED_UP: usize = 1000;
/// How long a version whose archive will not come is left alone, at first and at most.
const TRIED_AGAIN: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(24),
};
/// How long to wait where a Secret can't be read, of which the next sync tells.
const WITHOUT_KEYS: SignedDuration = SignedDuration::from_mins(5);
/// The shortest that the next turn waits where all is held, whatever the host says.
const SHORTEST_HOLD: Duration = Duration::from_secs(5);
/// How many of the versions that have failed a status names.
const NAMED: usize = 5;

/// Imports files and icons.
#[derive(Clone)]
pub struct Importer {
    tools: SyncContext,
    settings: Settings,
    metrics: Metrics,
    /// One for all clones.
    budget: Budget,
}

/// What a turn has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// More is wanted now.
    More,
    /// A host wants to be left alone for this long.
    Held(Duration),
    /// Nothing is wanted before this time, if ever.
    Done(Option<Timestamp>),
}

/// What is wanted of one repository, as it was looked up last.
#[derive(Debug, Default, PartialEq)]
pub struct Worklist {
    files: VecDeque<MissingFiles>,
    icons: VecDeque<MissingIcon>,
    is_prepared: bool,
}

impl Importer {
    /// An importer that uses these tools.
    #[must_use]
    pub fn new(tools: SyncContext, settings: Settings, metrics: Metrics) -> Self {
        Self {
            tools,
            settings,
            metrics,
            budget: Budget::default(),
        }
    }

    /// Makes one turn for the repository whose rows are of the object `uid`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn turn(
        &self,
        declaration: &RepositorySpec,
        uid: &str,
        worklist: &mut Worklist,
    ) -> Result<Turn, catalog::Error> {
        let catalog = &self.tools.catalog;
        // Without any files nobody reads the table, so nothing has to stand in for them.
        if self.settings.mode != FilesMode::None && !std::mem::replace(&mut worklist.is_prepared, true) {
            catalog.skip_files(&declaration.name, uid, self.settings.mode).await?;
        }
        let next_try = self.look_up(declaration, worklist).await?;
        if worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.is_prepared = false;
            return Ok(Turn::Done(next_try));
        }
        let session = match self.session(declaration).await {
            Ok(session) => session,
            // The next sync tells of it.
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

    /// How far the import for a repository is; nothing, where no files are wanted.
    ///
    /// # Errors
    /// The database fails.
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
            let wanted = catalog.missing_files(name, self.settings.mode, now, LOOKED_UP).await?;
            next_try = wanted.next_try;
            worklist.files = wanted.files.into();
        }
        if self.settings.icons && worklist.files.is_empty() && worklist.icons.is_empty() {
            worklist.icons = catalog.missing_icons(name, now, LOOKED_UP).await?.into();
            let icons = catalog.next_icon_try(name, now).await?;
            next_try = [next_try, icons].into_iter().flatten().min();
        }
        Ok(next_try)
    }

    async fn session(&self, declaration: &RepositorySpec) -> Result<Fetcher, SyncError> {
        let (access, _) = self.tools.keys.access(declaration).await?;
        Ok(self.tools.fetcher.with(access)?)
    }

    /// Imports files until the turn is over.
    async fn files(
        &self,
        declaration: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let archives = Archives::new(&self.tools, &self.budget, self.settings.archive, declaration, session);
        let (catalog, name, archives) = (&self.tools.catalog, &declaration.name, &archives);
        take(&mut worklist.files, |wanted: MissingFiles| async move {
            // Of what is gone meanwhile nothing is written, and nothing has to be.
            let _: SaveOutcome = match archives.files(&wanted).await {
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
                    catalog
                        .record_files_failure(name, uid, &wanted, &message, next_try)
                        .await?
                }
            };
            Ok(None)
        })
        .await
    }

    /// Imports icons, in the same way.
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
        take(&mut worklist.icons, |wanted: MissingIcon| async move {
            let _: SaveOutcome = match icons.png(&wanted).await {
                Ok(png) => catalog.save_icon(name, uid, &wanted, &png).await?,
                Err(Miss::Held(time)) => return Ok(Some((wanted, time))),
                Err(Miss::Failed { message, again }) => {
                    tracing::debug!(chart = %printable(&wanted.chart_id), error = %printable(&message), "failed to import icon");
                    let next_try = next_try(wanted.tries, again);
                    catalog.record_icon_failure(name, uid, &wanted, &message, next_try).await?
                }
            };
            Ok(None)
        })
        .await
    }
}

/// Works on what is wanted until the turn is over. `work` gives back what is held, and for how long; that costs nothing, so the
/// turn goes on with the rest. Says how long to wait, if there was nothing else.
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

/// When to try again what has failed, `before` having failed already; the server may have asked for more patience.
fn next_try(before: u32, again: Option<Duration>) -> Timestamp {
    // Nobody is left alone for longer than the fetcher allows, so the time can't be out of range.
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
