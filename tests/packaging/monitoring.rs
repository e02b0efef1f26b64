//! Monitors, alerts and the dashboard as the chart renders them.

use rstest::rstest;
use serde_json::{Value, json};

use super::values::{pod, rendered};
use super::{KUBE_VERSION, chart, helm};
use crate::support::project;

#[rstest]
#[case::of_pods("PodMonitor", "podMonitor", "podMetricsEndpoints")]
#[case::of_the_service("ServiceMonitor", "serviceMonitor", "endpoints")]
#[tokio::test]
async fn monitors_are_rendered_only_if_enabled(#[case] kind: &str, #[case] value: &str, #[case] endpoints: &str) {
    assert_eq!(rendered(kind, &[]).await, [Value::Null; 0]);
    let more = format!("interval=1m,metrics.{value}.labels.team=a");
    let settings = format!("--set=metrics.port=9090,metrics.{value}.enabled=true,metrics.{value}.{more}");
    let enabled = rendered(kind, &[&settings]).await;
    assert_eq!(enabled.len(), 1);
    assert_eq!(enabled[0]["metadata"]["labels"]["team"], "a");
    let expected = json!([{ "port": "metrics", "path": "/metrics", "interval": "1m" }]);
    assert_eq!(enabled[0]["spec"][endpoints], expected);
}

#[tokio::test]
async fn the_service_monitor_selects_a_port_of_the_service() {
    for (settings, port) in [("", "http"), ("metrics.port=9090,", "metrics")] {
        let settings = format!("--set={settings}metrics.serviceMonitor.enabled=true");
        let monitor = rendered("ServiceMonitor", &[&settings]).await.remove(0);
        let service = rendered("Service", &[&settings]).await.remove(0);
        let labels = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        for (key, value) in labels {
            assert_eq!(&service["metadata"]["labels"][key], value);
        }
        assert_eq!(monitor["spec"]["endpoints"][0]["port"], port);
        let ports = service["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|named| named["name"] == port), "{ports:?}");
    }
}

#[tokio::test]
async fn two_monitors_of_the_same_pods_are_refused() {
    let both = "--set=metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true";
    let output = helm(&["template", "try", &chart(), KUBE_VERSION, both]).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("would be scraped twice"),
        "{error}"
    );
}

/// Returns the expression of an alert and its threshold as rendered.
async fn alert(name: &str, settings: &str) -> (String, Value) {
    let settings = format!("--set=metrics.prometheusRule.enabled=true,{settings}");
    let groups = rendered("PrometheusRule", &[&settings]).await[0]["spec"]["groups"].take();
    let mut rules = groups
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap());
    let rule = rules.find(|rule| rule["alert"] == name).unwrap();
    (
        rule["expr"].as_str().unwrap().to_owned(),
        rule["annotations"]["threshold"].clone(),
    )
}

#[tokio::test]
async fn thresholds_of_alerts_are_values() {
    let late = "time() - portolan_repository_next_sync_timestamp_seconds > ";
    let (usual, threshold) = alert("PortolanRepositoryStale", "crontab=@hourly").await;
    assert!(
        usual.starts_with(&format!("{late}10800 ")) && threshold == "10800",
        "{usual} {threshold}"
    );
    let thresholds = "metrics.prometheusRule.thresholds";
    let settings = format!("{thresholds}.PortolanRepositoryStale=90,{thresholds}.PortolanBudgetExhausted=0.8");
    let (changed, threshold) = alert("PortolanRepositoryStale", &settings).await;
    assert!(
        changed.starts_with(&format!("{late}90 ")) && threshold == "90",
        "{changed} {threshold}"
    );
    let (fraction, _) = alert("PortolanBudgetExhausted", &settings).await;
    // The other comparison stays.
    assert!(fraction.contains(" > 0)") && fraction.ends_with("> 0.8"), "{fraction}");
}

#[tokio::test]
async fn the_alert_of_a_release_that_is_down_ignores_others() {
    for (settings, matchers) in [
        ("crontab=@hourly", ""),
        ("metrics.podMonitor.enabled=true", r#"job="sea/try-portolan", "#),
        (
            "metrics.serviceMonitor.enabled=true",
            r#"job="try-portolan", namespace="sea", "#,
        ),
    ] {
        let (expression, _) = alert("PortolanDown", settings).await;
        // The pods of `portolan serve` run no controllers.
        let serving = "on (job, instance) portolan_health_check{check=\"catalog\"}";
        let expected = format!("absent(portolan_budget_limit{{{matchers}resource=\"memory\"}} unless {serving})");
        assert_eq!(expression, expected, "{settings}");
    }
}

#[tokio::test]
async fn alerts_link_to_the_runbook_only_with_its_url() {
    let urls = async |settings: &str| {
        let rule = rendered("PrometheusRule", &[settings]).await.remove(0);
        let groups = rule["spec"]["groups"].as_array().unwrap().clone();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
        let urls = rules.map(|rule| rule["annotations"].get("runbook_url").cloned());
        Vec::from_iter(urls)
    };
    let without = urls("--set=metrics.prometheusRule.enabled=true").await;
    assert!(without.len() > 20 && without.iter().all(Option::is_none), "{without:?}");
    let url = "https://wiki.example.com/runbook.html";
    let settings = format!("--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.runbookUrl={url}");
    let with = urls(&settings).await;
    assert_eq!(with[0], Some(format!("{url}#portolandown").into()));
    assert!(with.iter().all(Option::is_some), "{with:?}");
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
            .replace("\"portolan-serve\"", "\"try-portolan-serve\"")
    };
    let alerts = read("alerts.yaml").map(of_release);
    let without_links = |text: String| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("runbook_url:")).collect();
        serde_yaml::from_str::<Value>(&lines.join("\n")).unwrap()
    };
    let alerts: Option<Value> = alerts.map(without_links);
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
