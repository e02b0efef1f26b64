//! README, values and schema of chart versions: Kubeapps' table `files` and our `portolan_files`.
//!
//! ```text
//!  charts (versions, digests) ──┐
//!  files (their digests) ───────┼─► missing_files ─► download ─┬─► save_files: writes the row with its digest
//!  portolan_files (failures) ───┘                              └─► record_files_failure: next try; an empty row if there is none
//! ```
//!
//! Missing files are derived by each query, so that a restart loses no work and rows of Kubeapps' syncer are reused.
//! Kubeapps' reader fails without a row. A version whose archive can't be imported therefore gets an empty row without
//! a digest, and a row in `portolan_files` that distinguishes it from a chart without files.

pub mod failures;
pub mod info;
pub mod missing;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::engine::{Transaction, execute, select, sql};
use super::{Catalog, Connection, Error, FetchedFiles, record, stored_bytes};
use crate::api::NamespacedName;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilesMode {
    #[default]
    All,
    Latest,
    None,
}

impl FilesMode {
    /// Returns true if only the newest version of each chart is imported, and `None` if no version is.
    const fn only_newest(self) -> Option<bool> {
        match self {
            Self::All => Some(false),
            Self::Latest => Some(true),
            Self::None => None,
        }
    }
}

/// A version whose files are missing or outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFiles {
    pub chart_id: String,
    pub version: String,
    /// Digest of the archive in the index; empty if it has none.
    pub digest: String,
    pub urls: Option<Vec<String>>,
    pub tries: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFilesPage {
    /// The newest version of each chart first, then the second newest, and so on.
    pub files: Vec<MissingFiles>,
    pub next_try: Option<Timestamp>,
}

/// Files of a version; missing ones are empty. NUL, which Postgres can't store, is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartFiles {
    pub readme: String,
    pub values: String,
    /// Other values by file name without `.yaml`, such as `values-production`.
    pub additional_values: BTreeMap<String, String>,
    pub schema: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    Written,
    /// Not written: the repository, chart or version was deleted or replaced meanwhile.
    Obsolete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Versions with files to import. Duplicate versions count once.
    pub total: u64,
    pub imported: u64,
    pub failed: u64,
}

impl Progress {
    /// Number of failures after which a version counts as failed.
    pub const TRIES: u32 = 3;
}

impl Catalog {
    /// Returns up to `limit` versions whose files can be fetched at `now`.
    ///
    /// These are versions without files, or with files of an archive with another digest. Failed ones are omitted until
    /// their next try is due. Of duplicate versions the first counts.
    pub async fn missing_files(
        &self,
        name: &NamespacedName,
        mode: FilesMode,
        now: Timestamp,
        limit: usize,
    ) -> Result<MissingFilesPage, Error> {
        let Some(only_newest) = mode.only_newest() else {
            return Ok(MissingFilesPage::default());
        };
        let page = async |connection: &mut Connection| missing::files(connection, name, only_newest, now, limit).await;
        self.read("list missing chart files", &name.namespace, page).await
    }

    pub async fn files_progress(&self, name: &NamespacedName, mode: FilesMode) -> Result<Progress, Error> {
        let Some(only_newest) = mode.only_newest() else {
            return Ok(Progress::default());
        };
        let progress = async |connection: &mut Connection| missing::progress(connection, name, only_newest).await;
        self.read("count the chart files", &name.namespace, progress).await
    }

