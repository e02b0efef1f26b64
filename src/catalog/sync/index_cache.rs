//! Reads and updates the cached chart digests in the transaction of a sync.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sqlx::{FromRow, types::Json};

use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute, execute_list, select, sql};
use crate::catalog::record::storable;
use crate::catalog::{ChartDigest, DigestUpdate, Error, ErrorKind, Record, UnchangedChart};

const BATCH_ROWS: usize = 500;

/// Charts with a longer key are not cached: an index row of Postgres has at most 2,704 bytes, including the repository.
const KEY_BYTES: usize = 1024;

#[derive(Default)]
pub(super) struct StoredDigests {
    digests: Option<DigestUpdate>,
    /// The stored digests have the same cache key and digest key.
    is_same_index: bool,
    stored: Vec<String>,
    unchanged_rows: HashMap<String, i64>,
}

#[derive(FromRow)]
struct StoredDigest {
    key: String,
    chart_id: Option<String>,
    row_id: Option<i64>,
    has_kept_versions: bool,
}

#[derive(FromRow)]
struct StoredIndex {
    cache_key: String,
    digest_key: String,
    trusted: bool,
}

impl StoredDigests {
    /// Loads the rows of unchanged charts. Fails with [`ErrorKind::StaleDigests`] if a row has changed. The caller
    /// holds the locks of the repository and of Kubeapps' row.
    pub(super) async fn load(
        tx: &mut Transaction,
        record: &Record,
        digests: Option<DigestUpdate>,
    ) -> Result<Self, Error> {
        let Some(digests) = digests else {
            return Ok(Self::default());
        };
        let index = read_index(tx, &record.name).await?;
        let is_same_index = index.as_ref().is_some_and(|index| {
            index.cache_key == storable(&digests.cache_key) && index.digest_key == storable(&digests.digest_key)
        });
        let stored = if is_same_index {
            read_stored(tx, &record.name).await?
        } else {
            Vec::new()
        };
        let unchanged_rows = if digests.unchanged.is_empty() {
            HashMap::new()
        } else {
            // Only the revision shows writes since the digests were read.
            let is_unmodified = record.revision.is_some() && index.is_some_and(|index| index.trusted);
            let unchanged_rows = is_unmodified.then(|| unchanged_rows(&digests, &stored)).flatten();
            unchanged_rows.ok_or(ErrorKind::StaleDigests)?
        };
        Ok(Self {
            digests: Some(digests),
            is_same_index,
            stored: stored.into_iter().map(|chart| chart.key).collect(),
            unchanged_rows,
        })
    }

    /// Returns the expected row ID of each unchanged chart by `chart_id`.
    pub(super) const fn unchanged_rows(&self) -> &HashMap<String, i64> {
        &self.unchanged_rows
    }

    /// Stores the new digests. Charts in `rejected` are not cached, so that each sync retries them.
    pub(super) async fn save(
        self,
        tx: &mut Transaction,
        name: &NamespacedName,
        rejected: &[(String, String)],
    ) -> Result<(), Error> {
        let Some(digests) = self.digests else {
            return delete_index(tx, name).await;
        };
        if !self.is_same_index {
            replace_index(tx, name, &digests).await?;
        }
        let new = cacheable(&digests.new, rejected);
        let unchanged = digests.unchanged.iter().map(|chart| &*chart.key);
        let current: HashSet<&str> = unchanged.chain(new.iter().map(|chart| chart.key)).collect();
        let deleted = self.stored.iter().map(String::as_str);
        let deleted: Vec<&str> = deleted.filter(|key| !current.contains(key)).collect();
        delete(tx, name, &deleted).await?;
        let statement = sql!(tx, "chart_digests_upsert.sql");
        for new in new.chunks(BATCH_ROWS) {
            execute!(tx, statement, name, Json(new));
        }
        Ok(())
    }
}

/// Returns row IDs by `chart_id`, or `None` if a chart has changed or shares its ID with a new chart.
fn unchanged_rows(digests: &DigestUpdate, stored: &[StoredDigest]) -> Option<HashMap<String, i64>> {
    let stored: HashMap<&str, &StoredDigest> = stored.iter().map(|chart| (&*chart.key, chart)).collect();
    let (mut keys, mut rows) = (HashSet::new(), HashMap::new());
    for UnchangedChart { key, chart_id } in &digests.unchanged {
        let chart = stored.get(&**key)?;
        if chart.chart_id != *chart_id || chart.has_kept_versions || !keys.insert(&**key) {
            return None;
        }
        if let Some(chart_id) = chart_id
            && rows.insert(chart_id.clone(), chart.row_id?).is_some()
        {
            return None;
        }
    }
    let is_taken =
        |new: &ChartDigest| keys.contains(&*new.key) || new.chart_id.as_ref().is_some_and(|id| rows.contains_key(id));
    (!digests.new.iter().any(is_taken)).then_some(rows)
}

