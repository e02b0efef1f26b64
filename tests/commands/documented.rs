//! Commands and flags are documented in docs/.

use std::collections::BTreeSet;
use std::fs;

use super::execute;
use crate::support::portolan::command;
use crate::support::project;

const COMMANDS: [&str; 19] = [
    "run",
    "sync",
    "delete",
    "invalidate-cache",
    "gc",
    "catalog",
    "crds",
    "install-crds",
    "doctor",
    "debug",
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
