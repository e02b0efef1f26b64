//! The part of the page about KubeVela's command line: what it reads and writes in a cluster.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use regex::Regex;

use super::functions;
use super::rows::lines;
use crate::support::project;

const COMMANDS: &str = include_str!("commands.txt");

const TITLE: &str = "
## KubeVela's command line

Read from its sources (`references/cli`, versions from 1.6 on), not run beside Portolan.

| state | means |
|---|---|
| works | the tests write what the command writes, or make what it reads |
| should work | no test does so |
| with velaCompat | needs the chart value `oam.velaCompat` |
| with the gateway | needs KubeVela's cluster gateway, which Portolan does not bring |

| command | reads | writes | state | notes | tests |
|---|---|---|---|---|---|
";

const WORKS: &str = "works";
const SHOULD_WORK: &str = "should work";
const WITH_VELA_COMPAT: &str = "with velaCompat";
const WITH_GATEWAY: &str = "with the gateway";

/// A command, or several that read and write the same.
struct Command {
    name: &'static str,
    reads: &'static str,
    writes: &'static str,
    state: &'static str,
    notes: &'static str,
    tests: &'static str,
}

impl Command {
    /// Returns true for a command that changes or reads no cluster.
    fn is_local(&self) -> bool {
        self.reads == "file"
    }
}

fn commands() -> Vec<Command> {
    let commands = lines(COMMANDS).map(|cells| {
        let [name, reads, writes, state, notes, tests] = cells[..] else {
            panic!("a line has other cells than command, reads, writes, state, notes and tests: {cells:?}");
        };
        Command {
            name,
            reads,
            writes,
            state,
            notes,
            tests,
        }
    });
    commands.collect()
}

/// Returns the part of the page.
pub fn part() -> String {
    let mut part = TITLE.to_owned();
    for command in commands() {
        let tests = functions().paths(command.tests).join("`, `");
        let tests = if tests.is_empty() { tests } else { format!("`{tests}`") };
        let Command {
            name,
            reads,
            writes,
            state,
            notes,
            ..
        } = command;
        writeln!(part, "| `{name}` | {reads} | {writes} | {state} | {notes} | {tests} |").unwrap();
    }
    part
}

#[test]
fn each_command_of_kubevela_has_one_row_that_says_what_it_reads_and_writes() {
    let mut names = BTreeSet::new();
    for command in commands() {
        let name = command.name;
        assert!(names.insert(name), "{name} has two rows");
        assert!(!command.reads.is_empty() && !command.writes.is_empty(), "{name}");
        let is_tested = !command.tests.is_empty();
        match command.state {
            WORKS => assert!(is_tested || command.is_local(), "{name} names no test"),
            SHOULD_WORK => assert!(!is_tested, "{name} names a test"),
            WITH_VELA_COMPAT | WITH_GATEWAY => {}
            state => panic!("{name} has an unknown state: {state}"),
        }
    }
}

#[test]
fn commands_need_vela_compat_for_what_its_template_makes_and_for_nothing_else() {
    let template = fs::read_to_string(project("charts/portolan/templates/vela-compat.yaml")).unwrap();
    let map = Regex::new(r"\b[a-z]+(?:-[a-z]+)*-(?:view|registry)\b").unwrap();
    let made: BTreeSet<&str> = map.find_iter(&template).map(|found| found.as_str()).collect();
    assert!(made.len() > 3, "{made:?}");
    for command in commands() {
        let (name, reads) = (command.name, command.reads);
        let read: BTreeSet<&str> = map.find_iter(reads).map(|found| found.as_str()).collect();
        assert!(read.is_subset(&made), "{name} reads {read:?}");
        assert_eq!(command.state == WITH_VELA_COMPAT, !read.is_empty(), "{name}");
        assert_eq!(command.state == WITH_GATEWAY, reads.contains("APIService"), "{name}");
    }
}
