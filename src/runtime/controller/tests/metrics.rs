//! Names, labels and types of a scrape.

use super::*;

#[test]
fn a_scrape_has_the_names_labels_and_types_that_dashboards_expect() {
    let mut registry = Registry::default();
    let _metrics = WorkerMetrics::register(&mut registry).of_controller("repositories");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE controller_runtime_"))
        .collect();
    assert_eq!(
        types,
        [
            "reconcile counter",
            "reconcile_errors counter",
            "terminal_reconcile_errors counter",
            "reconcile_panics counter",
            "reconcile_time_seconds histogram",
            "max_concurrent_reconciles gauge",
            "active_workers gauge",
        ]
    );
    let mut samples: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket"))
        .collect();
    samples.sort_unstable();
    assert_eq!(
        samples,
        [
            r#"controller_runtime_active_workers{controller="repositories"} 0"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_panics_total{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="repositories"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_sum{controller="repositories"} 0.0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="error"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="requeue_after"} 0"#,
            r#"controller_runtime_reconcile_total{controller="repositories",result="success"} 0"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="repositories"} 0"#,
        ]
    );
}
