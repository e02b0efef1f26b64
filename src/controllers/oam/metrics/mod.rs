mod applications;
mod compat;
mod phases;
mod steps;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::cache::CachedApplication;
use super::clusters::ClusterCounts;
use super::objects::Objects;
use crate::api::oam::WorkflowStatus;
use crate::runtime::watch::{Cached, Store};
use applications::{ApplicationCollector, PHASES, WORKFLOW_PHASES, known};
use compat::CompatMetrics;
use phases::PhaseCollector;
use steps::StepMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WriteLabels {
    verb: &'static str,
    kind: String,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// From a pass without work to a pass at its time limit.
const STAGE_BUCKETS: [f64; 9] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0, 180.0];

/// A part of a pass. `Workflow` includes `Render` and `Dispatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassStage {
    Parse,
    Revision,
    Render,
    Workflow,
    Dispatch,
    StateKeep,
    Collect,
}

impl PassStage {
    const ALL: [Self; 7] = [
        Self::Parse,
        Self::Revision,
        Self::Render,
        Self::Workflow,
        Self::Dispatch,
        Self::StateKeep,
        Self::Collect,
    ];

    fn label(self) -> StageLabel {
        let stage = match self {
            Self::Parse => "parse",
            Self::Revision => "revision",
            Self::Render => "render",
            Self::Workflow => "workflow",
            Self::Dispatch => "dispatch",
            Self::StateKeep => "state-keep",
            Self::Collect => "gc",
        };
        StageLabel { stage }
    }
}

/// Records the duration of a stage when it is dropped, at the end of the stage or of the pass.
pub(super) struct StageTimer {
    histogram: Histogram,
    compat: Option<Histogram>,
    start: Instant,
}

impl Drop for StageTimer {
    fn drop(&mut self) {
        let seconds = self.start.elapsed().as_secs_f64();
        for histogram in std::iter::once(&self.histogram).chain(&self.compat) {
            histogram.observe(seconds);
        }
    }
}

/// Kinds of managed objects that have a label of their own: their names come from tenants.
const MAX_KINDS: usize = 200;

#[derive(Clone)]
pub struct OamMetrics {
    stages: Family<StageLabel, Histogram, fn() -> Histogram>,
    passes: Family<ResultLabel, Counter>,
    renders: Family<ResultLabel, Counter>,
    workflows: Family<ResultLabel, Counter>,
    step_logs: Family<ResultLabel, Counter>,
    reviews: Family<ResultLabel, Counter>,
    steps: StepMetrics,
    compat: CompatMetrics,
    writes: Family<WriteLabels, Counter>,
    kinds: Arc<parking_lot::Mutex<std::collections::BTreeSet<String>>>,
    restored: Counter,
    unprotected: Gauge,
    objects: Arc<OnceLock<Objects>>,
    /// Set once this replica leads.
    applications: Arc<OnceLock<Store<Cached<CachedApplication>>>>,
}

/// Metrics that are not exported.
impl Default for OamMetrics {
    fn default() -> Self {
        Self {
            stages: Family::new_with_constructor(|| Histogram::new(STAGE_BUCKETS)),
            passes: Family::default(),
            renders: Family::default(),
            workflows: Family::default(),
            step_logs: Family::default(),
            reviews: Family::default(),
            steps: StepMetrics::default(),
            compat: CompatMetrics::default(),
            writes: Family::default(),
            kinds: Arc::default(),
            restored: Counter::default(),
            unprotected: Gauge::default(),
            objects: Arc::default(),
            applications: Arc::default(),
        }
    }
}

impl std::fmt::Debug for OamMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OamMetrics").finish_non_exhaustive()
    }
}

impl OamMetrics {
    /// Registers the metrics, with KubeVela's gauges of Applications if `has_application_status`, and with others of
    /// KubeVela if `has_compat`.
    #[must_use]
    pub fn register(registry: &mut Registry, has_application_status: bool, has_compat: bool) -> Self {
        let metrics = Self::default();
        // Without a first value, a rate would miss the first event.
        for (family, result) in [
            (&metrics.passes, "success"),
            (&metrics.renders, "evaluated"),
            (&metrics.workflows, "succeeded"),
            (&metrics.step_logs, "written"),
            (&metrics.reviews, "allowed"),
        ] {
            family.get_or_create(&ResultLabel { result }).inc_by(0);
        }
        let (verb, kind) = ("create", "ApplicationRevision".to_owned());
        metrics.writes.get_or_create(&WriteLabels { verb, kind }).inc_by(0);
        for stage in PassStage::ALL {
            drop(metrics.stages.get_or_create(&stage.label()));
        }
        let help = "Duration of the stages of a pass in seconds; workflow includes render and dispatch";
        registry.register("portolan_oam_stage_seconds", help, metrics.stages.clone());
        let help = "Total number of passes over Applications (core.oam.dev) by result";
        registry.register("portolan_oam_passes", help, metrics.passes.clone());
        let help = "Total number of rendered components by result: cached, evaluated or failed";
        registry.register("portolan_oam_renders", help, metrics.renders.clone());
        let help = "Total number of finished workflow runs by result";
        registry.register("portolan_oam_workflows", help, metrics.workflows.clone());
        let help = "Total number of lines that workflow steps have logged by result: written or dropped";
        registry.register("portolan_oam_step_log_lines", help, metrics.step_logs.clone());
        let help =
            "Total number of reviews of access for users of Applications by result: cached, allowed, denied or failed";
        registry.register("portolan_oam_access_reviews", help, metrics.reviews.clone());
        metrics.steps.register(registry);
        let help = "Total number of writes to the API server by verb and kind";
        registry.register("portolan_oam_writes", help, metrics.writes.clone());
        let help = "Total number of managed objects that were changed by others and restored";
        registry.register("portolan_oam_restored_objects", help, metrics.restored.clone());
        let help = "1 while feature gate AuthenticateApplication is on and no webhook protects identities, else 0";
        registry.register("portolan_oam_identities_unprotected", help, metrics.unprotected.clone());
        registry.register_collector(Box::new(WatchCollector(metrics.clone())));
        registry.register_collector(Box::new(PhaseCollector {
            metrics: metrics.clone(),
            has_compat,
        }));
        if has_application_status {
            registry.register_collector(Box::new(ApplicationCollector(metrics.clone())));
        }
        if has_compat {
            metrics.compat.register(registry);
            metrics.steps.register_compat(registry);
        }
        metrics
    }

