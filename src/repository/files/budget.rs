//! The memory that imports share: one budget for the process, whatever the number of repositories and workers.
//!
//! Most archives hold some ten kilobytes that are kept, and most icons some thousand pixels; but anybody may publish larger ones,
//! and sixteen of the largest at once would take most of a gigabyte. So whoever reads one takes its memory from the budget first:
//!
//! ```text
//!  take little ─► try ─┬─► it fits ──────────────────────────────────────────► done, and held until it is in the database
//!                      └─► it takes more: all is given back ─► take as much ─► try again ─► done
//! ```
//! Nobody who holds some waits for more, so nobody can wait for another in a circle. Who waits is served in order, so what is
//! large is not passed over for ever. A large one is read twice up to where it turned out to be large; a small one never.
//!
//! All large ones are worked on by one thread. The system's allocator keeps some memory for each thread that has had much, so that
//! a pool of threads would hold many times as much as is ever in use at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// What is shared: enough for one of the largest archives (24.5 MiB, see
/// [`archive::Limits::memory`](crate::source::archive::Limits::memory)) and some small ones, or for sixteen small ones, which is
/// what four workers have under way. An icon of 2048 × 2048 pixels may take more (12 bytes a pixel): it waits until it is alone, which
/// costs less than a budget that others would then fill.
///
/// Not in it are the downloads before they are read, which keep at most 256 KiB each in memory, and are no more than four for each
/// worker: they wait for their hosts, and whoever waits for a host must not keep the memory of others.
const TOTAL: u64 = 32 * MIB;

/// What is taken before anything is known. It is enough for an archive with 512 KiB of files, and for an icon of some 200 × 200
/// pixels.
const LITTLE: u64 = 2 * MIB;

const MIB: u64 = 1024 * 1024;

/// What a permit stands for.
const UNIT: u64 = 1024;

/// The memory. Clones are handles of one.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    units: u32,
    large: Arc<OneThread>,
}

/// Memory that is taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    /// Nobody closes the semaphore, so it is always there.
    _permit: Option<OwnedSemaphorePermit>,
}

/// How a try has ended.
pub(super) enum Tried<T> {
    Done(T),
    /// It takes so many bytes of memory, which is more than it was given.
    Needs(u64),
}

/// The work has panicked.
#[derive(Debug)]
pub(super) struct Panicked;

impl Default for Budget {
    fn default() -> Self {
        Self::of(TOTAL)
    }
}

