//! The queue as its users see it, with time paused.

mod metrics;
mod model;

use std::collections::HashSet;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use prometheus_client::registry::Registry;
use rstest::rstest;
use tokio::time::{Instant, timeout};

use super::*;

/// The lane is the first letter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Name(String);

impl Item for Name {
    type Lane = char;
    fn lane(&self) -> char {
        self.0.chars().next().unwrap_or_default()
    }
}

fn name(name: &str) -> Name {
    Name(name.to_owned())
}

fn settings(lanes: &[(char, usize)]) -> Settings<char> {
    Settings {
        lanes: lanes.to_vec(),
        ..Settings::new("test")
    }
}

fn queue(lanes: &[(char, usize)]) -> Queue<Name> {
    Queue::new(settings(lanes), &Metrics::register(&mut Registry::default()))
}

/// The next key, if there is one now.
fn take(queue: &Queue<Name>) -> Option<Claim<Name>> {
    queue.get().now_or_never().flatten()
}

fn take_name(queue: &Queue<Name>) -> Option<String> {
    take(queue).map(|claim| claim.key().0.clone())
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

const BACKOFF: Backoff = Backoff {
    base: SECOND,
    cap: Duration::from_secs(60),
};

/// Lets `time` go by, and everything that was due in it happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

/// Lets every task run until it waits again.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// The next key, and how long it took to come.
async fn next(queue: &Queue<Name>) -> (String, Duration) {
    let start = Instant::now();
    let claim = timeout(HOUR, queue.get())
        .await
        .expect("a key within the hour")
        .expect("a queue that is open");
    (claim.key().0.clone(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_is_woken_by_an_add() {
    let queue = queue(&[]);
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|claim| (claim.key().clone(), claim.priority())) }
    });
    settle().await;
    queue.add(name("a"), Priority::LOW);
    assert_eq!(worker.await.unwrap(), Some((name("a"), Priority::LOW)));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_handed_out_again_while_somebody_has_it() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    assert!(queue.is_processing(&name("a")));
    queue.add(name("a"), Priority::USER);
    assert!(take(&queue).is_none());
    drop(claim);
    assert!(!queue.is_processing(&name("a")));
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
    assert!(take(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_when_its_time_is_over_and_not_before() {
    let queue = queue(&[]);
    queue.add_after(name("a"), 5 * SECOND, Priority::USER);
    assert_eq!(queue.len(), 0);
    assert_eq!(next(&queue).await, ("a".to_owned(), 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_nothing_is_a_plain_add() {
    let queue = queue(&[]);
    queue.add_after(name("a"), Duration::ZERO, Priority::USER);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
}

#[rstest]
#[case::the_second_is_earlier(9, 2)]
#[case::the_first_is_earlier(2, 9)]
#[tokio::test(start_paused = true)]
async fn of_two_delays_the_earlier_counts_with_the_higher_priority_and_the_key_comes_once(
    #[case] first: u64,
    #[case] second: u64,
) {
    let queue = queue(&[]);
    queue.add_after(name("a"), Duration::from_secs(first), Priority::LOW);
    settle().await;
    queue.add_after(name("a"), Duration::from_secs(second), Priority::USER);
    let start = Instant::now();
    let claim = queue.get().await.unwrap();
    assert_eq!((start.elapsed(), claim.priority()), (2 * SECOND, Priority::USER));
    drop(claim);
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_plain_add_takes_a_key_out_of_its_timer_with_the_higher_priority() {
    let queue = queue(&[]);
    queue.add_after(name("a"), SECOND, Priority::USER);
    queue.add(name("a"), Priority::LOW);
    assert_eq!(take(&queue).map(|claim| claim.priority()), Some(Priority::USER));
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delay_for_a_key_that_is_ready_only_raises_it() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::LOW);
    queue.add_after(name("a"), SECOND, Priority::USER);
    assert_eq!(take(&queue).map(|claim| claim.priority()), Some(Priority::USER));
    assert!(timeout(HOUR, queue.get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delay_set_while_the_key_is_worked_on_counts_after_the_work() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    queue.add_after(name("a"), SECOND, Priority::USER);
    pass(5 * SECOND).await;
    assert!(take(&queue).is_none());
    drop(claim);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn the_longest_delay_there_is_is_accepted() {
    let queue = queue(&[]);
    queue.add_after(name("never"), Duration::MAX, Priority::USER);
    queue.add_after(name("a"), SECOND, Priority::USER);
    assert_eq!(next(&queue).await, ("a".to_owned(), SECOND));
}

#[tokio::test(start_paused = true)]
async fn retries_of_a_key_come_ever_later_until_it_is_forgotten() {
    let queue = queue(&[]);
    for (retries, seconds) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        assert_eq!(
            queue.add_rate_limited(name("a"), BACKOFF, Priority::USER),
            Duration::from_secs(seconds)
        );
        assert_eq!(queue.retries(&name("a")), retries);
        assert_eq!(next(&queue).await, ("a".to_owned(), Duration::from_secs(seconds)));
    }
    queue.forget(&name("a"));
    assert_eq!(queue.retries(&name("a")), 0);
    assert_eq!(queue.add_rate_limited(name("a"), BACKOFF, Priority::USER), SECOND);
}

#[rstest]
#[case::a_server_that_asks_for_more(Duration::from_secs(30)..=HOUR, 30)]
#[case::a_next_turn_that_is_nearer(Duration::ZERO..=Duration::from_millis(500), 0)]
#[case::both_wide(Duration::ZERO..=HOUR, 1)]
#[case::bounds_that_contradict_each_other(Duration::from_secs(30)..=Duration::from_secs(7), 7)]
#[tokio::test(start_paused = true)]
async fn the_delay_of_a_retry_keeps_within_its_bounds(#[case] bounds: RangeInclusive<Duration>, #[case] seconds: u64) {
    let queue = queue(&[]);
    let delay = queue.add_rate_limited_within(name("a"), BACKOFF, bounds, Priority::USER);
    assert_eq!(delay.as_secs(), seconds);
    assert_eq!(next(&queue).await.1, delay);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_slows_retries_of_many_keys_but_no_plain_adds() {
    let queue = queue(&[]);
    for key in 0..130 {
        queue.add_rate_limited(Name(format!("retry {key}")), BACKOFF, Priority::USER);
    }
    pass(SECOND).await;
    assert_eq!(queue.len(), 100, "the burst");
    for _ in 0..100 {
        take(&queue);
    }
    queue.add(name("plain"), Priority::USER);
    queue.add_after(name("delayed"), 50 * MILLISECOND, Priority::USER);
    assert_eq!(next(&queue).await, ("plain".to_owned(), Duration::ZERO));
    assert_eq!(next(&queue).await, ("delayed".to_owned(), 50 * MILLISECOND));
    assert_eq!(next(&queue).await, ("retry 100".to_owned(), 50 * MILLISECOND));
    for key in 101..130 {
        assert_eq!(next(&queue).await, (format!("retry {key}"), 100 * MILLISECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_asked_for_only_when_the_own_delay_of_a_key_is_over() {
    let mut settings = settings(&[]);
    settings.burst = NonZeroU32::MIN;
    let queue = Queue::new(settings, &Metrics::register(&mut Registry::default()));
    let slow = Backoff {
        base: 10 * SECOND,
        cap: HOUR,
    };
    queue.add_rate_limited(name("slow"), slow, Priority::USER);
    queue.add_rate_limited(name("fast"), BACKOFF, Priority::USER);
    assert_eq!(next(&queue).await, ("fast".to_owned(), SECOND));
    assert_eq!(next(&queue).await, ("slow".to_owned(), 9 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_users_retry_gets_its_token_before_those_of_low_priority() {
    let mut settings = settings(&[]);
    settings.burst = NonZeroU32::MIN;
    let queue = Queue::new(settings, &Metrics::register(&mut Registry::default()));
    for key in 0..50 {
        queue.add_rate_limited(Name(format!("low {key}")), BACKOFF, Priority::LOW);
    }
    queue.add_rate_limited(name("user"), BACKOFF, Priority::USER);
    assert_eq!(next(&queue).await, ("user".to_owned(), SECOND));
    assert_eq!(next(&queue).await, ("low 0".to_owned(), 100 * MILLISECOND));
}

#[tokio::test(start_paused = true)]
async fn a_full_lane_delays_no_other_and_its_keys_come_as_soon_as_there_is_room() {
    let queue = queue(&[('a', 2)]);
    for key in ["a1", "a2", "a3", "b1"] {
        queue.add(name(key), Priority::USER);
    }
    let claims: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
    let names: Vec<_> = claims.iter().map(|claim| claim.key().0.as_str()).collect();
    assert_eq!(names, ["a1", "a2", "b1"]);

    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { next(&queue).await.0 }
    });
    settle().await;
    assert!(!waiting.is_finished());
    drop(claims);
    assert_eq!(waiting.await.unwrap(), "a3");
}

#[tokio::test(start_paused = true)]
async fn a_wakeup_given_to_a_get_that_is_dropped_goes_to_another_worker() {
    let queue = queue(&[]);
    let mut dropped = Box::pin(queue.get());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(dropped.as_mut().poll(&mut context), Poll::Pending));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { next(&queue).await }
    });
    settle().await;
    queue.add(name("a"), Priority::USER); // wakes the one that has waited longest
    drop(dropped);
    assert_eq!(worker.await.unwrap(), ("a".to_owned(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn as_many_workers_wake_as_there_are_keys_however_close_the_adds_follow_each_other() {
    let queue = queue(&[('a', 3)]);
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let claim = queue.get().await?;
                tokio::time::sleep(SECOND).await;
                Some(claim.key().0.clone())
            })
        })
        .collect();
    settle().await;
    for key in 0..6 {
        queue.add(Name(format!("a{key}")), Priority::USER);
    }
    queue.add(name("b1"), Priority::USER);
    queue.add(name("b2"), Priority::USER);
    let start = Instant::now();
    let names: HashSet<_> = futures::future::join_all(workers)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(names.len(), 8);
    assert_eq!(
        start.elapsed(),
        2 * SECOND,
        "two rounds of the lane with room for three"
    );
}

#[test]
fn a_thousand_adds_from_many_threads_reach_a_worker_each_though_gets_are_dropped_all_the_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let queue = queue(&[('0', 1), ('1', 2)]);
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut names = Vec::new();
                    loop {
                        tokio::select! {
                            biased;
                            claim = queue.get() => match claim {
                                Some(claim) => names.push(claim.key().0.clone()),
                                None => return names,
                            },
                            () = tokio::task::yield_now() => {}
                        }
                    }
                })
            })
            .collect();
        let adders: Vec<_> = (0..4)
            .map(|lane| {
                let queue = queue.clone();
                tokio::task::spawn_blocking(move || {
                    for key in 0..250 {
                        queue.add(Name(format!("{lane} {key}")), Priority(key % 3));
                    }
                })
            })
            .collect();
        futures::future::join_all(adders).await;
        queue.shut_down();
        let names: Vec<_> = futures::future::join_all(workers)
            .await
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
        assert_eq!(names.len(), 1000);
        assert_eq!(names.into_iter().collect::<HashSet<_>>().len(), 1000);
    });
}

#[tokio::test(start_paused = true)]
async fn after_shut_down_what_is_ready_is_handed_out_and_nothing_is_added() {
    let queue = queue(&[]);
    queue.add(name("ready"), Priority::USER);
    queue.add_after(name("delayed"), SECOND, Priority::USER);
    queue.shut_down();
    queue.add(name("late"), Priority::USER);
    queue.add_after(name("late"), SECOND, Priority::USER);
    queue.add_rate_limited(name("late"), BACKOFF, Priority::USER);
    pass(10 * SECOND).await;
    assert_eq!(next(&queue).await.0, "ready");
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_ends_all_workers_that_wait() {
    let queue = queue(&[]);
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    settle().await;
    queue.shut_down();
    assert!(futures::future::join_all(workers).await.into_iter().all(Result::unwrap));
}

#[tokio::test(start_paused = true)]
async fn workers_that_wait_for_a_full_lane_at_shut_down_end_when_its_last_key_is_taken() {
    let queue = queue(&[('a', 1)]);
    queue.add(name("a1"), Priority::USER);
    queue.add(name("a2"), Priority::USER);
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut handled = 0;
                while let Some(_claim) = queue.get().await {
                    tokio::time::sleep(SECOND).await;
                    handled += 1;
                }
                handled
            })
        })
        .collect();
    settle().await;
    queue.shut_down();
    let handled: i32 = futures::future::join_all(workers)
        .await
        .into_iter()
        .map(Result::unwrap)
        .sum();
    assert_eq!(handled, 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_became_dirty_before_the_shut_down_is_handed_out_once_more() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    queue.add(name("a"), Priority::USER);
    queue.shut_down();
    drop(claim);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_work_in_progress() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(7 * SECOND).await;
        drop(claim);
    });
    let start = Instant::now();
    queue.shut_down_with_drain().await;
    assert_eq!(start.elapsed(), 7 * SECOND);
    queue.shut_down_with_drain().await;
}

#[tokio::test(start_paused = true)]
async fn the_timer_task_ends_with_the_last_handle_or_the_shut_down() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let first = queue(&[]);
    let second = queue(&[]);
    first.add_after(name("a"), HOUR, Priority::USER);
    settle().await;
    assert_eq!(tasks(), before + 2);
    drop(first);
    settle().await;
    assert_eq!(tasks(), before + 1);
    second.shut_down();
    settle().await;
    assert_eq!(tasks(), before);
    drop(second);
}
