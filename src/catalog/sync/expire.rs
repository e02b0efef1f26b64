//! Deletes expired retained versions. Independent of syncs, because time passes without a new index.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;

use super::batch::{Batch, RowChange};
use super::diff::delete_charts;
use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute, select};
use crate::catalog::news::{self, ChangeLog, EventKind};
use crate::catalog::repositories::ReposRow;
use crate::catalog::{Catalog, ChartInfo, ChartRow, CommitSummary, Error, Record, record, stored_bytes};

impl Catalog {
    /// Deletes expired versions with their files, and charts without other versions. Returns the number of versions.
    pub async fn drop_expired(
        &self,
        record: &Record,
        uid: &str,
        now: Timestamp,
        sinks: &[String],
    ) -> Result<u64, Error> {
        const COUNT: &str = "SELECT count(*) FROM portolan_kept_versions
            WHERE namespace = $1 AND name = $2 AND expires <= $3";
        const OPERATION: &str = "delete expired versions";
        self.ensure_writable()?;
        let (name, now) = (&record.name, now.as_millisecond());
        let expired = self.read(OPERATION, &name.namespace, async |connection| {
            let (count,): (i64,) = select!(fetch_one, connection, COUNT, name, now);
            Ok(count)
        });
        if expired.await? == 0 {
            return Ok(0);
        }
        let dropped = self.write_long(OPERATION, &name.namespace, async |tx| {
            if !record::lock_if_uid(tx, name, uid).await? {
                return Ok((0, 0));
            }
            let (dropped, changes) = drop_all(tx, name, now, !sinks.is_empty()).await?;
            let news = news::insert_changes(tx, record, sinks, EventKind::Versions, changes).await?;
            Ok((dropped, news))
        });
        let (dropped, news) = dropped.await?;
        self.notify_news(news);
        Ok(dropped)
    }
}

/// `now` is in milliseconds since 1970.
async fn drop_all(
    tx: &mut Transaction,
    name: &NamespacedName,
    now: i64,
    has_sinks: bool,
) -> Result<(u64, ChangeLog), Error> {
    const SELECT: &str = "SELECT chart_id, version FROM portolan_kept_versions
        WHERE namespace = $1 AND name = $2 AND expires <= $3";
    const DELETE: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2 AND expires <= $3";
    // Locked before the charts, as in a commit.
    let repos = ReposRow::find(tx, name).await?;
    let rows: Vec<(String, String)> = select!(fetch_all, tx, SELECT, name, now);
    let mut expired: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for (chart_id, version) in rows {
        expired.entry(chart_id).or_default().insert(version);
    }
    let (mut written, mut empty, mut dropped) = (CommitSummary::default(), Vec::new(), 0);
    let mut batch = Batch::new(name, &mut written, has_sinks);
    for (chart_id, expired) in expired {
        let Some((id, bytes, mut info)) = read_stored(tx, name, &chart_id).await? else {
            continue;
        };
        let before: Vec<String> = info.versions().map(str::to_owned).collect();
        info.chart_versions
            .retain(|version| !expired.contains(&version.version));
        let changes = || ChangeLog::of_chart(&chart_id, &before, &info);
        if !info.chart_versions.is_empty() {
            batch.report(&chart_id, changes);
        } else if has_sinks {
            // Not written by the batch.
            batch.changes.append(changes());
        }
        let before = before.len();
        dropped += (before - info.chart_versions.len()) as u64;
        if info.chart_versions.len() < before {
            batch.committed.bytes.charts -= bytes;
        }
        if info.chart_versions.is_empty() {
            empty.push(id);
        } else if info.chart_versions.len() < before {
            let row = ChartRow { chart_id, info };
            batch.push(tx, row, RowChange::update(id)).await?;
        }
    }
    batch.write(tx).await?;
    let changes = batch.changes;
    delete_charts(tx, name, &empty, &mut written.bytes).await?;
    stored_bytes::add(tx, name, written.bytes).await?;
    execute!(tx, DELETE, name, now);
    if let Some(repos) = repos.filter(|_| dropped > 0) {
        repos.touch(tx, name).await?;
    }
    Ok((dropped, changes))
}

/// Returns `None` if the row does not have Kubeapps' format. The next sync rewrites it.
async fn read_stored(
    tx: &mut Transaction,
    name: &NamespacedName,
    chart_id: &str,
) -> Result<Option<(i64, i64, ChartInfo)>, Error> {
    const SQLITE: &str = "SELECT id, octet_length(info), info FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3";
    const POSTGRES: &str = "SELECT CAST(id AS BIGINT), CAST(pg_column_size(info) AS BIGINT), CAST(info AS TEXT)
        FROM charts WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3";
    let statement = tx.choose(SQLITE, POSTGRES);
    let row: Option<(i64, i64, String)> = select!(fetch_optional, tx, statement, name, chart_id);
    Ok(row.and_then(|(id, bytes, info)| Some((id, bytes, serde_json::from_str(&info).ok()?))))
}
