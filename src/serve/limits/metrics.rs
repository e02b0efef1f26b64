use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A limit at which a request is refused, or its response is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Limit {
    Uri,
    Rate,
    UnknownTokens,
    SignIns,
    InFlight,
    InFlightByCaller,
    Timeout,
    Bodies,
    BodiesByCaller,
    BodySpeed,
}

impl Limit {
    const fn name(self) -> &'static str {
        match self {
            Self::Uri => "uri",
            Self::Rate => "rate",
            Self::UnknownTokens => "unknown_tokens",
            Self::SignIns => "sign_ins",
            Self::InFlight => "in_flight",
            Self::InFlightByCaller => "in_flight_by_caller",
            Self::Timeout => "timeout",
            Self::Bodies => "bodies",
            Self::BodiesByCaller => "bodies_by_caller",
            Self::BodySpeed => "body_speed",
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// A handle, cheap to clone. No label names a tenant.
#[derive(Clone, Debug, Default)]
pub(in crate::serve) struct LimitMetrics {
    limited: Family<LimitLabel, Counter>,
    in_flight: Family<StageLabel, Gauge>,
}

impl LimitMetrics {
    pub(in crate::serve) fn register(&self, registry: &mut Registry) {
        let help = "Total number of requests to the catalog that were refused, or whose response was cut, by limit";
        registry.register("portolan_catalog_requests_limited", help, self.limited.clone());
        let help = "Number of requests to the catalog in flight by stage: request, archive (of a Helm repository) or body (of a response)";
        registry.register("portolan_catalog_requests_in_flight", help, self.in_flight.clone());
    }

    pub(in crate::serve) fn count(&self, limit: Limit) {
        self.limited.get_or_create(&LimitLabel { limit: limit.name() }).inc();
    }

    pub(super) fn in_flight(&self, stage: &'static str) -> Gauge {
        self.in_flight.get_or_create(&StageLabel { stage }).clone()
    }
}
