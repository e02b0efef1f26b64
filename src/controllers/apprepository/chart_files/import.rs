//! Imports chart files and icons of one repository in turns.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::FilesSettings;
use super::archive::{Archive, ArchiveFetcher, BUSY_PAUSE, ImportError};
use super::icon::IconFetcher;
use super::icon_decoder::Icon;
use super::turn::{self, Deferred, FetchResult};
use crate::api::{Files, NamespacedName, SkippedEntry};
use crate::catalog::{self, ChangedCharts, ErrorKind, FilesMode, FilesResult, MissingFiles, MissingIcon, SaveOutcome};
use crate::controllers::apprepository::metrics::RepositoryMetrics;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::SyncContext;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Fetcher;
use crate::runtime::workqueue::Backoff;
use crate::text::printable;

/// A lookup reads all charts of the repository.
const LOOKUP_LIMIT: usize = 4096;
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_mins(1),
    cap: Duration::from_hours(24),
};
/// Deadline of writing the files of a group: a locked repository must not hold the memory of other imports.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an unreadable Secret, which the next sync reports.
const SECRET_ERROR_PAUSE: SignedDuration = SignedDuration::from_mins(5);
const MAX_PROBLEMS: usize = 5;

#[derive(Clone)]
pub struct Importer {
    context: SyncContext,
    settings: FilesSettings,
    metrics: RepositoryMetrics,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    More,
    /// All hosts asked for a pause.
    Deferred(Duration),
    /// Nothing is due before this time.
    Done(Option<Timestamp>),
    /// The repository stores as much as it may. The next changed sync tries again.
    QuotaExceeded(String),
}

#[derive(Debug, Default, PartialEq)]
pub struct Worklist {
    files: VecDeque<MissingFiles>,
    icons: VecDeque<MissingIcon>,
    /// An archive with another digest than the index contains, not yet reported.
    warning: Option<String>,
}

impl Worklist {
    #[cfg(test)]
    pub(super) fn of_files(count: usize) -> Self {
        let files = MissingFiles {
            chart_id: "stable/a".to_owned(),
            version: "1.0.0".to_owned(),
            digest: "ab".repeat(32),
            url: None,
            tries: 0,
        };
        Self {
            files: vec![files; count].into(),
            ..Self::default()
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let files = self.files.iter().map(|files| {
            let texts = [&files.chart_id, &files.version, &files.digest];
            let url = files.url.as_ref().map_or(0, String::len);
            size_of::<MissingFiles>() + url + texts.map(String::len).iter().sum::<usize>()
        });
        let icons = (self.icons.iter()).map(|icon| size_of::<MissingIcon>() + icon.chart_id.len() + icon.url.len());
        files.chain(icons).sum()
    }

    pub fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

impl Importer {
    #[must_use]
    pub fn new(context: SyncContext, settings: FilesSettings, metrics: RepositoryMetrics) -> Self {
        Self {
            context,
            settings,
            metrics,
        }
    }

    /// Inserts empty rows for versions of these charts whose files are not imported.
    pub async fn skip_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        charts: &ChangedCharts,
    ) -> Result<(), catalog::Error> {
        let (catalog, mode) = (&self.context.catalog, self.settings.mode);
        if catalog.needs_files(mode) && !charts.is_empty() {
            catalog.skip_files(name, uid, mode, charts).await?;
        }
        Ok(())
    }

    pub async fn import_batch(
        &self,
        spec: &RepositorySpec,
        uid: &str,
        worklist: &mut Worklist,
    ) -> Result<BatchOutcome, catalog::Error> {
        let next_try = self.look_up(spec, worklist).await?;
        if worklist.files.is_empty() && worklist.icons.is_empty() {
            return Ok(BatchOutcome::Done(next_try));
        }
        let Ok(session) = self.session(spec).await else {
            return Ok(BatchOutcome::Done(Some(Timestamp::now() + SECRET_ERROR_PAUSE)));
        };
        let mut imported = self.import_files(spec, uid, &session, worklist).await;
        if matches!(imported, Ok(None)) && worklist.files.is_empty() {
            imported = self.import_icons(spec, uid, &session, worklist).await;
        }
        let deferred = match imported {
            Err(error) if matches!(error.kind(), ErrorKind::QuotaExceeded { .. }) => {
                let warning = worklist.warning.take();
                *worklist = Worklist {
                    warning,
                    ..Worklist::default()
                };
                return Ok(BatchOutcome::QuotaExceeded(error.to_string()));
            }
            deferred => deferred?,
        };
        Ok(deferred.map_or(BatchOutcome::More, BatchOutcome::Deferred))
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
        let (archives, warning) = (&archives, Mutex::new(worklist.warning.take()));
        let first_warning = &warning;
        let fetch = |missing: MissingFiles| async move {
            match archives.archive(&missing).await {
                Ok(archive) => {
                    if let Some(warning) = &archive.warning {
                        let files = printable(&missing.files_id());
                        first_warning
                            .lock()
                            .get_or_insert_with(|| format!("{files}: {warning}"));
                    }
                    let bytes = archive.bytes();
                    FetchResult::Ready(FetchedArchive::Archive(archive), bytes)
                }
                Err(ImportError::Deferred(pause)) => {
                    self.metrics.chart_files("deferred", 1);
                    FetchResult::Deferred((missing, pause))
                }
                Err(ImportError::Failed { message, retry_after }) => {
                    let failed = failed_files(missing, message, retry_after);
                    FetchResult::Ready(FetchedArchive::Failed(failed), 0)
                }
            }
        };
        let store = |group| self.store_files(&spec.name, uid, archives, group);
        let pause = turn::run(&mut worklist.files, fetch, store).await;
        worklist.warning = warning.into_inner();
        pause
    }

    /// Reads and stores archives in groups. Returns the archives that are tried again later.
    async fn store_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        archives: &ArchiveFetcher<'_>,
        group: Vec<FetchedArchive>,
    ) -> Result<Vec<Deferred<MissingFiles>>, catalog::Error> {
        let (mut unread, mut results, mut deferred) = (Vec::new(), Vec::new(), Vec::new());
        for item in group {
            match item {
                FetchedArchive::Archive(archive) => unread.push(archive),
                FetchedArchive::Failed(result) => results.push(result),
            }
        }
        while !unread.is_empty() || !results.is_empty() {
            let mut reserved = None;
            if !unread.is_empty() {
                let missing: Vec<MissingFiles> = unread.iter().map(|archive| archive.missing().clone()).collect();
                match archives.read_group(std::mem::take(&mut unread)).await {
                    Ok(read) => {
                        (unread, reserved) = (read.rest, Some(read.reservation));
                        for files in read.files {
                            match files {
                                Ok(files) => results.push(FilesResult::Imported(files)),
                                Err((missing, ImportError::Deferred(pause))) => deferred.push((missing, pause)),
                                Err((missing, ImportError::Failed { message, retry_after })) => {
                                    results.push(failed_files(missing, message, retry_after));
                                }
                            }
                        }
                    }
                    Err(_) => deferred.extend(missing.into_iter().map(|missing| (missing, BUSY_PAUSE))),
                }
            }
            self.write(name, uid, &mut results, &mut deferred).await?;
            results.clear();
            drop(reserved);
        }
        self.metrics.chart_files("deferred", deferred.len());
        Ok(deferred)
    }

