//! Memory, CPU permits and spool of the process, and the threads that use them.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use futures::FutureExt;

use super::metrics::Metrics;
use super::{Budget, Exhausted, Reservation};

/// Deadline of waiting for memory and a CPU permit. Every holder ends earlier by its own limits.
const WAIT: Duration = Duration::from_secs(300);

const MIB: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub memory: u64,
    pub cpu_permits: u64,
    pub spool: u64,
}

impl Sizes {
    pub const MIN_MEMORY: u64 = 32 * MIB;
    /// Without a limit of the container.
    pub const DEFAULT_MEMORY: u64 = 256 * MIB;
    pub const DEFAULT_SPOOL: u64 = 1024 * MIB;

    const MAX_CPU_PERMITS: u64 = 8;
    /// Memory of the most expensive work, decoding an index.
    const MEMORY_PER_PERMIT: u64 = 64 * MIB;

    /// Returns one permit for each core that the container may use, at most one for each 64 MiB of memory.
    #[must_use]
    pub fn cpu_permits(memory: u64) -> u64 {
        // Respects the CPU quota of the container.
        let cores = available_parallelism().map_or(1, NonZeroUsize::get) as u64;
        let by_memory = (memory / Self::MEMORY_PER_PERMIT).max(1);
        cores.min(by_memory).min(Self::MAX_CPU_PERMITS)
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            memory: Self::DEFAULT_MEMORY,
            cpu_permits: Self::cpu_permits(Self::DEFAULT_MEMORY),
            spool: Self::DEFAULT_SPOOL,
        }
    }
}

/// The budgets of the process. Clones share them.
#[derive(Clone)]
pub struct Budgets {
    pub memory: Budget,
    pub cpu: Budget,
    pub spool: Budget,
    /// Evaluations of filters, which may take the CPU for seconds.
    pub filters: Budget,
    /// Memory of the tags of registries, which are held while a registry is waited for.
    pub tags: Budget,
    metrics: Metrics,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkError {
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    #[error("the work panicked")]
    Panicked,
}

impl Budgets {
    #[must_use]
    pub fn new(sizes: Sizes) -> Self {
        let metrics = Metrics::default();
        let budget = |resource, limit| Budget::with_metrics(resource, limit, metrics.of(resource, limit));
        Self {
            memory: budget("memory", sizes.memory),
            cpu: budget("cpu", sizes.cpu_permits),
            spool: budget("spool", sizes.spool),
            filters: budget("filters", (sizes.cpu_permits / 2).max(1)),
            tags: budget("registry_tags", sizes.memory / 4),
            metrics,
        }
    }

    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Creates a budget of memory beside the budget of work: so many sixteenths of it more.
    #[must_use]
    pub fn sixteenths(&self, count: u64, resource: &'static str) -> Budget {
        let limit = self.memory.limit() / 16 * count;
        Budget::with_metrics(resource, limit, self.metrics.of(resource, limit))
    }

    pub async fn memory(&self, namespace: &str, bytes: u64) -> Result<Reservation, Exhausted> {
        self.memory.reserve(namespace, bytes, WAIT).await
    }

    /// Reserves a permit, then memory: filters leave half of the CPU permits to others, and wait without memory.
    pub async fn filter_memory(&self, namespace: &str, bytes: u64) -> Result<(Reservation, Reservation), Exhausted> {
        let permit = self.filters.reserve(namespace, 1, WAIT).await?;
        Ok((self.memory(namespace, bytes).await?, permit))
    }

    /// Runs `work` on a blocking thread, which owns the permit and what `work` captures until it has really ended, also
    /// for a canceled caller. A task of its own takes the permit: a task that has left the runtime is polled with a
    /// permit only, and would wait for a second permit while it has the first.
    pub async fn compute<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let (cpu, namespace) = (self.cpu.clone(), namespace.to_owned());
        let run = async move {
            let permit = cpu.reserve(&namespace, 1, WAIT).await?;
            let thread = tokio::task::spawn_blocking(move || {
                let result = work();
                drop(permit);
                result
            });
            thread.await.map_err(|_| WorkError::Panicked)
        };
        let (run, result) = run.remote_handle();
        tokio::spawn(run);
        result.await
    }

    /// Runs `work` as [`Self::compute`]. Returns the memory too, which the caller shrinks to what the result takes.
    pub async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        memory: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Reservation), WorkError> {
        let memory = self.memory(namespace, memory).await?;
        self.compute(namespace, move || (work(), memory)).await
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::new(Sizes::default())
    }
}