    /// Writes the files of a version, unless the stored row is equal. Fails with [`Error::QuotaExceeded`] if the
    /// repository would take more space than allowed.
    pub async fn save_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        files: FetchedFiles,
    ) -> Result<SaveOutcome, Error> {
        let missing = files.missing.clone();
        let saved = self.write("write chart files", &name.namespace, async |tx| {
            let Some((repo, replaced)) = current_repo(tx, name, uid, &missing).await? else {
                return Ok(SaveOutcome::Obsolete);
            };
            let (statement, info) = (sql!(tx, "files_upsert.sql"), files.into_info(&repo)?);
            insert(tx, name, &missing, statement, info).await?;
            let key = [missing.chart_id.as_str(), &missing.files_id()];
            failures::FILES.delete(tx, name, &key).await?;
            stored_bytes::add_files(tx, name, &missing, replaced, &self.0.limits).await?;
            Ok(SaveOutcome::Written)
        });
        obsolete_if_chart_deleted(saved.await)
    }

    /// Records a failed try. A version without files gets an empty row; files of an earlier archive stay.
    pub async fn record_files_failure(
        &self,
        name: &NamespacedName,
        uid: &str,
        missing: &MissingFiles,
        message: &str,
        next_try: Timestamp,
    ) -> Result<SaveOutcome, Error> {
        let saved = self.write("record failed chart files", &name.namespace, async |tx| {
            let Some((repo, _)) = current_repo(tx, name, uid, missing).await? else {
                return Ok(SaveOutcome::Obsolete);
            };
            let key = [missing.chart_id.as_str(), &missing.files_id()];
            let failure = failures::FILES.record(tx, name, &key, &missing.digest, message, next_try);
            failure.await?;
            let (statement, empty) = (sql!(tx, "files_insert.sql"), FetchedFiles::empty(missing)?);
            insert(tx, name, missing, statement, empty.into_info(&repo)?).await?;
            Ok(SaveOutcome::Written)
        });
        obsolete_if_chart_deleted(saved.await)
    }

    /// Inserts empty rows for versions that `mode` excludes and that have no files. Returns their number.
    ///
    /// They count as missing again when the mode includes them.
    pub async fn skip_files(&self, name: &NamespacedName, uid: &str, mode: FilesMode) -> Result<u64, Error> {
        let imported_versions = match mode {
            FilesMode::All => return Ok(0),
            FilesMode::Latest => 1,
            FilesMode::None => 0,
        };
        self.write_long("skip chart files", &name.namespace, async |tx| {
            if !record::lock_if_uid(tx, name, uid).await? {
                return Ok(0);
            }
            missing::skip(tx, name, imported_versions).await
        })
        .await
    }
}

/// Maps a foreign key violation: a process that does not take our lock deleted the chart before our write.
fn obsolete_if_chart_deleted(saved: Result<SaveOutcome, Error>) -> Result<SaveOutcome, Error> {
    match saved {
        Err(error) if error.is_foreign_key_violation() => Ok(SaveOutcome::Obsolete),
        saved => saved,
    }
}

/// Locks the repository. Returns the `repo` of the chart row, and the size of the stored files, if the version still has
/// the same digest.
async fn current_repo(
    tx: &mut Transaction,
    name: &NamespacedName,
    uid: &str,
    missing: &MissingFiles,
) -> Result<Option<(Box<RawValue>, i64)>, Error> {
    if !record::lock_if_uid(tx, name, uid).await? {
        return Ok(None);
    }
    let statement = sql!(tx, "chart_version.sql");
    let (chart_id, version) = (&missing.chart_id, &missing.version);
    let row: Option<(Option<String>, Option<String>, i64)> =
        select!(fetch_optional, tx, statement, name, chart_id, version);
    let Some((repo, _, bytes)) = row.filter(|(_, digest, _)| digest.as_ref() == Some(&missing.digest)) else {
        return Ok(None);
    };
    let repo = RawValue::from_string(repo.unwrap_or_else(|| "null".to_owned()));
    Ok(Some((
        repo.map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        bytes,
    )))
}

async fn insert(
    tx: &mut Transaction,
    name: &NamespacedName,
    missing: &MissingFiles,
    statement: &'static str,
    info: String,
) -> Result<(), Error> {
    execute!(tx, statement, name, &missing.chart_id, missing.files_id(), info);
    Ok(())
}
