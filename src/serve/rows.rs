//! Rows of single charts and of their files, read for one request.
//!
//! ```text
//!  request ─► permit of the namespace ─► row ─┬─ up to 1 MiB ─────────────────► decode, beside the runtime
//!                                             └─ its size ─► memory ─► row ─────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::live::{Live, PATIENCE, Unavailable};
use crate::api::NamespacedName;
use crate::budget::{Budget, Budgets, Exhausted, Reservation, WorkError};
use crate::catalog::{Catalog, ChartMetadata, Error, FilesProblem, HISTORY_LIMIT, HistoryEntry, StoredText};

/// Rows that are read and decoded at once; half of them for one namespace while others wait.
const MAX_ROWS: u64 = 4;
/// Requests at once that compare installed charts with rows; half of them for one caller while others wait.
const MAX_COMPARISONS: u64 = 4;
/// Size of a row that needs no reservation.
const SMALL: u64 = 1024 * 1024;
/// A large row is held as it was read, decoded, and as a response.
const COPIES: u64 = 3;
/// Time that a request waits for its turn, and then for memory.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RowError {
    #[error("too many rows are read at once")]
    Busy,
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The panic has been logged.
    #[error("failed to decode a row")]
    Panicked,
}

impl From<Exhausted> for RowError {
    fn from(_: Exhausted) -> Self {
        Self::Busy
    }
}

/// The result of decoding a row, and the memory of a large one. Hold it until the response is made.
#[derive(Debug)]
pub(super) struct Decoded<T> {
    pub(super) value: T,
    pub(super) memory: Option<Reservation>,
}

#[derive(Clone, Copy)]
enum Row<'a> {
    Chart(&'a str),
    DeprecatedChart(&'a str),
    Files { chart_id: &'a str, version: &'a str },
}

impl Row<'_> {
    async fn read(self, catalog: &Catalog, name: &NamespacedName, limit: u64) -> Result<Option<StoredText>, Error> {
        match self {
            Self::Chart(chart_id) => catalog.chart_row(name, chart_id, limit).await,
            Self::DeprecatedChart(chart_id) => catalog.deprecated_row(name, chart_id, limit).await,
            Self::Files { chart_id, version } => catalog.files_row(name, chart_id, version, limit).await,
        }
    }
}

pub(super) struct Rows {
    live: Arc<Live>,
    permits: Budget,
    comparisons: Budget,
    budgets: Budgets,
}

impl Rows {
    pub(super) fn new(live: Arc<Live>, budgets: Budgets) -> Self {
        let budget = |resource, limit| Budget::with_metrics(resource, limit, budgets.metrics().of(resource, limit));
        Self {
            live,
            permits: budget("catalog_rows", MAX_ROWS),
            comparisons: budget("catalog_comparisons", MAX_COMPARISONS),
            budgets,
        }
    }

    /// Passes `info` of a chart to `decode`, on a thread beside the runtime. Returns `None` if there is no such row.
    pub(super) async fn chart<T: Send + 'static>(
        &self,
        repository: &NamespacedName,
        chart_id: &str,
        decode: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<Option<Decoded<T>>, RowError> {
        self.read(repository, Row::Chart(chart_id), decode).await
    }

    /// Same as [`Self::chart`] for a chart whose newest version is deprecated.
    pub(super) async fn deprecated_chart<T: Send + 'static>(
        &self,
        repository: &NamespacedName,
        chart_id: &str,
        decode: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<Option<Decoded<T>>, RowError> {
        self.read(repository, Row::DeprecatedChart(chart_id), decode).await
    }

    /// Same as [`Self::chart`] for the files of a version.
    pub(super) async fn files<T: Send + 'static>(
        &self,
        repository: &NamespacedName,
        chart_id: &str,
        version: &str,
        decode: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<Option<Decoded<T>>, RowError> {
        self.read(repository, Row::Files { chart_id, version }, decode).await
    }

