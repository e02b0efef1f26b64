//! README, values and schema of chart versions: Kubeapps' table `files`, and our own `portolan_files`.
//!
//! ```text
//!  charts (versions, digests) ──┐
//!  files (their digests) ───────┼─► wanted ─► fetched by somebody ─┬─► save_files: the row, its digest
//!  portolan_files (failures) ───┘                                  └─► files_failed: when to try again; an empty row, if none
//! ```
//!
//! What is wanted is derived anew by each call, so that a restart goes on where it was, and rows of Kubeapps' syncer count as
//! they are. Kubeapps' reader fails without a row, so a version whose archive will not come gets an empty one, without a digest;
//! each of these has a row in `portolan_files` too, which tells it from a chart that has no files.
pub mod failures;
pub mod info;
pub mod missing;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::engine::{Transaction, on_engine, sql};
use super::{COMMIT_DEADLINE, Catalog, Error, FetchedFiles, SHORT_DEADLINE, record};
use crate::api::NamespacedName;
use missing::{self as wanted, Mode};

/// Of which versions the files are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilesMode {
    /// Of all.
    #[default]
    All,
    /// Of the newest version of each chart.
    Latest,
    /// Of none.
    None,
}

/// A version whose files are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedFiles {
    /// The chart.
    pub chart_id: String,
    /// The version, as the index has it.
    pub version: String,
    /// Digest of the archive, as the index has it; empty where it has none.
    pub digest: String,
    /// Where the archive is, as the index has it.
    pub urls: Option<Vec<String>>,
    /// How often this archive has failed.
    pub tries: u32,
}

/// The versions whose files are wanted now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The newest version of each chart first, then the second newest of each, and so on.
    pub files: Vec<WantedFiles>,
    /// When the first of those is to be tried again that have failed and wait.
    pub next_try: Option<Timestamp>,
}

/// What a package page shows of a version beside its row in the index. NUL, which Postgres can't store, is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartFiles {
    /// README.md, or empty.
    pub readme: String,
    /// values.yaml, or empty.
    pub values: String,
    /// Other values by the name of their file without `.yaml`: `values-production`.
    pub additional_values: BTreeMap<String, String>,
    /// values.schema.json, or empty.
    pub schema: String,
}

/// What became of something that was fetched for a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is stored, or was so already.
    Written,
    /// What it belongs to is no more: the repository was removed or made anew, the chart or the version has gone, or is another
    /// by now. Nothing was written, and nothing is wrong.
    Gone,
}

/// How far the work on the files of a repository is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Versions whose files are to be there; one that the index has twice counts once.
    pub total: u64,
    /// Those whose files are there.
    pub imported: u64,
    /// Those that have failed [`Progress::TRIES`] times or more, and are tried again ever more seldom.
    pub failed: u64,
}

impl Progress {
    /// After how many tries a version counts as failed.
    pub const TRIES: u32 = 3;
}

