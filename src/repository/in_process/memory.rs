//! What an attempt knows of an index before it has read it: which texts of charts have been decoded before, and what came of them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Run;
use crate::catalog::{Cut, Cuts, NewCuts};
use crate::repository::execute::AttemptError;
use crate::source::index::{Account, Digest, Known, KnownChart, Remembered, Secret};
use crate::text::{from_hex, hex};

/// What is known, and under what it is to be remembered.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) known: Known,
    /// What became of each known chart, by its key.
    pub(super) fates: HashMap<String, Fate>,
    stamp: String,
    secret: String,
}

/// What became of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fate {
    /// Its identifier. Nothing where there is no chart, or one that is deprecated.
    pub(super) chart_id: Option<String>,
    /// The filter has left it out.
    pub(super) is_filtered: bool,
}

/// What is kept in the catalogue beside the digest.
#[derive(Serialize, Deserialize)]
struct Memo {
    masked: bool,
    account: Account,
    fate: Fate,
}

impl Memory {
    fn new(stamp: String, stored: Option<Cuts>, is_believed: bool) -> Result<Self, getrandom::Error> {
        let (secret, cuts) = stored.map_or((String::new(), Vec::new()), |stored| (stored.secret, stored.cuts));
        let (bytes, cuts) = match from_hex::<16>(&secret) {
            Some(bytes) => (bytes, cuts),
            None => (new_secret()?, Vec::new()),
        };
        let mut memory = Self {
            known: Known {
                secret: Secret::from(bytes),
                charts: HashMap::new(),
            },
            fates: HashMap::new(),
            stamp,
            secret: hex(&bytes),
        };
        for cut in cuts.into_iter().filter(|_| is_believed) {
            memory.add(cut);
        }
        Ok(memory)
    }

    /// One that can't be read, since somebody has edited it, is as good as none.
    fn add(&mut self, cut: Cut) {
        let (Some(digest), Ok(Memo { masked, account, fate })) =
            (from_hex(&cut.digest), serde_json::from_str(&cut.memo))
        else {
            return;
        };
        let chart = KnownChart {
            digest: Digest(digest),
            masked,
            account,
        };
        self.fates.insert(cut.key.clone(), fate);
        self.known.charts.insert(cut.key, chart);
    }

    /// Knows nothing any more, but how to remember.
    pub(super) fn forget(&mut self) {
        self.known.charts.clear();
        self.fates.clear();
    }

    /// What is to be remembered. Nothing where the index could not be cut.
    pub(super) fn to_be_stored(&self, selected: &mut super::selection::Selected) -> Option<NewCuts> {
        let (unchanged, new) = (
            std::mem::take(&mut selected.unchanged),
            std::mem::take(&mut selected.remembered),
        );
        (!unchanged.is_empty() || !new.is_empty()).then(|| NewCuts {
            stamp: self.stamp.clone(),
            secret: self.secret.clone(),
            unchanged,
            new,
        })
    }
}

/// The chart as it is kept in the catalogue.
pub(super) fn cut(Remembered { key, chart }: Remembered, fate: Fate) -> Cut {
    let chart_id = fate.chart_id.clone().filter(|_| !fate.is_filtered);
    let memo = Memo {
        masked: chart.masked,
        account: chart.account,
        fate,
    };
    Cut {
        key,
        digest: hex(&chart.digest.0),
        // A memo holds string keys and finite numbers only, for which JSON can't fail.
        memo: serde_json::to_string(&memo).unwrap_or_default(),
        chart_id,
    }
}

fn new_secret() -> Result<[u8; 16], getrandom::Error> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

impl Run<'_> {
    /// What is known of the index. Nothing, and nothing is to be remembered, where the system gives no random numbers.
    pub(super) async fn memory(&self) -> Result<Option<Memory>, AttemptError> {
        let stamp = self.stamp();
        let stored = self.tools.catalog.cuts(&self.attempt.declaration.name, &stamp).await?;
        match Memory::new(stamp, stored, self.last_success().is_some()) {
            Ok(memory) => Ok(Some(memory)),
            Err(error) => {
                tracing::warn!(%error, "the system gives no random numbers, so whole indexes are decoded");
                Ok(None)
            }
        }
    }

    /// Stands for all that decides what comes of a chart's text: another release, other limits or another declaration may make
    /// something else of it.
    fn stamp(&self) -> String {
        let declaration = &self.attempt.declaration;
        let mut hash = Sha256::new();
        for part in [
            env!("CARGO_PKG_VERSION"),
            declaration.change_key.as_str(),
            &declaration.name.namespace,
            &declaration.name.name,
            &format!("{:?}", self.tools.decode_limits),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize())
    }
}
