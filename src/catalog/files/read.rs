//! Reads of one row: a chart, or the files of a version, of any writer.

use sqlx::FromRow;

use crate::api::NamespacedName;
use crate::catalog::engine::select;
use crate::catalog::record::unsigned;
use crate::catalog::{Catalog, Error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredText {
    Complete(String),
    /// The size in bytes, above the limit of the reader.
    TooLarge(u64),
}

#[derive(FromRow)]
pub(in crate::catalog) struct SizedRow {
    bytes: i64,
    info: Option<String>,
}

impl From<SizedRow> for StoredText {
    fn from(row: SizedRow) -> Self {
        row.info.map_or(Self::TooLarge(unsigned(row.bytes)), Self::Complete)
    }
}

/// Files that failed, were imported with a warning, or are excluded by `--chart-files`: then without tries and message.
#[derive(Clone, Debug, Default, PartialEq, Eq, FromRow)]
pub struct FilesProblem {
    /// Digest of the archive in the index.
    pub digest: String,
    #[sqlx(try_from = "i64")]
    pub tries: u32,
    pub message: String,
}

/// Postgres refuses a text with NUL, so no row has it.
fn has_nul(texts: [&str; 2]) -> bool {
    texts.iter().any(|text| text.contains('\0'))
}

impl Catalog {
    /// Returns `info` of a chart, if it has at most `limit` bytes.
    pub async fn chart_row(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        limit: u64,
    ) -> Result<Option<StoredText>, Error> {
        // The row is converted to text once.
        const SELECT: &str = "WITH found AS MATERIALIZED (SELECT CAST(info AS TEXT) AS info FROM charts
                WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3)
            SELECT CAST(octet_length(info) AS BIGINT) AS bytes,
                CASE WHEN octet_length(info) <= $4 THEN info END AS info FROM found";
        if has_nul([chart_id, &name.name]) {
            return Ok(None);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read("read a chart", &name.namespace, async |connection| {
            let row: Option<SizedRow> = select!(fetch_optional, connection, SELECT, name, chart_id, limit);
            Ok(row.map(StoredText::from))
        })
        .await
    }

    /// Returns `info` of the files of a version, if it has at most `limit` bytes. The chart is compared too: version `b-1`
    /// of `a` and version `1` of `a-b` have the same `chart_files_id`.
    pub async fn files_row(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
        limit: u64,
    ) -> Result<Option<StoredText>, Error> {
        const SELECT: &str = "WITH found AS MATERIALIZED (SELECT CAST(info AS TEXT) AS info FROM files
                WHERE repo_namespace = $1 AND repo_name = $2 AND chart_files_id = $3 AND chart_id = $4)
            SELECT CAST(octet_length(info) AS BIGINT) AS bytes,
                CASE WHEN octet_length(info) <= $5 THEN info END AS info FROM found";
        if has_nul([chart_id, version]) {
            return Ok(None);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let files_id = format!("{chart_id}-{version}");
        self.read("read the files of a version", &name.namespace, async |connection| {
            let row: Option<SizedRow> = select!(fetch_optional, connection, SELECT, name, &files_id, chart_id, limit);
            Ok(row.map(StoredText::from))
        })
        .await
    }

    pub async fn files_problem(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
    ) -> Result<Option<FilesProblem>, Error> {
        const SELECT: &str = "SELECT digest, tries, message FROM portolan_files
            WHERE namespace = $1 AND name = $2 AND chart_id = $3 AND chart_files_id = $4";
        if has_nul([chart_id, version]) {
            return Ok(None);
        }
        let files_id = format!("{chart_id}-{version}");
        self.read("read a failure of chart files", &name.namespace, async |connection| {
            Ok(select!(fetch_optional, connection, SELECT, name, chart_id, &files_id))
        })
        .await
    }
}
