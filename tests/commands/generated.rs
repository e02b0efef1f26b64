//! Completion scripts, man pages and help that the program generates.

use rstest::rstest;

use super::execute;
use crate::support::portolan::command;
use crate::support::process::ScratchDir;

#[rstest]
#[case("bash", "-F _clap_complete_portolan portolan")]
#[case("zsh", "#compdef portolan")]
#[case("fish", "--command portolan")]
#[tokio::test]
async fn a_completion_script_runs_the_program(#[case] shell: &str, #[case] start: &str) {
    let script = execute(command(["completion", shell])).await.ok();
    assert!(
        script.contains(start) && script.contains("_PORTOLAN_COMPLETE"),
        "{script}"
    );
}

#[tokio::test]
async fn a_completion_script_of_an_unknown_shell_is_invalid_usage() {
    let error = execute(command(["completion", "cmd"])).await.failed(2);
    assert!(error.contains("possible values: bash,"), "{error}");
}

#[tokio::test]
async fn each_command_has_a_man_page() {
    let directory = ScratchDir::new("man");
    let pages = directory.join("pages");
    execute(command(["man", pages.to_str().unwrap()])).await.ok();
    for (page, text) in [
        ("portolan.1", "portolan\\-vela(1)"),
        ("portolan-run.1", "PORTOLAN_SYNC_WORKERS"),
        ("portolan-vela-definitions-apply.1", "definitions"),
    ] {
        let page = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(text), "{page}");
    }
    assert!(!pages.join("portolan-man.1").exists());
}

#[tokio::test]
async fn the_flags_of_kubevela_are_listed_by_their_effect() {
    let help = execute(command(["run", "--help-kubevela"])).await.ok();
    let lines = |start: &str| help.lines().position(|line| line.starts_with(start)).unwrap();
    let headings = [
        "Implemented: flags",
        "--concurrent-reconciles",
        "Implemented: feature gates",
        "ApplyOnce ",
        "Always as with the default: flags",
        "Without effect: flags",
        "Not supported yet: flags",
        "--enable-cluster-metrics ",
        "Not supported yet: feature gates",
    ];
    let positions = headings.map(lines);
    assert!(positions.is_sorted(), "{positions:?} in {help}");
}
