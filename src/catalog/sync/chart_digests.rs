//! What is remembered of the charts of an index, so that of the next index only those are decoded and compared whose text is
//! another: `portolan_index_cache`, and a row of `portolan_chart_digests` for each chart.
//!
//! ```text
//!  an index, cut into the texts of its charts ─┬─ digest known: not decoded, its stored row neither read nor written
//!                                              └─ digest not known: decoded, compared with its row, and remembered
//! ```
//!
//! What a digest means is the caller's. Here a cut is tied to the row that came of it, by the row's id, and is given only as long as that row
//! is there, holds nothing but what came of the cut, and nobody else has been at the charts.

use std::fmt;

use futures::TryStreamExt;

use crate::api::NamespacedName;
use crate::catalog::engine::on_engine;
use crate::catalog::record::storable;
use crate::catalog::{Catalog, Error};

/// What is remembered of one chart of an index: the text that it was read from, by a digest, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartDigest {
    /// What the chart stands under in the index.
    pub key: String,
    /// Digest of its text.
    pub digest: String,
    /// What else came of the text; only the caller reads it.
    pub memo: String,
    /// The chart whose row came of it, or would have come of it if another chart of the index had not the same id: of charts that
    /// share an id none is remembered. Nothing where the text makes no row.
    pub chart_id: Option<String>,
}

/// What is remembered of an index.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChartDigests {
    /// The key of the digests. It is never shown.
    pub secret: String,
    /// Its charts, in no order. One that is not among them is to be decoded.
    pub cuts: Vec<ChartDigest>,
}

impl fmt::Debug for ChartDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuts").field("cuts", &self.cuts).finish_non_exhaustive()
    }
}

/// A chart that was given by [`Catalog::cuts`] and has the same text still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unchanged {
    /// As in [`ChartDigest::key`].
    pub key: String,
    /// As in [`ChartDigest::chart_id`].
    pub chart_id: Option<String>,
}

/// What is to be remembered of an index with the commit of its charts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DigestUpdate {
    /// What, beside the text of a chart, its row depends on: the decoder, the filter, the repository's URL. ChartDigests of another stamp
    /// don't count.
    pub stamp: String,
    /// The key of the digests: that of the cuts that were given, or a new one where none were. With another stamp or key all that
    /// was remembered goes.
    pub secret: String,
    /// The charts of the index that are what they were. Those of them that have a row are not among the rows of the commit, and
    /// neither is their stored row read.
    pub unchanged: Vec<Unchanged>,
    /// All other charts of the index, whether a row came of them or not.
    pub new: Vec<ChartDigest>,
}

impl fmt::Debug for DigestUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewCuts")
            .field("stamp", &self.stamp)
            .field("unchanged", &self.unchanged)
            .field("new", &self.new)
            .finish_non_exhaustive()
    }
}

/// In one statement, so that the cuts are those of the key. A row that holds versions that have left the index is not what its cut
/// says.
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

/// The key, and a cut; nothing but the key where there is no cut.
type Row = (String, Option<String>, Option<String>, Option<String>, Option<String>);

impl Catalog {
    /// What is remembered of a repository's index, if it was written under this stamp and nobody else has been at the charts since.
    /// ChartDigests are left out whose row is gone or another one, or holds versions that have left the index.
    ///
    /// They are to be read after the record that [`crate::catalog::Commit::record`] is made of: that nobody has written the repository in between is
    /// seen by the record's revision.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn cuts(&self, name: &NamespacedName, stamp: &str) -> Result<Option<ChartDigests>, Error> {
        self.look("reading what is remembered of an index", async {
            let mut cuts: Option<ChartDigests> = None;
            on_engine!(self.0.pools.reader(), pool => {
                let mut rows = sqlx::query_as::<_, Row>(SELECT)
                    .bind(&name.namespace)
                    .bind(&name.name)
                    .bind(storable(stamp))
                    .fetch(pool);
                while let Some((secret, key, digest, memo, chart_id)) = rows.try_next().await? {
                    let cuts = cuts.get_or_insert_with(|| ChartDigests { secret, cuts: Vec::new() });
                    if let (Some(key), Some(digest), Some(memo)) = (key, digest, memo) {
                        cuts.cuts.push(ChartDigest { key, digest, memo, chart_id });
                    }
                }
            });
            Ok(cuts)
        })
        .await
    }
}
