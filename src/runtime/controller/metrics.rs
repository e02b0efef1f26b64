//! The metrics of controllers, with the names, labels and types of controller-runtime.

use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds, as controller-runtime has them.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// How a reconcile ended, as the label `result` has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Ended {
    Success,
    Error,
    Requeue,
    RequeueAfter,
}

impl Ended {
    const ALL: [Self; 4] = [Self::Success, Self::Error, Self::Requeue, Self::RequeueAfter];

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Labels {
    controller: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Clone)]
struct Seconds;

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The metrics of all controllers of the process.
#[derive(Clone)]
pub struct Metrics {
    total: Family<ResultLabels, Counter>,
    errors: Family<Labels, Counter>,
    terminal_errors: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    time: Family<Labels, Histogram, Seconds>,
    max_concurrent: Family<Labels, Gauge>,
    active_workers: Family<Labels, Gauge>,
}

impl Metrics {
    /// Makes the metrics and enters them in `registry`. Called once for a registry: it would print them twice.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            total: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            time: Family::new_with_constructor(Seconds),
            max_concurrent: Family::default(),
            active_workers: Family::default(),
        };
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by how they ended",
            metrics.total.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciles that failed, those that panicked included",
            metrics.errors.clone(),
        );
        registry.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that failed in a way that another try does not help, so that none was made",
            metrics.terminal_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciles that panicked: each is an error in the program, please report it",
            metrics.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles take",
            metrics.time.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "How many workers there are",
            metrics.max_concurrent.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "How many workers have something to do",
            metrics.active_workers.clone(),
        );
        metrics
    }

    /// The metrics of one controller. All its series exist from now on, at zero, so that rates see the first event too.
    pub(super) fn of_controller(&self, name: &str) -> ControllerMetrics {
        let labels = Labels {
            controller: name.to_owned(),
        };
        let total = |ended: Ended| {
            let labels = ResultLabels {
                controller: name.to_owned(),
                result: ended.label(),
            };
            (ended, self.total.get_or_create_owned(&labels))
        };
        ControllerMetrics {
            total: Ended::ALL.map(total),
            errors: self.errors.get_or_create_owned(&labels),
            terminal_errors: self.terminal_errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&labels),
            active_workers: self.active_workers.get_or_create_owned(&labels),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The metrics of one controller.
pub(super) struct ControllerMetrics {
    total: [(Ended, Counter); 4],
    errors: Counter,
    pub(super) terminal_errors: Counter,
    pub(super) panics: Counter,
    pub(super) time: Histogram,
    pub(super) max_concurrent: Gauge,
    active_workers: Gauge,
}

impl ControllerMetrics {
    /// Counts a reconcile by how it ended.
    pub(super) fn ended(&self, ended: Ended) {
        for (_, counter) in self.total.iter().filter(|(counted, _)| *counted == ended) {
            counter.inc();
        }
        if ended == Ended::Error {
            self.errors.inc();
        }
    }

    /// Counts a worker as active until the guard is dropped, even by a panic or because its task was ended.
    pub(super) fn active_worker(&self) -> ActiveWorker {
        self.active_workers.inc();
        ActiveWorker(self.active_workers.clone())
    }
}

pub(super) struct ActiveWorker(Gauge);

impl Drop for ActiveWorker {
    fn drop(&mut self) {
        self.0.dec();
    }
}
