//! KubeVela's gauges of Applications (gate `EnableApplicationStatusMetrics`), computed from the cache.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::OamMetrics;
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::controllers::oam::cache::{CachedApplication, StatusOutline};
use crate::runtime::watch::{Cached, Store};

/// Applications that have series. Tenants create Applications, and each has three series.
const MAX_APPLICATIONS: usize = 5_000;

/// The label of Applications before their first pass.
pub(super) const NO_PHASE: &str = "-";
/// The position is the number of the phase.
pub(super) const PHASES: [&str; 10] = [
    "starting",
    "running",
    "rendering",
    "generatingPolicy",
    "runningWorkflow",
    "workflowSuspending",
    "workflowTerminated",
    "workflowFailed",
    "unhealthy",
    "deleting",
];
/// The position is the number of the phase.
pub(super) const WORKFLOW_PHASES: [&str; 7] = [
    "initializing",
    "succeeded",
    "executing",
    "suspending",
    "terminated",
    "failed",
    "skipped",
];

pub(super) struct ApplicationCollector(pub(super) OamMetrics);

impl std::fmt::Debug for ApplicationCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplicationCollector").finish_non_exhaustive()
    }
}

impl Collector for ApplicationCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self.0.applications.get() {
            Some(applications) => encode(&statuses(applications), encoder),
            None => Ok(()),
        }
    }
}

type Status = (NamespacedName, StatusOutline);

fn statuses(applications: &Store<Cached<CachedApplication>>) -> Vec<Status> {
    let status = |name: &NamespacedName| {
        let app = applications.get(name)?;
        let status = app.object()?.status()?.clone();
        Some((name.clone(), status))
    };
    let mut names = applications.names();
    names.sort_unstable();
    interleave(names.iter().map(|name| (name.namespace.as_str(), name)))
        .into_iter()
        .filter_map(status)
        .take(MAX_APPLICATIONS)
        .collect()
}

fn encode(statuses: &[Status], mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
    let mut gauge = |name: &str, help: &str, value: fn(&StatusOutline) -> Option<i64>| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (app, status) in statuses {
            if let Some(value) = value(status) {
                let labels = [("app_name", app.name.as_str()), ("namespace", app.namespace.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    };
    let help = "Health of an Application: 1 if all services are healthy";
    gauge("kubevela_application_health_status", help, |status| {
        Some(i64::from(status.is_healthy))
    })?;
    let help = "Number of the phase of an Application, -1 if it is unknown";
    gauge("kubevela_application_phase", help, |status| {
        Some(number(&PHASES, &status.phase))
    })?;
    let help = "Number of the phase of an Application's workflow, -1 if it is unknown";
    gauge("kubevela_application_workflow_phase", help, |status| {
        Some(number(&WORKFLOW_PHASES, status.workflow_phase.as_ref()?))
    })
}

/// Returns a phase as a label. Users may write statuses, and other words must not become labels.
pub(super) fn known(phases: &[&'static str], phase: &str) -> &'static str {
    let name = phases.iter().copied().find(|name| *name == phase);
    name.unwrap_or(if phase.is_empty() { "" } else { "other" })
}

fn number(phases: &[&str], phase: &str) -> i64 {
    let position = phases.iter().position(|name| *name == phase);
    position.and_then(|position| i64::try_from(position).ok()).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    use serde_json::json;

    use super::*;
    use crate::api::oam::ApplicationStatus;

    #[derive(Debug)]
    struct Statuses(Vec<Status>);

    impl Collector for Statuses {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            encode(&self.0, encoder)
        }
    }

    #[test]
    fn phases_have_kubevelas_numbers() {
        let status = |name: &str, status: serde_json::Value| {
            let status: ApplicationStatus = serde_json::from_value(status).unwrap();
            (NamespacedName::new("shop", name), StatusOutline::new(&status, false))
        };
        let service = |healthy: bool| json!({ "name": "web", "healthy": healthy });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Statuses(vec![
            status(
                "a",
                json!({ "status": "running", "services": [service(true)], "workflow": { "status": "succeeded" } }),
            ),
            status(
                "b",
                json!({ "status": "unhealthy", "services": [service(true), service(false)] }),
            ),
            status("c", json!({ "status": "newer", "workflow": { "status": "newer" } })),
        ])));
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        let series = encoded.lines().filter(|line| !line.starts_with('#'));
        let series: Vec<_> = series.map(|line| line.replace("kubevela_application_", "")).collect();
        let labels = |name: &str| format!("{{app_name=\"{name}\",namespace=\"shop\"}}");
        let expected = [
            format!("health_status{} 1", labels("a")),
            format!("health_status{} 0", labels("b")),
            format!("health_status{} 1", labels("c")),
            format!("phase{} 1", labels("a")),
            format!("phase{} 8", labels("b")),
            format!("phase{} -1", labels("c")),
            format!("workflow_phase{} 1", labels("a")),
            format!("workflow_phase{} -1", labels("c")),
        ];
        assert_eq!(series, expected);
    }
}
