//! Moves large work of a task off the threads of the runtime, which serve probes, leases and all tenants.
//!
//! ```text
//!  offloadable(namespace, task) ── polled by the runtime ── leave_runtime() ──► polled with a CPU permit, while another
//!                                                                               thread serves the rest of the runtime
//! ```
//! The size of most work is a tenant's choice: objects that are decoded, merged, compared, hashed and written. A task
//! leaves the runtime before it begins such work. From then on, each of its polls has a permit of the namespace's
//! share, and none is held while the task waits.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Instant;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{block_in_place, yield_now};

use super::{Budgets, Reservation};

/// Size of JSON up to which work on it takes about a millisecond, in bytes.
pub const SMALL_JSON: usize = 64 << 10;

/// Permits for large events of watches. Each event takes tens of milliseconds at most.
static WATCHES: Semaphore = Semaphore::const_new(4);

tokio::task_local! {
    static PLACE: Arc<PollPlace>;
}

#[derive(Default)]
struct PollPlace {
    must_leave: AtomicBool,
    has_left: AtomicBool,
}

impl PollPlace {
    /// Asks for the next poll to be off the runtime. Returns true if this poll is.
    fn leave(&self) -> bool {
        self.must_leave.store(true, Ordering::Relaxed);
        self.has_left.load(Ordering::Relaxed)
    }
}

/// The permits for polls off the runtime.
enum PollPermits<'a> {
    Cpu(&'a Budgets, &'a str),
    Watches,
}

/// Held during one poll.
enum PollPermit {
    Cpu(#[expect(dead_code, reason = "returned on drop")] Reservation),
    Watch(#[expect(dead_code, reason = "returned on drop")] SemaphorePermit<'static>),
}

impl PollPermits<'_> {
    async fn acquire(&self) -> Option<PollPermit> {
        match self {
            Self::Cpu(budgets, namespace) => Some(PollPermit::Cpu(budgets.cpu.acquire(namespace, 1).await)),
            Self::Watches => WATCHES.acquire().await.ok().map(PollPermit::Watch),
        }
    }

    /// Polls on a thread of the runtime.
    fn poll_on_runtime<T>(&self, poll: impl FnOnce() -> T) -> T {
        let Self::Cpu(budgets, _) = self else {
            return poll();
        };
        let started = Instant::now();
        let polled = poll();
        budgets.metrics().observe_poll(started.elapsed());
        polled
    }
}

impl Budgets {
    /// Runs a task that may call [`leave_runtime`]. What it runs as tasks of their own is not moved.
    pub async fn offloadable<T>(&self, namespace: &str, task: impl Future<Output = T>) -> T {
        offloadable(&PollPermits::Cpu(self, namespace), task).await
    }
}

/// Same for a watch, which serves all namespaces and must not wait for the CPU permit of one.
pub async fn offloadable_watch<T>(task: impl Future<Output = T>) -> T {
    offloadable(&PollPermits::Watches, task).await
}

async fn offloadable<T>(permits: &PollPermits<'_>, task: impl Future<Output = T>) -> T {
    let place = Arc::<PollPlace>::default();
    let mut task = pin!(PLACE.scope(Arc::clone(&place), task));
    loop {
        let permit = if place.must_leave.load(Ordering::Relaxed) {
            permits.acquire().await
        } else {
            None
        };
        place.has_left.store(permit.is_some(), Ordering::Relaxed);
        let poll = poll_fn(|context| {
            let poll = || task.as_mut().poll(context);
            Poll::Ready(if permit.is_some() {
                run_in_place(poll)
            } else {
                permits.poll_on_runtime(poll)
            })
        });
        if let Poll::Ready(result) = poll.await {
            return result;
        }
        drop(permit);
        wait_until_polled().await;
    }
}

/// Continues the task off the runtime's threads, to its end or until [`return_to_runtime`]. Has no effect in a task
/// that is not offloadable.
pub async fn leave_runtime() {
    // A future that one task has begun to poll may go on in another.
    while PLACE.try_with(|place| place.leave()).is_ok_and(|has_left| !has_left) {
        yield_now().await;
    }
}

/// Same if there are more than [`SMALL_JSON`] bytes.
pub async fn leave_runtime_if_large(bytes: usize) {
    if bytes > SMALL_JSON {
        leave_runtime().await;
    }
}

/// Ends what [`leave_runtime`] has begun.
pub fn return_to_runtime() {
    let _ = PLACE.try_with(|place| place.must_leave.store(false, Ordering::Relaxed));
}

/// Runs work on this thread, while another takes its place in the runtime.
fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        // The runtime of a test. No thread can take the place.
        _ => work(),
    }
}