    async fn write(
        &self,
        name: &NamespacedName,
        uid: &str,
        results: &mut [FilesResult],
        deferred: &mut Vec<Deferred<MissingFiles>>,
    ) -> Result<(), catalog::Error> {
        if results.is_empty() {
            return Ok(());
        }
        let written = timeout(SAVE_TIMEOUT, self.context.catalog.write_files(name, uid, results)).await;
        let Ok(written) = written else {
            deferred.extend(results.iter().map(|result| (result.missing().clone(), BUSY_PAUSE)));
            return Ok(());
        };
        // Versions that are gone are not written.
        let _: u64 = written?;
        let imported = results
            .iter()
            .filter(|result| matches!(result, FilesResult::Imported(_)))
            .count();
        self.metrics.chart_files("imported", imported);
        self.metrics.chart_files("failed", results.len() - imported);
        Ok(())
    }

    async fn import_icons(
        &self,
        spec: &RepositorySpec,
        uid: &str,
        session: &Fetcher,
        worklist: &mut Worklist,
    ) -> Result<Option<Duration>, catalog::Error> {
        let icons = &IconFetcher {
            session,
            budgets: &self.context.budgets,
            namespace: &spec.name.namespace,
            limits: self.settings.icon,
            fetch_limits: self.context.fetch_limits,
        };
        let fetch = |missing: MissingIcon| async move {
            match icons.icon(&missing).await {
                Err(ImportError::Deferred(pause)) => FetchResult::Deferred((missing, pause)),
                Ok(icon) => FetchResult::Ready((missing, Ok(icon)), 0),
                Err(ImportError::Failed { message, retry_after }) => {
                    tracing::debug!(chart = %printable(&missing.chart_id), error = %printable(&message), "failed to import icon");
                    let next_try = next_try(missing.tries, retry_after);
                    FetchResult::Ready((missing, Err((message, next_try))), 0)
                }
            }
        };
        let (catalog, name) = (&self.context.catalog, &spec.name);
        let store = |group: Vec<IconResult>| async move {
            for (missing, result) in group {
                // Icons that are gone are not written.
                let _: SaveOutcome = match result {
                    Ok(Icon::Png(png)) => catalog.save_icon(name, uid, &missing, &png).await?,
                    Ok(Icon::Svg(svg)) => catalog.save_svg_icon(name, uid, &missing, &svg).await?,
                    Err((message, next_try)) => {
                        catalog
                            .record_icon_failure(name, uid, &missing, &message, next_try)
                            .await?
                    }
                };
            }
            Ok(Vec::new())
        };
        turn::run(&mut worklist.icons, fetch, store).await
    }
}

/// An icon, or the reason of the failure and the time of the next try.
type IconResult = (MissingIcon, Result<Icon, (String, Timestamp)>);

enum FetchedArchive {
    Archive(Archive),
    Failed(FilesResult),
}

fn failed_files(missing: MissingFiles, message: String, retry_after: Option<Duration>) -> FilesResult {
    tracing::debug!(chart = %printable(&missing.chart_id), version = %printable(&missing.version),
        error = %printable(&message), "failed to import chart files");
    FilesResult::Failed {
        next_try: next_try(missing.tries, retry_after),
        missing,
        message,
    }
}

/// Returns the time of the next try after `before` failures, respecting the server's `Retry-After`.
fn next_try(before: u32, retry_after: Option<Duration>) -> Timestamp {
    // The fetcher limits `Retry-After`, so that the time can't overflow.
    Timestamp::now() + RETRY_BACKOFF.delay(before).max(retry_after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

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
