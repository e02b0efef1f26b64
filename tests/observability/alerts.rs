//! Alerts, their runbook and the dashboard use metrics that exist, with values that occur.

mod promql;

use std::collections::BTreeSet;
use std::fs;

use portolan::controllers::apprepository;
use portolan::runtime::workqueue::Priority;
use regex::Regex;
use serde_json::Value;

use super::metrics::documented;
use crate::cluster::World;
use crate::cluster::rows::Postgres;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::project;
use promql::{Series, labels_of_groupings, series};

/// Labels that Prometheus adds to each series; the namespace in a cluster.
const TARGET_LABELS: [&str; 4] = ["job", "instance", "namespace", "exported_namespace"];
/// Metrics of the kubelet and of kube-state-metrics, about objects that the chart names.
const OF_CLUSTER: [&str; 3] = [
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kube_deployment_status_replicas_available",
];

fn alerts() -> Vec<Value> {
    let text = fs::read_to_string(project("charts/portolan/files/alerts.yaml")).unwrap();
    let rules: Value = serde_yaml::from_str(&text).unwrap();
    let groups = rules["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

fn expressions_of_dashboard() -> Vec<String> {
    let text = fs::read_to_string(project("charts/portolan/files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().clone();
    let targets = panels
        .into_iter()
        .filter_map(|panel| panel["targets"].as_array().cloned());
    let expressions = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().to_owned());
    expressions.collect()
}

/// Returns what is wrong with the metrics of an expression.
fn problems(expression: &str) -> Vec<String> {
    let documented = documented();
    let all_series = series(expression);
    let mut problems = Vec::new();
    let mut labels: BTreeSet<String> = TARGET_LABELS.into_iter().map(str::to_owned).collect();
    for Series { name, matched } in &all_series {
        if OF_CLUSTER.contains(&name.as_str()) {
            continue;
        }
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
            let base = name.strip_suffix(suffix)?;
            documented.get(base).filter(|metric| metric.kind == "histogram")
        });
        let Some(metric) = base.or_else(|| documented.get(name).filter(|metric| metric.kind != "histogram")) else {
            problems.push(format!("no metric {name} in {expression}"));
            continue;
        };
        labels.extend(metric.labels.clone());
        if base.is_some() && name.ends_with("_bucket") {
            labels.insert("le".to_owned());
        }
        let is_known = |label: &str| metric.labels.contains(label) || TARGET_LABELS.contains(&label);
        let unknown = matched.iter().filter(|label| !is_known(label));
        problems.extend(unknown.map(|label| format!("no label {label} of {name} in {expression}")));
    }
    if all_series.is_empty() {
        problems.push(format!("no metric in {expression}"));
    }
    let unknown = labels_of_groupings(expression)
        .into_iter()
        .filter(|label| !labels.contains(label));
    problems.extend(unknown.map(|label| format!("no label {label} in {expression}")));
    problems
}

/// Returns the series that other programs export too, and that are not joined with one of Portolan by its target.
fn unscoped(expression: &str) -> Vec<String> {
    let join =
        Regex::new(r"^(\{[^}]*\})?(\[\w+\]\))?( > [0-9.]+)? (and|/) on \(job, instance\) portolan_budget_limit\b")
            .unwrap();
    let names: BTreeSet<String> = series(expression).into_iter().map(|series| series.name).collect();
    let is_shared = |name: &String| !name.starts_with("portolan_") && !OF_CLUSTER.contains(&name.as_str());
    let is_joined = |name: &String| {
        let name = Regex::new(&format!(r"\b{name}\b")).unwrap();
        name.find_iter(expression)
            .all(|found| join.is_match(&expression[found.end()..]))
    };
    names
        .into_iter()
        .filter(|name| is_shared(name) && !is_joined(name))
        .collect()
}

#[test]
fn series_that_other_programs_export_too_are_joined_with_one_of_portolan() {
    let alerts = alerts();
    let of_alerts = alerts.iter().map(|alert| alert["expr"].as_str().unwrap().to_owned());
    for expression in of_alerts.chain(expressions_of_dashboard()) {
        assert_eq!(unscoped(&expression), Vec::<String>::new(), "{expression}");
    }
    let joined = "and on (job, instance) portolan_budget_limit";
    assert_eq!(unscoped("sum(workqueue_depth)"), ["workqueue_depth"]);
    assert_eq!(
        unscoped(&format!(
            "sum(rate(workqueue_depth[5m]) {joined}) / sum(workqueue_depth)"
        )),
        ["workqueue_depth"],
        "each of them is joined"
    );
    assert_eq!(
        unscoped(&format!("sum(workqueue_depth) {joined}")),
        ["workqueue_depth"],
        "a sum has no target"
    );
}

/// Returns the variables of the dashboard, with their queries.
fn variables_of_dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(project("charts/portolan/files/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().clone();
    let queried = variables.into_iter().filter(|variable| variable["type"] == "query");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    queried
        .map(|variable| (text(&variable["name"]), text(&variable["query"]["query"])))
        .collect()
}

#[test]
fn each_panel_shows_the_chosen_releases_only() {
    let names: Vec<String> = variables_of_dashboard().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["namespace", "job"]);
    for expression in expressions_of_dashboard() {
        // Metrics of other programs are joined with a metric of Portolan.
        let of_portolan = series(&expression)
            .into_iter()
            .filter(|series| series.name.starts_with("portolan_"));
        let of_portolan: Vec<Series> = of_portolan.collect();
        assert!(!of_portolan.is_empty(), "{expression}");
        for Series { name, matched } in of_portolan {
            let is_filtered = names.iter().all(|name| matched.contains(name));
            assert!(is_filtered, "{name} in {expression}");
        }
    }
}

#[test]
fn the_dashboard_shows_the_leader_jobs_and_garbage_collection() {
    let expressions = expressions_of_dashboard().join("\n");
    for metric in [
        "leader_election_master_status",
        "portolan_jobs_unfinished",
        "portolan_jobs_finished_total",
        "portolan_gc_removed_total",
        "portolan_gc_last_run_timestamp_seconds",
        "portolan_repository_next_sync_timestamp_seconds",
    ] {
        assert!(expressions.contains(metric), "{metric}");
    }
}

/// Returns the expression of an alert, and its annotations.
fn alert(name: &str) -> (String, Value) {
    let mut alerts = alerts().into_iter();
    let alert = alerts.find(|alert| alert["alert"] == name).unwrap();
    (alert["expr"].as_str().unwrap().to_owned(), alert["annotations"].clone())
}

#[test]
fn lateness_is_measured_by_the_schedule_of_each_repository() {
    for (name, time) in [
        ("PortolanRepositoryStale", "sync"),
        ("PortolanRepositoryNeverSynced", "sync"),
        // A stalled repository is attempted by its schedule, which may be a daily one.
        ("PortolanNoSyncs", "attempt"),
    ] {
        let (expression, _) = alert(name);
        // A suspended repository has no such series.
        let first = &series(&expression)[0];
        let due = format!("portolan_repository_next_{time}_timestamp_seconds");
        assert_eq!(first.name, due, "{name}");
    }
}

#[test]
fn the_alert_of_joined_clusters_selects_states_that_their_metric_has() {
    let (expression, _) = alert("PortolanOamClustersUnreachable");
    let states = Regex::new(r#"state=~"([^"]+)""#).unwrap();
    let states = states.captures(&expression).unwrap()[1].to_owned();
    let page = fs::read_to_string(project("docs/reference/metrics.md")).unwrap();
    let row = page.lines().find(|line| line.contains("`portolan_joined_clusters`"));
    let (_, meaning) = row.unwrap().split_once(" by state: ").unwrap();
    let known: Vec<&str> = meaning
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .collect();
    for state in states.split('|') {
        assert!(known.contains(&state), "{state} in {meaning}");
    }
}

#[test]
fn alert_and_panel_of_pushes_select_the_repositories_that_users_wait_for() {
    let (name, priority) = (apprepository::NAME, Priority::USER.0);
    let queue = format!("workqueue_depth{{name=\"{name}\", priority=\"{priority}\"}}");
    let (expression, _) = alert("PortolanPushesWaiting");
    assert!(expression.contains(&queue), "{expression}");
    let expressions = expressions_of_dashboard();
    assert!(expressions.iter().any(|expression| expression.contains(&queue)));
}

#[test]
fn an_alert_about_a_release_tells_it_from_others() {
    let grouping = Regex::new(r"\b(?:sum|max|min|count) by \(([^)]*)\)").unwrap();
    for alert in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        let is_grouped = !expression.contains("sum(") && !expression.contains("max(") && !expression.contains("min(");
        assert!(is_grouped, "{expression} merges releases");
        for labels in grouping.captures_iter(expression) {
            let labels: Vec<&str> = labels[1].split(", ").collect();
            let is_of_release =
                labels.contains(&"job") && (labels.contains(&"namespace") || labels.contains(&"instance"));
            assert!(is_of_release, "{labels:?} in {expression}");
        }
    }
}

#[test]
fn a_threshold_is_the_number_of_one_comparison() {
    let alerts = alerts();
    let with_threshold = alerts.iter().filter_map(|alert| {
        let threshold = alert["annotations"].get("threshold")?.as_str().expect("a text");
        Some((alert["expr"].as_str().unwrap(), threshold))
    });
    let with_threshold: Vec<(&str, &str)> = with_threshold.collect();
    assert!(with_threshold.len() > 20);
    for (expression, threshold) in with_threshold {
        // As in the template.
        let comparison = Regex::new(&format!("[<>] {}( |$)", regex::escape(threshold))).unwrap();
        assert_eq!(
            comparison.find_iter(expression).count(),
            1,
            "{threshold} in {expression}"
        );
    }
}

#[test]
fn alerts_use_metrics_and_labels_that_exist() {
    let alerts = alerts();
    assert!(alerts.len() > 20);
    let problems: Vec<String> = alerts
        .iter()
        .flat_map(|alert| problems(alert["expr"].as_str().unwrap()))
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_dashboard_uses_metrics_and_labels_that_exist() {
    let expressions = expressions_of_dashboard();
    assert!(expressions.len() > 20);
    let problems: Vec<String> = expressions.iter().flat_map(|expression| problems(expression)).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    for (label, query) in variables_of_dashboard() {
        let inner = query
            .strip_prefix("label_values(")
            .and_then(|query| query.strip_suffix(&format!(", {label})")));
        let inner = inner.unwrap_or_else(|| panic!("{query}"));
        assert_eq!(self::problems(inner), Vec::<String>::new());
    }
}

#[test]
fn an_expression_with_an_unknown_metric_or_label_is_a_problem() {
    assert_eq!(
        problems("sum by (result) (rate(portolan_syncs_total[5m])) > 1"),
        Vec::<String>::new()
    );
    assert_eq!(problems("rate(portolan_syncs[5m])").len(), 1);
    assert_eq!(
        problems("portolan_sync_seconds").len(),
        1,
        "a histogram has no series of its own name"
    );
    assert_eq!(problems("portolan_syncs_total{reason=\"x\"}").len(), 1);
    assert_eq!(problems("sum by (kind) (portolan_syncs_total)").len(), 1);
    assert_eq!(problems("1 > 0").len(), 1);
}

#[test]
fn each_alert_has_a_severity_texts_and_an_entry_in_the_runbook() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap().to_owned();
        assert!(
            matches!(
                alert["labels"]["severity"].as_str(),
                Some("critical" | "warning" | "info")
            ),
            "{alert}"
        );
        let annotations = &alert["annotations"];
        for annotation in ["summary", "description"] {
            assert!(
                annotations[annotation].as_str().is_some_and(|text| text.len() > 10),
                "{alert}"
            );
        }
        let anchor = format!("docs/how-to/alerts.md#{}", name.to_lowercase());
        assert_eq!(annotations["runbook_url"].as_str(), Some(anchor.as_str()), "{alert}");
        assert!(names.insert(name), "{alert}");
    }
    let runbook = fs::read_to_string(project("docs/how-to/alerts.md")).unwrap();
    let entries: BTreeSet<String> = runbook
        .lines()
        .filter_map(|line| Some(line.strip_prefix("### ")?.to_owned()))
        .collect();
    assert_eq!(names, entries);
    for entry in runbook.split("\n### ").skip(1) {
        // Where to look, and what to do.
        for part in ["\n\n- ", "\n\n**Do:** "] {
            assert!(entry.contains(part), "no {part:?} in {entry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_fails_or_is_forbidden_has_the_labels_that_its_alert_selects() {
    let (world, postgres, control_plane) = (World::new().await, Postgres::new().await, control_plane().await);
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let portolan = world.portolan_with(&kubeconfig, postgres.url(), &[]).await;
    let count = async |reason: &str| {
        let labels = [("resource", "apprepositories.kubeapps.com"), ("reason", reason)];
        let metrics = portolan.metrics().await;
        metrics.sum("portolan_watch_errors_total", &labels).unwrap_or_default()
    };
    for (status, reason) in [(500, "other"), (403, "forbidden")] {
        let before = count(reason).await;
        proxy.clear_faults();
        proxy.inject(usize::MAX, ApiFault::Status(status), |request: &ApiRequest| {
            request.is_of("apprepositories")
        });
        proxy.gate.disconnect();
        eventually(SOON, reason, async || (count(reason).await > before).then_some(())).await;
    }
    let alerts = alerts();
    let alert = alerts
        .iter()
        .find(|alert| alert["alert"] == "PortolanWatchFailing")
        .unwrap();
    let expression = alert["expr"].as_str().unwrap();
    let resources = Regex::new(r#"reason="forbidden", resource=~"([^"]+)""#).unwrap();
    let resources = resources.captures(expression).unwrap()[1].to_owned();
    let resources = Regex::new(&format!("^(?:{resources})$")).unwrap();
    assert!(resources.is_match("apprepositories.kubeapps.com") && expression.contains(r#"{reason="other"}"#));
    assert!(
        !resources.is_match("deployments.apps"),
        "components without the right are polled"
    );
}
