//! Cached decode results of the previous index, keyed by chart digest.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::SyncerRun;
use super::chart_rows::BuiltRows;
use super::request::SyncAborted;
use crate::api::NamespacedName;
use crate::catalog::{ChartDigest, ChartDigests, DigestUpdate};
use crate::helm::index::{self, CacheEntry, CachedChart, CachedIndex, ChartStats, DecodeLimits, Digest};
use crate::text::{from_hex, hex};

/// Maximum size of a cached outcome. Charts with a larger one, due to many skipped versions, are decoded each time.
const MAX_OUTCOME_BYTES: usize = 1024;

pub(super) struct IndexCache {
    pub(super) index: CachedIndex,
    /// Cached outcomes by chart key.
    pub(super) outcomes: HashMap<String, ChartOutcome>,
    cache_key: String,
    digest_key: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChartOutcome {
    /// `None` if there is no chart.
    pub(super) chart_id: Option<String>,
    pub(super) is_filtered: bool,
    pub(super) is_deprecated: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredOutcome {
    masked: bool,
    stats: ChartStats,
    outcome: ChartOutcome,
}

/// The key of the first repository serves those without a stored one, so that identical repositories share digests.
#[derive(Clone, Default)]
pub(super) struct CommonDigestKey(Arc<Mutex<Option<KeyBytes>>>);

type KeyBytes = [u8; index::DigestKey::BYTES];

impl CommonDigestKey {
    fn unless_stored(&self, stored: Option<KeyBytes>) -> Result<KeyBytes, getrandom::Error> {
        let mut common = self.0.lock();
        let key = match stored.or(*common) {
            Some(key) => key,
            None => {
                let mut key = [0; index::DigestKey::BYTES];
                getrandom::fill(&mut key)?;
                key
            }
        };
        common.get_or_insert(key);
        Ok(key)
    }
}

impl IndexCache {
    fn new(
        cache_key: String,
        stored: Option<ChartDigests>,
        is_trusted: bool,
        timestamps_matter: bool,
        common_key: &CommonDigestKey,
    ) -> Result<Self, getrandom::Error> {
        let (stored_key, digests) =
            stored.map_or((String::new(), Vec::new()), |stored| (stored.digest_key, stored.charts));
        // If the cache is not trusted, the common key loses nothing and lets repositories share digests.
        let stored = from_hex(&stored_key).filter(|_| is_trusted);
        let digests = if stored.is_some() { digests } else { Vec::new() };
        let bytes = common_key.unless_stored(stored)?;
        let index = CachedIndex {
            digest_key: index::DigestKey::from(bytes),
            timestamps_matter,
            charts: HashMap::new(),
        };
        let mut cache = Self {
            index,
            outcomes: HashMap::new(),
            cache_key,
            digest_key: hex(&bytes),
        };
        for digest in digests.into_iter().filter(|_| is_trusted) {
            cache.add(digest);
        }
        Ok(cache)
    }

    fn add(&mut self, stored: ChartDigest) {
        let decoded = serde_json::from_str::<StoredOutcome>(&stored.stats);
        let (Some(digest), Ok(decoded)) = (from_hex(&stored.digest), decoded) else {
            return;
        };
        let chart = CachedChart {
            digest: Digest(digest),
            timestamps_masked: decoded.masked,
            stats: decoded.stats,
        };
        self.outcomes.insert(stored.key.clone(), decoded.outcome);
        self.index.charts.insert(stored.key, chart);
    }

    pub(super) fn reset(&mut self) {
        self.index.charts.clear();
        self.outcomes.clear();
    }

    pub(super) fn digest_update(&self, rows: &mut BuiltRows) -> DigestUpdate {
        let mut new = std::mem::take(&mut rows.digests);
        new.retain(|digest| digest.stats.len() <= MAX_OUTCOME_BYTES);
        DigestUpdate {
            cache_key: self.cache_key.clone(),
            digest_key: self.digest_key.clone(),
            unchanged: std::mem::take(&mut rows.unchanged),
            new,
        }
    }
}

pub(super) fn chart_digest(CacheEntry { key, chart }: CacheEntry, outcome: ChartOutcome) -> ChartDigest {
    let is_listed = !outcome.is_filtered && !outcome.is_deprecated;
    let chart_id = outcome.chart_id.clone().filter(|_| is_listed);
    let stored = StoredOutcome {
        masked: chart.timestamps_masked,
        stats: chart.stats,
        outcome,
    };
    ChartDigest {
        key,
        digest: hex(&chart.digest.0),
        // Holds string keys and finite numbers only, so that JSON can't fail.
        stats: serde_json::to_string(&stored).unwrap_or_default(),
        chart_id,
    }
}

/// Loads the cache of the index. Returns `None` if the system has no random numbers.
pub(super) async fn load_index_cache(run: &SyncerRun<'_>) -> Result<Option<IndexCache>, SyncAborted> {
    let spec = &run.request.spec;
    let cache_key = cache_key(&spec.name, spec.change_key.as_str(), &run.syncer.context.decode_limits);
    let stored = run.catalog().chart_digests(&spec.name, &cache_key).await?;
    let (is_trusted, timestamps_matter) = (run.last_success().is_some(), spec.filter.is_some());
    let cache = IndexCache::new(cache_key, stored, is_trusted, timestamps_matter, &run.syncer.digest_key);
    let cache = cache.inspect_err(|error| {
        tracing::warn!(%error, "failed to get random numbers, decoding full indexes");
    });
    Ok(cache.ok())
}

/// Returns the cache key: a hash of everything that affects the decode result of a chart.
fn cache_key(name: &NamespacedName, change_key: &str, limits: &DecodeLimits) -> String {
    let mut hash = Sha256::new();
    for part in [
        env!("CARGO_PKG_VERSION"),
        change_key,
        &name.namespace,
        &name.name,
        &format!("{limits:?}"),
    ] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::controllers::apprepository::sync::chart_rows::tests::builder;
    use crate::controllers::apprepository::sync::rows::Spool;
    use crate::helm::index::SharedSplit;

    fn ids(spool: &Spool) -> Vec<&str> {
        let mut ids: Vec<&str> = spool.ids().collect();
        ids.sort_unstable();
        ids
    }

    fn assert_rows(rows: &BuiltRows) {
        assert_eq!(ids(&rows.deprecated), ["stable/old", "stable/web"]);
        assert_eq!(ids(&rows.spool), ["stable/web"]);
        assert!(rows.filtered_out.is_empty() && rows.duplicates.is_empty());
    }

    /// Two charts have one name, and one of them is deprecated.
    #[test]
    fn deprecated_charts_are_the_same_in_full_and_in_incremental_decodes() {
        let charts = [("a", "old", true), ("b", "web", true), ("c", "web", false)].map(|(key, name, deprecated)| {
            format!("  {key}:\n  - name: {name}\n    version: 1.0.0\n    deprecated: {deprecated}\n")
        });
        let index = Cursor::new(format!("apiVersion: v1\nentries:\n{}", charts.concat()));
        let limits = DecodeLimits::default();
        let mut full = builder();
        index::decode(index.clone(), &limits, &mut full).unwrap();
        full.flush().unwrap();
        assert_rows(&full.finish());

        let mut stored = None;
        // The second decode finds all charts unchanged.
        for new in [3, 0] {
            let cache = IndexCache::new(String::new(), stored.take(), true, false, &CommonDigestKey::default());
            let mut cache = cache.unwrap();
            let mut incremental = builder().with_outcomes(std::mem::take(&mut cache.outcomes));
            let shared = SharedSplit::default();
            index::decode_changes(index.clone(), &limits, &cache.index, &shared, &mut incremental).unwrap();
            incremental.flush().unwrap();
            let mut rows = incremental.finish();
            assert_rows(&rows);
            let update = cache.digest_update(&mut rows);
            assert_eq!((update.new.len(), update.unchanged.len()), (new, 3 - new));
            let listed = update.unchanged.iter().filter(|chart| chart.chart_id.is_some());
            assert_eq!(listed.count(), usize::from(new == 0));
            stored = Some(ChartDigests {
                digest_key: update.digest_key,
                charts: update.new,
            });
        }
    }
}
