//! Compares filters with the charts that Kubeapps' syncer kept.

mod hostile;

use std::fs;

use serde_json::Value;

use portolan::jq::{Filter, FilterLimits, JqRule};

use crate::support::corpus;

fn rule(jq: &str, variables: &[(&str, &str)]) -> JqRule {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    JqRule {
        jq: jq.to_owned(),
        variables: variables.collect(),
    }
}

fn rows(file: &str) -> Option<Vec<Value>> {
    let text = fs::read_to_string(corpus::goldens()?.join(file)).ok()?;
    Some(
        text.lines()
            .map(|row| serde_json::from_str::<Value>(row).unwrap()["info"].clone())
            .collect(),
    )
}

#[test]
fn a_filter_keeps_the_same_charts_as_kubeapps() {
    let Some(all) = rows("grafana.charts.jsonl") else {
        return;
    };
    for second in ["tempo", "alloy"] {
        let rule = rule(
            ".name == $var1 or .name == $var2",
            &[("$var1", "loki"), ("$var2", second)],
        );
        let filter = Filter::compile(&rule, FilterLimits::default()).unwrap();
        let names = |rows: &[Value]| rows.iter().map(|row| row["name"].to_string()).collect::<Vec<_>>();
        let kept: Vec<Value> = all.iter().filter(|row| filter.keeps(row).unwrap()).cloned().collect();
        let theirs = rows(&format!("grafana-filter-loki-or-{second}.charts.jsonl")).unwrap();
        assert_eq!(names(&kept), names(&theirs));
    }
}

#[test]
fn the_largest_charts_are_filtered_within_the_limits() {
    let Some(all) = rows("grafana.charts.jsonl") else {
        return;
    };
    let jq = r#"[.chartVersions[] | select(.version | test("^[0-9]+[.][0-9]+[.][0-9]+$")) | .app_version | length] | add >= 0"#;
    let filter = Filter::compile(&rule(jq, &[]), FilterLimits::default()).unwrap();
    assert!(all.iter().all(|row| filter.keeps(row).unwrap()));
}
