//! Filters that never end, exhaust memory, or read more than charts.

use std::time::{Duration, Instant};

use super::{SOON, World, peak_memory, repository};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::Page;

/// Endless rules, each with the expected reason.
const ENDLESS: [(&str, &str, &str); 12] = [
    ("loop", "def f: f; f", "FilterLimitExceeded"),
    ("recursion", "def f: 1 + f; f == 1", "FilterLimitExceeded"),
    ("repeat", "[repeat(.)] | length > 0", "FilterLimitExceeded"),
    ("range", "[range(1e18)] | length > 0", "FilterLimitExceeded"),
    ("until", "until(false; .) == 1", "FilterLimitExceeded"),
    (
        "nested",
        "[range(1e6) as $a | range(1e6) as $b | range(1e6) as $c | $a * $b * $c] | length > 0",
        "FilterLimitExceeded",
    ),
    (
        "doubled",
        "reduce range(60) as $i (\"x\"; . + .) | length > 0",
        "FilterLimitExceeded",
    ),
    ("multiplied", "\"x\" * 1e12 | length > 0", "FilterLimitExceeded"),
    (
        "deep",
        "reduce range(100000) as $i ([]; [.]) | length > 0",
        "FilterLimitExceeded",
    ),
    ("caught", "try (def f: f; f) catch true", "FilterLimitExceeded"),
    ("quiet", "last(repeat(empty)) // true", "FilterLimitExceeded"),
    ("backtracking", "(\"a\" * 30000) | test(\"(a+)+$b\") | not", "Synced"),
];

/// Rules that read other data than the chart.
const CURIOUS: [(&str, &str); 7] = [
    ("environment", "env.PATH == null"),
    ("environment-variable", "$ENV.PATH == null"),
    ("input", "input == null"),
    ("inputs", "[inputs] == []"),
    ("import", "import \"/etc/passwd\" as $p; true"),
    ("include", "include \"/etc/passwd\"; true"),
    ("stop", "halt_error"),
];

fn filter(rule: &str) -> String {
    format!("  filterRule:\n    jq: {}\n", serde_json::to_string(rule).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_filter_is_stopped_while_other_repositories_are_synced() {
    let world = World::new().await;
    let charts = (0..50).map(|number| {
        Chart::new(&format!("boat-{number}"), "1.0.0")
            .pack()
            .index_entry(&["a.tgz"])
    });
    world.attacker.serve("/index.yaml", Page::new(index(charts)));
    for (name, rule, _) in ENDLESS {
        world.declare(name, &world.attacker.url(""), &filter(rule));
    }
    for (name, rule) in CURIOUS {
        world.declare(name, &world.attacker.url(""), &filter(rule));
    }
    let mut portolan = world.run(&[]).await;
    world.until_honest_is_served().await;

    // Another repository is not delayed by the running filters.
    let declared = Instant::now();
    world.manifest(
        "later",
        &repository("default", "later", "helm", &world.honest.url("/charts"), ""),
    );
    world.until_ready("later").await;
    assert!(declared.elapsed() < Duration::from_secs(20), "{:?}", declared.elapsed());

    for (name, _, reason) in ENDLESS {
        if reason == "Synced" {
            world.until_ready(name).await;
            continue;
        }
        let status = world.until_failed(name, reason).await;
        assert_eq!(status["stalled"], true, "{status}");
        assert_eq!(status["charts"], 0, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(
            message.contains("spec.filterRule was stopped") && message.contains("boat-"),
            "{message}"
        );
    }
    for (name, _) in CURIOUS {
        let status = world.until_failed(name, "InvalidFilter").await;
        assert_eq!(status["charts"], 0, "{status}");
    }
    let peak = peak_memory(&portolan);
    assert!(
        peak < 700,
        "{peak} MiB for eight concurrent filters of at most 128 MiB each"
    );
    // The process exits: no thread is left running.
    portolan.signal("TERM");
    assert!(portolan.exit(SOON).await.success());
}
