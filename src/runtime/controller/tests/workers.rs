//! Distribution of keys among workers, and shutdown.

use super::*;

#[test]
fn a_key_names_its_class_and_its_object() {
    let key = Key {
        class: "apprepository",
        name: NamespacedName::new("kubeapps", "bitnami"),
    };
    assert_eq!(
        format!("{} {}", key.class(), key.name),
        "apprepository kubeapps/bitnami"
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_to_the_reconciler_of_its_class_and_counts_there() {
    struct Named(&'static str, Arc<Mutex<Vec<(&'static str, Key)>>>);
    impl Reconcile for Named {
        fn reconcile<'a>(&'a self, key: &'a Key, _: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
            self.1.lock().push((self.0, key.clone()));
            Box::pin(async { Ok(Action::Done) })
        }
    }
    let seen = Arc::default();
    let class = |name, workers, reconciler| Class {
        name,
        workers,
        reconciler: Arc::new(Named(reconciler, Arc::clone(&seen))) as Arc<dyn Reconcile>,
    };
    let classes = vec![
        class(REPOSITORY, 1, "repositories"),
        class(APPLICATION, 2, "applications"),
    ];
    let mut registry = Registry::default();
    let queue = Queue::new(
        QueueSettings::default(),
        &queue::WorkqueueMetrics::register(&mut registry),
    );
    let controller = WorkerPool::new(
        queue.clone(),
        classes,
        Budgets::default(),
        WorkerMetrics::register(&mut registry),
    );
    queue.add(application(1), Priority::USER);
    queue.add(repository(2), Priority::USER);
    queue.shut_down();
    controller.run(CancellationToken::new()).await;
    let mut seen = seen.lock().clone();
    seen.sort_unstable_by_key(|(reconciler, _)| *reconciler);
    assert_eq!(
        seen,
        [("applications", application(1)), ("repositories", repository(2))]
    );
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for sample in [
        r#"controller_runtime_reconcile_total{controller="repository",result="success"} 1"#,
        r#"controller_runtime_reconcile_total{controller="application",result="success"} 1"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="repository"} 1"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="application"} 2"#,
    ] {
        assert!(text.contains(sample), "{sample}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_without_a_reconciler_is_a_terminal_error_and_ends_no_worker() {
    let mut registry = Registry::default();
    let queue = Queue::new(
        QueueSettings::default(),
        &queue::WorkqueueMetrics::register(&mut registry),
    );
    let metrics = WorkerMetrics::register(&mut registry);
    let controller = WorkerPool::new(queue.clone(), Vec::new(), Budgets::default(), metrics.clone());
    queue.add(repository(1), Priority::USER);
    queue.add(repository(2), Priority::USER);
    queue.shut_down();
    controller.run(CancellationToken::new()).await;
    assert_eq!(metrics.of_controller(REPOSITORY).terminal_errors.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_class_does_not_starve_the_other() {
    let workers = [(REPOSITORY, 3), (APPLICATION, 2)];
    let bench = Bench::start(5, &workers, |_| async {
        sleep(10 * SECOND).await;
        Ok(Action::Done)
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
            .filter(|(key, ..)| key.class == kind)
            .map(|turn| turn.1.as_secs())
            .collect()
    };
    let (repositories, applications): (Vec<_>, Vec<_>) = (seconds_of(REPOSITORY), seconds_of(APPLICATION));
    assert_eq!(repositories, [0, 0, 0, 10, 10, 10]);
    assert_eq!(applications, [1, 1, 11, 11]);
    assert_eq!(bench.counted()["active_workers{}"], 5.0);
}

#[tokio::test(start_paused = true)]
async fn each_worker_runs_one_reconcile_and_never_two_run_for_one_key() {
    let bench = Bench::start(3, &[], |_| async {
        sleep(10 * SECOND).await;
        Ok(Action::Done)
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
        .map(|(key, at, _)| (number(&key), at.as_secs()))
        .collect();
    assert_eq!(turns, [(0, 0), (1, 0), (2, 0), (3, 10), (4, 10), (0, 10)]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drains_the_queue_and_drops_retries() {
    let finished = Arc::new(Mutex::new(0));
    let mut bench = Bench::start(2, &[], {
        let finished = Arc::clone(&finished);
        move |_| {
            let finished = Arc::clone(&finished);
            async move {
                sleep(10 * SECOND).await;
                *finished.lock() += 1;
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
    assert_eq!(*finished.lock(), 3, "each once, without retries");
    assert_eq!(start.elapsed(), 19 * SECOND);
}
