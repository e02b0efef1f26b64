//! Digests of the charts of an index: `portolan_index_cache`, and a row of `portolan_chart_digests` per chart.
//!
//! ```text
//!  an index, split into charts ─┬─ digest cached: not decoded, its stored row is neither read nor written
//!                               └─ digest not cached: decoded, compared with its row, and cached
//! ```
//!
//! The caller computes the digests. A digest is bound to the ID of the chart row that its text produced. It is returned
//! only while that row exists, contains nothing else, and no other process has written the charts.

use std::fmt;

use futures::TryStreamExt;

use crate::api::NamespacedName;
use crate::catalog::engine::on_engine;
use crate::catalog::record::storable;
use crate::catalog::{Catalog, Error};

/// Digest of the text of a chart in an index, and the decode result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartDigest {
    pub key: String,
    pub digest: String,
    pub stats: String,
    /// Chart that the text produces, or `None` if it produces no row. Duplicate chart IDs are not cached.
    pub chart_id: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChartDigests {
    /// Secret key of the hash; never shown.
    pub digest_key: String,
    /// Unordered. Charts that are not listed must be decoded.
    pub charts: Vec<ChartDigest>,
}

impl fmt::Debug for ChartDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChartDigests")
            .field("charts", &self.charts)
            .finish_non_exhaustive()
    }
}

/// A chart from [`Catalog::chart_digests`] whose text is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnchangedChart {
    pub key: String,
    pub chart_id: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct DigestUpdate {
    /// Inputs of a row besides the text of its chart: decoder, filter and repository URL.
    pub cache_key: String,
    /// Key of the cached digests, or a new key, which replaces all of them.
    pub digest_key: String,
    /// Charts with an unchanged text. They have no row in the commit, and their stored rows are not read.
    pub unchanged: Vec<UnchangedChart>,
    /// All other charts of the index, including charts that produce no row.
    pub new: Vec<ChartDigest>,
}

impl fmt::Debug for DigestUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DigestUpdate")
            .field("cache_key", &self.cache_key)
            .field("unchanged", &self.unchanged)
            .field("new", &self.new)
            .finish_non_exhaustive()
    }
}

/// One consistent read. Excludes charts with retained versions, whose rows contain more than the text.
const SELECT: &str = "SELECT i.digest_key, k.key, k.digest, k.stats, k.chart_id FROM portolan_index_cache i
        JOIN portolan_repositories p ON p.namespace = i.namespace AND p.name = i.name
        JOIN repos r ON r.namespace = i.namespace AND r.name = i.name
        LEFT JOIN portolan_chart_digests k ON k.namespace = i.namespace AND k.name = i.name AND (k.chart_id IS NULL OR (
            k.row_id = (SELECT c.id FROM charts c WHERE c.repo_namespace = k.namespace AND c.repo_name = k.name
                AND c.chart_id = k.chart_id)
            AND NOT EXISTS (SELECT 1 FROM portolan_kept_versions v WHERE v.namespace = k.namespace AND v.name = k.name
                AND v.chart_id = k.chart_id)))
    WHERE i.namespace = $1 AND i.name = $2 AND i.cache_key = $3
        AND r.id = p.repos_id AND r.checksum = p.repos_checksum AND r.last_update = p.repos_last_update";

/// The digest key, and a digest; the latter is null if there are none.
type Row = (String, Option<String>, Option<String>, Option<String>, Option<String>);

impl Catalog {
    /// Returns none if the cache key differs or another process has written the charts. Read the record of
    /// [`SyncCommit`](crate::catalog::SyncCommit) first: its revision shows later writes.
    pub async fn chart_digests(&self, name: &NamespacedName, cache_key: &str) -> Result<Option<ChartDigests>, Error> {
        self.read("read the chart digests", &name.namespace, async |connection| {
            let mut digests: Option<ChartDigests> = None;
            on_engine!(connection.executor(), executor => {
                let mut rows = sqlx::query_as::<_, Row>(SELECT)
                    .bind(&name.namespace)
                    .bind(&name.name)
                    .bind(storable(cache_key))
                    .fetch(executor);
                while let Some((digest_key, key, digest, stats, chart_id)) = rows.try_next().await? {
                    let digests = digests.get_or_insert_with(|| ChartDigests { digest_key, charts: Vec::new() });
                    if let (Some(key), Some(digest), Some(stats)) = (key, digest, stats) {
                        digests.charts.push(ChartDigest { key, digest, stats, chart_id });
                    }
                }
            });
            Ok(digests)
        })
        .await
    }
}