    pub(super) fn set_objects(&self, objects: &Objects) {
        // Called once, at startup.
        let _ = self.objects.set(objects.clone());
    }

    pub(super) fn set_applications(&self, applications: &Store<Cached<CachedApplication>>) {
        // A replica leads once.
        let _ = self.applications.set(applications.clone());
    }

    pub(super) fn time(&self, stage: PassStage) -> StageTimer {
        StageTimer {
            histogram: self.stages.get_or_create(&stage.label()).clone(),
            compat: self.compat.stage(stage),
            start: Instant::now(),
        }
    }

    /// Counts a pass by its result: `success`, `error`, `conflict` or `unsupported`.
    pub(super) fn count_pass(&self, result: &'static str) {
        self.passes.get_or_create(&ResultLabel { result }).inc();
    }

    /// Observes a pass with the phases of its Application before and after.
    pub(super) fn observe_pass(&self, begin: &str, end: &str, elapsed: Duration) {
        let phase = |text| known(&PHASES, text);
        self.compat.observe_pass(phase(begin), phase(end), elapsed);
    }

    pub(super) fn count_render(&self, result: &'static str) {
        self.renders.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts a finished run.
    pub(super) fn count_workflow(&self, workflow: &WorkflowStatus, has_succeeded: bool) {
        let result = if has_succeeded { "succeeded" } else { "failed" };
        self.workflows.get_or_create(&ResultLabel { result }).inc();
        if let (Some(Time(start)), Some(Time(end))) = (&workflow.start_time, &workflow.end_time) {
            let seconds = end.duration_since(*start).as_secs_f64().max(0.0);
            let phase = known(&WORKFLOW_PHASES, &workflow.phase);
            self.compat.observe_workflow(phase, seconds);
        }
    }

    /// Counts a line that a step has logged, or that was dropped.
    pub(super) fn count_step_log(&self, is_written: bool) {
        let result = if is_written { "written" } else { "dropped" };
        self.step_logs.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_review(&self, result: &'static str) {
        self.reviews.get_or_create(&ResultLabel { result }).inc();
    }

    pub(super) fn count_steps(&self, before: &WorkflowStatus, after: &WorkflowStatus) {
        self.steps.count(before, after);
    }

    pub(super) fn count_write(&self, verb: &'static str, kind: &str) {
        let mut kinds = self.kinds.lock();
        let is_known = kinds.contains(kind) || kinds.len() < MAX_KINDS && kinds.insert(kind.to_owned());
        let kind = if is_known { kind } else { "other" }.to_owned();
        self.writes.get_or_create(&WriteLabels { verb, kind }).inc();
    }

    pub(super) fn set_identities_unprotected(&self, is_unprotected: bool) {
        self.unprotected.set(is_unprotected.into());
    }

    pub(super) fn count_restored(&self) {
        self.restored.inc();
    }
}

struct WatchCollector(OamMetrics);

impl std::fmt::Debug for WatchCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchCollector").finish_non_exhaustive()
    }
}

impl Collector for WatchCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let objects = self.0.objects.get();
        let (over_limit, denied) = objects.map_or((0, 0), Objects::unwatched_kinds);
        let help = "Number of kinds of managed objects that are not watched, by reason: limit or denied";
        let mut family = encoder.encode_descriptor("portolan_oam_unwatched_kinds", help, None, MetricType::Gauge)?;
        for (reason, kinds) in [("limit", over_limit), ("denied", denied)] {
            let gauge = ConstGauge::new(i64::try_from(kinds).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("reason", reason)])?)?;
        }
        let (watches, held) = objects.map_or((0, 0), Objects::size);
        let gauges = [
            ("portolan_oam_watches", "Number of watches of managed objects", watches),
            (
                "portolan_oam_cached_objects",
                "Number of managed objects in memory",
                held,
            ),
        ];
        let clusters = objects.map_or_else(ClusterCounts::default, |objects| objects.clusters().counts());
        let help = "Number of joined clusters by state: up, connecting, unreachable, refused or unused";
        let mut family = encoder.encode_descriptor("portolan_joined_clusters", help, None, MetricType::Gauge)?;
        for (state, count) in [
            ("up", clusters.up),
            ("connecting", clusters.connecting),
            ("unreachable", clusters.unreachable),
            ("refused", clusters.refused),
            ("unused", clusters.unused),
        ] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("state", state)])?)?;
        }
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}
