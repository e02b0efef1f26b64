//! Metrics of work queues with the names, labels and types of controller-runtime, so that its dashboards fit.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ready::InProgress;
use super::{Item, Priority};

const BUCKETS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

/// `controller` equals `name`, as in controller-runtime.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct QueueLabels {
    name: String,
    controller: String,
}

impl QueueLabels {
    fn of(label: &str) -> Self {
        Self {
            name: label.to_owned(),
            controller: label.to_owned(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct DepthLabels {
    name: String,
    controller: String,
    priority: i32,
}

type QueueHistograms = Family<QueueLabels, Histogram, fn() -> Histogram>;

#[derive(Clone)]
pub struct WorkqueueMetrics {
    depth: Family<DepthLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    queue_duration: QueueHistograms,
    work_duration: QueueHistograms,
    in_progress: Arc<InProgressCollector>,
}

impl WorkqueueMetrics {
    /// Must be called once per registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let histograms = || QueueHistograms::new_with_constructor(|| Histogram::new(BUCKETS));
        let metrics = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: histograms(),
            work_duration: histograms(),
            in_progress: Arc::default(),
        };
        let help = "Current depth of workqueue by workqueue and priority";
        registry.register("workqueue_depth", help, metrics.depth.clone());
        let help = "Total number of adds handled by workqueue";
        registry.register("workqueue_adds", help, metrics.adds.clone());
        let help = "Total number of delayed adds handled by workqueue";
        registry.register("workqueue_retries", help, metrics.retries.clone());
        let help = "Time that items stay in workqueue before being requested, in seconds";
        registry.register("workqueue_queue_duration_seconds", help, metrics.queue_duration.clone());
        let help = "Duration of processing an item from workqueue in seconds";
        registry.register("workqueue_work_duration_seconds", help, metrics.work_duration.clone());
        registry.register_collector(Box::new(Arc::clone(&metrics.in_progress)));
        metrics
    }

    /// Returns the metrics of one queue. The series of these classes start at zero, so that rates see the first event.
    pub(super) fn of_queue(&self, classes: impl Iterator<Item = &'static str>) -> QueueMetrics {
        let by_class = classes.map(|class| (class, self.of_class(class))).collect();
        QueueMetrics {
            metrics: self.clone(),
            by_class,
        }
    }

    fn of_class(&self, class: &str) -> ClassMetrics {
        let labels = QueueLabels::of(class);
        let mut metrics = ClassMetrics {
            name: class.to_owned(),
            depth: self.depth.clone(),
            depth_by_priority: HashMap::new(),
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queue_duration: self.queue_duration.get_or_create_owned(&labels),
            work_duration: self.work_duration.get_or_create_owned(&labels),
        };
        for priority in [Priority::USER, Priority::MISSED, Priority::LOW] {
            metrics.depth_at(priority);
        }
        metrics
    }

    /// Reads the work in progress of a queue at each scrape while the queue exists.
    pub(super) fn watch(&self, queue: Weak<dyn Working>) {
        let mut queues = self.in_progress.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(queue);
    }
}

impl fmt::Debug for WorkqueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueMetrics").finish_non_exhaustive()
    }
}

pub(super) struct QueueMetrics {
    metrics: WorkqueueMetrics,
    by_class: BTreeMap<&'static str, ClassMetrics>,
}

impl QueueMetrics {
    pub(super) fn class_of<K: Item>(&mut self, key: &K) -> &mut ClassMetrics {
        let Self { metrics, by_class } = self;
        let class = key.class();
        by_class.entry(class).or_insert_with(|| metrics.of_class(class))
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = &'static str> {
        self.by_class.keys().copied()
    }
}

pub(super) struct ClassMetrics {
    name: String,
    depth: Family<DepthLabels, Gauge>,
    depth_by_priority: HashMap<Priority, Gauge>,
    adds: Counter,
    retries: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
}

impl ClassMetrics {
    pub(super) fn record_add(&mut self, priority: Priority) {
        self.adds.inc();
        self.depth_at(priority).inc();
    }

    pub(super) fn record_raise(&mut self, from: Priority, to: Priority) {
        self.depth_at(from).dec();
        self.depth_at(to).inc();
    }

    pub(super) fn record_take(&mut self, priority: Priority, waited: Duration) {
        self.depth_at(priority).dec();
        self.queue_duration.observe(waited.as_secs_f64());
    }

    pub(super) fn record_done(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    pub(super) fn record_delay(&self) {
        self.retries.inc();
    }

    fn depth_at(&mut self, priority: Priority) -> &Gauge {
        let Self {
            name,
            depth,
            depth_by_priority,
            ..
        } = self;
        depth_by_priority.entry(priority).or_insert_with(|| {
            let (name, controller) = (name.clone(), name.clone());
            depth.get_or_create_owned(&DepthLabels {
                name,
                controller,
                priority: priority.0,
            })
        })
    }
}

pub(super) trait Working: Send + Sync {
    fn in_progress(&self) -> Vec<(&'static str, InProgress)>;
}

/// Computes at scrape time what grows without events.
#[derive(Default)]
struct InProgressCollector {
    queues: Mutex<Vec<Weak<dyn Working>>>,
}

impl fmt::Debug for InProgressCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProgressCollector").finish_non_exhaustive()
    }
}

impl Collector for InProgressCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series: Vec<(QueueLabels, InProgress)> = self
            .queues
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .flat_map(|queue| queue.in_progress())
            .map(|(class, in_progress)| (QueueLabels::of(class), in_progress))
            .collect();
        encode_seconds(
            &mut encoder,
            "workqueue_unfinished_work_seconds",
            "Total duration of work in progress in seconds; large values indicate stuck workers",
            series.iter().map(|(labels, in_progress)| (labels, in_progress.sum)),
        )?;
        encode_seconds(
            &mut encoder,
            "workqueue_longest_running_processor_seconds",
            "Duration of the longest running processor for workqueue in seconds",
            series.iter().map(|(labels, in_progress)| (labels, in_progress.longest)),
        )
    }
}

fn encode_seconds<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl ExactSizeIterator<Item = (&'a QueueLabels, Duration)>,
) -> fmt::Result {
    if values.len() == 0 {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value.as_secs_f64()).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}
