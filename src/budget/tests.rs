use std::collections::BTreeMap;
use std::sync::mpsc;

use futures::FutureExt;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}

/// A waiting reservation of this namespace and amount.
fn waiting<'a>(budget: &'a Budget, namespace: &'a str, amount: u64) -> BoxFuture<'a, Result<Reservation, Exhausted>> {
    let mut future = budget.reserve(namespace, amount, MINUTE).boxed();
    assert!(now(&mut future).is_none(), "{namespace} does not wait");
    future
}

async fn reserve(budget: &Budget, namespace: &str, amount: u64) -> Reservation {
    budget.reserve(namespace, amount, MINUTE).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_served_in_turn_and_in_order_within_one() {
    let budget = Budget::new("test", 1);
    let first = reserve(&budget, "a", 1).await;
    let mut queue = vec![
        ("a1", waiting(&budget, "a", 1)),
        ("a2", waiting(&budget, "a", 1)),
        ("a3", waiting(&budget, "a", 1)),
        ("b1", waiting(&budget, "b", 1)),
        ("b2", waiting(&budget, "b", 1)),
    ];
    drop(first);
    let mut served = Vec::new();
    while !queue.is_empty() {
        let at = (queue.iter_mut()).position(|(_, future)| now(future).is_some_and(|granted| granted.is_ok()));
        served.push(queue.remove(at.unwrap()).0);
    }
    assert_eq!(served, ["a1", "b1", "a2", "b2", "a3"]);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_holds_at_most_half_while_another_waits() {
    let budget = Budget::new("test", 10);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(reserve(&budget, "a", 1).await);
    }
    let mut more = waiting(&budget, "a", 1);
    let mut other = waiting(&budget, "b", 5);
    held.truncate(6);
    assert!(now(&mut more).is_none() && now(&mut other).is_none());
    held.truncate(5);
    let other = now(&mut other).unwrap().unwrap();
    assert_eq!(other.amount(), 5);
    assert!(now(&mut more).is_none());
    drop(other);
    assert!(now(&mut more).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_over_its_share_only_while_another_waits() {
    let budget = Budget::new("test", 2);
    let mut held = vec![reserve(&budget, "a", 1).await, reserve(&budget, "a", 1).await];
    let _more = waiting(&budget, "a", 1);
    assert!(!budget.is_over_share("a"));
    let _other = waiting(&budget, "b", 1);
    assert!(budget.is_over_share("a") && !budget.is_over_share("b"));
    held.pop();
    assert!(!budget.is_over_share("a"));
}

#[tokio::test(start_paused = true)]
async fn a_large_amount_is_not_overtaken_by_small_ones() {
    let budget = Budget::new("test", 10);
    let held = [reserve(&budget, "a", 4).await, reserve(&budget, "a", 4).await];
    let mut large = waiting(&budget, "b", 5);
    let mut small = waiting(&budget, "c", 1);
    assert!(now(&mut small).is_none());
    drop(held);
    assert!(now(&mut large).is_some() && now(&mut small).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_and_leaves_the_queue() {
    let budget = Budget::new("test", 1);
    let held = reserve(&budget, "a", 1).await;
    let late = budget.reserve("b", 1, MINUTE).await.unwrap_err();
    assert_eq!(late.to_string(), "no test available within 60 s");
    drop(waiting(&budget, "c", 1));
    drop(held);
    assert_eq!(budget.used(), 0);
    assert!(now(budget.reserve("d", 1, MINUTE)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_canceled_wait_lets_the_next_one_in() {
    let budget = Budget::new("test", 10);
    let _held = reserve(&budget, "a", 4).await;
    let _other = reserve(&budget, "a", 2).await;
    let large = waiting(&budget, "b", 5);
    let mut small = waiting(&budget, "c", 1);
    drop(large);
    assert!(now(&mut small).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_a_receiver_is_returned() {
    let budget = Budget::new("test", 1);
    let held = reserve(&budget, "a", 1).await;
    let granted = waiting(&budget, "b", 1);
    drop(held);
    assert_eq!(budget.used(), 1);
    drop(granted);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_reservation_shrinks_and_is_returned_on_drop() {
    let budget = Budget::new("test", 100);
    let mut held = reserve(&budget, "a", 1000).await;
    assert_eq!((held.amount(), budget.used()), (50, 50));
    held.shrink(20);
    held.shrink(30);
    assert_eq!((held.amount(), budget.used()), (20, 20));
    drop(held);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_full_spool_aborts_the_largest_transfer_of_the_largest_namespace() {
    let spool = Budget::new("spool", 100);
    let (mut small, mut large, mut honest) = (spool.transfer("a"), spool.transfer("a"), spool.transfer("b"));
    small.grow(20).unwrap();
    large.grow(50).unwrap();
    honest.grow(30).unwrap();
    honest.grow(10).unwrap();
    assert!(now(large.aborted()).is_some() && now(small.aborted()).is_none());
    assert_eq!(large.grow(1), Err(Full { limit: 100 }));
    assert_eq!(spool.used(), 60);
    drop(large);
    let body = honest.finish().unwrap();
    assert_eq!((body.amount(), spool.used()), (40, 60));
    drop((small, body));
    assert_eq!(spool.used(), 0);
}

#[tokio::test]
async fn the_largest_namespace_aborts_its_own_transfer() {
    let spool = Budget::new("spool", 100);
    let (mut honest, mut greedy) = (spool.transfer("a"), spool.transfer("b"));
    honest.grow(40).unwrap();
    greedy.grow(60).unwrap();
    assert!(greedy.grow(10).is_err());
    assert!(greedy.finish().is_err());
    honest.grow(40).unwrap();
    assert_eq!(spool.used(), 80);
}

#[tokio::test]
async fn a_full_spool_aborts_no_transfer_that_holds_nothing() {
    let spool = Budget::new("spool", 100);
    let mut finished = spool.transfer("a");
    finished.grow(80).unwrap();
    let finished = finished.finish().unwrap();
    // The namespace that holds most can free nothing.
    let (empty, mut running, mut honest) = (spool.transfer("a"), spool.transfer("b"), spool.transfer("c"));
    running.grow(20).unwrap();
    honest.grow(10).unwrap();
    assert!(now(running.aborted()).is_some() && now(empty.aborted()).is_none());
    assert_eq!(spool.used(), 90);
    drop(finished);
    honest.grow(80).unwrap();
    assert!(empty.finish().is_ok());
}

#[tokio::test]
async fn a_transfer_fails_if_finished_ones_fill_the_spool() {
    let spool = Budget::new("spool", 100);
    let mut finished = spool.transfer("a");
    finished.grow(100).unwrap();
    let finished = finished.finish().unwrap();
    let (idle, mut late) = (spool.transfer("b"), spool.transfer("c"));
    assert_eq!(late.grow(1), Err(Full { limit: 100 }));
    assert!(now(idle.aborted()).is_none() && late.finish().is_err());
    assert_eq!(spool.used(), 100);
    drop(finished);
    assert_eq!(spool.used(), 0);
}

#[tokio::test]
async fn a_canceled_task_keeps_memory_and_permit_until_its_thread_has_ended() {
    let budgets = Budgets::new(Sizes {
        memory: 100,
        cpu_permits: 1,
        spool: 1,
    });
    let (begin, mut begun) = tokio::sync::mpsc::channel(1);
    let (end, ended) = mpsc::channel::<()>();
    let task = tokio::spawn({
        let budgets = budgets.clone();
        async move {
            let work = move || {
                begin.blocking_send(()).unwrap();
                ended.recv_timeout(MINUTE).unwrap();
            };
            budgets.run("a", 10, work).await.map(drop)
        }
    });
    begun.recv().await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!((budgets.memory.used(), budgets.cpu.used()), (10, 1));
    end.send(()).unwrap();
    let (answer, memory) = budgets.run("b", 20, || 7).await.unwrap();
    assert_eq!((answer, memory.amount(), budgets.cpu.used()), (7, 20, 0));
}

#[tokio::test]
async fn work_that_panics_returns_memory_and_permit() {
    let budgets = Budgets::default();
    let panicked = budgets.run("a", 10, || std::panic::resume_unwind(Box::new("on purpose")));
    assert!(matches!(panicked.await.map(|((), _)| ()), Err(WorkError::Panicked)));
    assert_eq!((budgets.memory.used(), budgets.cpu.used()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { namespace: u8, amount: u64 },
    Cancel(usize),
    Return(usize),
    Shrink(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_u8, 1..8_u64).prop_map(|(namespace, amount)| Step::Reserve { namespace, amount }),
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => any::<usize>().prop_map(Step::Return),
        1 => any::<usize>().prop_map(Step::Shrink),
    ]
}

proptest! {
    /// The model: amounts held by namespace, and the futures that wait.
    #[test]
    fn limit_share_and_progress_hold_for_all_sequences(steps in proptest::collection::vec(step(), 1..80)) {
        const LIMIT: u64 = 12;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new("test", LIMIT);
            let names = ["a", "b", "c", "d"];
            let mut held: Vec<(u8, Reservation)> = Vec::new();
            let mut queue: Vec<(u8, BoxFuture<'_, Result<Reservation, Exhausted>>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Reserve { namespace, amount } => {
                        let name = names[usize::from(namespace)];
                        queue.push((namespace, budget.reserve(name, amount, MINUTE).boxed()));
                    }
                    Step::Cancel(at) if !queue.is_empty() => drop(queue.swap_remove(at % queue.len())),
                    Step::Return(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                    Step::Shrink(at) if !held.is_empty() => {
                        let at = at % held.len();
                        let half = held[at].1.amount() / 2;
                        held[at].1.shrink(half);
                    }
                    _ => {}
                }
                let before: BTreeMap<u8, u64> = held.iter().fold(BTreeMap::new(), |mut sums, (namespace, part)| {
                    *sums.entry(*namespace).or_default() += part.amount();
                    sums
                });
                let mut still_waiting = Vec::new();
                let mut granted = Vec::new();
                for (namespace, mut future) in queue {
                    match now(&mut future) {
                        Some(reservation) => granted.push((namespace, reservation.unwrap())),
                        None => still_waiting.push((namespace, future)),
                    }
                }
                queue = still_waiting;
                for (namespace, part) in &granted {
                    // Another namespace that still waits did so when this was granted.
                    let others_wait = queue.iter().any(|(other, _)| other != namespace);
                    let sum = before.get(namespace).copied().unwrap_or_default() + part.amount();
                    let is_new = !before.contains_key(namespace);
                    prop_assert!(!others_wait || is_new || sum <= LIMIT / 2, "{namespace} got {sum}");
                }
                held.extend(granted);
                let used: u64 = held.iter().map(|(_, part)| part.amount()).sum();
                prop_assert_eq!(budget.used(), used);
                prop_assert!(used <= LIMIT);
                prop_assert!(!held.is_empty() || queue.is_empty(), "a waiter is not served although everything is free");
            }
            while !queue.is_empty() {
                held.clear();
                let mut progress = false;
                let mut still_waiting = Vec::new();
                for (namespace, mut future) in queue {
                    match now(&mut future) {
                        Some(reservation) => {
                            progress = true;
                            held.push((namespace, reservation.unwrap()));
                        }
                        None => still_waiting.push((namespace, future)),
                    }
                }
                queue = still_waiting;
                prop_assert!(progress);
            }
            drop(held);
            prop_assert_eq!(budget.used(), 0);
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_for_a_filter_holds_no_memory() {
    let budgets = Budgets::new(Sizes {
        memory: 100,
        cpu_permits: 1,
        spool: 1,
    });
    let first = budgets.filter_memory("a", 50).await.unwrap();
    let mut waiting = budgets.filter_memory("b", 50).boxed();
    assert!(now(&mut waiting).is_none());
    let other = now(budgets.memory("c", 50))
        .expect("half of the memory is free")
        .unwrap();
    drop((first, other));
    assert!(now(&mut waiting).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_never_fits_aborts_only_itself() {
    let budget = Budget::new("test", 100);
    let (mut small, mut huge) = (budget.transfer("a"), budget.transfer("b"));
    small.grow(10).unwrap();
    assert_eq!(huge.grow(101), Err(Full { limit: 100 }));
    assert!(now(huge.aborted()).is_some());
    assert!(now(small.aborted()).is_none());
    small.grow(90).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_would_hold_most_is_aborted_itself() {
    let budget = Budget::new("test", 100);
    let (mut first, mut second, mut newcomer) = (budget.transfer("a"), budget.transfer("b"), budget.transfer("c"));
    first.grow(30).unwrap();
    second.grow(30).unwrap();
    assert!(newcomer.grow(60).is_err());
    assert!(now(first.aborted()).is_none() && now(second.aborted()).is_none());
}

#[test]
fn what_is_held_without_waiting_leaves_as_much_to_each_newcomer() {
    let budget = Budget::new("test", 1200);
    let fill = |namespace: &str| {
        let parts: Vec<_> = std::iter::from_fn(|| budget.try_share(namespace, 10)).collect();
        (parts.len() as u64 * 10, parts)
    };
    let (of_first, first) = fill("a");
    let (of_second, _second) = fill("b");
    assert_eq!((of_first, of_second), (600, 300));
    let (of_third, _third) = fill("c");
    assert_eq!(
        of_third, 150,
        "a newcomer finds something, however much the others want"
    );
    assert!(budget.try_share("a", 1).is_none());
    assert!(budget.can_share("b", 300) && !budget.can_share("b", 301));
    drop(first);
    assert!(budget.try_share("c", 200).is_some());
    assert!(budget.try_share("d", 2000).is_none());
}