#[derive(Clone, Copy, Serialize)]
struct DigestRow<'a> {
    key: &'a str,
    digest: &'a str,
    stats: &'a str,
    chart_id: Option<&'a str>,
}

/// Excludes duplicate IDs: after one of these charts leaves the index, the row may come from another.
fn cacheable<'a>(new: &'a [ChartDigest], rejected: &[(String, String)]) -> Vec<DigestRow<'a>> {
    let rejected: HashSet<&str> = rejected.iter().map(|(chart_id, _)| &**chart_id).collect();
    let (mut keys, mut charts) = (HashMap::<&str, usize>::new(), HashMap::<&str, usize>::new());
    for chart in new {
        *keys.entry(&chart.key).or_default() += 1;
        if let Some(chart_id) = &chart.chart_id {
            *charts.entry(chart_id).or_default() += 1;
        }
    }
    let is_cacheable = |row: &DigestRow<'_>| {
        let texts = [Some(row.key), Some(row.digest), Some(row.stats), row.chart_id];
        row.key.len() <= KEY_BYTES
            && keys.get(row.key) == Some(&1)
            && row.chart_id.is_none_or(|id| charts.get(id) == Some(&1) && !rejected.contains(id))
            // Postgres can't store NUL.
            && !texts.into_iter().flatten().any(|text| text.contains('\0'))
    };
    new.iter()
        .map(|chart| DigestRow {
            key: &chart.key,
            digest: &chart.digest,
            stats: &chart.stats,
            chart_id: chart.chart_id.as_deref(),
        })
        .filter(is_cacheable)
        .collect()
}

async fn read_index(tx: &mut Transaction, name: &NamespacedName) -> Result<Option<StoredIndex>, Error> {
    const SELECT: &str = "SELECT i.cache_key, i.digest_key,
            coalesce(r.id = p.repos_id AND r.checksum = p.repos_checksum AND r.last_update = p.repos_last_update, FALSE) AS trusted
        FROM portolan_index_cache i
            LEFT JOIN portolan_repositories p ON p.namespace = i.namespace AND p.name = i.name
            LEFT JOIN repos r ON r.namespace = i.namespace AND r.name = i.name
        WHERE i.namespace = $1 AND i.name = $2";
    Ok(select!(fetch_optional, tx, SELECT, name))
}

async fn read_stored(tx: &mut Transaction, name: &NamespacedName) -> Result<Vec<StoredDigest>, Error> {
    const SELECT: &str = "SELECT k.key, k.chart_id, k.row_id, EXISTS (SELECT 1 FROM portolan_kept_versions v
            WHERE v.namespace = k.namespace AND v.name = k.name AND v.chart_id = k.chart_id) AS has_kept_versions
        FROM portolan_chart_digests k WHERE k.namespace = $1 AND k.name = $2";
    Ok(select!(fetch_all, tx, SELECT, name))
}

async fn delete_index(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_index_cache WHERE namespace = $1 AND name = $2";
    if execute!(tx, DELETE, name) > 0 {
        delete_all(tx, name).await?;
    }
    Ok(())
}

async fn replace_index(tx: &mut Transaction, name: &NamespacedName, digests: &DigestUpdate) -> Result<(), Error> {
    const UPSERT: &str =
        "INSERT INTO portolan_index_cache (namespace, name, cache_key, digest_key) VALUES ($1, $2, $3, $4)
        ON CONFLICT (namespace, name) DO UPDATE SET cache_key = excluded.cache_key, digest_key = excluded.digest_key";
    delete_all(tx, name).await?;
    let (cache_key, digest_key) = (storable(&digests.cache_key), storable(&digests.digest_key));
    execute!(tx, UPSERT, name, cache_key, digest_key);
    Ok(())
}

async fn delete_all(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2";
    execute!(tx, DELETE, name);
    Ok(())
}

async fn delete(tx: &mut Transaction, name: &NamespacedName, keys: &[&str]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2
        AND key IN (SELECT value FROM json_each($3))";
    const POSTGRES: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2 AND key = ANY($3)";
    for keys in keys.chunks(BATCH_ROWS) {
        execute_list!(tx, SQLITE, POSTGRES, name; keys);
    }
    Ok(())
}
