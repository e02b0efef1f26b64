//! What an attempt knows of an index before it has read it: which texts of charts have been decoded before, and what came of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Run;
use super::chart_rows::Selected;
use super::request::SyncAborted;
use crate::api::NamespacedName;
use crate::catalog::{ChartDigest, ChartDigests, DigestUpdate};
use crate::helm::index::{self, CacheEntry, CachedChart, CachedIndex, ChartStats, DecodeLimits, Digest};
use crate::text::{from_hex, hex};

/// Bytes of what is kept beside a digest. A chart of which more is to be told, since much of it is skipped, is decoded each time.
const MEMO_BYTES: usize = 1024;

/// What is known, and under what it is to be remembered.
pub(super) struct Memory {
    pub(super) known: CachedIndex,
    /// What became of each known chart, by its key.
    pub(super) fates: HashMap<String, ChartOutcome>,
    cache_key: String,
    secret: String,
}

/// What became of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChartOutcome {
    /// Its identifier. Nothing where there is no chart, or one that is deprecated.
    pub(super) chart_id: Option<String>,
    /// The filter has left it out.
    pub(super) is_filtered: bool,
}

/// What is kept in the catalogue beside the digest.
#[derive(Serialize, Deserialize)]
struct Memo {
    masked: bool,
    account: ChartStats,
    fate: ChartOutcome,
}

/// The key of the digests of repositories of which nothing is remembered yet: that of whoever was seen first, so that those which
/// are the same come to the same digests and share them. A handle, cheap to clone.
#[derive(Clone, Default)]
pub(super) struct DigestKey(Arc<Mutex<Option<[u8; index::DigestKey::BYTES]>>>);

impl DigestKey {
    /// The key of one that has the `stored` one, if it has.
    fn of(
        &self,
        stored: Option<[u8; index::DigestKey::BYTES]>,
    ) -> Result<[u8; index::DigestKey::BYTES], getrandom::Error> {
        // The key is whole or not there, so a panic elsewhere leaves nothing to mend.
        let mut common = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = match stored.or(*common) {
            Some(key) => key,
            None => new_secret()?,
        };
        common.get_or_insert(key);
        Ok(key)
    }
}

impl Memory {
    fn new(
        cache_key: String,
        stored: Option<ChartDigests>,
        is_believed: bool,
        times_count: bool,
        key: &DigestKey,
    ) -> Result<Self, getrandom::Error> {
        let (secret, cuts) = stored.map_or((String::new(), Vec::new()), |stored| (stored.digest_key, stored.charts));
        // Where nothing is believed nothing is lost by another key, and those that are the same come to have one.
        let stored = from_hex(&secret).filter(|_| is_believed);
        let cuts = if stored.is_some() { cuts } else { Vec::new() };
        let bytes = key.of(stored)?;
        let known = CachedIndex {
            digest_key: index::DigestKey::from(bytes),
            timestamps_matter: times_count,
            charts: HashMap::new(),
        };
        let mut memory = Self {
            known,
            fates: HashMap::new(),
            cache_key,
            secret: hex(&bytes),
        };
        for cut in cuts.into_iter().filter(|_| is_believed) {
            memory.add(cut);
        }
        Ok(memory)
    }

    /// One that can't be read, since somebody has edited it, is as good as none.
    fn add(&mut self, cut: ChartDigest) {
        let (Some(digest), Ok(Memo { masked, account, fate })) =
            (from_hex(&cut.digest), serde_json::from_str(&cut.stats))
        else {
            return;
        };
        let chart = CachedChart {
            digest: Digest(digest),
            timestamps_masked: masked,
            stats: account,
        };
        self.fates.insert(cut.key.clone(), fate);
        self.known.charts.insert(cut.key, chart);
    }

    /// Knows nothing any more, but how to remember.
    pub(super) fn forget(&mut self) {
        self.known.charts.clear();
        self.fates.clear();
    }

    /// What is to be remembered.
    pub(super) fn to_be_stored(&self, selected: &mut Selected) -> DigestUpdate {
        let mut new = std::mem::take(&mut selected.remembered);
        new.retain(|cut| cut.stats.len() <= MEMO_BYTES);
        DigestUpdate {
            cache_key: self.cache_key.clone(),
            digest_key: self.secret.clone(),
            unchanged: std::mem::take(&mut selected.unchanged),
            new,
        }
    }
}

/// The chart as it is kept in the catalogue.
pub(super) fn cut(CacheEntry { key, chart }: CacheEntry, fate: ChartOutcome) -> ChartDigest {
    let chart_id = fate.chart_id.clone().filter(|_| !fate.is_filtered);
    let memo = Memo {
        masked: chart.timestamps_masked,
        account: chart.stats,
        fate,
    };
    ChartDigest {
        key,
        digest: hex(&chart.digest.0),
        // A memo holds string keys and finite numbers only, for which JSON can't fail.
        stats: serde_json::to_string(&memo).unwrap_or_default(),
        chart_id,
    }
}

fn new_secret() -> Result<[u8; index::DigestKey::BYTES], getrandom::Error> {
    let mut secret = [0; index::DigestKey::BYTES];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

impl Run<'_> {
    /// What is known of the index. Nothing, and nothing is to be remembered, where the system gives no random numbers.
    pub(super) async fn memory(&self) -> Result<Option<Memory>, SyncAborted> {
        let declaration = &self.request.declaration;
        let cache_key = cache_key(
            &declaration.name,
            declaration.change_key.as_str(),
            &self.syncer.context.decode_limits,
        );
        let stored = self.catalog().chart_digests(&declaration.name, &cache_key).await?;
        let times_count = declaration.filter.is_some();
        match Memory::new(
            cache_key,
            stored,
            self.last_success().is_some(),
            times_count,
            &self.syncer.digest_key,
        ) {
            Ok(memory) => Ok(Some(memory)),
            Err(error) => {
                tracing::warn!(%error, "the system gives no random numbers, so whole indexes are decoded");
                Ok(None)
            }
        }
    }
}

/// Stands for all that decides what comes of a chart's text: another release, other limits or another declaration may make something
/// else of it.
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
