//! A turn of the import for one repository.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};

use super::Settings;
use super::archive::{Archives, Miss};
use crate::api::{Files, SkippedEntry};
use crate::catalog::{self, FilesMode, Saved, WantedFiles, WantedIcon};
use crate::repository::declaration::Declaration;
use crate::repository::execute::Failed;
use crate::repository::in_process::Tools;
use crate::repository::metrics::Metrics;
use crate::source::fetch::{self, Authorization, Fetcher, Request};
use crate::source::{fetch::Answer, icon};
use crate::text::{printable, truncate};

/// Archives that one turn fetches at most.
const ARCHIVES_A_TURN: usize = 16;
/// How long a turn begins new ones.
const TURN: Duration = Duration::from_secs(5);
/// Archives of one repository that are under way at once, within the limits of their hosts.
const AT_ONCE: usize = 4;
/// What is looked up at a time of what is wanted; the rest is found again when these are done.
const LOOKED_UP: usize = 1000;
/// How long a version whose archive will not come is left alone, at first and at most.
const TRIED_AGAIN: (SignedDuration, SignedDuration) = (SignedDuration::from_mins(1), SignedDuration::from_hours(24));
/// How many of the versions that have failed a status names.
const NAMED: usize = 5;

/// Imports files and icons.
#[derive(Clone)]
pub struct Importer {
    tools: Tools,
    settings: Settings,
    metrics: Metrics,
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
#[derive(Debug, Default)]
pub struct Worklist {
    files: VecDeque<WantedFiles>,
    icons: VecDeque<WantedIcon>,
    is_prepared: bool,
}

impl Importer {
    /// An importer that uses these tools.
    #[must_use]
    pub fn new(tools: Tools, settings: Settings, metrics: Metrics) -> Self {
        Self {
            tools,
            settings,
            metrics,
        }
    }

    /// Makes one turn for the repository whose rows are of the object `uid`.
    ///
    /// # Errors
    /// The database fails.
    pub async fn turn(
        &self,
        declaration: &Declaration,
        uid: &str,
        worklist: &mut Worklist,
    ) -> Result<Turn, catalog::Error> {
        let catalog = &self.tools.catalog;
        // Without any files nobody reads the table, so nothing has to stand in for them.
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
            // The next sync tells of it.
            Err(_) => return Ok(Turn::Done(Some(Timestamp::now() + TRIED_AGAIN.0))),
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
    pub async fn progress(&self, declaration: &Declaration) -> Result<Option<Files>, catalog::Error> {
        if self.settings.mode == FilesMode::None {
            return Ok(None);
        }
        let catalog = &self.tools.catalog;
        let progress = catalog.files_progress(&declaration.name, self.settings.mode).await?;
        let problems = if progress.failed > 0 {
            catalog.files_problems(&declaration.name, NAMED).await?
        } else {
            Vec::new()
        };
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
        declaration: &Declaration,
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
        }
        Ok(next_try)
    }

    async fn session(&self, declaration: &Declaration) -> Result<Fetcher, Failed> {
        let (access, _) = self.tools.keys.access(declaration).await?;
        Ok(self.tools.fetcher.with(access)?)
    }

    /// Imports files until the turn is over. Says for how long a host wants to be left alone, if it does.
    async fn files(
        &self,
        declaration: &Declaration,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let archives = Archives {
            tools: &self.tools,
            limits: self.settings.archive,
            declaration,
            session,
        };
        let started = Instant::now();
        let mut turn = stream::iter(std::iter::from_fn(|| {
            (started.elapsed() < TURN).then(|| worklist.files.pop_front()).flatten()
        }))
        .take(ARCHIVES_A_TURN)
        .map(|wanted| async {
            let files = archives.files(&wanted).await;
            (wanted, files)
        })
        .buffer_unordered(AT_ONCE);
        let (catalog, name) = (&self.tools.catalog, &declaration.name);
        let mut held = None;
        while let Some((wanted, files)) = turn.next().await {
            match files {
                // What is gone meanwhile needs nothing.
                Ok(files) => {
                    self.metrics.chart_files("imported");
                    let _: Saved = catalog.save_files(name, uid, &wanted, &files).await?;
                }
                Err(Miss::Held(time)) => {
                    self.metrics.chart_files("held");
                    held = held.max(Some(time));
                }
                Err(Miss::Failed(message)) => {
                    self.metrics.chart_files("failed");
                    tracing::debug!(repository = %name, chart = %printable(&wanted.chart_id), version = %printable(&wanted.version),
                        "no files: {}", printable(&message));
                    let again = Timestamp::now() + pause(wanted.tries);
                    let _: Saved = catalog.files_failed(name, uid, &wanted, &message, again).await?;
                }
            }
        }
        drop(turn);
        if held.is_some() {
            // Those that were held are wanted still, and found again.
            worklist.files.clear();
        }
        Ok(held)
    }

