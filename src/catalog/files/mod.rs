//! README, values, schema and Chart.yaml of chart versions: Kubeapps' table `files`, and our `portolan_files` and
//! `portolan_chart_metadata`.
//!
//! ```text
//!  charts (versions, digests) ──┐
//!  files (their digests) ───────┼─► missing_files ─► download ─┬─► row with its digest
//!  portolan_files (failures) ───┤                              └─► next try; an empty row if there is none
//!  portolan_chart_metadata ─────┘
//! ```
//!
//! Missing files are derived by each query, so that a restart loses no work and rows of Kubeapps' syncer are reused.
//! Kubeapps' reader fails without a row. A version whose archive can't be imported therefore gets an empty row without
//! a digest, and a row in `portolan_files` that distinguishes it from a chart without files.

pub mod changed;
pub mod failures;
pub mod info;
pub mod metadata;
pub mod missing;
pub mod read;
pub mod write;

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::engine::Connection;
use super::{Catalog, ChangedCharts, Error, record};
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFiles {
    pub chart_id: String,
    pub version: String,
    /// Digest of the archive in the index; empty if it has none.
    pub digest: String,
    /// The first URL.
    pub url: Option<String>,
    pub tries: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFilesPage {
    /// The newest version of each chart first, then the others chart by chart, last those that only lack metadata.
    pub files: Vec<MissingFiles>,
    pub next_try: Option<Timestamp>,
}

/// Files of a version; missing files are empty. NUL, which Postgres can't store, is removed.
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
pub struct FilesProgress {
    /// Versions with files to import. Duplicate versions count once.
    pub total: u64,
    pub imported: u64,
    pub failed: u64,
}

impl FilesProgress {
    /// Number of failures after which a version counts as failed.
    pub const TRIES: u32 = 3;
}

impl Catalog {
    /// Returns up to `limit` versions without files, or with files of an archive with another digest, and newest versions
    /// of charts without a row of metadata: an earlier release or Kubeapps imported these. Failed versions are omitted
    /// until their next try is due. Of duplicate versions the first counts.
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

    pub async fn version_digests(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
    ) -> Result<Vec<String>, Error> {
        let digests = async |connection: &mut Connection| missing::digests(connection, name, chart_id, version).await;
        self.read("read the digests of a version", &name.namespace, digests)
            .await
    }

    pub async fn files_progress(&self, name: &NamespacedName, mode: FilesMode) -> Result<FilesProgress, Error> {
        let Some(only_newest) = mode.only_newest() else {
            return Ok(FilesProgress::default());
        };
        let progress = async |connection: &mut Connection| missing::progress(connection, name, only_newest).await;
        self.read("count the chart files", &name.namespace, progress).await
    }

    /// Inserts empty rows for versions without files that `mode` excludes. Returns their number. They count as missing
    /// again when the mode includes them.
    pub async fn skip_files(
        &self,
        name: &NamespacedName,
        uid: &str,
        mode: FilesMode,
        charts: &ChangedCharts,
    ) -> Result<u64, Error> {
        let imported_versions = match mode {
            FilesMode::All => return Ok(0),
            FilesMode::Latest => 1,
            FilesMode::None => 0,
        };
        self.write_long("skip chart files", &name.namespace, async |tx| {
            if !record::lock_if_uid(tx, name, uid).await? {
                return Ok(0);
            }
            missing::skip(tx, name, imported_versions, charts).await
        })
        .await
    }
}
