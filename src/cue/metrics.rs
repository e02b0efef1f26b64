use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::Evaluator;
use super::compat::EvaluatorCompatMetrics;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

/// The result of an evaluation without an error.
pub(super) const SUCCESS: &str = "success";

#[derive(Clone, Debug, Default)]
pub(super) struct EvaluatorMetrics {
    evaluations: Family<ResultLabel, Counter>,
    restarts: Family<CauseLabel, Counter>,
    rewritten: Counter,
    compat: EvaluatorCompatMetrics,
}

impl EvaluatorMetrics {
    /// Counts an evaluation by its result. `elapsed` includes the wait for a process.
    pub(super) fn count_evaluation(&self, result: &'static str, kind: Option<&'static str>, elapsed: Duration) {
        self.evaluations.get_or_create(&ResultLabel { result }).inc();
        if let Some(kind) = kind {
            self.compat.observe_render(kind, result == SUCCESS, elapsed);
        }
    }

    pub(super) fn count_rewritten(&self, kind: Option<&'static str>) {
        self.rewritten.inc();
        if let Some(kind) = kind {
            self.compat.count_rewrite(kind);
        }
    }

    pub(super) fn count_restart(&self, cause: &'static str) {
        self.restarts.get_or_create(&CauseLabel { cause }).inc();
    }

    #[cfg(test)]
    pub(super) fn restarts(&self, cause: &'static str) -> u64 {
        self.restarts.get_or_create(&CauseLabel { cause }).get()
    }
}

impl Evaluator {
    /// Registers the metrics of this pool and of a separate one. Waiting is measured by the metrics of budgets.
    pub fn register(&self, registry: &mut Registry, separate: Option<&Self>) {
        let metrics = &self.0.metrics;
        // Without a first value, a rate would miss the first event.
        let result = SUCCESS;
        metrics.evaluations.get_or_create(&ResultLabel { result }).inc_by(0);
        let cause = "timeout";
        metrics.restarts.get_or_create(&CauseLabel { cause }).inc_by(0);
        let help = "Total number of CUE evaluations, by result";
        registry.register("portolan_cue_evaluations", help, metrics.evaluations.clone());
        let help = "Total number of evaluated CUE texts for older versions of CUE, which were rewritten";
        registry.register("portolan_cue_rewritten", help, metrics.rewritten.clone());
        let help = "Total number of CUE evaluator processes that were replaced, by cause";
        registry.register("portolan_cue_restarts", help, metrics.restarts.clone());
        let pools = [Some(self), separate].into_iter().flatten().cloned().collect();
        registry.register_collector(Box::new(ProcessMemory(pools)));
    }

    /// Registers KubeVela's metrics of this pool and of separate ones.
    pub fn register_compat(&self, registry: &mut Registry) {
        self.0.metrics.compat.register(registry);
    }
}

#[derive(Debug)]
struct ProcessMemory(Vec<Evaluator>);

impl Collector for ProcessMemory {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let bytes: u64 = self.0.iter().map(Evaluator::resident_bytes).sum();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let metric = ConstGauge::new(bytes);
        let help = "Resident memory of the CUE evaluator processes in bytes";
        let encoder =
            encoder.encode_descriptor("portolan_cue_resident_memory_bytes", help, None, metric.metric_type())?;
        metric.encode(encoder)
    }
}
