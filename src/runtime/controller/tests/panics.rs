//! Reconcilers that panic.

use tracing::Level;

use super::*;
use crate::trace::log_lines::LogLines;

#[tokio::test(start_paused = true)]
async fn a_panic_ends_no_worker_and_is_retried_like_an_error() {
    let mut bench = Bench::start(1, &[], |turn| {
        // The first panics before there is a future, the second in it.
        assert!(turn != 0, "no future");
        async move {
            assert!(turn != 1, "no result");
            Ok(Action::Done)
        }
    });
    bench.queue.add(repository(1), Priority::LOW);
    bench.queue.add(repository(2), Priority::LOW);
    bench.queue.add(repository(3), Priority::LOW);
    sleep(60 * SECOND).await;
    let turns: Vec<_> = bench
        .turns()
        .into_iter()
        .map(|(key, at, priority)| (number(&key), at.as_secs(), priority))
        .collect();
    let low = Priority::LOW;
    assert_eq!(turns, [(1, 0, low), (2, 0, low), (3, 0, low), (1, 5, low), (2, 5, low)]);
    bench.end().await;
    let expected = counts([
        ("reconcile_total{,result=\"error\"}", 2.0),
        ("reconcile_total{,result=\"success\"}", 3.0),
        ("reconcile_errors_total{}", 2.0),
        ("reconcile_panics_total{}", 2.0),
        ("reconcile_time_seconds_count{}", 5.0),
        ("max_concurrent_reconciles{}", 1.0),
    ]);
    assert_eq!(bench.counted(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_panic_whose_payload_panics_too_is_survived() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("once more");
        }
    }
    let mut bench = Bench::start(1, &[], |turn| async move {
        if turn == 0 {
            std::panic::panic_any(Bomb);
        }
        Ok(Action::Done)
    });
    bench.queue.add(repository(1), Priority::USER);
    bench.queue.add(repository(2), Priority::USER);
    sleep(60 * SECOND).await;
    assert_eq!(
        bench.turns().iter().map(|(key, ..)| number(key)).collect::<Vec<_>>(),
        [1, 2, 1]
    );
    bench.end().await;
    assert!(!bench.counted().contains_key("active_workers{}"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_with_its_key_and_message_at_level_error() {
    let (log, _logging) = LogLines::start(Level::ERROR);
    let mut bench = Bench::start(1, &[], |turn| async move {
        assert!(turn != 0, "index\u{1b} out of bounds");
        Err(transient())
    });
    bench.queue.add(repository(7), Priority::USER);
    sleep(5 * SECOND).await;
    bench.end().await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("controller=repository namespace=test name=7"),
        "{lines:?}"
    );
    assert!(lines[0].contains("index  out of bounds"), "{lines:?}");
}
