//! Cached decode results of the previous index, keyed by chart digest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Run;
use super::chart_rows::Selected;
use super::request::SyncAborted;
use crate::api::NamespacedName;
use crate::catalog::{ChartDigest, ChartDigests, DigestUpdate};
use crate::helm::index::{CacheEntry, CachedChart, CachedIndex, ChartStats, DecodeLimits, Digest, Secret};
use crate::text::{from_hex, hex};

/// Maximum size of a cached outcome. Charts with a larger one, due to many skipped versions, are decoded each time.
const MEMO_BYTES: usize = 1024;

pub(super) struct Memory {
    pub(super) known: CachedIndex,
    /// Cached outcomes by chart key.
    pub(super) fates: HashMap<String, ChartOutcome>,
    stamp: String,
    secret: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChartOutcome {
    /// `None` if there is no chart, or a deprecated one.
    pub(super) chart_id: Option<String>,
    pub(super) is_filtered: bool,
}

#[derive(Serialize, Deserialize)]
struct Memo {
    masked: bool,
    account: ChartStats,
    fate: ChartOutcome,
}

/// Digest key for repositories without a stored one: that of the first repository, so that identical repositories share
/// digests. A handle, cheap to clone.
#[derive(Clone, Default)]
pub(super) struct DigestKey(Arc<Mutex<Option<[u8; Secret::BYTES]>>>);

impl DigestKey {
    fn of(&self, stored: Option<[u8; Secret::BYTES]>) -> Result<[u8; Secret::BYTES], getrandom::Error> {
        // The key is set as a whole, so that a panic elsewhere leaves it consistent.
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
        stamp: String,
        stored: Option<ChartDigests>,
        is_believed: bool,
        times_count: bool,
        key: &DigestKey,
    ) -> Result<Self, getrandom::Error> {
        let (secret, cuts) = stored.map_or((String::new(), Vec::new()), |stored| (stored.secret, stored.cuts));
        // If the cache is not trusted, the common key loses nothing and lets repositories share digests.
        let stored = from_hex(&secret).filter(|_| is_believed);
        let cuts = if stored.is_some() { cuts } else { Vec::new() };
        let bytes = key.of(stored)?;
        let known = CachedIndex {
            secret: Secret::from(bytes),
            times_count,
            charts: HashMap::new(),
        };
        let mut memory = Self {
            known,
            fates: HashMap::new(),
            stamp,
            secret: hex(&bytes),
        };
        for cut in cuts.into_iter().filter(|_| is_believed) {
            memory.add(cut);
        }
        Ok(memory)
    }

    fn add(&mut self, cut: ChartDigest) {
        let (Some(digest), Ok(Memo { masked, account, fate })) =
            (from_hex(&cut.digest), serde_json::from_str(&cut.memo))
        else {
            return;
        };
        let chart = CachedChart {
            digest: Digest(digest),
            masked,
            account,
        };
        self.fates.insert(cut.key.clone(), fate);
        self.known.charts.insert(cut.key, chart);
    }

    pub(super) fn forget(&mut self) {
        self.known.charts.clear();
        self.fates.clear();
    }

    pub(super) fn to_be_stored(&self, selected: &mut Selected) -> DigestUpdate {
        let mut new = std::mem::take(&mut selected.remembered);
        new.retain(|cut| cut.memo.len() <= MEMO_BYTES);
        DigestUpdate {
            stamp: self.stamp.clone(),
            secret: self.secret.clone(),
            unchanged: std::mem::take(&mut selected.unchanged),
            new,
        }
    }
}

pub(super) fn cut(CacheEntry { key, chart }: CacheEntry, fate: ChartOutcome) -> ChartDigest {
    let chart_id = fate.chart_id.clone().filter(|_| !fate.is_filtered);
    let memo = Memo {
        masked: chart.masked,
        account: chart.account,
        fate,
    };
    ChartDigest {
        key,
        digest: hex(&chart.digest.0),
        // Holds string keys and finite numbers only, so that JSON can't fail.
        memo: serde_json::to_string(&memo).unwrap_or_default(),
        chart_id,
    }
}

fn new_secret() -> Result<[u8; Secret::BYTES], getrandom::Error> {
    let mut secret = [0; Secret::BYTES];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

impl Run<'_> {
    /// Loads the cache of the index. Returns `None` if the system has no random numbers.
    pub(super) async fn memory(&self) -> Result<Option<Memory>, SyncAborted> {
        let declaration = &self.request.declaration;
        let stamp = stamp(
            &declaration.name,
            declaration.change_key.as_str(),
            &self.syncer.context.decode_limits,
        );
        let stored = self.catalog().cuts(&declaration.name, &stamp).await?;
        let times_count = declaration.filter.is_some();
        match Memory::new(
            stamp,
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

/// Returns the cache key: a hash of everything that affects the decode result of a chart.
fn stamp(name: &NamespacedName, change_key: &str, limits: &DecodeLimits) -> String {
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
