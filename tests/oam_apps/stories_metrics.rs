//! Metrics of Applications.

use super::apps::{config, spec};
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
}
