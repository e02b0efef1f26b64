//! The page about KubeVela's names: what has an effect here, what is refused, and the tests of both.
//!
//! `kubevela.txt` has the names of KubeVela, and each has a row. The other files are tables whose rows agree with the code.
//! Flags, gates and the reasons of refused steps come from the code alone.

mod commands;
mod rows;
mod test_functions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::sync::OnceLock;

use expect_test::expect_file;
use portolan::cmd::flags::vela::{FlagEffect, FlagEntry, flag_entries, gate_entries};
use portolan::controllers::oam::policies::BUILT_IN;
use portolan::controllers::oam::steps::support::{REFUSED_TYPES, unsupported_type};
use regex::Regex;

use super::pages::recorded;
use super::texts;
use crate::support::{files_below, project};
use rows::{Row, State, lines, rows};
use test_functions::TestFunctions;

const PAGE: &str = "\
# Coverage of KubeVela

*For administrators who replace vela-core, and for developers. Generated from the code and `tests/surface/coverage/` by \
`UPDATE_EXPECT=1 make test ARGS=surface`.*

Each name of KubeVela v1.11.0-alpha.4 has a row, and so have some of older versions. [KubeVela's Applications](kubevela.md) \
has the differences of what is done.

| state | means |
|---|---|
| done | has its effect |
| no effect | is accepted and changes nothing, for the reason in the notes |
| refused | is named by an error, which says why |
| later | a flag or gate is ignored with a warning, a step fails by name, a metric is missing |

Tests of recorded renderings and Applications need the recordings, and are skipped without them.
";

/// Key in `kubevela.txt`, title, name of the first column, and rows.
const TABLES: [(&str, &str, &str, &str); 8] = [
    ("steps", "Workflow steps", "type", include_str!("steps.txt")),
    ("policies", "Policies", "type", include_str!("policies.txt")),
    ("components", "Components", "type", include_str!("components.txt")),
    ("traits", "Traits", "type", include_str!("traits.txt")),
    ("webhooks", "Webhooks", "path", include_str!("webhooks.txt")),
    (
        "labels",
        "Labels, annotations and finalizers",
        "key",
        include_str!("labels.txt"),
    ),
    ("metrics", "Metrics", "metric", include_str!("metrics.txt")),
    (CHECKLIST, "What vela-core does", "what", include_str!("checklist.txt")),
];
/// The table of abilities, which have no names.
const CHECKLIST: &str = "checklist";
const FLAGS: &str = include_str!("flags.txt");
const KUBEVELA: &str = include_str!("kubevela.txt");

/// The tests of all flags and of all gates without an effect.
const OTHER_FLAGS: &str = "each_flag_without_effect_warns_by_name_once_it_has_another_value_than_the_default";
const OTHER_GATES: &str = "each_gate_without_effect_warns_by_name_once_it_has_another_value_than_the_default";

struct Section {
    key: &'static str,
    title: &'static str,
    column: &'static str,
    rows: Vec<Row>,
}

impl Section {
    fn with_state(&self, state: State) -> BTreeSet<&str> {
        let rows = self.rows.iter().filter(|row| row.state == state);
        rows.map(Row::name).collect()
    }
}

fn functions() -> &'static TestFunctions {
    static FUNCTIONS: OnceLock<TestFunctions> = OnceLock::new();
    FUNCTIONS.get_or_init(TestFunctions::of_project)
}

/// Returns the names of flags and gates with an effect, and their tests.
fn tests_of_flags() -> BTreeMap<&'static str, &'static str> {
    let tests = lines(FLAGS).map(|cells| match cells[..] {
        [name, tests] => (name, tests),
        _ => panic!("a line of flags has other cells than name and tests: {cells:?}"),
    });
    tests.collect()
}

