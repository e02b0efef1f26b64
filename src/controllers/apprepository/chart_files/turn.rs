//! A turn of the import of one repository: fetches items concurrently, and stores what has come in within a moment.
//!
//! ```text
//!  missing ─► fetch, 4 at once ─► waiting ─► store, one group at a time
//!                 ▲                  │
//!                 └── no more while ─┘ many wait
//! ```

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

use crate::catalog;

/// Items after which a turn ends, so that other repositories are served.
const ITEMS: usize = 64;
/// Time after which a turn starts no more items.
const TIME: Duration = Duration::from_secs(1);
const FETCHES: usize = 4;
/// Time within which fetched items become one group.
const MOMENT: Duration = Duration::from_millis(100);
/// A group of this size is not delayed, and no more items are fetched while that many wait.
const GROUP: usize = 32;
const GROUP_BYTES: u64 = 4 << 20;
/// Minimum pause if all hosts asked for one.
pub(super) const MIN_PAUSE: Duration = Duration::from_secs(5);

pub(super) enum FetchResult<W, T> {
    /// An item to store, and the spooled bytes that it holds.
    Ready(T, u64),
    /// Returns to the queue, and does not count.
    Deferred(Deferred<W>),
}

/// An item that is tried again after a pause.
pub(super) type Deferred<W> = (W, Duration);