    async fn read<T: Send + 'static>(
        &self,
        repository: &NamespacedName,
        row: Row<'_>,
        decode: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<Option<Decoded<T>>, RowError> {
        let namespace = &repository.namespace;
        let permit = self.permits.reserve(namespace, 1, WAIT).await?;
        let (text, memory) = match self.fetch(repository, row, SMALL).await? {
            None => return Ok(None),
            Some(StoredText::Complete(text)) => (text, None),
            Some(StoredText::TooLarge(bytes)) => {
                let memory = self
                    .budgets
                    .memory
                    .reserve(namespace, bytes.saturating_mul(COPIES), WAIT);
                let memory = memory.await?;
                match self.fetch(repository, row, bytes).await? {
                    None => return Ok(None),
                    Some(StoredText::Complete(text)) => (text, Some(memory)),
                    // It has grown meanwhile.
                    Some(StoredText::TooLarge(_)) => return Err(RowError::Busy),
                }
            }
        };
        let decoded = spawn_blocking(move || {
            let value = decode(&text);
            drop(permit);
            Decoded { value, memory }
        });
        decoded.await.map(Some).map_err(|_| RowError::Panicked)
    }

    async fn fetch(&self, name: &NamespacedName, row: Row<'_>, limit: u64) -> Result<Option<StoredText>, Unavailable> {
        self.query(async { row.read(&self.live.catalog().await?, name, limit).await })
            .await
    }

    /// Returns the latest syncs of a repository, the newest first.
    pub(super) async fn history(&self, name: &NamespacedName) -> Result<Vec<HistoryEntry>, Unavailable> {
        let limit = u32::try_from(HISTORY_LIMIT).unwrap_or(u32::MAX);
        self.query(async { self.live.catalog().await?.history(name, limit).await })
            .await
    }

    pub(super) async fn files_problem(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
    ) -> Result<Option<FilesProblem>, Unavailable> {
        self.query(async { self.live.catalog().await?.files_problem(name, chart_id, version).await })
            .await
    }

    pub(super) async fn metadata(
        &self,
        name: &NamespacedName,
        chart_id: &str,
        version: &str,
    ) -> Result<Option<ChartMetadata>, Unavailable> {
        self.query(async { self.live.catalog().await?.chart_metadata(name, chart_id, version).await })
            .await
    }

    pub(super) async fn svg_icon(&self, name: &NamespacedName, chart_id: &str) -> Result<Option<Vec<u8>>, Unavailable> {
        self.query(async { self.live.catalog().await?.svg_icon(name, chart_id).await })
            .await
    }

    pub(super) async fn has_svg_icon(&self, name: &NamespacedName, chart_id: &str) -> Result<bool, Unavailable> {
        self.query(async { self.live.catalog().await?.has_svg_icon(name, chart_id).await })
            .await
    }

    /// Returns the repositories and IDs of deprecated charts that `is_wanted` returns true for.
    pub(super) async fn deprecated_charts(
        &self,
        is_wanted: impl Fn(&NamespacedName, &str) -> bool + Send + Sync,
    ) -> Result<Vec<(NamespacedName, String)>, Unavailable> {
        self.query(async {
            let mut found = Vec::new();
            let visit = |name: NamespacedName, chart_id: &str| {
                if is_wanted(&name, chart_id) {
                    found.push((name, chart_id.to_owned()));
                }
            };
            self.live.catalog().await?.visit_deprecated_ids(visit).await?;
            Ok(found)
        })
        .await
    }

    /// Waits for the turn of a caller who compares installed charts with the catalog.
    pub(super) async fn comparison_permit(&self, caller: &str) -> Result<Reservation, RowError> {
        Ok(self.comparisons.reserve(caller, 1, WAIT).await?)
    }

    async fn query<T>(&self, query: impl Future<Output = Result<T, Error>>) -> Result<T, Unavailable> {
        match timeout(PATIENCE, query).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to read the catalog for a request");
                Err(Unavailable)
            }
            Err(_) => Err(Unavailable),
        }
    }

    /// Reserves memory for a body that is not a row, if it is large.
    pub(super) async fn memory_of_body(&self, namespace: &str, bytes: usize) -> Result<Option<Reservation>, RowError> {
        let bytes = bytes as u64;
        if bytes <= SMALL {
            return Ok(None);
        }
        Ok(Some(self.budgets.memory.reserve(namespace, bytes, WAIT).await?))
    }

    /// Runs work on a thread beside the runtime, with a CPU permit of the namespace.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RowError> {
        let result = self.budgets.compute(namespace, work).await;
        result.map_err(|error| match error {
            WorkError::Exhausted(_) => RowError::Busy,
            WorkError::Panicked => RowError::Panicked,
        })
    }
}
