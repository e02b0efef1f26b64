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

use super::engine::{Transaction, on_engine, sql};
use super::{COMMIT_DEADLINE, Catalog, Error, FetchedFiles, SHORT_DEADLINE, record};
use crate::api::NamespacedName;
use missing::Mode;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilesMode {
    #[default]
    All,
    Latest,
    None,
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
        let Some(mode) = Mode::of(mode) else {
            return Ok(MissingFilesPage::default());
        };
        let page = missing::files(&self.0.pools, name, mode, now, limit);
        self.read("list missing chart files", page).await
    }

    pub async fn files_progress(&self, name: &NamespacedName, mode: FilesMode) -> Result<Progress, Error> {
        let Some(mode) = Mode::of(mode) else {
            return Ok(Progress::default());
        };
        let progress = missing::progress(&self.0.pools, name, mode);
        self.read("count the chart files", progress).await
    }

    /// Writes the files of a version, unless the stored row is equal.
    pub async fn save_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        files: FetchedFiles,
    ) -> Result<SaveOutcome, Error> {
        self.ensure_writable()?;
        let missing = files.missing.clone();
        let saved = self.call("write chart files", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            let Some(repo) = current_repo(&mut tx, name, uid, &missing).await? else {
                return Ok(SaveOutcome::Obsolete);
            };
            insert(&mut tx, name, &missing, files.into_info(&repo)?, Existing::Update).await?;
            let key = [missing.chart_id.as_str(), &missing.files_id()];
            failures::FILES.delete(&mut tx, name, &key).await?;
            tx.commit().await?;
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
        self.ensure_writable()?;
        let saved = self.call("record failed chart files", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            let Some(repo) = current_repo(&mut tx, name, uid, missing).await? else {
                return Ok(SaveOutcome::Obsolete);
            };
            let key = [missing.chart_id.as_str(), &missing.files_id()];
            failures::FILES
                .record(&mut tx, name, &key, &missing.digest, message, next_try)
                .await?;
            let empty = FetchedFiles::empty(missing)?.into_info(&repo)?;
            insert(&mut tx, name, missing, empty, Existing::Keep).await?;
            tx.commit().await?;
            Ok(SaveOutcome::Written)
        });
        obsolete_if_chart_deleted(saved.await)
    }

    /// Inserts empty rows for versions that `mode` excludes and that have no files. Returns their number.
    ///
    /// They count as missing again when the mode includes them.
    pub async fn skip_files(&self, name: &NamespacedName, uid: &str, mode: FilesMode) -> Result<u64, Error> {
        self.ensure_writable()?;
        let imported_versions = match mode {
            FilesMode::All => return Ok(0),
            FilesMode::Latest => 1,
            FilesMode::None => 0,
        };
        self.call("skip chart files", COMMIT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !record::lock_if_uid(&mut tx, name, uid).await? {
                return Ok(0);
            }
            let skipped = missing::skip(&mut tx, name, imported_versions).await?;
            tx.commit().await?;
            Ok(skipped)
        })
        .await
    }

    pub async fn retry_failed(&self, name: &NamespacedName, uid: &str) -> Result<u64, Error> {
        self.ensure_writable()?;
        self.call("reset failed chart files", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !record::lock_if_uid(&mut tx, name, uid).await? {
                return Ok(0);
            }
            let files = failures::FILES.retry(&mut tx, name).await?;
            let icons = failures::ICONS.retry(&mut tx, name).await?;
            tx.commit().await?;
            Ok(files + icons)
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

/// Locks the repository. Returns the `repo` of the chart row if the version still has the same digest.
async fn current_repo(
    tx: &mut Transaction,
    name: &NamespacedName,
    uid: &str,
    missing: &MissingFiles,
) -> Result<Option<Box<RawValue>>, Error> {
    if !record::lock_if_uid(tx, name, uid).await? {
        return Ok(None);
    }
    let statement = sql!(tx, "chart_version.sql");
    let row: Option<(Option<String>, Option<String>)> = on_engine!(tx, tx => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(&missing.chart_id)
        .bind(&missing.version)
        .fetch_optional(&mut **tx)
        .await?);
    let Some((repo, Some(digest))) = row else {
        return Ok(None);
    };
    if digest != missing.digest {
        return Ok(None);
    }
    let repo = RawValue::from_string(repo.unwrap_or_else(|| "null".to_owned()));
    Ok(Some(repo.map_err(|error| sqlx::Error::Decode(Box::new(error)))?))
}

#[derive(Clone, Copy)]
enum Existing {
    /// Except a row of another chart with the same ID (`a` of version `1-2.0.0`, `a-1` of version `2.0.0`).
    Update,
    Keep,
}

async fn insert(
    tx: &mut Transaction,
    name: &NamespacedName,
    missing: &MissingFiles,
    info: String,
    existing: Existing,
) -> Result<(), Error> {
    let statement = match existing {
        Existing::Update => sql!(tx, "files_upsert.sql"),
        Existing::Keep => sql!(tx, "files_insert.sql"),
    };
    on_engine!(tx, tx => {
        sqlx::query(statement)
            .bind(&missing.chart_id)
            .bind(&name.name)
            .bind(&name.namespace)
            .bind(missing.files_id())
            .bind(info)
            .execute(&mut **tx)
            .await?;
    });
    Ok(())
}