impl Catalog {
    /// Up to `limit` versions of a repository whose files are to be fetched now.
    ///
    /// Wanted is a version that has no files, or those of an archive of another digest; unless it has failed, and is to be tried
    /// again later than `now`. Of several entries of one version the first counts.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn files_wanted(
        &self,
        name: &NamespacedName,
        mode: FilesMode,
        now: Timestamp,
        limit: usize,
    ) -> Result<Wanted, Error> {
        let Some(mode) = Mode::of(mode) else {
            return Ok(Wanted::default());
        };
        let wanted = wanted::files(&self.0.pools, name, mode, now, limit);
        self.look("looking for chart files to fetch", wanted).await
    }

    /// How far the files of a repository are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn files_progress(&self, name: &NamespacedName, mode: FilesMode) -> Result<Progress, Error> {
        let Some(mode) = Mode::of(mode) else {
            return Ok(Progress::default());
        };
        let progress = wanted::progress(&self.0.pools, name, mode);
        self.look("counting the chart files", progress).await
    }

    /// Stores the files of a version. A row that is so already is not written again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn save_files(&self, name: &NamespacedName, uid: &str, files: FetchedFiles) -> Result<Saved, Error> {
        self.must_be_writable()?;
        let wanted = files.wanted.clone();
        let saved = self.call("writing chart files", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            let Some(repo) = still_wanted(&mut tx, name, uid, &wanted).await? else {
                return Ok(Saved::Gone);
            };
            insert(&mut tx, name, &wanted, files.into_info(&repo)?, Existing::Updated).await?;
            let key = [wanted.chart_id.as_str(), &wanted.files_id()];
            failures::FILES.forget(&mut tx, name, &key).await?;
            tx.commit().await?;
            Ok(Saved::Written)
        });
        gone_with_its_chart(saved.await)
    }

    /// Notes that the files of a version could not be had, which counts one try, and when they are to be tried again. Where the
    /// version has no files at all, Kubeapps' reader is given empty ones; those of an earlier archive stay until others come.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn files_failed(
        &self,
        name: &NamespacedName,
        uid: &str,
        wanted: &WantedFiles,
        message: &str,
        next_try: Timestamp,
    ) -> Result<Saved, Error> {
        self.must_be_writable()?;
        let saved = self.call("writing that chart files failed", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            let Some(repo) = still_wanted(&mut tx, name, uid, wanted).await? else {
                return Ok(Saved::Gone);
            };
            let key = [wanted.chart_id.as_str(), &wanted.files_id()];
            failures::FILES
                .note(&mut tx, name, &key, &wanted.digest, message, next_try)
                .await?;
            let none = FetchedFiles::none(wanted)?.into_info(&repo)?;
            insert(&mut tx, name, wanted, none, Existing::Kept).await?;
            tx.commit().await?;
            Ok(Saved::Written)
        });
        gone_with_its_chart(saved.await)
    }

    /// Gives empty files to all versions that `mode` does not want and that have none, since Kubeapps' reader fails without a row.
    /// Says how many. They are wanted again as soon as another mode wants them.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn leave_out_files(&self, name: &NamespacedName, uid: &str, mode: FilesMode) -> Result<u64, Error> {
        self.must_be_writable()?;
        let passed_over = match mode {
            FilesMode::All => return Ok(0),
            FilesMode::Latest => 1,
            FilesMode::None => 0,
        };
        self.call("leaving out chart files", COMMIT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !record::lock_if_of(&mut tx, name, uid).await? {
                return Ok(0);
            }
            let left_out = wanted::leave_out(&mut tx, name, passed_over).await?;
            tx.commit().await?;
            Ok(left_out)
        })
        .await
    }

    /// Lets all files and icons that have failed be tried again now, as one who asks for a resync by hand expects it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn retry_failed(&self, name: &NamespacedName, uid: &str) -> Result<u64, Error> {
        self.must_be_writable()?;
        self.call("letting chart files be tried again", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !record::lock_if_of(&mut tx, name, uid).await? {
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

/// A chart that somebody else, who does not know our lock, removes between our look and our write.
fn gone_with_its_chart(saved: Result<Saved, Error>) -> Result<Saved, Error> {
    match saved {
        Err(error) if error.is_reference_gone() => Ok(Saved::Gone),
        saved => saved,
    }
}

/// Takes the repository's lock, and gives what the chart's row says of its repository, if the version is still there as it was.
async fn still_wanted(
    tx: &mut Transaction,
    name: &NamespacedName,
    uid: &str,
    wanted: &WantedFiles,
) -> Result<Option<Box<RawValue>>, Error> {
    if !record::lock_if_of(tx, name, uid).await? {
        return Ok(None);
    }
    let statement = sql!(tx, "files_still_wanted.sql");
    let row: Option<(Option<String>, Option<String>)> = on_engine!(tx, tx => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(&wanted.chart_id)
        .bind(&wanted.version)
        .fetch_optional(&mut **tx)
        .await?);
    let Some((repo, Some(digest))) = row else {
        return Ok(None);
    };
    if digest != wanted.digest {
        return Ok(None);
    }
    let repo = RawValue::from_string(repo.unwrap_or_else(|| "null".to_owned()));
    Ok(Some(repo.map_err(|error| sqlx::Error::Decode(Box::new(error)))?))
}

/// What becomes of a row that is there.
#[derive(Clone, Copy)]
enum Existing {
    /// It is brought up to date. Two charts may come to one id (`a` of version `1-2.0.0`, `a-1` of version `2.0.0`): who has the row
    /// keeps it.
    Updated,
    Kept,
}

async fn insert(
    tx: &mut Transaction,
    name: &NamespacedName,
    wanted: &WantedFiles,
    info: String,
    existing: Existing,
) -> Result<(), Error> {
    let statement = match existing {
        Existing::Updated => sql!(tx, "files_upsert.sql"),
        Existing::Kept => sql!(tx, "files_insert.sql"),
    };
    on_engine!(tx, tx => {
        sqlx::query(statement)
            .bind(&wanted.chart_id)
            .bind(&name.name)
            .bind(&name.namespace)
            .bind(wanted.files_id())
            .bind(info)
            .execute(&mut **tx)
            .await?;
    });
    Ok(())
}
