//! Rows of the tables.

use super::test_functions::TestFunctions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Done,
    NoEffect,
    Refused,
    Later,
}

impl State {
    const ALL: [Self; 4] = [Self::Done, Self::NoEffect, Self::Refused, Self::Later];

    pub const fn words(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NoEffect => "no effect",
            Self::Refused => "refused",
            Self::Later => "later",
        }
    }
}

pub struct Row {
    /// The name, and older ones.
    pub names: Vec<String>,
    pub state: State,
    pub reason: String,
    /// Paths of test functions.
    pub tests: Vec<String>,
}

impl Row {
    pub fn name(&self) -> &str {
        &self.names[0]
    }

    pub fn notes(&self) -> String {
        let notes = match &self.names[1..] {
            [] => self.reason.clone(),
            older => format!("{} (older name: `{}`)", self.reason, older.join("`, `")),
        };
        notes.replace('|', "\\|")
    }
}

/// Returns the cells of each line of a table.
pub fn lines(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// Returns the rows of a table with name, state, reason and tests.
pub fn rows(table: &str, functions: &TestFunctions) -> Vec<Row> {
    let rows = lines(table).map(|cells| {
        let [name, state, reason, tests] = cells[..] else {
            panic!("a line has other cells than name, state, reason and tests: {cells:?}");
        };
        let mut states = State::ALL.into_iter();
        Row {
            names: vec![name.to_owned()],
            state: states
                .find(|one| one.words() == state)
                .unwrap_or_else(|| panic!("{name} has an unknown state: {state}")),
            reason: reason.to_owned(),
            tests: functions.paths(tests),
        }
    });
    rows.collect()
}
