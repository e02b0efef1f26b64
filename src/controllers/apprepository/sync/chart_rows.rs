//! Charts on their way to the catalogue: made into rows, filtered, kept once each, and spooled until they are written.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::index_cache::{self as memory, ChartOutcome};
use super::rows::{self, Pushed, Spool};
use crate::catalog::{ChartDigest, ChartRow, Fingerprint, UnchangedChart};
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::helm::index::{CacheEntry, ChangeSink, Chart, ChartStats, Sink};
use crate::jq::{Filter, FilterError};

/// What becomes of the charts of a repository. It works on a thread of its own: filters take time, and stack.
pub(super) struct Selection {
    declaration: RepositorySpec,
    cancel: CancellationToken,
    filter: Option<Filter>,
    spool_dir: Option<PathBuf>,
    takes_fingerprints: bool,
    /// Of the charts that are known, by their keys.
    fates: HashMap<String, ChartOutcome>,
    /// Of the chart that was taken last, until it is told what to remember of it.
    last: ChartOutcome,
    selected: Selected,
}

/// The charts that were selected.
pub(super) struct Selected {
    /// Their rows.
    pub(super) spool: Spool,
    /// Identifiers of the charts that the filter has left out.
    pub(super) filtered_out: HashSet<String>,
    /// Names of charts whose identifier another one has taken.
    pub(super) twins: Vec<String>,
    /// Charts of the index that are as they were.
    pub(super) unchanged: Vec<UnchangedChart>,
    /// What is to be remembered of all others.
    pub(super) remembered: Vec<ChartDigest>,
    /// Of the rows in the spool by their identifiers, where they are asked for.
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

    /// What became of the charts that are known.
    pub(super) fn with_fates(mut self, fates: HashMap<String, ChartOutcome>) -> Self {
        self.fates = fates;
        self
    }

    /// Takes the fingerprints of all rows too.
    pub(super) fn with_fingerprints(mut self) -> Self {
        self.takes_fingerprints = true;
        self
    }

    /// Begins anew, and knows nothing of any chart.
    pub(super) fn forget(&mut self) {
        self.fates.clear();
        self.filter = self.filter.as_ref().map(Filter::with_full_time_budget);
        self.last = ChartOutcome::default();
        self.selected = Selected::new(&self.spool_dir);
    }

    /// Takes a chart. `path` is where it is in an OCI registry, which names it there; an index names it by its name alone.
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
        // Of two charts with one identifier one may be kept and one left out: it is there.
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
        self.selected.unchanged.push(UnchangedChart {
            key: key.to_owned(),
            chart_id,
        });
        Ok(())
    }

    fn cache(&mut self, chart: CacheEntry) -> Result<(), SelectionError> {
        let fate = std::mem::take(&mut self.last);
        self.selected.remembered.push(memory::cut(chart, fate));
        Ok(())
    }
}

/// Whether the filter, if there is one, leaves the chart in.
fn is_kept(filter: Option<&Filter>, row: &ChartRow) -> Result<bool, SelectionError> {
    let Some(filter) = filter else { return Ok(true) };
    // A row holds string keys and finite numbers only, for which JSON can't fail.
    let input = serde_json::to_value(&row.info).unwrap_or_default();
    filter.keeps(&input).map_err(SelectionError::Filter)
}

/// Why a chart could not be kept for writing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("the sync was cancelled")]
    Cancelled,
    /// Which of two charts of one identifier counts is told by their order, so both have to be decoded.
    #[error("a chart has the identifier of one that was not decoded")]
    Twins,
    #[error("{0}")]
    Spool(io::Error),
    #[error(transparent)]
    Filter(FilterError),
}
