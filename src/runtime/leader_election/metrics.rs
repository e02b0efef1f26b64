use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::WriteFence;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: String,
}

/// The metrics of leader election; the status is named as in client-go.
#[derive(Clone, Debug, Default)]
pub struct LeaderElectionMetrics {
    status: Family<Lease, Gauge>,
    refused: Counter,
}

impl LeaderElectionMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
                    master. 'name' is the string used to identify the lease";
        registry.register("leader_election_master_status", help, metrics.status.clone());
        let help =
            "Total number of writes to the API server that were refused because the lease was not renewed in time";
        registry.register("portolan_leader_refused_writes", help, metrics.refused.clone());
        metrics
    }

    #[must_use]
    pub fn fence(&self) -> WriteFence {
        WriteFence::counting(self.refused.clone())
    }

    pub(super) fn set_leading(&self, name: &str, is_leading: bool) {
        let lease = Lease { name: name.to_owned() };
        self.status.get_or_create(&lease).set(is_leading.into());
    }
}