fn rows_of_flags(entries: impl IntoIterator<Item = FlagEntry>) -> Vec<Row> {
    let tests_of_flags = tests_of_flags();
    let rows = entries.into_iter().map(|entry| {
        let others = if entry.name.starts_with("--") {
            OTHER_FLAGS
        } else {
            OTHER_GATES
        };
        let (state, reason, tests) = match entry.effect {
            FlagEffect::Implemented => {
                let tests = tests_of_flags.get(entry.name.as_str()).copied();
                (State::Done, entry.help, tests.unwrap_or_default())
            }
            FlagEffect::Default => {
                let reason = format!("{}; always as with the default", entry.help);
                (State::NoEffect, reason, others)
            }
            FlagEffect::NoEffect => (State::NoEffect, entry.help, others),
            FlagEffect::Unsupported => (State::Later, entry.help, others),
        };
        let mut names = vec![entry.name];
        names.extend(entry.older_names);
        Row {
            names,
            state,
            reason,
            tests: functions().paths(tests),
        }
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by(|one, other| one.names.cmp(&other.names));
    rows
}

fn section(key: &str) -> Section {
    let mut sections = sections().into_iter();
    sections
        .find(|section| section.key == key)
        .unwrap_or_else(|| panic!("no table {key}"))
}

fn sections() -> Vec<Section> {
    let flags = flag_entries().into_iter().filter(|entry| !entry.is_own);
    let mut sections = vec![
        Section {
            key: "flags",
            title: "Flags",
            column: "flag",
            rows: rows_of_flags(flags),
        },
        Section {
            key: "gates",
            title: "Feature gates",
            column: "gate",
            rows: rows_of_flags(gate_entries()),
        },
    ];
    for (key, title, column, table) in TABLES {
        let mut rows = rows(table, functions());
        for row in rows.iter_mut().filter(|row| key == "steps" && row.reason.is_empty()) {
            let message = unsupported_type(row.name()).unwrap_or_default();
            let reason = message.split_once(": ").map(|(_, reason)| reason);
            reason.unwrap_or_default().clone_into(&mut row.reason);
        }
        sections.push(Section {
            key,
            title,
            column,
            rows,
        });
    }
    sections
}

#[test]
fn the_page_about_the_names_of_kubevela_is_as_generated() {
    let mut page = PAGE.to_owned();
    for section in sections() {
        let (title, column) = (section.title, section.column);
        write!(
            page,
            "\n## {title}\n\n| {column} | state | notes | tests |\n|---|---|---|---|\n"
        )
        .unwrap();
        for row in &section.rows {
            let name = match section.key {
                CHECKLIST => row.name().to_owned(),
                _ => format!("`{}`", row.name()),
            };
            let (state, tests) = (row.state.words(), row.tests.join("`, `"));
            let tests = if tests.is_empty() { tests } else { format!("`{tests}`") };
            writeln!(page, "| {name} | {state} | {} | {tests} |", row.notes()).unwrap();
        }
    }
    page.push_str(&commands::part());
    expect_file!["../../../docs/reference/kubevela-coverage.md"].assert_eq(&page);
}

#[test]
fn each_name_of_kubevela_has_a_row() {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut table = "";
    for line in KUBEVELA
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(key) => table = key,
            None => names.entry(table).or_default().extend(line.split_whitespace()),
        }
    }
    let sections = sections();
    let keys: BTreeSet<&str> = sections.iter().map(|section| section.key).collect();
    let listed: BTreeSet<&str> = names.keys().copied().chain([CHECKLIST]).collect();
    assert_eq!(keys, listed);
    for section in &sections {
        let rows: BTreeSet<&str> = section
            .rows
            .iter()
            .flat_map(|row| &row.names)
            .map(String::as_str)
            .collect();
        let names = names.remove(section.key).unwrap_or_default();
        let missing: Vec<&str> = names.into_iter().filter(|name| !rows.contains(name)).collect();
        assert!(missing.is_empty(), "{} without a row: {missing:?}", section.key);
    }
}

#[test]
fn each_row_has_one_name_a_test_or_a_reason() {
    for section in sections() {
        let mut names = BTreeSet::new();
        for row in &section.rows {
            let name = row.name();
            assert!(names.insert(name), "{name} has two rows in {}", section.key);
            if row.state != State::Done {
                assert!(!row.reason.is_empty(), "{name} does not say why");
            }
            if matches!(row.state, State::Done | State::Refused) {
                assert!(!row.tests.is_empty(), "{name} of {} names no test", section.key);
            }
        }
    }
}

