//! Commands, flags and metrics are documented in docs/.

use std::collections::BTreeSet;
use std::fs;

use super::{SOON, World, execute};
use crate::applications::{Site, shop};
use crate::support::cue::executable;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command};
use crate::support::project;

const COMMANDS: [&str; 16] = [
    "run",
    "sync",
    "delete",
    "invalidate-cache",
    "crds",
    "install-crds",
    "doctor",
    "status",
    "history",
    "search",
    "show",
    "resync",
    "apps",
    "app",
    "definitions",
    "uninstall",
];

fn read_page(name: &str) -> String {
    fs::read_to_string(project("docs").join(name)).unwrap()
}

/// Returns true if `text` contains `name` other than as a prefix of a longer name.
fn contains_name(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[at + name.len()..].starts_with(is_part))
}

#[tokio::test]
async fn every_command_and_flag_is_documented() {
    let (running, kubeapps, oam) = (read_page("running.md"), read_page("kubeapps.md"), read_page("oam.md"));
    let listed = execute(command(["help"])).await.ok();
    let mut missing = BTreeSet::new();
    for name in COMMANDS {
        assert!(listed.contains(&format!("\n  {name} ")), "{listed}");
        if !running.contains(&format!("`portolan {name}")) {
            missing.insert(name.to_owned());
        }
        let help = execute(command(["help", name])).await.ok();
        let flags = help.lines().filter_map(|line| {
            let (_, flag) = line
                .trim_start()
                .strip_prefix("-")
                .and_then(|_| line.split_once("--"))?;
            let end = flag
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .unwrap_or(flag.len());
            Some(format!("--{}", &flag[..end]))
        });
        // Common flags are only in `portolan help`.
        let known = ["--help", "--output", "--limit"];
        missing.extend(flags.filter(|flag| {
            !known.contains(&flag.as_str())
                && [&running, &kubeapps, &oam]
                    .iter()
                    .all(|page| !contains_name(page, flag))
        }));
    }
    assert!(
        missing.is_empty(),
        "not in docs/running.md, docs/kubeapps.md or docs/oam.md: {missing:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_metrics_is_complete_and_has_no_others() {
    let world = World::new().await;
    let url = world.serve("stable", super::build_index(1));
    let manifests = world.declare("stable", &url, "");
    let portolan = Portolan::start(world.command(&["run", "--manifests", &manifests, "--chart-files=all"]));
    portolan.ready(SOON).await;
    let text = eventually(
        SOON,
        "the repository to be synced and its archives to be downloaded",
        async || {
            let text = portolan.get("/metrics").await.map_err(|error| error.to_string())?.1;
            if text.contains("portolan_repository_charts{") && text.contains("portolan_chart_files_total{") {
                Ok(text)
            } else {
                Err(text)
            }
        },
    )
    .await;
    // Metrics of Applications exist only in a cluster.
    let site = Site::new().await;
    for crd in portolan::api::oam::crds() {
        site.control_plane.install_crd(&crd).await;
    }
    let evaluator = format!("--cue-evaluator={}", executable().display());
    let controllers = "--controllers=apprepository,application,oam";
    let in_cluster = site.portolan(&[controllers, &evaluator]).await;
    site.declare("shop", shop(&[], false)).await;
    site.until_components("shop", "0/0").await;
    let text = text + &in_cluster.get("/metrics").await.unwrap().1;
    let shown: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
        .collect();
    let prefixes = [
        "portolan_",
        "workqueue_",
        "controller_runtime_",
        "rest_client_",
        "process_",
    ];
    let documented: BTreeSet<String> = read_page("running.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split_once(" |"))
        .flat_map(|(cell, _)| cell.split('`').map(str::to_owned).collect::<Vec<_>>())
        .map(|name| name.split('{').next().unwrap_or_default().to_owned())
        .filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert_eq!(shown, documented);
}
