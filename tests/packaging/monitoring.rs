//! Monitors, alerts and the dashboard as the chart renders them.

use serde_json::Value;

use super::values::{pod, rendered};
use crate::support::project;

#[tokio::test]
async fn monitors_are_rendered_only_if_enabled() {
    assert_eq!(rendered("PodMonitor", &[]).await, [Value::Null; 0]);
    let enabled = rendered("PodMonitor", &["--set=metrics.podMonitor.enabled=true"]).await;
    assert_eq!(enabled.len(), 1);
}

#[tokio::test]
async fn alerts_and_the_dashboard_are_rendered_if_enabled() {
    let read = |name: &str| std::fs::read_to_string(project("charts/portolan/files").join(name)).ok();
    for kind in ["PrometheusRule", "ConfigMap"] {
        assert_eq!(rendered(kind, &[]).await, [Value::Null; 0], "{kind}");
    }
    // A missing file renders nothing.
    let rules = rendered("PrometheusRule", &["--set=metrics.prometheusRule.enabled=true"]).await;
    let specs: Vec<&Value> = rules.iter().map(|rule| &rule["spec"]).collect();
    let of_release = |text: String| {
        text.replace("namespace=\"portolan\"", "namespace=\"sea\"")
            .replace("\"portolan-catalog\"", "\"try-portolan-catalog\"")
    };
    let alerts = read("alerts.yaml").map(of_release);
    let alerts: Option<Value> = alerts.map(|text| serde_yaml::from_str(&text).unwrap());
    assert_eq!(specs, Vec::from_iter(&alerts));
    let dashboards = rendered("ConfigMap", &["--set=metrics.dashboard.enabled=true"]).await;
    let texts = dashboards
        .iter()
        .map(|map| map["data"]["portolan.json"].as_str().unwrap().trim());
    let dashboard = read("dashboard.json");
    assert_eq!(
        Vec::from_iter(texts),
        Vec::from_iter(dashboard.as_deref().map(str::trim))
    );
}

#[tokio::test]
async fn the_alert_of_the_volume_names_the_claim_of_the_pod() {
    for (settings, claim) in [
        ("fullnameOverride=harbour", "harbour-catalog"),
        ("database.sqlite.persistence.existingClaim=charts", "charts"),
    ] {
        let volumes = pod(settings).await["volumes"].take();
        assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], claim);
        let settings = format!("--set=metrics.prometheusRule.enabled=true,{settings}");
        let groups = rendered("PrometheusRule", &[&settings]).await[0]["spec"]["groups"].take();
        let rules = groups
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap());
        let mut expressions = rules
            .filter(|rule| rule["alert"] == "PortolanDatabaseVolumeFull")
            .map(|rule| &rule["expr"]);
        let series = |name: &str| format!("{name}{{namespace=\"sea\", persistentvolumeclaim=\"{claim}\"}}");
        let [available, capacity] = [
            "kubelet_volume_stats_available_bytes",
            "kubelet_volume_stats_capacity_bytes",
        ]
        .map(series);
        assert_eq!(*expressions.next().unwrap(), format!("{available} / {capacity} < 0.1"));
    }
}
