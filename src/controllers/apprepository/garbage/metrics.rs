use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::report::GarbageKind;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct GarbageMetrics {
    removed: Family<KindLabel, Counter>,
    failures: Family<KindLabel, Counter>,
    last_run: Gauge<i64>,
    pending_removals: Gauge<i64>,
}

impl GarbageMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Total number of objects and rows that garbage collection removed, by kind";
        registry.register("portolan_gc_removed", help, metrics.removed.clone());
        let help = "Total number of failed garbage collections, by kind";
        registry.register("portolan_gc_failures", help, metrics.failures.clone());
        let help = "Unix time of the end of the last garbage collection in seconds";
        registry.register("portolan_gc_last_run_timestamp_seconds", help, metrics.last_run.clone());
        let help = "Current number of repositories whose removal awaits --confirm-removals";
        registry.register("portolan_pending_removals", help, metrics.pending_removals.clone());
        metrics
    }

    pub(super) fn set_pending_removals(&self, count: usize) {
        self.pending_removals.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn count_removed(&self, kind: GarbageKind, count: u64) {
        if count > 0 {
            self.removed.get_or_create(&label(kind)).inc_by(count);
        }
    }

    pub fn count_failure(&self, kind: GarbageKind) {
        self.failures.get_or_create(&label(kind)).inc();
    }

    pub(super) fn record_end(&self) {
        self.last_run.set(Timestamp::now().as_second());
    }
}

fn label(kind: GarbageKind) -> KindLabel {
    KindLabel { kind: kind.label() }
}