/// Processes items until the turn is over. Returns the pause if all items were deferred.
pub(super) async fn run<W, T, F, S>(
    missing: &mut VecDeque<W>,
    fetch: impl Fn(W) -> F,
    store: impl Fn(Vec<T>) -> S,
) -> Result<Option<Duration>, catalog::Error>
where
    F: Future<Output = FetchResult<W, T>>,
    S: Future<Output = Result<Vec<Deferred<W>>, catalog::Error>>,
{
    let (started, mut count) = (Instant::now(), 0_usize);
    let (mut waiting, mut waiting_bytes, mut since) = (Vec::new(), 0, started);
    let mut deferred: Vec<Deferred<W>> = Vec::new();
    let mut fetches = FuturesUnordered::new();
    let mut storing = pin!(Fuse::terminated());
    loop {
        let is_full = waiting.len() >= GROUP || waiting_bytes >= GROUP_BYTES;
        while fetches.len() < FETCHES && !is_full && count < ITEMS && started.elapsed() < TIME {
            let Some(item) = missing.pop_front() else { break };
            fetches.push(fetch(item));
        }
        let is_idle = storing.is_terminated();
        let is_due = is_full || fetches.is_empty() || since.elapsed() >= MOMENT;
        if is_idle && is_due && !waiting.is_empty() {
            storing.set(store(std::mem::take(&mut waiting)).fuse());
            waiting_bytes = 0;
            continue;
        }
        if is_idle && waiting.is_empty() && fetches.is_empty() {
            break;
        }
        tokio::select! {
            Some(fetched) = fetches.next(), if !fetches.is_empty() => match fetched {
                FetchResult::Ready(item, bytes) => {
                    if waiting.is_empty() {
                        since = Instant::now();
                    }
                    waiting.push(item);
                    waiting_bytes += bytes;
                    count += 1;
                }
                FetchResult::Deferred(item) => deferred.push(item),
            },
            again = &mut storing, if !is_idle => {
                let again = again?;
                count = count.saturating_sub(again.len());
                deferred.extend(again);
            }
            () = sleep_until(since + MOMENT), if is_idle && !waiting.is_empty() => {}
        }
    }
    let was_idle = count == 0;
    let shortest = deferred.iter().map(|(_, pause)| *pause).min();
    missing.extend(deferred.into_iter().map(|(item, _)| item));
    Ok(shortest.filter(|_| was_idle).map(|pause| pause.max(MIN_PAUSE)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;

    use super::*;

    /// Runs a turn whose fetches are immediate, and returns its pause and the stored groups.
    async fn run_immediately(
        missing: &mut VecDeque<u32>,
        fetch: impl Fn(u32) -> FetchResult<u32, u32>,
    ) -> (Option<Duration>, Vec<Vec<u32>>) {
        let groups = Mutex::new(Vec::new());
        let pause = run(
            missing,
            |item| std::future::ready(fetch(item)),
            |group| {
                groups.lock().push(group);
                async { Ok(Vec::new()) }
            },
        );
        let pause = pause.await.unwrap();
        (pause, groups.into_inner())
    }

    fn ready(item: u32) -> FetchResult<u32, u32> {
        FetchResult::Ready(item, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn deferred_items_block_nothing_and_return_to_the_queue() {
        let mut missing: VecDeque<u32> = (1..=6).collect();
        let (pause, groups) = run_immediately(&mut missing, |item| match item {
            1..=4 => FetchResult::Deferred((item, Duration::ZERO)),
            _ => ready(item),
        })
        .await;
        assert_eq!((pause, groups), (None, vec![vec![5, 6]]));
        assert_eq!(missing.into_iter().collect::<BTreeSet<_>>(), (1..=4).collect());
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_turn_waits_if_all_items_were_deferred() {
        let mut missing: VecDeque<u32> = (1..=2).collect();
        let later = |item| FetchResult::Deferred((item, Duration::from_secs(if item == 1 { 60 } else { 0 })));
        let (pause, groups) = run_immediately(&mut missing, later).await;
        assert_eq!((pause, groups.len(), missing.len()), (Some(MIN_PAUSE), 0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_before_a_long_queue() {
        let mut missing: VecDeque<u32> = (0..1000).collect();
        let (pause, groups) = run_immediately(&mut missing, ready).await;
        let stored: usize = groups.iter().map(Vec::len).sum();
        assert_eq!((pause, stored + missing.len()), (None, 1000));
        assert!((ITEMS..ITEMS + FETCHES).contains(&stored), "{stored}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_starts_no_fetch_after_its_time() {
        let mut missing: VecDeque<u32> = (0..1000).collect();
        let fetch = |item| async move {
            tokio::time::sleep(Duration::from_millis(400)).await;
            ready(item)
        };
        let turn = run(&mut missing, fetch, |_| async { Ok(Vec::new()) });
        turn.await.unwrap();
        assert_eq!(missing.len(), 1000 - 3 * FETCHES);
    }

    #[tokio::test(start_paused = true)]
    async fn items_of_a_moment_are_stored_together_and_a_hanging_fetch_delays_none() {
        let started = Instant::now();
        let mut missing: VecDeque<u32> = (0..8).collect();
        let stored = Mutex::new(Vec::new());
        let fetch = |item| async move {
            let millis = if item == 0 { 9_000 } else { 30 };
            tokio::time::sleep(Duration::from_millis(millis)).await;
            ready(item)
        };
        let store = |group: Vec<u32>| {
            stored.lock().push((started.elapsed().as_millis() / 100, group.len()));
            async { Ok(Vec::new()) }
        };
        run(&mut missing, fetch, store).await.unwrap();
        assert_eq!(stored.into_inner(), [(1, 7), (90, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn fetching_goes_on_during_a_store_until_many_items_wait() {
        let mut missing: VecDeque<u32> = (0..1000).collect();
        let (fetched, groups) = (Mutex::new(0), Mutex::new(Vec::new()));
        let fetch = |item| {
            *fetched.lock() += 1;
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                ready(item)
            }
        };
        let store = |group: Vec<u32>| {
            groups.lock().push(group.len());
            let fetched = &fetched;
            async move {
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert!(*fetched.lock() <= 2 * (GROUP + FETCHES), "{}", fetched.lock());
                Ok(Vec::new())
            }
        };
        run(&mut missing, fetch, store).await.unwrap();
        let groups = groups.into_inner();
        assert!(groups.len() == 2 && groups.iter().sum::<usize>() >= ITEMS, "{groups:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_could_not_be_stored_return_to_the_queue() {
        let mut missing: VecDeque<u32> = (0..3).collect();
        let store = |group: Vec<u32>| async move {
            Ok(group.into_iter().map(|item| (item, Duration::from_secs(60))).collect())
        };
        let pause = run(&mut missing, |item| std::future::ready(ready(item)), store).await;
        assert_eq!((pause.unwrap(), missing.len()), (Some(Duration::from_secs(60)), 3));
    }
}
