//! KubeVela's metrics of templates (`--compat-metrics`).

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// As in KubeVela.
const BUCKETS: [f64; 9] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RenderLabels {
    definition_kind: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RewriteLabels {
    upgrade_id: &'static str,
    upgrade_version: &'static str,
    definition_kind: &'static str,
    template_area: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct EvaluatorCompatMetrics {
    renders: Family<RenderLabels, Histogram, fn() -> Histogram>,
    rewrites: Family<RewriteLabels, Counter>,
}

impl Default for EvaluatorCompatMetrics {
    fn default() -> Self {
        Self {
            renders: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            rewrites: Family::default(),
        }
    }
}

impl EvaluatorCompatMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Without a first value, a rate would miss the first event.
        drop(self.renders.get_or_create(&render_labels("Component", true)));
        self.rewrites.get_or_create(&rewrite_labels("Component")).inc_by(0);
        let help = "Duration of evaluations of templates in seconds, with the wait for an evaluator";
        registry.register("kubevela_cue_render_duration_seconds", help, self.renders.clone());
        let help = "Total number of evaluated templates for older versions of CUE, which were rewritten";
        registry.register("kubevela_cue_compat_rewrite", help, self.rewrites.clone());
    }

    pub(super) fn observe_render(&self, kind: &'static str, is_success: bool, elapsed: Duration) {
        let duration = self.renders.get_or_create(&render_labels(kind, is_success));
        duration.observe(elapsed.as_secs_f64());
    }

    pub(super) fn count_rewrite(&self, kind: &'static str) {
        self.rewrites.get_or_create(&rewrite_labels(kind)).inc();
    }
}

fn render_labels(kind: &'static str, is_success: bool) -> RenderLabels {
    RenderLabels {
        definition_kind: kind,
        status: if is_success { "ok" } else { "error" },
    }
}

/// Lists are the only thing that the evaluator rewrites.
fn rewrite_labels(kind: &'static str) -> RewriteLabels {
    RewriteLabels {
        upgrade_id: "list-arithmetic",
        upgrade_version: "1.11",
        definition_kind: kind,
        template_area: "template",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn evaluations_of_templates_have_kubevelas_names_and_labels() {
        let metrics = EvaluatorCompatMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        metrics.observe_render("Trait", false, Duration::from_millis(2));
        metrics.count_rewrite("WorkflowStep");
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        for line in [
            r#"kubevela_cue_render_duration_seconds_count{definition_kind="Component",status="ok"} 0"#,
            r#"kubevela_cue_render_duration_seconds_bucket{le="0.001",definition_kind="Trait",status="error"} 0"#,
            r#"kubevela_cue_render_duration_seconds_bucket{le="0.005",definition_kind="Trait",status="error"} 1"#,
            r#"kubevela_cue_compat_rewrite_total{upgrade_id="list-arithmetic",upgrade_version="1.11",definition_kind="WorkflowStep",template_area="template"} 1"#,
        ] {
            assert!(encoded.contains(line), "{encoded}");
        }
    }
}
