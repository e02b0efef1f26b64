//! The pool at work, with time paused and reconcilers that do as they are told.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::queue::{self, Queue, Settings};

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff {
    base: SECOND,
    cap: Duration::from_secs(8),
};

/// Two kinds, as later issues will have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum TestKind {
    Repository,
    Application,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct TestKey(TestKind, usize);

impl Item for TestKey {
    type Lane = TestKind;
    fn lane(&self) -> TestKind {
        self.0
    }
}

impl fmt::Display for TestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} test/{}", self.0, self.1)
    }
}

fn repository(number: usize) -> TestKey {
    TestKey(TestKind::Repository, number)
}

fn application(number: usize) -> TestKey {
    TestKey(TestKind::Application, number)
}

/// One reconcile as it was seen: when, after the start, and at which priority.
type Turn = (TestKey, Duration, Priority);

type Play = dyn Fn(usize) -> BoxFuture<'static, Result<Outcome, Failure>> + Send + Sync;

/// Does what `play` says for the turn of this number, counted over all keys.
struct Puppet {
    start: Instant,
    turns: Arc<Mutex<Vec<Turn>>>,
    play: Box<Play>,
}

impl Reconcile<TestKey> for Puppet {
    fn reconcile<'a>(&'a self, key: &'a TestKey, priority: Priority) -> BoxFuture<'a, Result<Outcome, Failure>> {
        let number = {
            let mut turns = self.turns.lock().unwrap();
            turns.push((key.clone(), self.start.elapsed(), priority));
            turns.len() - 1
        };
        (self.play)(number)
    }
}

struct Bench {
    queue: Queue<TestKey>,
    turns: Arc<Mutex<Vec<Turn>>>,
    registry: Registry,
    pool: JoinHandle<()>,
}

impl Bench {
    fn start<F>(workers: usize, lanes: &[(TestKind, usize)], play: impl Fn(usize) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let mut registry = Registry::default();
        let settings = Settings {
            lanes: lanes.to_vec(),
            burst: NonZeroU32::new(1000).unwrap(),
            ..Settings::new("test")
        };
        let queue = Queue::new(settings, &queue::Metrics::register(&mut registry));
        let turns = Arc::<Mutex<Vec<Turn>>>::default();
        let puppet: Arc<dyn Reconcile<TestKey>> = Arc::new(Puppet {
            start: Instant::now(),
            turns: Arc::clone(&turns),
            play: Box::new(move |number| Box::pin(play(number))),
        });
        let reconcilers = [TestKind::Repository, TestKind::Application].map(|kind| (kind, Arc::clone(&puppet)));
        let metrics = Metrics::register(&mut registry);
        let controller = Controller::new("test", queue.clone(), HashMap::from(reconcilers), workers, metrics);
        Self {
            queue,
            turns,
            registry,
            pool: tokio::spawn(controller.run()),
        }
    }

    fn turns(&self) -> Vec<Turn> {
        self.turns.lock().unwrap().clone()
    }

    /// When each turn was, in whole seconds.
    fn seconds(&self) -> Vec<u64> {
        self.turns().iter().map(|(_, at, _)| at.as_secs()).collect()
    }

    async fn end(&mut self) {
        self.queue.shut_down();
        (&mut self.pool).await.unwrap();
    }

