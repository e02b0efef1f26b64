//! KubeVela's metrics of passes (`--compat-metrics`). Each is fed where one of ours is.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::PassStage;

/// As in KubeVela.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];
/// The value of the label `controller`.
pub(super) const CONTROLLER: &str = "application";
/// The value of the label `stage` where KubeVela has no stages.
const NO_STAGE: &str = "-";

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CompatStageLabel {
    stage: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PassLabels {
    begin_phase: &'static str,
    end_phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug)]
pub(super) struct CompatMetrics {
    passes: HistogramFamily<PassLabels>,
    stages: HistogramFamily<CompatStageLabel>,
    components: HistogramFamily<CompatStageLabel>,
    workflows: HistogramFamily<PhaseLabel>,
    // KubeVela's counter has no suffix `_total`, which each of ours would get.
    tracker_lists: Family<ControllerLabel, Gauge>,
}

impl Default for CompatMetrics {
    fn default() -> Self {
        Self {
            passes: Family::new_with_constructor(histogram),
            stages: Family::new_with_constructor(histogram),
            components: Family::new_with_constructor(histogram),
            workflows: Family::new_with_constructor(histogram),
            tracker_lists: Family::default(),
        }
    }
}

impl CompatMetrics {
    pub fn register(&self, registry: &mut Registry) {
        // Without a first value, a rate would miss the first event.
        let (begin_phase, end_phase) = ("running", "running");
        drop(self.passes.get_or_create(&PassLabels { begin_phase, end_phase }));
        for stage in PassStage::ALL {
            self.stage(stage);
        }
        drop(self.workflows.get_or_create(&PhaseLabel { phase: "succeeded" }));
        self.tracker_lists().inc_by(0);
        let help = "Duration of passes over Applications in seconds, by the phase before and after";
        registry.register("application_reconcile_time_seconds", help, self.passes.clone());
        let help = "Duration of the stages of a pass in seconds, by KubeVela's names of them";
        registry.register("kubevela_app_reconcile_time_seconds", help, self.stages.clone());
        let help = "Duration of writing the objects of components that are deployed together in seconds";
        registry.register("apply_component_time_seconds", help, self.components.clone());
        let help = "Duration of finished workflow runs in seconds, by the phase of the workflow";
        registry.register("workflow_finished_time_seconds", help, self.workflows.clone());
        let help = "Total number of reads of the ResourceTrackers of an Application, from memory";
        registry.register("list_resourcetracker_num", help, self.tracker_lists.clone());
    }

    /// Returns the duration of a stage, unless KubeVela does not measure it.
    pub fn stage(&self, stage: PassStage) -> Option<Histogram> {
        let (family, stage) = match stage {
            PassStage::Parse => (&self.stages, "generate-appfile"),
            PassStage::Revision => (&self.stages, "prepare-current-apprev"),
            PassStage::Workflow => (&self.stages, "execute-workflow"),
            PassStage::StateKeep => (&self.stages, "state-keep"),
            PassStage::Collect => (&self.stages, "gc-rt"),
            PassStage::Dispatch => (&self.components, NO_STAGE),
            PassStage::Render => return None,
        };
        Some(family.get_or_create(&CompatStageLabel { stage }).clone())
    }

    /// Observes a pass, which reads the trackers of its Application once.
    pub fn observe_pass(&self, begin_phase: &'static str, end_phase: &'static str, elapsed: Duration) {
        let duration = self.passes.get_or_create(&PassLabels { begin_phase, end_phase });
        duration.observe(elapsed.as_secs_f64());
        self.tracker_lists().inc();
    }

    pub fn observe_workflow(&self, phase: &'static str, seconds: f64) {
        self.workflows.get_or_create(&PhaseLabel { phase }).observe(seconds);
    }

    fn tracker_lists(&self) -> Gauge {
        let controller = CONTROLLER;
        self.tracker_lists
            .get_or_create(&ControllerLabel { controller })
            .clone()
    }
}

pub(super) fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn passes_and_their_stages_have_kubevelas_names_and_labels() {
        let metrics = CompatMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.observe_pass("rendering", "running", Duration::from_millis(7));
        metrics.observe_workflow("failed", 90.0);
        metrics.stage(PassStage::Workflow).unwrap().observe(2.0);
        metrics.stage(PassStage::Dispatch).unwrap().observe(3.0);
        assert!(metrics.stage(PassStage::Render).is_none());
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        for line in [
            r#"application_reconcile_time_seconds_count{begin_phase="running",end_phase="running"} 0"#,
            r#"application_reconcile_time_seconds_bucket{le="0.005",begin_phase="rendering",end_phase="running"} 0"#,
            r#"application_reconcile_time_seconds_bucket{le="0.01",begin_phase="rendering",end_phase="running"} 1"#,
            r#"kubevela_app_reconcile_time_seconds_sum{stage="execute-workflow"} 2.0"#,
            r#"kubevela_app_reconcile_time_seconds_count{stage="gc-rt"} 0"#,
            r#"apply_component_time_seconds_sum{stage="-"} 3.0"#,
            r#"workflow_finished_time_seconds_bucket{le="60.0",phase="failed"} 0"#,
            r#"workflow_finished_time_seconds_sum{phase="failed"} 90.0"#,
            r#"list_resourcetracker_num{controller="application"} 1"#,
        ] {
            assert!(encoded.contains(line), "{encoded}");
        }
    }
}
