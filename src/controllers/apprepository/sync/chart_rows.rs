//! Builds catalog rows from charts: filters, deduplicates and spools them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::{io, mem};

use tokio_util::sync::CancellationToken;

use super::filter::ChartFilter;
use super::index_cache::{self, ChartOutcome};
use super::rows::{self, PushResult, Spool};
use crate::budget::Budget;
use crate::catalog::{ChartDigest, ChartFingerprint, UnchangedChart};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::{CacheEntry, ChangeSink, Chart, ChartStats, Sink};
use crate::jq::{FilterError, charts_request};
use crate::trace::trace_span;

/// Charts are filtered and spooled when their JSON has this size.
const BATCH_BYTES: usize = 256 * 1024;

/// Builds the rows of one repository, on its own thread.
pub(super) struct RowBuilder {
    settings: RowSettings,
    filter: Option<ChartFilter>,
    with_fingerprints: bool,
    /// Cached outcomes by chart key.
    outcomes: HashMap<String, ChartOutcome>,
    batch: ChartBatch,
    rows: BuiltRows,
}

pub(super) struct RowSettings {
    pub(super) spec: RepositorySpec,
    pub(super) spool_dir: Option<PathBuf>,
    pub(super) spool: Budget,
    pub(super) cancel: CancellationToken,
}

pub(super) struct BuiltRows {
    pub(super) spool: Spool,
    pub(super) filtered_out: HashSet<String>,
    /// Charts whose newest version is deprecated. They may have the ID of another chart.
    pub(super) deprecated: Spool,
    pub(super) duplicates: Vec<String>,
    pub(super) unchanged: Vec<UnchangedChart>,
    pub(super) digests: Vec<ChartDigest>,
    pub(super) fingerprints: HashMap<String, ChartFingerprint>,
}

struct ChartBatch {
    charts: Vec<PendingChart>,
    /// The request to the filter. The JSON of the charts is also what is spooled.
    request: Vec<u8>,
    /// The next cache entry belongs to the last chart.
    expects_entry: bool,
}

struct PendingChart {
    chart_id: String,
    name: String,
    versions: u64,
    is_deprecated: bool,
    json: Range<usize>,
    fingerprint: Option<ChartFingerprint>,
    entry: Option<CacheEntry>,
}

impl RowSettings {
    fn check_canceled(&self) -> Result<(), RowError> {
        if self.cancel.is_cancelled() {
            return Err(RowError::Cancelled);
        }
        Ok(())
    }
}

impl Default for ChartBatch {
    fn default() -> Self {
        Self {
            charts: Vec::new(),
            request: charts_request(),
            expects_entry: false,
        }
    }
}

impl RowBuilder {
    pub(super) fn new(settings: RowSettings, filter: Option<ChartFilter>) -> Self {
        let rows = BuiltRows::new(&settings);
        Self {
            settings,
            filter,
            with_fingerprints: false,
            outcomes: HashMap::new(),
            batch: ChartBatch::default(),
            rows,
        }
    }

    pub(super) fn with_outcomes(mut self, outcomes: HashMap<String, ChartOutcome>) -> Self {
        self.outcomes = outcomes;
        self
    }

    pub(super) fn with_fingerprints(mut self) -> Self {
        self.with_fingerprints = true;
        self
    }

    /// Starts over without cached outcomes.
    pub(super) fn reset(&mut self) {
        self.outcomes.clear();
        if let Some(filter) = &mut self.filter {
            filter.reset();
        }
        self.batch = ChartBatch::default();
        self.rows = BuiltRows::new(&self.settings);
    }

