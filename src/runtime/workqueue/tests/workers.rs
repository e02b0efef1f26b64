//! Waiting, waking and stopping of workers.

use std::collections::HashSet;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::*;

#[tokio::test(start_paused = true)]
async fn an_add_wakes_a_waiting_worker() {
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
async fn a_key_is_not_dequeued_while_it_is_processed() {
    let queue = queue(&[]);
    queue.add(name("a"), Priority::USER);
    let claim = take(&queue).unwrap();
    queue.add(name("a"), Priority::USER);
    assert!(take(&queue).is_none());
    drop(claim);
    assert_eq!(take_name(&queue).as_deref(), Some("a"));
    assert!(take(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_class_is_idle_without_ready_keys_and_keys_in_processing() {
    let queue = queue(&[]);
    assert!(queue.is_idle("a"));
    queue.add(name("a"), Priority::USER);
    assert!(!queue.is_idle("a") && queue.is_idle("b"));
    let claim = take(&queue).unwrap();
    assert!(!queue.is_idle("a"));
    drop(claim);
    queue.add_after(name("a"), SECOND, Priority::USER);
    assert!(queue.is_idle("a"));
}

#[tokio::test(start_paused = true)]
async fn a_full_class_delays_no_other_class_and_resumes_with_free_capacity() {
    let queue = queue(&[("a", 2)]);
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
async fn a_wakeup_of_a_dropped_get_goes_to_another_worker() {
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
async fn each_of_many_adds_in_a_row_wakes_a_worker() {
    let queue = queue(&[("a", 3)]);
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
        "two batches of the class with three workers"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_that_expire_together_wake_one_worker_each() {
    let queue = queue(&[]);
    let start = Instant::now();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let _claim = queue.get().await;
                let waited = start.elapsed();
                tokio::time::sleep(HOUR).await;
                waited
            })
        })
        .collect();
    settle().await;
    for key in 0..4 {
        queue.add_after(Name(format!("a{key}")), SECOND, Priority::USER);
    }
    let waited = futures::future::join_all(workers).await.into_iter().map(Result::unwrap);
    assert!(waited.eq([SECOND; 4]), "concurrently");
}

#[test]
fn no_add_is_lost_while_gets_are_dropped_concurrently() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let queue = queue(&[("0", 1), ("1", 2)]);
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
            .map(|class| {
                let queue = queue.clone();
                tokio::task::spawn_blocking(move || {
                    for key in 0..250 {
                        queue.add(Name(format!("{class} {key}")), Priority(key % 3));
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
async fn after_shutdown_ready_keys_are_dequeued_and_adds_are_ignored() {
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
async fn shutdown_wakes_all_waiting_workers() {
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
async fn workers_waiting_for_a_full_class_end_on_shutdown_after_its_last_key() {
    let queue = queue(&[("a", 1)]);
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
async fn a_key_made_dirty_before_shutdown_is_dequeued_again() {
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
async fn the_timer_task_ends_with_the_last_handle_or_shutdown() {
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
