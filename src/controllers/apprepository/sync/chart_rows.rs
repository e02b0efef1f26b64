//! Builds catalog rows from charts: filters, deduplicates and spools them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::index_cache::{self as memory, ChartOutcome};
use super::rows::{self, Pushed, Spool};
use crate::catalog::{ChartDigest, ChartRow, Fingerprint, Unchanged};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::{CacheEntry, ChangeSink, Chart, ChartStats, Sink};
use crate::jq::{Filter, FilterError};

/// Builds the rows of one repository, on its own thread: filters need time and stack.
pub(super) struct Selection {
    declaration: RepositorySpec,
    cancel: CancellationToken,
    filter: Option<Filter>,
    spool_dir: Option<PathBuf>,
    takes_fingerprints: bool,
    /// Cached outcomes by chart key.
    fates: HashMap<String, ChartOutcome>,
    last: ChartOutcome,
    selected: Selected,
}

pub(super) struct Selected {
    pub(super) spool: Spool,
    pub(super) filtered_out: HashSet<String>,
    pub(super) twins: Vec<String>,
    pub(super) unchanged: Vec<Unchanged>,
    pub(super) remembered: Vec<ChartDigest>,
    pub(super) fingerprints: HashMap<String, Fingerprint>,
}

impl Selection {
    pub(super) fn new(
        declaration: RepositorySpec,
        filter: Option<Filter>,
        spool_dir: Option<PathBuf>,
        cancel: CancellationToken,
    ) -> Self {
        let selected = Selected::new(&spool_dir);
        Self {
            declaration,
            cancel,
            filter,
            spool_dir,
            takes_fingerprints: false,
            fates: HashMap::new(),
            last: ChartOutcome::default(),
            selected,
        }
    }

    pub(super) fn with_fates(mut self, fates: HashMap<String, ChartOutcome>) -> Self {
        self.fates = fates;
        self
    }

    pub(super) fn with_fingerprints(mut self) -> Self {
        self.takes_fingerprints = true;
        self
    }

    /// Starts over without cached outcomes.
    pub(super) fn forget(&mut self) {
        self.fates.clear();
        self.filter = self.filter.as_ref().map(Filter::anew);
        self.last = ChartOutcome::default();
        self.selected = Selected::new(&self.spool_dir);
    }

    /// Adds a chart. `path` is its path in an OCI registry, which replaces the name in the chart ID.
    pub(super) fn take(&mut self, chart: Chart, path: Option<&str>) -> Result<(), SelectionError> {
        if self.cancel.is_cancelled() {
            return Err(SelectionError::Cancelled);
        }
        let row = rows::row(&self.declaration, chart, path);
        let is_filtered = !is_kept(self.filter.as_ref(), &row)?;
        self.last = ChartOutcome {
            chart_id: Some(row.chart_id.clone()),
            is_filtered,
        };
        if is_filtered {
            self.selected.filtered_out.insert(row.chart_id);
            return Ok(());
        }
        match self.selected.spool.push(&row).map_err(SelectionError::Spool)? {
            Pushed::Added if self.takes_fingerprints => {
                let fingerprint = row.info.fingerprint();
                self.selected.fingerprints.insert(row.chart_id, fingerprint);
            }
            Pushed::Added => {}
            Pushed::Duplicate => self.selected.twins.push(row.info.name),
            Pushed::DuplicateOfHeld => return Err(SelectionError::Twins),
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Selected {
        let spool = &self.selected.spool;
        // Of two charts with one ID, one may be kept and one filtered: the ID is kept.
        self.selected.filtered_out.retain(|chart_id| !spool.holds(chart_id));
        self.selected
    }
}

impl Selected {
    fn new(spool_dir: &Option<PathBuf>) -> Self {
        Self {
            spool: Spool::new(spool_dir.as_deref()),
            filtered_out: HashSet::new(),
            twins: Vec::new(),
            unchanged: Vec::new(),
            remembered: Vec::new(),
            fingerprints: HashMap::new(),
        }
    }
}

impl Sink for Selection {
    type Error = SelectionError;

    fn chart(&mut self, chart: Chart) -> Result<(), SelectionError> {
        self.take(chart, None)
    }

    fn start_over(&mut self) -> Result<(), SelectionError> {
        self.forget();
        Ok(())
    }
}

impl ChangeSink for Selection {
    fn unchanged(&mut self, key: &str, account: &ChartStats) -> Result<(), SelectionError> {
        if self.cancel.is_cancelled() {
            return Err(SelectionError::Cancelled);
        }
        let ChartOutcome { chart_id, is_filtered } = self.fates.get(key).cloned().unwrap_or_default();
        let chart_id = match chart_id {
            Some(chart_id) if is_filtered => {
                self.selected.filtered_out.insert(chart_id);
                None
            }
            Some(chart_id) => match self.selected.spool.hold(chart_id.clone(), account.versions) {
                Pushed::Added => Some(chart_id),
                Pushed::Duplicate | Pushed::DuplicateOfHeld => return Err(SelectionError::Twins),
            },
            None => None,
        };
        self.selected.unchanged.push(Unchanged {
            key: key.to_owned(),
            chart_id,
        });
        Ok(())
    }

    fn remember(&mut self, chart: CacheEntry) -> Result<(), SelectionError> {
        let fate = std::mem::take(&mut self.last);
        self.selected.remembered.push(memory::cut(chart, fate));
        Ok(())
    }
}

fn is_kept(filter: Option<&Filter>, row: &ChartRow) -> Result<bool, SelectionError> {
    let Some(filter) = filter else { return Ok(true) };
    // A row holds string keys and finite numbers only, so that JSON can't fail.
    let input = serde_json::to_value(&row.info).unwrap_or_default();
    filter.keeps(&input).map_err(SelectionError::Filter)
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("the sync was cancelled")]
    Cancelled,
    /// The order of two charts with one ID decides, so that both must be decoded.
    #[error("a chart has the identifier of one that was not decoded")]
    Twins,
    #[error("{0}")]
    Spool(io::Error),
    #[error(transparent)]
    Filter(FilterError),
}
