//! The metrics of controllers, with the names, labels and types of controller-runtime.

use std::fmt;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds, as in controller-runtime.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Values of the label `result`.
const RESULTS: [&str; 4] = ["success", "error", "requeue", "requeue_after"];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ControllerLabels {
    controller: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Clone)]
pub struct WorkerMetrics {
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    terminal_errors: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    time: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    max_concurrent: Family<ControllerLabels, Gauge>,
    active_workers: Family<ControllerLabels, Gauge>,
}

impl WorkerMetrics {
    /// Must be called once per registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            total: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            max_concurrent: Family::default(),
            active_workers: Family::default(),
        };
        let help = "Total number of reconciliations per controller";
        registry.register("controller_runtime_reconcile", help, metrics.total.clone());
        let help = "Total number of reconciliation errors per controller";
        registry.register("controller_runtime_reconcile_errors", help, metrics.errors.clone());
        let help = "Total number of terminal reconciliation errors per controller";
        let terminal = metrics.terminal_errors.clone();
        registry.register("controller_runtime_terminal_reconcile_errors", help, terminal);
        let help = "Total number of reconciliation panics per controller";
        registry.register("controller_runtime_reconcile_panics", help, metrics.panics.clone());
        let help = "Length of time per reconciliation per controller";
        registry.register("controller_runtime_reconcile_time_seconds", help, metrics.time.clone());
        let help = "Maximum number of concurrent reconciles per controller";
        let max = metrics.max_concurrent.clone();
        registry.register("controller_runtime_max_concurrent_reconciles", help, max);
        let help = "Number of currently used workers per controller";
        let active = metrics.active_workers.clone();
        registry.register("controller_runtime_active_workers", help, active);
        metrics
    }

    /// Returns the metrics of one controller. All its series start at zero, so that rates see the first event.
    pub(super) fn of_controller(&self, name: &str) -> ControllerMetrics {
        let labels = ControllerLabels {
            controller: name.to_owned(),
        };
        let total = |result: &'static str| {
            let controller = name.to_owned();
            (
                result,
                self.total.get_or_create_owned(&ResultLabels { controller, result }),
            )
        };
        ControllerMetrics {
            total: RESULTS.map(total),
            errors: self.errors.get_or_create_owned(&labels),
            terminal_errors: self.terminal_errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&labels),
            active_workers: self.active_workers.get_or_create_owned(&labels),
        }
    }
}

impl fmt::Debug for WorkerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerMetrics").finish_non_exhaustive()
    }
}

pub(super) struct ControllerMetrics {
    total: [(&'static str, Counter); 4],
    errors: Counter,
    pub(super) terminal_errors: Counter,
    pub(super) panics: Counter,
    pub(super) time: Histogram,
    pub(super) max_concurrent: Gauge,
    active_workers: Gauge,
}

impl ControllerMetrics {
    /// Counts a reconcile by its result, one of [`RESULTS`].
    pub(super) fn count(&self, result: &'static str) {
        for (_, counter) in self.total.iter().filter(|(counted, _)| *counted == result) {
            counter.inc();
        }
        if result == "error" {
            self.errors.inc();
        }
    }

    /// Counts a worker as active until the guard is dropped, even by a panic or a canceled task.
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
