//! Gauges of Applications and steps by phase, computed from the cache.

use std::collections::BTreeMap;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::OamMetrics;
use super::applications::{NO_PHASE, PHASES, known};
use crate::controllers::oam::cache::{CachedApplication, StatusOutline};
use crate::runtime::watch::{Cached, Store};

pub(super) struct PhaseCollector {
    pub metrics: OamMetrics,
    /// Exports KubeVela's gauges too.
    pub has_compat: bool,
}

impl std::fmt::Debug for PhaseCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhaseCollector").finish_non_exhaustive()
    }
}

impl Collector for PhaseCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(applications) = self.metrics.applications.get() else {
            return Ok(());
        };
        let mut counts = PhaseCounts::default();
        counts.add_all(applications);
        counts.encode(self.has_compat, encoder)
    }
}

/// Numbers of Applications by phase, and of steps by type and phase.
struct PhaseCounts {
    applications: BTreeMap<&'static str, i64>,
    steps: BTreeMap<(&'static str, String), i64>,
}

/// No Applications. Phases have a series from the start.
impl Default for PhaseCounts {
    fn default() -> Self {
        Self {
            applications: PHASES.iter().map(|phase| (*phase, 0)).collect(),
            steps: BTreeMap::new(),
        }
    }
}

impl PhaseCounts {
    fn add_all(&mut self, applications: &Store<Cached<CachedApplication>>) {
        for name in applications.names() {
            if let Some(app) = applications.get(&name)
                && let Some(app) = app.object()
            {
                self.add(app.status());
            }
        }
    }

    fn add(&mut self, status: Option<&StatusOutline>) {
        let phase = status.map_or("", |status| status.phase.as_str());
        let phase = if phase.is_empty() {
            NO_PHASE
        } else {
            known(&PHASES, phase)
        };
        *self.applications.entry(phase).or_default() += 1;
        for (step, count) in status.iter().flat_map(|status| status.steps.iter()) {
            // KubeVela's value of the label.
            let phase = format!("{}#{}", step.phase, step.reason);
            *self.steps.entry((step.type_, phase)).or_default() += i64::try_from(*count).unwrap_or(i64::MAX);
        }
    }

    fn encode(&self, has_compat: bool, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str| -> Result<(), std::fmt::Error> {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (phase, count) in &self.applications {
                ConstGauge::new(*count).encode(family.encode_family(&[("phase", *phase)])?)?;
            }
            Ok(())
        };
        let help = "Current number of Applications (core.oam.dev) by phase, - before the first pass";
        gauge("portolan_oam_applications", help)?;
        if !has_compat {
            return Ok(());
        }
        let help = "Current number of Applications by phase, as in KubeVela";
        gauge("application_phase_number", help)?;
        let help = "Current number of workflow steps by type, and by phase and reason";
        let mut family = encoder.encode_descriptor("workflow_step_phase_number", help, None, MetricType::Gauge)?;
        for ((step_type, phase), count) in &self.steps {
            let labels = [("step_type", *step_type), ("phase", phase.as_str())];
            ConstGauge::new(*count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::oam::ApplicationStatus;

    #[derive(Debug)]
    struct Statuses {
        statuses: Vec<Option<StatusOutline>>,
        has_compat: bool,
    }

    impl Collector for Statuses {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
            let mut counts = PhaseCounts::default();
            for status in &self.statuses {
                counts.add(status.as_ref());
            }
            counts.encode(self.has_compat, encoder)
        }
    }

    /// Returns the series of Applications with these statuses.
    fn series(statuses: &[Value], has_compat: bool) -> Vec<String> {
        let outline = |status: &Value| {
            let status: Option<ApplicationStatus> = serde_json::from_value(status.clone()).unwrap();
            status.as_ref().map(|status| StatusOutline::new(status, true))
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Statuses {
            statuses: statuses.iter().map(outline).collect(),
            has_compat,
        }));
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        let series = encoded.lines().filter(|line| !line.starts_with('#'));
        series.map(str::to_owned).collect()
    }

    #[test]
    fn a_standby_has_no_series() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(PhaseCollector {
            metrics: OamMetrics::default(),
            has_compat: true,
        }));
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        assert_eq!(encoded, "# EOF\n");
    }

    #[test]
    fn applications_are_counted_by_phase() {
        let statuses = [
            json!({ "status": "running" }),
            json!({ "status": "running" }),
            json!({ "status": "of a user" }),
            Value::Null,
        ];
        let series = series(&statuses, false);
        for (phase, count) in [("running", 2), ("other", 1), ("-", 1), ("unhealthy", 0)] {
            let line = format!("portolan_oam_applications{{phase=\"{phase}\"}} {count}");
            assert!(series.contains(&line), "{series:?}");
        }
        assert!(series.iter().all(|line| line.starts_with("portolan_")), "{series:?}");
    }

    #[test]
    fn steps_are_counted_by_kubevelas_labels() {
        let step = |type_: &str, phase: &str, reason: &str| json!({ "id": "a", "type": type_, "phase": phase, "reason": reason });
        let workflow = json!({ "steps": [step("deploy", "succeeded", ""), step("mine", "running", "Wait")] });
        let status = json!({ "status": "runningWorkflow", "workflow": workflow });
        let series = series(&[status.clone(), status], true);
        for line in [
            r#"application_phase_number{phase="runningWorkflow"} 2"#,
            r##"workflow_step_phase_number{step_type="custom",phase="running#Wait"} 2"##,
            r##"workflow_step_phase_number{step_type="deploy",phase="succeeded#"} 2"##,
        ] {
            assert!(series.iter().any(|found| found == line), "{series:?}");
        }
    }
}