    /// Imports icons, in the same way.
    async fn icons(
        &self,
        declaration: &Declaration,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let started = Instant::now();
        let mut turn = stream::iter(std::iter::from_fn(|| {
            (started.elapsed() < TURN).then(|| worklist.icons.pop_front()).flatten()
        }))
        .take(ARCHIVES_A_TURN)
        .map(|wanted| async {
            let icon = self.icon(session, &wanted).await;
            (wanted, icon)
        })
        .buffer_unordered(AT_ONCE);
        let (catalog, name) = (&self.tools.catalog, &declaration.name);
        let mut held = None;
        while let Some((wanted, icon)) = turn.next().await {
            match icon {
                Ok(png) => {
                    let _: Saved = catalog.save_icon(name, uid, &wanted, &png).await?;
                }
                Err(Miss::Held(time)) => held = held.max(Some(time)),
                Err(Miss::Failed(message)) => {
                    tracing::debug!(repository = %name, chart = %printable(&wanted.chart_id), "no icon: {}", printable(&message));
                    let again = Timestamp::now() + pause(wanted.tries);
                    let _: Saved = catalog.icon_failed(name, uid, &wanted, &message, again).await?;
                }
            }
        }
        drop(turn);
        if held.is_some() {
            worklist.icons.clear();
        }
        Ok(held)
    }

    async fn icon(&self, session: &Fetcher, wanted: &WantedIcon) -> Result<Vec<u8>, Miss> {
        let limits = self.settings.icon;
        let failed = |error: icon::IconError| Miss::Failed(truncate(&error.to_string(), 512));
        let (content_type, bytes) = if wanted.url.starts_with("data:") {
            icon::data_url(&wanted.url, limits.bytes).map_err(failed)?
        } else {
            let url =
                url::Url::parse(&wanted.url).map_err(|_| Miss::Failed("the icon's URL can't be read".to_owned()))?;
            let request = Request {
                url,
                head: false,
                accept: None,
                authorization: Authorization::OfAccess,
                validators: None,
                verbatim: false,
            };
            let bounds = fetch::Limits {
                max_bytes: limits.bytes as u64,
                ..self.tools.fetch_limits
            };
            let Answer { headers, body, .. } = session.send(&request, &bounds).await.map_err(Failed::from)?;
            let content_type = headers
                .get("content-type")
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut body.into_reader(), &mut bytes)
                .map_err(|error| Miss::Failed(format!("the icon could not be kept in a temporary file ({error})")))?;
            (content_type, bytes)
        };
        tokio::task::spawn_blocking(move || icon::png(&bytes, content_type.as_deref(), &limits))
            .await
            .map_err(|_| {
                Miss::Failed("the icon can't be read because of a defect in Portolan; please report it".to_owned())
            })?
            .map_err(failed)
    }
}

/// How long to wait after a try that has failed, `before` having failed already.
fn pause(before: u32) -> SignedDuration {
    let (first, longest) = TRIED_AGAIN;
    first
        .checked_mul(1 << before.min(16))
        .map_or(longest, |pause| pause.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_fails_again_and_again_is_tried_less_and_less_often() {
        let pauses: Vec<i64> = [0, 1, 2, 10, u32::MAX]
            .into_iter()
            .map(|tries| pause(tries).as_mins())
            .collect();
        assert_eq!(pauses, [1, 2, 4, 1024, 24 * 60]);
    }
}
