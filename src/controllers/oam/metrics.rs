use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::objects::Objects;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WriteLabels {
    verb: &'static str,
    kind: String,
}

/// Kinds of managed objects that have a label of their own: their names come from tenants.
const MAX_KINDS: usize = 200;

/// The metrics of the controller.
#[derive(Clone, Default)]
pub struct Metrics {
    passes: Family<ResultLabel, Counter>,
    renders: Family<ResultLabel, Counter>,
    workflows: Family<ResultLabel, Counter>,
    writes: Family<WriteLabels, Counter>,
    kinds: Arc<parking_lot::Mutex<std::collections::BTreeSet<String>>>,
    restored: Counter,
    objects: Arc<OnceLock<Objects>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // Without a first value, a rate would miss the first event.
        for (family, result) in [
            (&metrics.passes, "success"),
            (&metrics.renders, "evaluated"),
            (&metrics.workflows, "succeeded"),
        ] {
            family.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        let (verb, kind) = ("create", "ApplicationRevision".to_owned());
        metrics.writes.get_or_create(&WriteLabels { verb, kind }).inc_by(0);
        let help = "Total number of passes over Applications (core.oam.dev) by result";
        registry.register("portolan_oam_passes", help, metrics.passes.clone());
        let help = "Total number of rendered components by result: cached, evaluated or failed";
        registry.register("portolan_oam_renders", help, metrics.renders.clone());
        let help = "Total number of finished workflow runs by result";
        registry.register("portolan_oam_workflows", help, metrics.workflows.clone());
        let help = "Total number of writes to the API server by verb and kind";
        registry.register("portolan_oam_writes", help, metrics.writes.clone());
        let help = "Total number of managed objects that were changed by others and restored";
        registry.register("portolan_oam_restored_objects", help, metrics.restored.clone());
        registry.register_collector(Box::new(WatchCollector(metrics.clone())));
        metrics
    }

    pub(super) fn set_objects(&self, objects: &Objects) {
        // Called once, at startup.
        let _ = self.objects.set(objects.clone());
    }

    /// Counts a pass by its result: `success`, `error`, `conflict` or `unsupported`.
    pub(super) fn count_pass(&self, result: &'static str) {
        self.passes.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_render(&self, result: &'static str) {
        self.renders.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_workflow(&self, result: &'static str) {
        self.workflows.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_write(&self, verb: &'static str, kind: &str) {
        let mut kinds = self.kinds.lock();
        let is_known = kinds.contains(kind) || kinds.len() < MAX_KINDS && kinds.insert(kind.to_owned());
        let kind = if is_known { kind } else { "other" }.to_owned();
        self.writes.get_or_create(&WriteLabels { verb, kind }).inc();
    }

    pub(super) fn count_restored(&self) {
        self.restored.inc();
    }
}

/// Exports the size of the watches of managed objects.
struct WatchCollector(Metrics);

impl std::fmt::Debug for WatchCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchCollector").finish_non_exhaustive()
    }
}

impl Collector for WatchCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (watches, objects) = self.0.objects.get().map_or((0, 0), Objects::size);
        let gauges = [
            ("portolan_oam_watches", "Number of watches of managed objects", watches),
            (
                "portolan_oam_cached_objects",
                "Number of managed objects in memory",
                objects,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}