    /// The samples of a scrape whose value is not zero, without their one controller.
    fn counted(&self) -> BTreeMap<String, f64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("controller_runtime_")?.rsplit_once(' '))
            .map(|(sample, value)| (sample.replace(r#"controller="test""#, ""), value.parse().unwrap()))
            .filter(|(sample, value)| *value != 0.0 && !sample.contains("_bucket"))
            .collect()
    }
}

fn counts<const N: usize>(counts: [(&str, f64); N]) -> BTreeMap<String, f64> {
    counts.map(|(sample, value)| (sample.to_owned(), value)).into()
}

fn transient() -> Failure {
    Failure::Transient {
        message: "the server is away".to_owned(),
        backoff: BACKOFF,
        at_least: Duration::ZERO,
        at_most: Duration::MAX,
    }
}

#[test]
fn a_key_is_printed_with_its_kind() {
    let key = Key {
        kind: Kind::Repository,
        namespace: "kubeapps".to_owned(),
        name: "bitnami".to_owned(),
    };
    assert_eq!(key.to_string(), "AppRepository kubeapps/bitnami");
    assert_eq!(key.lane(), Kind::Repository);
}

#[tokio::test(start_paused = true)]
async fn the_reconciler_of_its_kind_is_given_the_key() {
    struct Named(&'static str, Arc<Mutex<Vec<(&'static str, TestKey)>>>);
    impl Reconcile<TestKey> for Named {
        fn reconcile<'a>(&'a self, key: &'a TestKey, _: Priority) -> BoxFuture<'a, Result<Outcome, Failure>> {
            self.1.lock().unwrap().push((self.0, key.clone()));
            Box::pin(async { Ok(Outcome::Done) })
        }
    }
    let seen = Arc::default();
    let named = |name| -> Arc<dyn Reconcile<TestKey>> { Arc::new(Named(name, Arc::clone(&seen))) };
    let reconcilers = HashMap::from([
        (TestKind::Repository, named("repositories")),
        (TestKind::Application, named("applications")),
    ]);
    let mut registry = Registry::default();
    let queue = Queue::new(Settings::new("test"), &queue::Metrics::register(&mut registry));
    let controller = Controller::new("test", queue.clone(), reconcilers, 1, Metrics::register(&mut registry));
    queue.add(application(1), Priority::USER);
    queue.add(repository(2), Priority::USER);
    queue.shut_down();
    controller.run().await;
    assert_eq!(
        *seen.lock().unwrap(),
        [("applications", application(1)), ("repositories", repository(2))]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_without_a_reconciler_is_a_terminal_error_and_ends_no_worker() {
    let mut registry = Registry::default();
    let queue = Queue::new(Settings::new("test"), &queue::Metrics::register(&mut registry));
    let metrics = Metrics::register(&mut registry);
    let controller = Controller::new("test", queue.clone(), HashMap::new(), 1, metrics.clone());
    queue.add(repository(1), Priority::USER);
    queue.add(repository(2), Priority::USER);
    queue.shut_down();
    controller.run().await;
    assert_eq!(metrics.of_controller("test").terminal_errors.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_reconcile_is_tried_again_ever_later_at_its_own_priority_and_forgotten_when_it_succeeds() {
    let mut bench = Bench::start(2, &[], |turn| async move {
        if turn < 3 { Err(transient()) } else { Ok(Outcome::Done) }
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
    assert_eq!(bench.queue.retries(&repository(1)), 0);
    bench.end().await;
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
        if turn < 3 { Err(transient()) } else { Ok(Outcome::Done) }
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
async fn a_retry_keeps_within_the_bounds_of_its_failure() {
    let bench = Bench::start(1, &[], |turn| async move {
        let (at_least, at_most) = match turn {
            0 => (30 * SECOND, Duration::MAX),
            1 => (Duration::ZERO, SECOND),
            _ => return Ok(Outcome::Done),
        };
        Err(Failure::Transient {
            message: String::new(),
            backoff: BACKOFF,
            at_least,
            at_most,
        })
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(60 * SECOND).await;
    assert_eq!(bench.seconds(), [0, 30, 31]);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_counted_and_not_tried_again_until_somebody_asks() {
    let mut bench = Bench::start(1, &[], |turn| async move {
        if turn == 0 {
            Err(transient())
        } else {
            Err(Failure::Terminal {
                message: "not an index".to_owned(),
            })
        }
    });
    bench.queue.add(repository(1), Priority::USER);
    sleep(3600 * SECOND).await;
    assert_eq!(bench.seconds(), [0, 1]);
    assert_eq!(bench.queue.retries(&repository(1)), 0);
    bench.queue.add(repository(1), Priority::USER);
    bench.end().await;
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
async fn a_requeue_is_a_retry_without_an_error_and_a_requeue_after_comes_at_its_time() {
    let mut bench = Bench::start(1, &[], |turn| async move {
        Ok(match turn {
            0..=9 => Outcome::Requeue,
            10 => Outcome::RequeueAfter(100 * SECOND),
            _ => Outcome::Done,
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
    assert_eq!(bench.queue.retries(&repository(1)), 0);
    sleep(100 * SECOND).await;
    assert_eq!(bench.seconds()[10..], [5, 105]);
    assert!(bench.turns().iter().all(|(_, _, priority)| *priority == Priority::LOW));
    bench.end().await;
    let expected = counts([
        ("reconcile_total{,result=\"requeue\"}", 10.0),
        ("reconcile_total{,result=\"requeue_after\"}", 1.0),
        ("reconcile_total{,result=\"success\"}", 1.0),
        ("reconcile_time_seconds_count{}", 12.0),
        ("max_concurrent_reconciles{}", 1.0),
    ]);
    assert_eq!(bench.counted(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_panic_does_not_take_a_worker_away_and_is_retried_like_an_error() {
    let mut bench = Bench::start(1, &[], |turn| {
        // The first panics before there is a future, the second in it.
        assert!(turn != 0, "no future");
        async move {
            assert!(turn != 1, "no result");
            Ok(Outcome::Done)
        }
    });
    bench.queue.add(repository(1), Priority::LOW);
    bench.queue.add(repository(2), Priority::LOW);
    bench.queue.add(repository(3), Priority::LOW);
    sleep(60 * SECOND).await;
    let turns: Vec<_> = bench
        .turns()
        .into_iter()
        .map(|(key, at, priority)| (key.1, at.as_secs(), priority))
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
        Ok(Outcome::Done)
    });
    bench.queue.add(repository(1), Priority::USER);
    bench.queue.add(repository(2), Priority::USER);
    sleep(60 * SECOND).await;
    assert_eq!(
        bench.turns().iter().map(|(key, ..)| key.1).collect::<Vec<_>>(),
        [1, 2, 1]
    );
    bench.end().await;
    assert!(!bench.counted().contains_key("active_workers{}"));
}

#[tokio::test(start_paused = true)]
async fn one_kind_does_not_starve_the_other() {
    let lanes = [(TestKind::Repository, 3), (TestKind::Application, 2)];
    let bench = Bench::start(5, &lanes, |_| async {
        sleep(10 * SECOND).await;
        Ok(Outcome::Done)
    });
    for number in 0..100 {
        bench.queue.add(repository(number), Priority::USER);
    }
    sleep(SECOND).await;
    for number in 0..4 {
        bench.queue.add(application(number), Priority::LOW);
    }
    sleep(11 * SECOND).await;
    let seconds_of = |kind| {
        bench
            .turns()
            .iter()
            .filter(|(key, ..)| key.0 == kind)
            .map(|turn| turn.1.as_secs())
            .collect()
    };
    let (repositories, applications): (Vec<_>, Vec<_>) =
        (seconds_of(TestKind::Repository), seconds_of(TestKind::Application));
    assert_eq!(repositories, [0, 0, 0, 10, 10, 10]);
    assert_eq!(applications, [1, 1, 11, 11]);
    assert_eq!(bench.counted()["active_workers{}"], 5.0);
}

#[tokio::test(start_paused = true)]
async fn as_many_reconciles_run_at_once_as_there_are_workers_and_never_two_of_one_key() {
    let bench = Bench::start(3, &[], |_| async {
        sleep(10 * SECOND).await;
        Ok(Outcome::Done)
    });
    for number in 0..5 {
        bench.queue.add(repository(number), Priority::USER);
    }
    sleep(SECOND).await;
    bench.queue.add(repository(0), Priority::USER);
    assert_eq!(bench.counted()["active_workers{}"], 3.0);
    sleep(60 * SECOND).await;
    let turns: Vec<_> = bench
        .turns()
        .into_iter()
        .map(|(key, at, _)| (key.1, at.as_secs()))
        .collect();
    assert_eq!(turns, [(0, 0), (1, 0), (2, 0), (3, 10), (4, 10), (0, 10)]);
}

#[tokio::test(start_paused = true)]
async fn at_shut_down_what_is_in_progress_and_what_is_ready_comes_to_its_end() {
    let finished = Arc::new(Mutex::new(0));
    let mut bench = Bench::start(2, &[], {
        let finished = Arc::clone(&finished);
        move |_| {
            let finished = Arc::clone(&finished);
            async move {
                sleep(10 * SECOND).await;
                *finished.lock().unwrap() += 1;
                Err(transient())
            }
        }
    });
    for number in 0..3 {
        bench.queue.add(repository(number), Priority::USER);
    }
    sleep(SECOND).await;
    let start = Instant::now();
    bench.queue.shut_down();
    bench.queue.add(repository(9), Priority::USER);
    bench.end().await;
    assert_eq!(*finished.lock().unwrap(), 3, "and no retry of them");
    assert_eq!(start.elapsed(), 19 * SECOND);
}

/// Collects what is logged on this thread while its guard lives.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_with_its_key_and_message_even_where_only_errors_are() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = || {
        let writer = writer.clone();
        let builder = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::ERROR);
        tracing::Dispatch::new(builder.with_writer(move || writer.clone()).finish())
    };
    // With but one subscriber alive, tracing asks the thread that first meets a log line whether anybody wants it, and believes
    // its answer on all threads; here that may be a thread of another test, which has none. With two it asks both.
    let _second = subscriber();
    let _guard = tracing::dispatcher::set_default(&subscriber());
    let mut bench = Bench::start(1, &[], |turn| async move {
        assert!(turn != 0, "index\u{1b} out of bounds");
        Err(transient())
    });
    bench.queue.add(repository(7), Priority::USER);
    sleep(5 * SECOND).await;
    bench.end().await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("key=Repository test/7"), "{log}");
    assert!(lines[0].contains("index  out of bounds"), "{log}");
}

#[test]
fn a_scrape_has_the_names_labels_and_types_that_dashboards_expect() {
    let mut registry = Registry::default();
    let _metrics = Metrics::register(&mut registry).of_controller("repositories");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE controller_runtime_"))
        .collect();
    assert_eq!(
        types,
        [
            "reconcile counter",
            "reconcile_errors counter",
            "terminal_reconcile_errors counter",
            "reconcile_panics counter",
            "reconcile_time_seconds histogram",
            "max_concurrent_reconciles gauge",
            "active_workers gauge",
        ]
    );
    let mut samples: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket"))
        .collect();
    samples.sort_unstable();
    assert_eq!(
        samples,
        [
            r#"controller_runtime_active_workers{controller="repositories"} 0"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_panics_total{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_sum{controller="repositories"} 0.0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="error"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="requeue_after"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="success"} 0"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="repositories"} 0"#,
        ]
    );
}
