//! Commands and flags that pages name exist. The reference pages have all of them (`surface`).

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use portolan::cmd::reference;
use regex::Regex;

use crate::support::{files_below, project};

/// Returns the pages below a directory, and those of the project and its chart.
fn pages() -> Vec<PathBuf> {
    let mut pages = [
        "README.md",
        "CONTRIBUTING.md",
        "charts/portolan/README.md",
        "charts/portolan/templates/NOTES.txt",
    ]
    .map(project)
    .to_vec();
    pages.extend(files_below(&project("docs"), "md"));
    pages
}

/// Returns the command lines of a page: code that begins with the program, lines of blocks, and commands for a pod.
fn command_lines(page: &str) -> Vec<String> {
    let line = Regex::new(r"(?m)(?:`|^ *(?:\$ )?|-- )portolan ([a-z-][^`\n|#]*)").unwrap();
    line.captures_iter(page)
        .map(|captures| captures[1].to_owned())
        .collect()
}

#[test]
fn command_lines_are_found_in_prose_and_blocks() {
    let page = "Use `portolan gc --dry-run`, or Portolan itself.\n```sh\nportolan run --once # all\nkubectl exec x -- portolan status\n\
                helm install portolan charts/portolan\n```\n";
    assert_eq!(command_lines(page), ["gc --dry-run", "run --once ", "status"]);
}

#[test]
fn commands_and_flags_in_pages_exist() {
    let reference = reference::command_line();
    let commands: BTreeSet<&str> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("### portolan "))
        .collect();
    let known = reference.clone() + &reference::kubevela_flags();
    let flag = Regex::new(r"--[a-z][a-z-]+").unwrap();
    let flags: BTreeSet<&str> = flag.find_iter(&known).map(|found| found.as_str()).collect();
    let mut unknown = BTreeSet::new();
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for line in command_lines(&page) {
            let mut words = line.split_whitespace().take_while(|word| !word.starts_with('-'));
            let command = words.next().unwrap_or_default();
            let has_subcommands = commands.iter().any(|name| name.starts_with(&format!("{command} ")));
            let subcommand = words
                .next()
                .filter(|word| has_subcommands && word.chars().all(|c| c.is_ascii_lowercase()));
            let command = [command].into_iter().chain(subcommand).collect::<Vec<_>>().join(" ");
            let is_known = command.is_empty() || command == "help" || commands.contains(command.as_str());
            let unknown_flags = flag.find_iter(&line).map(|found| found.as_str());
            let unknown_flags =
                unknown_flags.filter(|flag| !flags.contains(flag) && !["--help", "--version"].contains(flag));
            let problems = unknown_flags.map(str::to_owned).chain((!is_known).then_some(command));
            unknown.extend(problems.map(|problem| format!("{}: {problem} in `portolan {line}`", path.display())));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}
