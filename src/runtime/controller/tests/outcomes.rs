//! The next step of a key after each result of a reconcile.

use tracing::Level;

use super::*;
use crate::trace::log_lines::LogLines;

#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_is_retried_with_backoff_at_its_priority_until_it_succeeds() {
    let mut bench = Bench::start(2, &[], |turn| async move {
        if turn < 3 { Err(transient()) } else { Ok(Action::Done) }
    });
    bench.queue.add(repository(1), Priority::LOW);
    sleep(20 * SECOND).await;
    assert_eq!(bench.seconds(), [0, 1, 3, 7]);
    assert!(
        bench
            .turns()
            .iter()
            .all(|(key, _, priority)| (key, *priority) == (&repository(1), Priority::LOW))
    );
    bench.end().await;
    assert!(bench.has_no_failures(repository(1)));
    let expected = counts([
        ("reconcile_total{,result=\"error\"}", 3.0),
        ("reconcile_total{,result=\"success\"}", 1.0),
        ("reconcile_errors_total{}", 3.0),
        ("reconcile_time_seconds_count{}", 4.0),
        ("max_concurrent_reconciles{}", 2.0),
    ]);
    assert_eq!(bench.counted(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_users_event_raises_a_retry_of_low_priority_and_brings_it_forward() {
    let bench = Bench::start(1, &[], |turn| async move {
        if turn < 3 { Err(transient()) } else { Ok(Action::Done) }
    });
    bench.queue.add(repository(1), Priority::LOW);
    sleep(SECOND / 2).await;
    bench.queue.add(repository(1), Priority::USER);
    sleep(20 * SECOND).await;
    let turns: Vec<_> = bench
        .turns()
        .into_iter()
        .map(|(_, at, priority)| (at, priority))
        .collect();
    let half = SECOND / 2;
    assert_eq!(
        turns,
        [
            (Duration::ZERO, Priority::LOW),
            (half, Priority::USER),
            (half + 2 * SECOND, Priority::USER),
            (half + 6 * SECOND, Priority::USER)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_at_least_as_long_as_its_failure_says() {
    let bench = Bench::start(1, &[], |turn| async move {
        let at_least = match turn {
            0 => 30 * SECOND,
            1 => Duration::ZERO,
            _ => return Ok(Action::Done),
        };
        Err(ReconcileError::Transient {
            message: String::new(),
            backoff: BACKOFF,
            at_least,
        })
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(60 * SECOND).await;
    assert_eq!(bench.seconds(), [0, 30, 32]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_without_a_warning_and_is_no_error() {
    let (log, _logging) = LogLines::start(Level::INFO);
    let mut bench = Bench::start(1, &[], |turn| async move {
        if turn == 0 {
            Err(ReconcileError::Conflict {
                message: "the object has been modified".to_owned(),
            })
        } else {
            Ok(Action::Done)
        }
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(60 * SECOND).await;
    assert_eq!(bench.turns().len(), 2);
    bench.end().await;
    let expected = counts([
        ("reconcile_total{,result=\"requeue\"}", 1.0),
        ("reconcile_total{,result=\"success\"}", 1.0),
        ("reconcile_time_seconds_count{}", 2.0),
        ("max_concurrent_reconciles{}", 1.0),
    ]);
    assert_eq!(bench.counted(), expected);
    assert_eq!(log.lines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_counted_and_not_retried_before_the_next_event() {
    let mut bench = Bench::start(1, &[], |turn| async move {
        if turn == 0 {
            Err(transient())
        } else {
            Err(ReconcileError::Terminal {
                message: "not an index".to_owned(),
                retry_after: None,
            })
        }
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(3600 * SECOND).await;
    assert_eq!(bench.seconds(), [0, 1]);
    bench.queue.add(repository(1), Priority::USER);
    bench.end().await;
    assert!(bench.has_no_failures(repository(1)));
    let expected = counts([
        ("reconcile_total{,result=\"error\"}", 3.0),
        ("reconcile_errors_total{}", 3.0),
        ("terminal_reconcile_errors_total{}", 2.0),
        ("reconcile_time_seconds_count{}", 3.0),
        ("max_concurrent_reconciles{}", 1.0),
    ]);
    assert_eq!(bench.counted(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_backs_off_without_an_error_and_a_requeue_after_is_punctual() {
    let mut bench = Bench::start(1, &[], |turn| async move {
        Ok(match turn {
            0..=9 => Action::Requeue,
            10 => Action::requeue_after(100 * SECOND),
            11 => Action::Requeue,
            _ => Action::Done,
        })
    });
    bench.queue.add(repository(1), Priority::LOW);
    sleep(50 * SECOND).await;
    let gaps: Vec<_> = bench
        .turns()
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1).as_millis())
        .collect();
    assert_eq!(gaps, [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]);
    sleep(100 * SECOND).await;
    assert_eq!(bench.seconds()[10..], [5, 105, 105]);
    let gap = bench.turns()[12].1 - bench.turns()[11].1;
    assert_eq!(gap.as_millis(), 5, "the backoff starts from its base again");
    assert!(bench.turns().iter().all(|(_, _, priority)| *priority == Priority::LOW));
    bench.end().await;
    let expected = counts([
        ("reconcile_total{,result=\"requeue\"}", 11.0),
        ("reconcile_total{,result=\"requeue_after\"}", 1.0),
        ("reconcile_total{,result=\"success\"}", 1.0),
        ("reconcile_time_seconds_count{}", 13.0),
        ("max_concurrent_reconciles{}", 1.0),
    ]);
    assert_eq!(bench.counted(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_chooses_the_priority_of_the_next_one() {
    let bench = Bench::start(1, &[], |turn| async move {
        match turn {
            0 => Ok(Action::RequeueAfter {
                delay: 10 * SECOND,
                priority: Some(Priority::LOW),
            }),
            2 => Err(ReconcileError::Terminal {
                message: "not an index".to_owned(),
                retry_after: Some(20 * SECOND),
            }),
            _ => Ok(Action::Done),
        }
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(15 * SECOND).await;
    bench.queue.add(repository(1), Priority::USER);
    sleep(60 * SECOND).await;
    let turns: Vec<_> = bench.turns().iter().map(|turn| (turn.1.as_secs(), turn.2)).collect();
    let (user, low) = (Priority::USER, Priority::LOW);
    assert_eq!(turns, [(0, user), (10, low), (15, user), (35, low)]);
}
