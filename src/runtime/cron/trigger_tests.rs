use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::yield_now;

use super::*;
use crate::runtime::cron::parse;

const DEADLINE: Duration = Duration::from_secs(10);
const KEYS: u32 = 2_000;

fn cron(text: &str) -> Arc<Cron> {
    Arc::new(parse(text).unwrap())
}

/// Returns a running trigger and the keys that it enqueues.
fn start() -> (CronTrigger<u32>, UnboundedReceiver<(u32, Duration)>) {
    let (enqueue, enqueued) = unbounded_channel();
    let trigger = CronTrigger::default();
    let run = trigger.clone().run(move |key, jitter| _ = enqueue.send((key, jitter)));
    tokio::spawn(run);
    (trigger, enqueued)
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    timeout(DEADLINE, async {
        while !condition().await {
            yield_now().await
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_key_is_enqueued_at_a_tick_with_its_jitter() {
    let (trigger, mut enqueued) = start();
    trigger.set(&7, &cron("* * * * * *"), Duration::from_millis(5));
    let first = timeout(DEADLINE, enqueued.recv()).await.unwrap();
    assert_eq!(first, Some((7, Duration::from_millis(5))));
}

#[tokio::test]
async fn all_keys_with_one_expression_are_enqueued() {
    let (trigger, mut enqueued) = start();
    for key in 0..KEYS {
        trigger.set(&key, &cron("* * * * * *"), Duration::ZERO);
    }
    let mut seen = HashSet::new();
    until(async || {
        seen.extend(enqueued.recv().await.map(|(key, _)| key));
        seen.len() == KEYS as usize
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scheduler_survives_more_due_expressions_than_its_channel_capacity() {
    let (trigger, mut enqueued) = start();
    for key in 0..KEYS {
        let seconds = format!("0-59,{},{}", key % 60, key / 60);
        trigger.set(&key, &cron(&format!("{seconds} * * * * *")), Duration::ZERO);
    }
    let mut seen = HashMap::<_, u32>::new();
    until(async || {
        if let Some((key, _)) = enqueued.recv().await {
            *seen.entry(key).or_default() += 1;
        }
        seen.values().filter(|&&ticks| ticks >= 3).count() == MAX_JOBS
    })
    .await;
    assert_eq!(seen.len(), MAX_JOBS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scheduler_survives_expressions_that_never_fire_again() {
    let (trigger, mut enqueued) = start();
    for key in 0..KEYS {
        let over = format!("{} {} 1 1 * 2020", key % 60, key / 60 % 24);
        trigger.set(&key, &cron(&over), Duration::ZERO);
    }
    assert_eq!(trigger.len(), 0);
    trigger.set(&1, &cron("* * * * * *"), Duration::ZERO);
    until(async || enqueued.recv().await.is_some_and(|(key, _)| key == 1)).await;
    trigger.set(&1, &cron("0 0 1 1 * 2020"), Duration::ZERO);
    assert_eq!(trigger.len(), 0);
    trigger.set(&2, &cron("* * * * * *"), Duration::ZERO);
    until(async || enqueued.recv().await.is_some_and(|(key, _)| key == 2)).await;
}

#[tokio::test]
async fn a_key_that_is_removed_or_rescheduled_is_not_enqueued_as_before() {
    let (trigger, mut enqueued) = start();
    for key in 1..=3 {
        trigger.set(&key, &cron("* * * * * *"), Duration::ZERO);
    }
    until(async || enqueued.recv().await.is_some_and(|(key, _)| key == 1)).await;
    trigger.remove(&1);
    trigger.set(&2, &cron("@yearly"), Duration::ZERO);
    // Ticks before the change, of which several are queued if this test was suspended.
    while enqueued.try_recv().is_ok() {}
    for _ in 0..3 {
        let key = timeout(DEADLINE, enqueued.recv()).await.unwrap();
        assert_eq!(key, Some((3, Duration::ZERO)));
    }
}

#[tokio::test]
async fn jobs_follow_the_set_of_expressions() {
    let trigger = CronTrigger::default();
    let scheduler = JobScheduler::new().await.unwrap();
    scheduler.start().await.unwrap();
    let enqueue: Arc<Enqueue<u32>> = Arc::new(|_, _| ());
    let mut jobs = HashMap::new();
    let (both_days, hourly) = (cron("0 0 13 * 5"), cron("@hourly"));

    trigger.set(&1, &both_days, Duration::ZERO);
    trigger.set(&2, &hourly, Duration::ZERO);
    trigger.set(&3, &hourly, Duration::ZERO);
    trigger.update(&scheduler, &mut jobs, &enqueue).await.unwrap();
    assert_eq!(jobs.len(), 3);

    trigger.remove(&1);
    trigger.remove(&2);
    trigger.update(&scheduler, &mut jobs, &enqueue).await.unwrap();
    assert_eq!(jobs.keys().collect::<Vec<_>>(), ["0 0 * * * *"]);

    trigger.remove(&3);
    trigger.update(&scheduler, &mut jobs, &enqueue).await.unwrap();
    assert!(jobs.is_empty());
}
