//! Charts whose newest version is deprecated: `portolan_deprecated_charts`, written in the transaction of a sync.

use std::collections::HashSet;
use std::{fmt, io};

use serde::Serialize;
use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute, execute_list, select};
use crate::catalog::query::CandidateInfo;
use crate::catalog::{ChartRow, Error, stored_bytes};

const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 1 << 18;

/// Charts with a longer ID are left out: an index row of Postgres has at most 2,704 bytes, including the repository.
const MAX_ID_BYTES: usize = 1024;

/// The deprecated charts of an index.
#[derive(Default)]
pub struct DeprecatedCharts {
    /// All of them. Stored charts with other IDs are deleted.
    pub current: HashSet<String>,
    /// Those that were decoded, each ID once.
    pub rows: Option<Box<dyn Iterator<Item = io::Result<ChartRow>> + Send>>,
    /// `current` is incomplete, so that no chart is deleted.
    pub keeps_others: bool,
}

impl fmt::Debug for DeprecatedCharts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeprecatedCharts")
            .field("current", &self.current)
            .field("keeps_others", &self.keeps_others)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Row {
    chart_id: String,
    info: String,
}

/// Returns the change of the stored bytes. A repository without deprecated charts, now and before, costs one statement.
pub(super) async fn write(
    tx: &mut Transaction,
    name: &NamespacedName,
    deprecated: DeprecatedCharts,
) -> Result<i64, Error> {
    let DeprecatedCharts {
        current,
        rows,
        keeps_others,
    } = deprecated;
    let stored = sizes(tx, name).await?;
    let is_gone = |chart_id: &str| !keeps_others && !current.contains(chart_id);
    let gone = stored.iter().map(|(chart_id, _)| chart_id.as_str());
    let gone: Vec<&str> = gone.filter(|chart_id| is_gone(chart_id)).collect();
    delete(tx, name, &gone).await?;
    let written = write_rows(tx, name, rows.into_iter().flatten()).await?;
    if gone.is_empty() && written == 0 {
        return Ok(0);
    }
    let before: i64 = stored.iter().map(|(_, bytes)| bytes).sum();
    Ok(stored_bytes::total_size(tx, name, "info", "portolan_deprecated_charts").await? - before)
}

async fn write_rows(
    tx: &mut Transaction,
    name: &NamespacedName,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
) -> Result<usize, Error> {
    let (mut batch, mut bytes, mut written) = (Vec::new(), 0, 0);
    for row in rows {
        let ChartRow { chart_id, info } = row.map_err(Error::rows)?;
        if chart_id.len() > MAX_ID_BYTES || chart_id.contains('\0') {
            continue;
        }
        let info = serde_json::to_string(&CandidateInfo::from(info))?;
        bytes += info.len();
        batch.push(Row { chart_id, info });
        if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            written += upsert(tx, name, &batch).await?;
            (batch, bytes) = (Vec::new(), 0);
        }
    }
    Ok(written + upsert(tx, name, &batch).await?)
}

async fn upsert(tx: &mut Transaction, name: &NamespacedName, rows: &[Row]) -> Result<usize, Error> {
    // SQLite needs WHERE to parse ON CONFLICT after SELECT.
    const SQLITE: &str = "INSERT INTO portolan_deprecated_charts (namespace, name, chart_id, info)
        SELECT $1, $2, value ->> '$.chart_id', value ->> '$.info' FROM json_each($3) WHERE true
        ON CONFLICT (namespace, name, chart_id) DO UPDATE SET info = excluded.info";
    const POSTGRES: &str = "INSERT INTO portolan_deprecated_charts (namespace, name, chart_id, info)
        SELECT $1, $2, row.* FROM jsonb_to_recordset($3) AS row (chart_id text, info text)
        ON CONFLICT (namespace, name, chart_id) DO UPDATE SET info = excluded.info";
    if !rows.is_empty() {
        let statement = tx.choose(SQLITE, POSTGRES);
        execute!(tx, statement, name, Json(rows));
    }
    Ok(rows.len())
}

async fn delete(tx: &mut Transaction, name: &NamespacedName, chart_ids: &[&str]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_deprecated_charts WHERE namespace = $1 AND name = $2
        AND chart_id IN (SELECT value FROM json_each($3))";
    const POSTGRES: &str =
        "DELETE FROM portolan_deprecated_charts WHERE namespace = $1 AND name = $2 AND chart_id = ANY($3)";
    if !chart_ids.is_empty() {
        execute_list!(tx, SQLITE, POSTGRES, name; chart_ids);
    }
    Ok(())
}

/// Returns the stored charts with their bytes.
async fn sizes(tx: &mut Transaction, name: &NamespacedName) -> Result<Vec<(String, i64)>, Error> {
    const SQLITE: &str = "SELECT chart_id, octet_length(info) FROM portolan_deprecated_charts
        WHERE namespace = $1 AND name = $2";
    const POSTGRES: &str = "SELECT chart_id, CAST(pg_column_size(info) AS BIGINT) FROM portolan_deprecated_charts
        WHERE namespace = $1 AND name = $2";
    let statement = tx.choose(SQLITE, POSTGRES);
    Ok(select!(fetch_all, tx, statement, name))
}
