use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::readiness::Readiness;
use crate::api::NamespacedName;
use crate::runtime::watch::WatchManager;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Default)]
pub struct ApplicationMetrics {
    reconciles: Family<ResultLabel, Counter>,
    owners: Counter,
    ready: Arc<Mutex<HashMap<NamespacedName, String>>>,
    watches: Arc<OnceLock<WatchManager<NamespacedName, Readiness>>>,
}

impl std::fmt::Debug for ApplicationMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplicationMetrics").finish_non_exhaustive()
    }
}

impl ApplicationMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Total number of Application reconciliations by result";
        registry.register("portolan_application_reconciles", help, metrics.reconciles.clone());
        let help = "Total number of components whose owner references were written";
        registry.register("portolan_application_owner_changes", help, metrics.owners.clone());
        registry.register_collector(Box::new(GaugeCollector(metrics.clone())));
        metrics
    }

    pub fn set_watches(&self, watches: &WatchManager<NamespacedName, Readiness>) {
        // Called once, at startup.
        let _ = self.watches.set(watches.clone());
    }

    /// Counts a reconcile by its result: `written`, `unchanged`, `error`, or `waiting` for a kind or for the throttle.
    pub(super) fn observe_reconcile(&self, result: &'static str) {
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_owner_change(&self) {
        self.owners.inc();
    }

    pub(super) fn observe_readiness(&self, name: &NamespacedName, ready: &str) {
        self.ready.lock().insert(name.clone(), ready.to_owned());
    }

    pub(super) fn forget(&self, name: &NamespacedName) {
        self.ready.lock().remove(name);
    }
}

#[derive(Debug)]
struct GaugeCollector(ApplicationMetrics);

impl Collector for GaugeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut counts = [("True", 0), ("False", 0), ("Unknown", 0)];
        for ready in self.0.ready.lock().values() {
            if let Some((_, count)) = counts.iter_mut().find(|(state, _)| state == ready) {
                *count += 1;
            }
        }
        let help = "Current number of Applications by status of condition Ready";
        let mut family = encoder.encode_descriptor("portolan_applications", help, None, MetricType::Gauge)?;
        for (state, count) in counts {
            let label = [("ready", state)];
            ConstGauge::<i64>::new(count).encode(family.encode_family(&label)?)?;
        }
        let (watches, objects) = self.0.watches.get().map_or((0, 0), WatchManager::size);
        let mut gauge = |name: &str, help: &str, count: usize| {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::<i64>::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(encoder)
        };
        let help = "Current number of component watches";
        gauge("portolan_component_watches", help, watches)?;
        gauge("portolan_components", "Current number of watched components", objects)
    }
}
