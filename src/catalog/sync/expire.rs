//! Deletes expired retained versions. Independent of syncs, because time passes without a new index.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use super::batch::{Batch, Change};
use super::diff::delete_charts;
use crate::api::NamespacedName;
use crate::catalog::engine::{Pools, Transaction, on_engine};
use crate::catalog::{COMMIT_DEADLINE, Catalog, ChartInfo, ChartRow, CommitSummary, Error, record};

impl Catalog {
    /// Deletes expired versions with their files, and charts without other versions. Returns the number of versions.
    ///
    /// Takes no lock if nothing has expired.
    pub async fn drop_expired(&self, name: &NamespacedName, uid: &str, now: Timestamp) -> Result<u64, Error> {
        self.ensure_writable()?;
        self.call("delete expired versions", COMMIT_DEADLINE, async {
            if !has_expired(&self.0.pools, name, now).await? {
                return Ok(0);
            }
            let mut tx = self.0.pools.begin().await?;
            if !record::lock_if_uid(&mut tx, name, uid).await? {
                return Ok(0);
            }
            let dropped = drop_all(&mut tx, name, now).await?;
            tx.commit().await?;
            Ok(dropped)
        })
        .await
    }
}

async fn has_expired(pools: &Pools, name: &NamespacedName, now: Timestamp) -> Result<bool, Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_kept_versions
        WHERE namespace = $1 AND name = $2 AND expires <= $3";
    let count: i64 = on_engine!(pools.reader(), pool => sqlx::query_scalar(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(now.as_millisecond())
        .fetch_one(pool)
        .await?);
    Ok(count > 0)
}

async fn drop_all(tx: &mut Transaction, name: &NamespacedName, now: Timestamp) -> Result<u64, Error> {
    const DELETE: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2 AND expires <= $3";
    let mut expired: HashMap<String, HashSet<String>> = HashMap::new();
    for (chart_id, version) in expired_versions(tx, name, now).await? {
        expired.entry(chart_id).or_default().insert(version);
    }
    let (mut batch, mut written, mut empty, mut dropped) = (Batch::default(), CommitSummary::default(), Vec::new(), 0);
    for (chart_id, expired) in expired {
        let Some((id, mut info)) = stored(tx, name, &chart_id).await? else {
            continue;
        };
        let before = info.chart_versions.len();
        info.chart_versions
            .retain(|version| !expired.contains(&version.version));
        dropped += (before - info.chart_versions.len()) as u64;
        if info.chart_versions.is_empty() {
            empty.push(id);
        } else if info.chart_versions.len() < before {
            batch.push(ChartRow { chart_id, info }, Change::update(id))?;
        }
        if batch.is_full(tx) {
            batch.write(tx, name, &mut written).await?;
        }
    }
    batch.write(tx, name, &mut written).await?;
    delete_charts(tx, name, &empty).await?;
    on_engine!(tx, tx => {
        sqlx::query(DELETE)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(now.as_millisecond())
            .execute(&mut **tx)
            .await?;
    });
    Ok(dropped)
}

async fn expired_versions(
    tx: &mut Transaction,
    name: &NamespacedName,
    now: Timestamp,
) -> Result<Vec<(String, String)>, Error> {
    const SELECT: &str = "SELECT chart_id, version FROM portolan_kept_versions
        WHERE namespace = $1 AND name = $2 AND expires <= $3";
    Ok(on_engine!(tx, tx => sqlx::query_as(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(now.as_millisecond())
        .fetch_all(&mut **tx)
        .await?))
}

/// Returns `None` if the row does not have Kubeapps' format. The next sync rewrites it.
async fn stored(
    tx: &mut Transaction,
    name: &NamespacedName,
    chart_id: &str,
) -> Result<Option<(i64, ChartInfo)>, Error> {
    const SELECT: &str = "SELECT CAST(id AS BIGINT), CAST(info AS TEXT) FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3";
    let row: Option<(i64, String)> = on_engine!(tx, tx => sqlx::query_as(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(chart_id)
        .fetch_optional(&mut **tx)
        .await?);
    Ok(row.and_then(|(id, info)| Some((id, serde_json::from_str(&info).ok()?))))
}
