//! Metrics of Applications.

use super::apps::{config, spec, web};
use super::site::Site;
use crate::support::eventually::{SOON, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_are_measured_and_kubevelas_gauges_show_the_status() {
    let site = Site::new().await;
    let portolan = site
        .portolan(&["--feature-gates=EnableApplicationStatusMetrics=true"])
        .await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    let labels = [("app_name", "shop"), ("namespace", &*site.namespace)];
    eventually(SOON, "the status in all gauges", async || {
        let metrics = portolan.metrics().await;
        let gauges = ["health_status", "phase", "workflow_phase"]
            .map(|name| metrics.sum(&format!("kubevela_application_{name}"), &labels));
        if gauges == [Some(1.0); 3] {
            Ok(())
        } else {
            Err(format!("{gauges:?}"))
        }
    })
    .await;
    let metrics = portolan.metrics().await;
    for stage in [
        "parse",
        "revision",
        "render",
        "workflow",
        "dispatch",
        "state-keep",
        "gc",
    ] {
        let count = metrics.sum("portolan_oam_stage_seconds_count", &[("stage", stage)]);
        assert!(count.is_some_and(|count| count > 0.0), "{stage}: {count:?}");
    }
    for reason in ["limit", "denied"] {
        let kinds = metrics.sum("portolan_oam_unwatched_kinds", &[("reason", reason)]);
        assert_eq!(kinds, Some(0.0), "{reason}");
    }
    assert_eq!(
        metrics.sum("portolan_oam_applications", &[("phase", "running")]),
        Some(1.0)
    );
    assert_eq!(metrics.sum("application_phase_number", &[]), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubevelas_metrics_have_values() {
    let site = Site::new().await;
    let portolan = site.portolan(&["--compat-metrics"]).await;
    site.declare("shop", spec(&[web("web", 1)])).await;
    site.until_running("shop").await;
    let gauges: [(&str, &[(&str, &str)]); 2] = [
        ("application_phase_number", &[("phase", "running")]),
        (
            "workflow_step_phase_number",
            &[("step_type", "apply-component"), ("phase", "succeeded#")],
        ),
    ];
    eventually(SOON, "the status in the gauges", async || {
        let metrics = portolan.metrics().await;
        let found = gauges.map(|(name, labels)| metrics.sum(name, labels));
        if found == [Some(1.0); 2] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let counts: [(&str, &[(&str, &str)]); 10] = [
        ("application_reconcile_time_seconds_count", &[("end_phase", "running")]),
        (
            "kubevela_app_reconcile_time_seconds_count",
            &[("stage", "generate-appfile")],
        ),
        (
            "kubevela_app_reconcile_time_seconds_count",
            &[("stage", "execute-workflow")],
        ),
        ("apply_component_time_seconds_count", &[("stage", "-")]),
        ("workflow_finished_time_seconds_count", &[("phase", "succeeded")]),
        ("list_resourcetracker_num", &[("controller", "application")]),
        ("step_duration_ms_count", &[("step_type", "apply-component")]),
        (
            "kubevela_cue_render_duration_seconds_count",
            &[("definition_kind", "Component"), ("status", "ok")],
        ),
        (
            "kubevela_cue_render_duration_seconds_count",
            &[("definition_kind", "Trait"), ("status", "ok")],
        ),
        ("portolan_oam_applications", &[("phase", "running")]),
    ];
    // A pass is measured after its status is written.
    eventually(SOON, "all that is measured", async || {
        let metrics = portolan.metrics().await;
        let mut missing = counts.to_vec();
        missing.retain(|(name, labels)| metrics.sum(name, labels).unwrap_or_default() == 0.0);
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?}"))
        }
    })
    .await;
}