#[test]
fn flags_and_gates_with_an_effect_name_their_tests() {
    let entries = flag_entries().into_iter().filter(|entry| !entry.is_own);
    let entries = entries.chain(gate_entries());
    let implemented = entries.filter(|entry| entry.effect == FlagEffect::Implemented);
    let implemented: BTreeSet<String> = implemented.map(|entry| entry.name).collect();
    let named: BTreeSet<String> = tests_of_flags().into_keys().map(str::to_owned).collect();
    assert_eq!(named, implemented);
}

/// Returns the names of the starter definitions in a directory.
fn starter_definitions(directory: &str) -> BTreeSet<String> {
    let files = fs::read_dir(project("definitions").join(directory)).unwrap();
    let stem = |file: fs::DirEntry| file.path().file_stem().unwrap().to_string_lossy().into_owned();
    files.map(|file| stem(file.unwrap())).collect()
}

fn borrowed(names: &BTreeSet<String>) -> BTreeSet<&str> {
    names.iter().map(String::as_str).collect()
}

#[test]
fn types_of_steps_have_the_state_that_the_code_gives_them() {
    let steps = section("steps");
    for row in &steps.rows {
        let message = unsupported_type(row.name());
        let expected = if message.is_some() { State::Refused } else { State::Done };
        assert_eq!(row.state, expected, "{}: {message:?}", row.name());
    }
    // This name has no definition.
    let mut done = starter_definitions("workflowsteps");
    done.insert("builtin-apply-component".to_owned());
    assert_eq!(steps.with_state(State::Done), borrowed(&done));
    let refused: BTreeSet<&str> = REFUSED_TYPES.into_iter().map(|(name, _)| name).collect();
    assert_eq!(steps.with_state(State::Refused), refused);
}

#[test]
fn definitions_and_policies_of_the_code_are_done_and_no_others() {
    for key in ["components", "traits", "policies"] {
        let definitions = starter_definitions(key);
        assert_eq!(section(key).with_state(State::Done), borrowed(&definitions), "{key}");
    }
    let policies = section("policies");
    let rows: BTreeSet<&str> = policies.rows.iter().map(Row::name).collect();
    let missing: Vec<&str> = BUILT_IN.into_iter().filter(|name| !rows.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn webhooks_of_the_code_are_done_and_no_others() {
    let is_path =
        |text: &String| text.starts_with("/mutating-") || text.starts_with("/validating-") || text == "/convert";
    let paths: BTreeSet<String> = texts().filter(is_path).collect();
    assert_eq!(section("webhooks").with_state(State::Done), borrowed(&paths));
}

#[test]
fn labels_and_annotations_of_the_code_have_rows_and_those_that_are_done_are_in_the_code() {
    let key = Regex::new(r"\b(?:[a-z]+\.)*oam\.dev/[A-Za-z-]+\b").unwrap();
    let mut manifests = String::new();
    for directory in [
        "definitions/components",
        "definitions/traits",
        "definitions/policies",
        "definitions/workflowsteps",
        "charts/portolan/templates",
    ] {
        for extension in ["yaml", "tpl", "txt"] {
            for file in files_below(&project(directory), extension) {
                manifests.push_str(&fs::read_to_string(file).unwrap());
            }
        }
    }
    let texts: BTreeSet<String> = texts().collect();
    let is_key = |text: &&str| key.find(text).is_some_and(|found| found.as_str() == *text);
    let mut used: BTreeSet<&str> = texts.iter().map(String::as_str).filter(is_key).collect();
    used.extend(key.find_iter(&manifests).map(|found| found.as_str()));
    let labels = section("labels");
    let rows: BTreeSet<&str> = labels.rows.iter().map(Row::name).collect();
    let missing: Vec<&&str> = used.difference(&rows).collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");
    for name in labels.with_state(State::Done) {
        assert!(
            texts.contains(name) || manifests.contains(name),
            "nothing uses {name}, which is said to be done"
        );
    }
    for name in labels.with_state(State::Later) {
        assert!(!used.contains(name), "{name} is used, and is said to come later");
    }
}

#[test]
fn metrics_with_names_of_others_are_done_and_no_others() {
    let page = fs::read_to_string(project("docs/reference/metrics.md")).unwrap();
    let metrics = recorded(&page)
        .into_keys()
        .filter(|name| !name.starts_with("portolan_"));
    let metrics: BTreeSet<String> = metrics.collect();
    assert_eq!(section("metrics").with_state(State::Done), borrowed(&metrics));
}
