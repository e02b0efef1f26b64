//! Builds catalog rows from charts: filters, deduplicates and spools them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::index_cache::{self, ChartOutcome};
use super::rows::{self, PushResult, Spool};
use crate::catalog::{ChartDigest, ChartRow, Fingerprint, UnchangedChart};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::{CacheEntry, ChangeSink, Chart, ChartStats, Sink};
use crate::jq::{Filter, FilterError};

/// Builds the rows of one repository, on its own thread: filters need time and stack.
pub(super) struct RowBuilder {
    spec: RepositorySpec,
    cancel: CancellationToken,
    filter: Option<Filter>,
    spool_dir: Option<PathBuf>,
    with_fingerprints: bool,
    /// Cached outcomes by chart key.
    outcomes: HashMap<String, ChartOutcome>,
    last: ChartOutcome,
    rows: BuiltRows,
}

pub(super) struct BuiltRows {
    pub(super) spool: Spool,
    pub(super) filtered_out: HashSet<String>,
    pub(super) duplicates: Vec<String>,
    pub(super) unchanged: Vec<UnchangedChart>,
    pub(super) digests: Vec<ChartDigest>,
    pub(super) fingerprints: HashMap<String, Fingerprint>,
}

impl RowBuilder {
    pub(super) fn new(
        spec: RepositorySpec,
        filter: Option<Filter>,
        spool_dir: Option<PathBuf>,
        cancel: CancellationToken,
    ) -> Self {
        let rows = BuiltRows::new(&spool_dir);
        Self {
            spec,
            cancel,
            filter,
            spool_dir,
            with_fingerprints: false,
            outcomes: HashMap::new(),
            last: ChartOutcome::default(),
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
        self.filter = self.filter.as_ref().map(Filter::with_full_time_budget);
        self.last = ChartOutcome::default();
        self.rows = BuiltRows::new(&self.spool_dir);
    }

    /// Adds a chart. `path` is its path in an OCI registry, which replaces the name in the chart ID.
    pub(super) fn take(&mut self, chart: Chart, path: Option<&str>) -> Result<(), RowError> {
        if self.cancel.is_cancelled() {
            return Err(RowError::Cancelled);
        }
        let row = rows::row(&self.spec, chart, path);
        let is_filtered = !is_kept(self.filter.as_ref(), &row)?;
        self.last = ChartOutcome {
            chart_id: Some(row.chart_id.clone()),
            is_filtered,
        };
        if is_filtered {
            self.rows.filtered_out.insert(row.chart_id);
            return Ok(());
        }
        match self.rows.spool.push(&row).map_err(RowError::Spool)? {
            PushResult::Added if self.with_fingerprints => {
                let fingerprint = row.info.fingerprint();
                self.rows.fingerprints.insert(row.chart_id, fingerprint);
            }
            PushResult::Added => {}
            PushResult::Duplicate => self.rows.duplicates.push(row.info.name),
            PushResult::DuplicateOfUnchanged => return Err(RowError::DuplicateId),
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
    fn new(spool_dir: &Option<PathBuf>) -> Self {
        Self {
            spool: Spool::new(spool_dir.as_deref()),
            filtered_out: HashSet::new(),
            duplicates: Vec::new(),
            unchanged: Vec::new(),
            digests: Vec::new(),
            fingerprints: HashMap::new(),
        }
    }
}

impl Sink for RowBuilder {
    type Error = RowError;

    fn chart(&mut self, chart: Chart) -> Result<(), RowError> {
        self.take(chart, None)
    }

    fn start_over(&mut self) -> Result<(), RowError> {
        self.reset();
        Ok(())
    }
}

impl ChangeSink for RowBuilder {
    fn unchanged(&mut self, key: &str, stats: &ChartStats) -> Result<(), RowError> {
        if self.cancel.is_cancelled() {
            return Err(RowError::Cancelled);
        }
        let ChartOutcome { chart_id, is_filtered } = self.outcomes.get(key).cloned().unwrap_or_default();
        let chart_id = match chart_id {
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
        let outcome = std::mem::take(&mut self.last);
        self.rows.digests.push(index_cache::chart_digest(chart, outcome));
        Ok(())
    }
}

fn is_kept(filter: Option<&Filter>, row: &ChartRow) -> Result<bool, RowError> {
    let Some(filter) = filter else { return Ok(true) };
    // A row holds string keys and finite numbers only, so that JSON can't fail.
    let input = serde_json::to_value(&row.info).unwrap_or_default();
    filter.keeps(&input).map_err(RowError::Filter)
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
