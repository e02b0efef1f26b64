//! Names, labels, types and values of a scrape.

use std::collections::BTreeMap;

use prometheus_client::encoding::text::encode;

use super::*;

/// A parsed scrape: the type of each family and the value of each sample.
#[derive(Debug)]
struct Scrape {
    types: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

fn scrape(registry: &Registry) -> Scrape {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    assert!(text.ends_with("# EOF\n"));
    let mut scrape = Scrape {
        types: BTreeMap::new(),
        samples: BTreeMap::new(),
    };
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            assert!(
                scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} is described twice"
            );
        } else if !line.starts_with('#') {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            assert!(
                scrape
                    .samples
                    .insert(sample.to_owned(), value.parse().unwrap())
                    .is_none(),
                "{sample} twice"
            );
        }
    }
    scrape
}

const LABELS: &str = r#"name="a",controller="a""#;

impl Scrape {
    fn value(&self, metric: &str) -> f64 {
        self.samples[&format!("{metric}{{{LABELS}}}")]
    }
    fn depth(&self, priority: i32) -> f64 {
        self.samples[&format!(r#"workqueue_depth{{{LABELS},priority="{priority}"}}"#)]
    }
}

#[tokio::test(start_paused = true)]
async fn a_scrape_has_the_names_labels_and_types_that_dashboards_expect() {
    let mut registry = Registry::default();
    let _queue = Queue::<Name>::new(settings(&[("a", 9)]), &WorkqueueMetrics::register(&mut registry));
    let scrape = scrape(&registry);
    let expected = [
        ("workqueue_adds", "counter"),
        ("workqueue_depth", "gauge"),
        ("workqueue_longest_running_processor_seconds", "gauge"),
        ("workqueue_queue_duration_seconds", "histogram"),
        ("workqueue_retries", "counter"),
        ("workqueue_unfinished_work_seconds", "gauge"),
        ("workqueue_work_duration_seconds", "histogram"),
    ];
    let found: Vec<_> = scrape
        .types
        .iter()
        .map(|(name, kind)| (name.as_str(), kind.as_str()))
        .collect();
    assert_eq!(found, expected);
    for metric in ["workqueue_adds_total", "workqueue_retries_total"] {
        assert_eq!(scrape.value(metric), 0.0);
    }
    assert_eq!((scrape.depth(0), scrape.depth(-100)), (0.0, 0.0));
    assert_eq!(scrape.value("workqueue_unfinished_work_seconds"), 0.0);
    assert_eq!(scrape.value("workqueue_longest_running_processor_seconds"), 0.0);
    for histogram in ["workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"] {
        let bounds: Vec<f64> = scrape
            .samples
            .keys()
            .filter_map(|sample| {
                sample
                    .strip_prefix(&format!("{histogram}_bucket{{{LABELS},le=\""))
                    .or_else(|| {
                        sample
                            .strip_prefix(&format!("{histogram}_bucket{{le=\""))?
                            .strip_suffix(&format!(",{LABELS}}}"))
                    })
            })
            .filter_map(|bound| bound.split('"').next()?.parse().ok())
            .filter(|bound: &f64| bound.is_finite())
            .collect();
        assert_eq!(bounds.len(), 12, "{histogram}: {bounds:?}");
        for step in 0..12 {
            let bound = 1e-8 * 10_f64.powi(step);
            assert!(
                bounds.iter().any(|found| (found / bound - 1.0).abs() < 1e-9),
                "{histogram} lacks {bound}"
            );
        }
        assert_eq!(scrape.value(&format!("{histogram}_count")), 0.0);
    }
}

#[tokio::test(start_paused = true)]
async fn values_follow_a_key_through_the_queue() {
    let mut registry = Registry::default();
    let queue = Queue::<Name>::new(settings(&[("a", 9)]), &WorkqueueMetrics::register(&mut registry));
    queue.add(name("a"), Priority::LOW);
    queue.add(name("a"), Priority::LOW);
    queue.add(name("a2"), Priority::LOW);
    let seen = scrape(&registry);
    assert_eq!((seen.depth(-100), seen.depth(0)), (2.0, 0.0));
    assert_eq!(seen.value("workqueue_adds_total"), 2.0);
    queue.add(name("a2"), Priority::USER);
    assert_eq!((scrape(&registry).depth(-100), scrape(&registry).depth(0)), (1.0, 1.0));

    pass(3 * SECOND).await;
    let b = take(&queue).unwrap();
    pass(SECOND).await;
    let a = take(&queue).unwrap();
    queue.add(name("a"), Priority(7)); // counted as depth although it waits for its own worker
    pass(2 * SECOND).await;
    let seen = scrape(&registry);
    assert_eq!((seen.depth(-100), seen.depth(0), seen.depth(7)), (0.0, 0.0, 1.0));
    assert_eq!(seen.value("workqueue_queue_duration_seconds_count"), 2.0);
    assert!((seen.value("workqueue_queue_duration_seconds_sum") - 7.0).abs() < 0.1);
    assert!((seen.value("workqueue_unfinished_work_seconds") - 5.0).abs() < 0.1);
    assert!((seen.value("workqueue_longest_running_processor_seconds") - 3.0).abs() < 0.1);
    assert_eq!(seen.value("workqueue_work_duration_seconds_count"), 0.0);

    drop((a, b));
    let seen = scrape(&registry);
    assert_eq!(seen.value("workqueue_unfinished_work_seconds"), 0.0);
    assert_eq!(seen.value("workqueue_work_duration_seconds_count"), 2.0);
    assert!((seen.value("workqueue_work_duration_seconds_sum") - 5.0).abs() < 0.1);
}

#[tokio::test(start_paused = true)]
async fn only_adds_with_a_delay_count_as_retries() {
    let mut registry = Registry::default();
    let queue = Queue::<Name>::new(settings(&[("a", 9)]), &WorkqueueMetrics::register(&mut registry));
    queue.add(name("a"), Priority::USER);
    queue.add_after(name("a2"), Duration::ZERO, Priority::USER);
    assert_eq!(scrape(&registry).value("workqueue_retries_total"), 0.0);
    queue.add_after(name("a3"), SECOND, Priority::USER);
    queue.add_rate_limited(name("a4"), BACKOFF, Priority::USER);
    assert_eq!(scrape(&registry).value("workqueue_retries_total"), 2.0);
    assert_eq!(scrape(&registry).value("workqueue_adds_total"), 2.0);
    pass(SECOND).await;
    assert_eq!(scrape(&registry).value("workqueue_adds_total"), 4.0);
}

#[tokio::test(start_paused = true)]
async fn two_queues_share_a_registry_and_a_dropped_one_has_no_work_in_progress() {
    let mut registry = Registry::default();
    let metrics = WorkqueueMetrics::register(&mut registry);
    let first = Queue::<Name>::new(settings(&[("a", 1)]), &metrics);
    let second = Queue::<Name>::new(settings(&[("b", 1)]), &metrics);
    let sample = |name: &str| format!(r#"workqueue_unfinished_work_seconds{{name="{name}",controller="{name}"}}"#);
    assert!(scrape(&registry).samples.contains_key(&sample("a")));
    drop(first);
    let seen = scrape(&registry);
    assert!(!seen.samples.contains_key(&sample("a")));
    assert!(seen.samples.contains_key(&sample("b")));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn each_class_has_its_own_series_from_the_start() {
    let mut registry = Registry::default();
    let queue = Queue::<Name>::new(
        settings(&[("a", 1), ("b", 1)]),
        &WorkqueueMetrics::register(&mut registry),
    );
    let value = |metric: &str, class: &str| {
        let sample = format!(r#"{metric}{{name="{class}",controller="{class}"}}"#);
        scrape(&registry).samples[&sample]
    };
    assert_eq!(value("workqueue_adds_total", "b"), 0.0);
    queue.add(name("a1"), Priority::USER);
    let claim = queue.get().await;
    pass(SECOND).await;
    for (class, adds, unfinished) in [("a", 1.0, 1.0), ("b", 0.0, 0.0)] {
        assert_eq!(value("workqueue_adds_total", class), adds);
        assert!((value("workqueue_unfinished_work_seconds", class) - unfinished).abs() < 0.1);
    }
    drop(claim);
}
