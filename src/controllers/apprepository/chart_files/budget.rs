//! Memory budget of all imports of the process.
//!
//! An import reserves its worst case before it reads an archive or decodes an icon, and returns what its result does
//! not need. A reservation only shrinks, so no import that holds memory waits for more. Waiting imports are served in
//! order.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total memory: the worst case of one archive (24.5 MiB, see
/// [`archive::Limits::memory`](crate::helm::archive::Limits::memory)) and results waiting for the database, or two
/// icons (12 MiB each). A larger import runs alone.
///
/// Downloads are not counted: they keep at most 256 KiB each in memory, and must not hold the budget while waiting for
/// a host.
const TOTAL: u64 = 32 * MIB;

const MIB: u64 = 1024 * 1024;

const UNIT: u64 = 1024;

/// Clones share one budget.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<Semaphore>);

/// Reserved memory, returned on drop.
#[derive(Debug)]
pub(super) struct Reservation(OwnedSemaphorePermit);

#[derive(Debug)]
pub(super) struct Panicked;

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(units(TOTAL) as usize)))
    }
}

impl Budget {
    /// Reserves `bytes`, runs `work` on a blocking thread, and returns its result with the reservation.
    ///
    /// The thread owns the reservation: if the caller is canceled, the memory stays reserved until `work` ends.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Reservation), Panicked> {
        let units = units(bytes.min(TOTAL));
        // The semaphore is never closed.
        let permit = Arc::clone(&self.0).acquire_many_owned(units).await;
        let reservation = Reservation(permit.map_err(|_| Panicked)?);
        let work = tokio::task::spawn_blocking(move || (work(), reservation));
        work.await.map_err(|_| Panicked)
    }
}

impl Reservation {
    pub(super) fn shrink(&mut self, bytes: u64) {
        let units = usize::try_from(units(bytes)).unwrap_or(usize::MAX);
        drop(self.0.split(self.0.num_permits().saturating_sub(units)));
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::timeout;

    use super::*;
    use crate::controllers::apprepository::chart_files::icon_decoder as icon;
    use crate::helm::archive;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn free(budget: &Budget) -> u64 {
        budget.0.available_permits() as u64 * UNIT
    }

    /// Runs work with these sizes concurrently. Returns the peak usage.
    async fn peak(budget: &Budget, needs: &[u64]) -> u64 {
        let (now, peak) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let works = needs.iter().map(|&needs| {
            let (now, peak, budget) = (Arc::clone(&now), Arc::clone(&peak), budget.clone());
            async move {
                let used = Arc::clone(&now);
                let work = budget.run(needs, move || {
                    peak.fetch_max(used.fetch_add(needs, Ordering::SeqCst) + needs, Ordering::SeqCst);
                    std::thread::yield_now();
                });
                let ((), mut reservation) = work.await.unwrap();
                now.fetch_sub(needs - needs / 2, Ordering::SeqCst);
                reservation.shrink(needs / 2);
                // Simulates the database write.
                tokio::task::yield_now().await;
                now.fetch_sub(needs / 2, Ordering::SeqCst);
                drop(reservation);
            }
        });
        timeout(DEADLINE, join_all(works.map(tokio::spawn)))
            .await
            .expect("no import waits forever")
            .into_iter()
            .for_each(|done| done.unwrap());
        peak.load(Ordering::SeqCst)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_imports_stay_within_the_budget_and_all_finish() {
        let budget = Budget::default();
        let largest = archive::Limits::default().memory();
        let needs: Vec<u64> = (0..100)
            .map(|number| [largest, 20 * MIB, 2 * MIB, 1][number % 4])
            .collect();
        let peak = peak(&budget, &needs).await;
        assert!((largest..=TOTAL).contains(&peak), "{peak}");
        assert_eq!(free(&budget), TOTAL);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_import_larger_than_the_budget_runs_alone() {
        let budget = Budget::default();
        let needs = [10 * TOTAL, 2 * MIB, 10 * TOTAL, 2 * MIB];
        assert!((10 * TOTAL..11 * TOTAL).contains(&peak(&budget, &needs).await));
    }

    #[tokio::test]
    async fn a_result_keeps_what_it_needs_until_it_is_dropped() {
        let budget = Budget::default();
        let (result, mut reservation) = budget.run(4 * MIB, || "made").await.unwrap();
        assert_eq!((result, free(&budget)), ("made", TOTAL - 4 * MIB));
        reservation.shrink(MIB);
        assert_eq!(free(&budget), TOTAL - MIB);
        reservation.shrink(2 * MIB);
        assert_eq!(free(&budget), TOTAL - MIB);
        drop(reservation);
        assert_eq!(free(&budget), TOTAL);
    }

    #[tokio::test]
    async fn a_canceled_import_holds_its_memory_until_its_thread_ends() {
        let budget = Budget::default();
        let (end, ended) = mpsc::channel::<()>();
        let (begin, mut begun) = tokio::sync::mpsc::channel(1);
        let inner = budget.clone();
        let import = tokio::spawn(async move {
            inner
                .run(TOTAL, move || {
                    begin.blocking_send(()).unwrap();
                    ended.recv_timeout(DEADLINE).unwrap();
                })
                .await
        });
        begun.recv().await.unwrap();
        import.abort();
        assert!(import.await.unwrap_err().is_cancelled());
        assert_eq!(free(&budget), 0);
        end.send(()).unwrap();
        let next = timeout(DEADLINE, budget.run(TOTAL, || ())).await.unwrap();
        assert!(next.is_ok());
    }

    #[tokio::test]
    async fn work_that_panics_returns_its_memory() {
        let budget = Budget::default();
        assert!(budget.run(MIB, || panic!("a bug")).await.is_err());
        assert_eq!(free(&budget), TOTAL);
    }

    #[test]
    fn the_largest_archive_fits_besides_other_results_and_two_icons_fit() {
        assert!(archive::Limits::default().memory() + 7 * MIB <= TOTAL);
        assert!(2 * (icon::Limits::default().memory() + MIB) <= TOTAL);
    }
}