    /// Adds a chart. `path` is its path in an OCI registry, which replaces the name in the chart ID.
    pub(super) fn take(&mut self, chart: Chart, path: Option<&str>, is_deprecated: bool) -> Result<(), RowError> {
        self.settings.check_canceled()?;
        if self.batch.request.len() >= BATCH_BYTES {
            self.flush()?;
        }
        let row = rows::row(&self.settings.spec, chart, path);
        let batch = &mut self.batch;
        let start = batch.request.len();
        // A row holds string keys and finite numbers only, so that JSON can't fail.
        serde_json::to_writer(&mut batch.request, &row.info).map_err(|error| RowError::Spool(error.into()))?;
        batch.request.push(b'\n');
        batch.charts.push(PendingChart {
            json: start..batch.request.len(),
            versions: row.info.chart_versions.len() as u64,
            is_deprecated,
            fingerprint: self.with_fingerprints.then(|| row.info.fingerprint()),
            chart_id: row.chart_id,
            name: row.info.name,
            entry: None,
        });
        batch.expects_entry = true;
        Ok(())
    }

    /// Filters and spools the charts of the batch. Called once more after the last chart.
    pub(super) fn flush(&mut self) -> Result<(), RowError> {
        self.settings.check_canceled()?;
        let ChartBatch {
            charts, mut request, ..
        } = mem::take(&mut self.batch);
        let kept = match &mut self.filter {
            Some(filter) if !charts.is_empty() => {
                let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
                let kept = trace_span!("filter").in_scope(|| filter.keeps(&request, &names));
                self.settings.check_canceled()?;
                kept.map_err(RowError::Filter)?
            }
            _ => vec![true; charts.len()],
        };
        for (chart, is_kept) in charts.into_iter().zip(kept) {
            self.rows.add(chart, &request, is_kept)?;
        }
        // Reused, unless one chart was far larger than a batch.
        if request.capacity() <= 4 * BATCH_BYTES {
            request.truncate(self.batch.request.len());
            self.batch.request = request;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> BuiltRows {
        let spool = &self.rows.spool;
        // Of two charts with one ID, one may be kept and one filtered: the ID is kept.
        self.rows.filtered_out.retain(|chart_id| !spool.contains(chart_id));
        self.rows
    }
}

impl BuiltRows {
    fn new(settings: &RowSettings) -> Self {
        let namespace = &settings.spec.name.namespace;
        let spool = || Spool::new(settings.spool_dir.as_deref(), &settings.spool, namespace);
        Self {
            spool: spool(),
            filtered_out: HashSet::new(),
            deprecated: spool(),
            duplicates: Vec::new(),
            unchanged: Vec::new(),
            digests: Vec::new(),
            fingerprints: HashMap::new(),
        }
    }

    /// Returns true if the charts were decoded one by one, by a split of the index: each one leaves a digest.
    pub(super) const fn is_incremental(&self) -> bool {
        !self.unchanged.is_empty() || !self.digests.is_empty()
    }

    /// Returns an upper bound of the memory that writing the rows needs.
    pub(super) fn commit_memory(&self) -> u64 {
        let deprecated = match self.deprecated.charts() {
            0 => 0,
            _ => self.deprecated.commit_memory(),
        };
        self.spool.commit_memory() + deprecated
    }

    fn add(&mut self, chart: PendingChart, request: &[u8], is_kept: bool) -> Result<(), RowError> {
        if let Some(entry) = chart.entry {
            let outcome = ChartOutcome {
                chart_id: Some(chart.chart_id.clone()),
                is_filtered: !is_kept,
                is_deprecated: chart.is_deprecated,
            };
            self.digests.push(index_cache::chart_digest(entry, outcome));
        }
        let json = &request[chart.json];
        if chart.is_deprecated {
            if is_kept {
                let pushed = self.deprecated.push(&chart.chart_id, json, chart.versions);
                pushed.map_err(RowError::Spool)?;
            }
            return Ok(());
        }
        if !is_kept {
            self.filtered_out.insert(chart.chart_id);
            return Ok(());
        }
        let pushed = self.spool.push(&chart.chart_id, json, chart.versions);
        match pushed.map_err(RowError::Spool)? {
            PushResult::Added => {
                let fingerprint = chart.fingerprint.map(|fingerprint| (chart.chart_id, fingerprint));
                self.fingerprints.extend(fingerprint);
            }
            PushResult::Duplicate => self.duplicates.push(chart.name),
            PushResult::DuplicateOfUnchanged => return Err(RowError::DuplicateId),
        }
        Ok(())
    }
}

impl Sink for RowBuilder {
    type Error = RowError;

    fn chart(&mut self, chart: Chart) -> Result<(), RowError> {
        self.take(chart, None, false)
    }

    fn deprecated(&mut self, chart: Chart) -> Result<(), RowError> {
        self.take(chart, None, true)
    }

    fn start_over(&mut self) -> Result<(), RowError> {
        self.reset();
        Ok(())
    }
}

impl ChangeSink for RowBuilder {
    fn unchanged(&mut self, key: &str, stats: &ChartStats) -> Result<(), RowError> {
        self.settings.check_canceled()?;
        let ChartOutcome {
            chart_id,
            is_filtered,
            is_deprecated,
        } = self.outcomes.get(key).cloned().unwrap_or_default();
        let chart_id = match chart_id {
            Some(chart_id) if is_deprecated => {
                if !is_filtered {
                    self.rows.deprecated.push_unchanged(chart_id, stats.versions);
                }
                None
            }
            Some(chart_id) if is_filtered => {
                self.rows.filtered_out.insert(chart_id);
                None
            }
            Some(chart_id) => match self.rows.spool.push_unchanged(chart_id.clone(), stats.versions) {
                PushResult::Added => Some(chart_id),
                PushResult::Duplicate | PushResult::DuplicateOfUnchanged => return Err(RowError::DuplicateId),
            },
            None => None,
        };
        self.rows.unchanged.push(UnchangedChart {
            key: key.to_owned(),
            chart_id,
        });
        Ok(())
    }

    fn cache(&mut self, chart: CacheEntry) -> Result<(), RowError> {
        // A skipped chart has no row.
        match self.batch.charts.last_mut() {
            Some(last) if mem::take(&mut self.batch.expects_entry) => last.entry = Some(chart),
            _ => {
                let outcome = ChartOutcome::default();
                self.rows.digests.push(index_cache::chart_digest(chart, outcome));
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error("sync canceled")]
    Cancelled,
    /// The order of two charts with one ID decides, so that both must be decoded.
    #[error("a chart has the same ID as a chart that was not decoded")]
    DuplicateId,
    #[error("{0}")]
    Spool(io::Error),
    #[error(transparent)]
    Filter(FilterError),
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::api::NamespacedName;
    use crate::controllers::apprepository::spec::{Defaults, OneShot};
    use crate::helm::index::{self, CachedIndex, DecodeLimits, DigestKey, SharedSplit};

    pub(in crate::controllers::apprepository::sync) fn builder() -> RowBuilder {
        let arguments = OneShot {
            url: "https://charts.example.com".to_owned(),
            ..OneShot::default()
        };
        let settings = RowSettings {
            spec: RepositorySpec::one_shot(NamespacedName::new("default", "stable"), arguments, &Defaults::usual()),
            spool_dir: None,
            spool: Budget::new("spool", 1 << 20),
            cancel: CancellationToken::new(),
        };
        RowBuilder::new(settings, None)
    }

    #[test]
    fn an_incremental_decode_is_recognized_even_if_all_charts_are_new() {
        let index = Cursor::new("apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n");
        let limits = DecodeLimits::default();
        let mut full = builder();
        index::decode(index.clone(), &limits, &mut full).unwrap();
        full.flush().unwrap();
        assert!(!full.finish().is_incremental());

        let cache = CachedIndex {
            digest_key: DigestKey::from([0; DigestKey::BYTES]),
            timestamps_matter: false,
            charts: HashMap::new(),
        };
        // The second one takes the split of the first one.
        let shared = SharedSplit::default();
        for _ in 0..2 {
            let mut incremental = builder();
            index::decode_changes(index.clone(), &limits, &cache, &shared, &mut incremental).unwrap();
            incremental.flush().unwrap();
            assert!(incremental.finish().is_incremental());
        }
    }
}
