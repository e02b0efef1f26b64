//! Charts on their way to the catalogue: made into rows, filtered, kept once each, and spooled until they are written.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use crate::filter::{Filter, FilterError};
use crate::repository::declaration::Declaration;
use crate::repository::rows::{self, Pushed, Spool};
use crate::source::index::{Chart, Sink};

/// What becomes of the charts of a repository. It works on a thread of its own: filters take time, and stack.
pub(super) struct Selection {
    declaration: Declaration,
    cancel: CancellationToken,
    filter: Option<Filter>,
    spool_dir: Option<PathBuf>,
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
}

impl Selection {
    pub(super) fn new(
        declaration: Declaration,
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
            selected,
        }
    }

    /// Takes a chart. `path` is where it is in an OCI registry, which names it there; an index names it by its name alone.
    pub(super) fn take(&mut self, chart: Chart, path: Option<&str>) -> Result<(), SelectionError> {
        if self.cancel.is_cancelled() {
            return Err(SelectionError::Cancelled);
        }
        let row = rows::row(&self.declaration, chart, path);
        if let Some(filter) = &self.filter {
            // A row holds string keys and finite numbers only, for which JSON can't fail.
            let input = serde_json::to_value(&row.info).unwrap_or_default();
            if !filter.keeps(&input).map_err(SelectionError::Filter)? {
                self.selected.filtered_out.insert(row.chart_id);
                return Ok(());
            }
        }
        if self.selected.spool.push(&row).map_err(SelectionError::Spool)? == Pushed::Duplicate {
            self.selected.twins.push(row.info.name);
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
        }
    }
}

impl Sink for Selection {
    type Error = SelectionError;

    fn chart(&mut self, chart: Chart) -> Result<(), SelectionError> {
        self.take(chart, None)
    }

    fn start_over(&mut self) -> Result<(), SelectionError> {
        self.selected = Selected::new(&self.spool_dir);
        Ok(())
    }
}

/// Why a chart could not be kept for writing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectionError {
    #[error("the sync was cancelled")]
    Cancelled,
    #[error("{0}")]
    Spool(io::Error),
    #[error(transparent)]
    Filter(FilterError),
}