impl Budget {
    fn of(bytes: u64) -> Self {
        let units = units(bytes);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
            large: Arc::default(),
        }
    }

    /// Waits for so many bytes. What takes more than all there is waits until it is alone.
    async fn take(&self, bytes: u64) -> Held {
        let units = units(bytes).min(self.units);
        Held {
            _permit: Arc::clone(&self.free).acquire_many_owned(units).await.ok(),
        }
    }

    /// Works on a thread that may block, with little memory at first and then with as much as it takes. The work is told how much
    /// there is, and holds nothing between two tries. Gives what it has made, and the memory that is held for that.
    ///
    /// A task that is cancelled leaves its try to end by itself; the memory is held as long.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        mut work: impl FnMut(u64) -> Tried<T> + Send + 'static,
    ) -> Result<(T, Held), Panicked> {
        let mut room = LITTLE;
        loop {
            let held = self.take(room).await;
            let attempt = move || {
                let tried = work(room);
                (work, tried, held)
            };
            let (back, tried, held) = if room > LITTLE {
                self.large.run(attempt).await?
            } else {
                tokio::task::spawn_blocking(attempt).await.map_err(|_| Panicked)?
            };
            match tried {
                Tried::Done(made) => return Ok((made, held)),
                // More each time, so that there is an end.
                Tried::Needs(bytes) => room = bytes.max(room.saturating_mul(2)),
            }
            work = back;
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that works on one thing after another. It is made for the first, and ends with the last handle.
#[derive(Debug, Default)]
struct OneThread(Mutex<Option<mpsc::Sender<Job>>>);

impl OneThread {
    /// Waits for its turn and for its end. Where the system has no thread left, it is as if the work had panicked.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
        let (made, result) = oneshot::channel();
        let job = Box::new(move || {
            // Nobody waits any more if the task was cancelled.
            let _ = made.send(work());
        });
        self.send(job)?;
        result.await.map_err(|_| Panicked)
    }

    fn send(&self, job: Job) -> Result<(), Panicked> {
        let mut thread = self.0.lock();
        let sent = thread.get_or_insert_with(Self::start).send(job);
        sent.map_err(|_| {
            // There was none; there may be one next time.
            *thread = None;
            Panicked
        })
    }

    fn start() -> mpsc::Sender<Job> {
        let (jobs, next) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("large-imports".to_owned());
        let started = thread.spawn(move || {
            for job in next {
                // The panic has been told of; what it leaves behind is dropped, and who waits is told by that.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "no thread can be started for large archives and icons, which are not imported now");
        }
        jobs
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use parking_lot::{Condvar, Mutex};

    use super::*;
    use crate::source::archive;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn free(budget: &Budget) -> u64 {
        budget.free.available_permits() as u64 * UNIT
    }

    /// Works that each need so much, all at once. Gives how much was in use at most, as they tell it themselves.
    async fn peak(budget: &Budget, needs: &[u64]) -> u64 {
        let (now, peak) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let works = needs.iter().map(|needs| {
            let (needs, now, peak) = (*needs, Arc::clone(&now), Arc::clone(&peak));
            let (then, budget) = (Arc::clone(&now), budget.clone());
            async move {
                let work = budget.work(move |room| {
                    if needs > room {
                        return Tried::Needs(needs);
                    }
                    peak.fetch_max(now.fetch_add(needs, Ordering::SeqCst) + needs, Ordering::SeqCst);
                    std::thread::yield_now();
                    Tried::Done(())
                });
                let ((), held) = work.await.unwrap();
                // As while it is written to the database.
                tokio::task::yield_now().await;
                then.fetch_sub(needs, Ordering::SeqCst);
                drop(held);
            }
        });
        tokio::time::timeout(DEADLINE, join_all(works.map(tokio::spawn)))
            .await
            .expect("nobody waits for ever")
            .into_iter()
            .for_each(|done| done.unwrap());
        peak.load(Ordering::SeqCst)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_ones_at_once_take_no_more_than_there_is_and_all_are_served() {
        let budget = Budget::default();
        let largest = archive::Limits::default().memory();
        let needs: Vec<u64> = (0..100)
            .map(|number| [largest, 20 * MIB, LITTLE, 1][number % 4])
            .collect();
        let peak = peak(&budget, &needs).await;
        assert!((largest..=TOTAL).contains(&peak), "{peak}");
        assert_eq!(free(&budget), TOTAL);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn small_ones_go_side_by_side() {
        let budget = Budget::default();
        // Each waits for all others, so it ends only if none waits for memory.
        let all = Arc::new((Mutex::new(0), Condvar::new()));
        let works = (0..16).map(|_| {
            let (all, budget) = (Arc::clone(&all), budget.clone());
            tokio::spawn(async move {
                let work = budget.work(move |_| {
                    let (arrived, news) = &*all;
                    let mut arrived = arrived.lock();
                    *arrived += 1;
                    news.notify_all();
                    let waited = news.wait_while_for(&mut arrived, |arrived| *arrived < 16, DEADLINE);
                    Tried::Done(!waited.timed_out())
                });
                work.await.map(|(done, _)| done)
            })
        });
        let done = join_all(works).await;
        assert!(done.into_iter().all(|work| matches!(work.unwrap(), Ok(true))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_takes_more_than_all_there_is_waits_until_it_is_alone() {
        let budget = Budget::default();
        let needs = [10 * TOTAL, LITTLE, 10 * TOTAL, LITTLE];
        assert_eq!(peak(&budget, &needs).await, 10 * TOTAL);
    }

    #[tokio::test]
    async fn what_turns_out_to_be_large_gives_back_what_it_has_before_it_takes_more() {
        let budget = Budget::of(4 * MIB);
        let rooms = Arc::new(Mutex::new(Vec::new()));
        let (seen, inside) = (Arc::clone(&rooms), budget.clone());
        let work = budget.work(move |room| {
            seen.lock().push((room, free(&inside)));
            if room < 4 * MIB {
                Tried::Needs(4 * MIB)
            } else {
                Tried::Done("made")
            }
        });
        let (made, held) = tokio::time::timeout(DEADLINE, work).await.unwrap().unwrap();
        assert_eq!(made, "made");
        assert_eq!(*rooms.lock(), [(LITTLE, 2 * MIB), (4 * MIB, 0)]);
        assert_eq!(free(&budget), 0);
        drop(held);
        assert_eq!(free(&budget), 4 * MIB);
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_memory_back() {
        let budget = Budget::default();
        let work = budget.work::<()>(|_| panic!("a defect"));
        assert!(work.await.is_err());
        assert_eq!(free(&budget), TOTAL);
    }

    #[tokio::test]
    async fn large_work_is_done_by_one_thread_which_outlives_a_panic() {
        let budget = Budget::default();
        let large = |budget: &Budget, panics: bool| {
            let budget = budget.clone();
            async move {
                let work = budget.work(move |room| match room {
                    LITTLE => Tried::Needs(TOTAL),
                    _ if panics => panic!("a defect"),
                    _ => Tried::Done(std::thread::current().id()),
                });
                work.await.map(|(thread, _)| thread)
            }
        };
        let first = large(&budget, false).await.unwrap();
        assert!(large(&budget, true).await.is_err());
        assert_eq!(free(&budget), TOTAL);
        assert_eq!(large(&budget, false).await.unwrap(), first);
    }

    #[test]
    fn the_largest_archive_fits_beside_small_ones_and_all_small_ones_of_four_workers_do() {
        let largest = archive::Limits::default().memory();
        assert!(largest + 3 * LITTLE <= TOTAL, "{largest}");
        const { assert!(4 * 4 * LITTLE <= TOTAL) };
    }
}
