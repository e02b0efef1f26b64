use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct JobMetrics {
    unfinished: Family<StateLabel, Gauge<i64>>,
    finished: Family<ResultLabel, Counter>,
}

impl JobMetrics {
    /// Registers the metrics. They have no samples until Jobs are used.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Current number of unfinished Jobs of repositories, waiting for a limit or running";
        registry.register("portolan_jobs_unfinished", help, metrics.unfinished.clone());
        let help = "Total number of finished Jobs of repositories, by result";
        registry.register("portolan_jobs_finished", help, metrics.finished.clone());
        metrics
    }

    pub(super) fn set_unfinished(&self, waiting: usize, running: usize) {
        for (state, count) in [("waiting", waiting), ("running", running)] {
            let gauge = self.unfinished.get_or_create(&StateLabel { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn count_finished(&self, is_success: bool) {
        let result = if is_success { "success" } else { "error" };
        self.finished.get_or_create(&ResultLabel { result }).inc();
    }
}