/// Waits for the next time that the task is polled.
async fn wait_until_polled() {
    let mut is_woken = false;
    poll_fn(|_| {
        if std::mem::replace(&mut is_woken, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[cfg(test)]
pub fn has_left_runtime() -> bool {
    PLACE.with(|place| place.has_left.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::future::{join, join_all};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use rstest::rstest;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::budget::Sizes;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn budgets_with(cpu_permits: u64) -> Budgets {
        Budgets::new(Sizes {
            cpu_permits,
            ..Sizes::default()
        })
    }

    fn budgets() -> Budgets {
        budgets_with(2)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_runtime_serves_others_during_large_work() {
        let (served, serves) = mpsc::channel();
        let budgets = budgets();
        let large = tokio::spawn(async move {
            let work = async move {
                leave_runtime_if_large(SMALL_JSON + 1).await;
                tokio::spawn(async move { served.send(()) });
                serves.recv_timeout(DEADLINE)
            };
            budgets.offloadable("team", work).await
        });
        assert_eq!(
            large.await.unwrap(),
            Ok(()),
            "the only thread of the runtime is not held"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_permit_is_held_for_large_work_only_and_not_while_it_waits() {
        let budgets = budgets();
        let used = || budgets.cpu.used();
        let work = async {
            leave_runtime_if_large(SMALL_JSON).await;
            let small = used();
            leave_runtime().await;
            let large = used();
            let waits = sleep(Duration::from_millis(1));
            waits.await;
            (small, large, used())
        };
        assert_eq!(budgets.offloadable("team", work).await, (0, 1, 1));
        assert_eq!(used(), 0);
        let waits = async {
            leave_runtime().await;
            std::future::pending::<()>().await;
        };
        let mut waits = pin!(budgets.offloadable("team", waits));
        for _ in 0..5 {
            assert!(futures::poll!(waits.as_mut()).is_pending());
            assert_eq!(used(), 0);
        }
    }

    /// Each namespace has one permit, which its task needs for a poll and for its work.
    #[rstest]
    #[case::after_it_has_left(false)]
    #[case::while_a_part_of_it_leaves(true)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_of_a_task_off_the_runtime_ends_without_a_spare_permit(#[case] is_concurrent: bool) {
        for namespaces in [&["a"][..], &["a", "b"]] {
            let budgets = budgets_with(namespaces.len() as u64);
            // While another namespace has all permits, the parts that work wait for one before the others leave.
            let mut held = Vec::new();
            while is_concurrent && held.len() < namespaces.len() {
                held.push(budgets.cpu.acquire("other", 1).await);
            }
            let release = async {
                for _ in 0..10 {
                    yield_now().await;
                }
                drop(held);
            };
            let tasks = namespaces.iter().map(|namespace| {
                let (budgets, leaver) = (&budgets, async {
                    yield_now().await;
                    leave_runtime().await;
                });
                let task = async move {
                    if is_concurrent {
                        let (result, ()) = join(budgets.compute(namespace, || 7), leaver).await;
                        return result;
                    }
                    leaver.await;
                    budgets.compute(namespace, || 7).await
                };
                budgets.offloadable(namespace, task)
            });
            let ended = timeout(DEADLINE, join(join_all(tasks), release)).await;
            let (results, ()) = ended.expect("no task waits for itself");
            assert!(results.iter().all(|result| matches!(result, Ok(7))), "{results:?}");
            assert_eq!(budgets.cpu.used(), 0);
        }
    }

    #[tokio::test]
    async fn polls_on_the_runtime_are_observed() {
        let budgets = budgets();
        budgets.offloadable("team", leave_runtime()).await;
        let (mut registry, mut text) = (Registry::default(), String::new());
        budgets.metrics().register(&mut registry);
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("portolan_runtime_poll_seconds_count 1\n"), "{text}");
    }

    #[tokio::test]
    async fn parts_of_one_task_leave_together() {
        let budgets = budgets();
        let parts = (0..3).map(|_| async {
            leave_runtime().await;
            has_left_runtime()
        });
        let left = budgets.offloadable("team", join_all(parts)).await;
        assert_eq!(left, [true; 3]);
        // Elsewhere, it has no effect.
        leave_runtime().await;
        return_to_runtime();
    }

    #[tokio::test]
    async fn a_watch_returns_to_the_runtime_after_a_large_event() {
        let watch = async {
            leave_runtime().await;
            let large = has_left_runtime();
            return_to_runtime();
            yield_now().await;
            (large, has_left_runtime())
        };
        assert_eq!(offloadable_watch(watch).await, (true, false));
    }
}
