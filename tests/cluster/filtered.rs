//! Repositories with a filter.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::rows::Postgres;
use super::{NEVER, SOON, World, condition, message};
use crate::support::archives::{Chart, index};
use crate::support::eventually::eventually;

/// Serves three charts and their archives below `/name`, with validators.
fn serve(world: &World, name: &str) -> String {
    let archives = ["db", "web", "worker"].map(|chart| {
        Chart::new(chart, "1.0.0")
            .field("maintainers", json!([{ "name": format!("{chart}-crew") }]))
            .file("README.md", format!("# {chart}\n"))
            .pack()
    });
    world.server.serve_archives(name, &archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    world.serve(name, index(entries))
}

fn filter(rule: &str, variables: Value) -> Value {
    json!({ "filterRule": { "jq": rule, "variables": variables } })
}

async fn declare(world: &World, name: &str, filter: Value) {
    let mut spec = filter;
    spec["type"] = "helm".into();
    spec["url"] = serve(world, name).into();
    world.declare_with(name, json!({ "spec": spec })).await;
}

/// Files by ID, each with its README.
async fn readmes(postgres: &Postgres) -> BTreeMap<String, String> {
    let files = postgres.rows.files().await;
    files
        .into_iter()
        .map(|(id, info)| (id, info["Readme"].as_str().unwrap().to_owned()))
        .collect()
}

/// Waits until files of exactly these charts exist. The status may still count the previous charts.
async fn until_readmes(postgres: &Postgres, charts: &[&str]) {
    eventually(SOON, "the files of the charts", async || {
        let found = readmes(postgres).await;
        if found == expected(charts) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

fn expected(charts: &[&str]) -> BTreeMap<String, String> {
    charts
        .iter()
        .map(|chart| (format!("stable/{chart}-1.0.0"), format!("# {chart}\n")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_filter_is_applied_to_an_unchanged_index() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    // In the form of Kubeapps' dashboard.
    let two = filter(
        ".name == $var0 or .name == $var1",
        json!({ "$var0": "web", "$var1": "worker" }),
    );
    declare(&world, "stable", two).await;
    let object = world.until_ready("stable").await;
    assert_eq!(
        message(&object),
        "2 versions in 2 charts; skipped: 1 chart by the filter."
    );
    assert_eq!(
        postgres.rows.charts().await.unwrap(),
        ["stable/web 1.0.0", "stable/worker 1.0.0"]
    );
    world.until_files("stable", 2).await;
    assert_eq!(readmes(&postgres).await, expected(&["web", "worker"]));

    // Another rule; then the same rule with another variable.
    for (rule, variable, kept) in [
        (".name | test($var0) | not", "^w", "db"),
        (".maintainers | any(.name == $var0)", "web-crew", "web"),
        (".maintainers | any(.name == $var0)", "worker-crew", "worker"),
    ] {
        let other = filter(rule, json!({ "$var0": variable, "$var1": null }));
        world.edit("stable", json!({ "spec": other })).await;
        world.until_ready("stable").await;
        assert_eq!(
            postgres.rows.charts().await.unwrap(),
            [format!("stable/{kept} 1.0.0")],
            "{rule} {variable}"
        );
        until_readmes(&postgres, &[kept]).await;
    }

    world.edit("stable", json!({ "spec": { "filterRule": null } })).await;
    world.until_ready("stable").await;
    until_readmes(&postgres, &["db", "web", "worker"]).await;
    world.until_files("stable", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_filter_is_reported_and_the_charts_stay() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    declare(&world, "stable", filter(".name | startswith(\"w\")", json!({}))).await;
    world.until_ready("stable").await;
    let before = postgres.rows.infos().await.unwrap();
    for (rule, reason, words) in [
        (".name | startwith(\"w\")", "InvalidFilter", "startwith"),
        (".name == $crew", "InvalidFilter", "$crew"),
        (".name ==", "InvalidFilter", "spec.filterRule is not valid"),
        (".name", "FilterFailed", "db"),
        (".keywords | join(\",\") | error", "FilterFailed", "db"),
    ] {
        world.edit("stable", json!({ "spec": filter(rule, json!({})) })).await;
        let object = world.until_ready_is("stable", "False", reason).await;
        assert_eq!(condition(&object, "Stalled"), Some(("True", reason)), "{rule}");
        let text = message(&object);
        assert!(
            text.contains(words) && text.contains("remain available"),
            "{rule}: {text}"
        );
        assert_eq!(postgres.rows.infos().await.unwrap(), before, "{rule}");
    }
    world
        .edit("stable", json!({ "spec": filter(".name == \"db\"", json!({})) }))
        .await;
    world.until_ready("stable").await;
    assert_eq!(postgres.rows.charts().await.unwrap(), ["stable/db 1.0.0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_filter_is_stopped_and_delays_no_others() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[NEVER]).await;
    let rules = [
        ("loop", "last(repeat(1)) == 1"),
        ("calls", "def f: 1 + f; f == 1"),
        ("memory", "[range(1e12)] | length > 0"),
        ("caught", "try last(repeat(1)) catch true"),
    ];
    for (name, rule) in rules {
        declare(&world, name, filter(rule, json!({}))).await;
    }
    declare(&world, "stable", filter(".name == \"web\"", json!({}))).await;
    world.until_ready("stable").await;
    assert_eq!(portolan.get("/livez").await.unwrap().0, 200);
    for (name, rule) in rules {
        let object = world.until_ready_is(name, "False", "FilterLimitExceeded").await;
        assert_eq!(
            condition(&object, "Stalled"),
            Some(("True", "FilterLimitExceeded")),
            "{rule}"
        );
        assert!(message(&object).contains("simplify the rule"), "{}", message(&object));
    }
    assert_eq!(postgres.rows.charts().await.unwrap(), ["stable/web 1.0.0"]);
    // The stopped repository can be repaired.
    world
        .edit("loop", json!({ "spec": filter(".name == \"db\"", json!({})) }))
        .await;
    world.until_ready("loop").await;
}
