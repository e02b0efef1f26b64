//! The figures of the Application controller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
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

/// How a reconcile ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// A kind was not listed yet.
    Waiting,
    /// Nothing was new.
    Unchanged,
    /// The status was written.
    Written,
    /// The status could not be written.
    Error,
}

/// The figures; a handle, cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    reconciles: Family<ResultLabel, Counter>,
    owners: Counter,
    /// What the condition Ready says of each Application.
    ready: Arc<Mutex<HashMap<NamespacedName, String>>>,
    watches: Arc<OnceLock<WatchManager<NamespacedName, Readiness>>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Makes the figures and has `registry` show them.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "portolan_application_reconciles",
            "Looks at Applications, by what came of them",
            metrics.reconciles.clone(),
        );
        registry.register(
            "portolan_application_owner_changes",
            "Components whose owners were written",
            metrics.owners.clone(),
        );
        registry.register_collector(Box::new(Shown(metrics.clone())));
        metrics
    }

    /// Has the figures show how large the watches are.
    pub fn follow(&self, watches: &WatchManager<NamespacedName, Readiness>) {
        // Told once, by whoever makes them.
        let _ = self.watches.set(watches.clone());
    }

    pub(super) fn ended(&self, ended: Ended) {
        let result = match ended {
            Ended::Waiting => "waiting",
            Ended::Unchanged => "unchanged",
            Ended::Written => "written",
            Ended::Error => "error",
        };
        self.reconciles.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn owner_changed(&self) {
        self.owners.inc();
    }

    pub(super) fn observe(&self, name: &NamespacedName, ready: &str) {
        let mut applications = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        applications.insert(name.clone(), ready.to_owned());
    }

    pub(super) fn forget(&self, name: &NamespacedName) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// What is counted when it is asked for.
struct Shown(Metrics);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut counts = [("True", 0), ("False", 0), ("Unknown", 0)];
        for ready in self.0.ready.lock().unwrap_or_else(PoisonError::into_inner).values() {
            if let Some((_, count)) = counts.iter_mut().find(|(state, _)| state == ready) {
                *count += 1;
            }
        }
        let mut family = encoder.encode_descriptor(
            "portolan_applications",
            "Applications by what their condition Ready says",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (state, count) in counts {
            let label = [("ready", state)];
            ConstGauge::<i64>::new(count).encode(family.encode_family(&label)?)?;
        }
        let (watches, objects) = self.0.watches.get().map_or((0, 0), WatchManager::size);
        for (name, help, count) in [
            ("portolan_component_watches", "Watches of components that run", watches),
            ("portolan_components", "Objects that these watches hold", objects),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
            ConstGauge::<i64>::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(encoder)?;
        }
        Ok(())
    }
}
