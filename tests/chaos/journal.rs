//! The outcomes of a campaign in a file, one a line, so that a campaign that was stopped goes on.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use super::point::Interruption;
use super::run::Outcome;
use super::scenario::Scenario;
use crate::support::target_dir;

/// The interruptions of a campaign, and the outcomes of those that were run.
pub struct Journal {
    file: File,
    earlier: Option<Earlier>,
}

struct Earlier {
    all: Vec<Interruption>,
    outcomes: Vec<(Interruption, Outcome)>,
}

impl Journal {
    /// Opens the file of a scenario, and reads its outcomes or truncates it.
    pub fn open(scenario: Scenario, goes_on: bool) -> Self {
        let path = target_dir("chaos").join(format!("{scenario:?}.jsonl"));
        let earlier = goes_on.then(|| Earlier::read(&path)).flatten();
        let mut options = File::options();
        options.create(true);
        match earlier {
            Some(_) => options.append(true),
            None => options.write(true).truncate(true),
        };
        let file = options.open(path).expect("the journal can be written");
        Self { file, earlier }
    }

    /// Returns the interruptions that were planned, which differ a little between undisturbed runs.
    pub fn plan(&mut self, all: Vec<Interruption>) -> Vec<Interruption> {
        if let Some(earlier) = &self.earlier {
            return earlier.all.clone();
        }
        self.write(&serde_json::json!(all));
        all
    }

    /// Returns the earlier outcomes. An interruption that diverged is run again.
    pub fn outcomes(&mut self) -> Vec<(Interruption, Outcome)> {
        let outcomes = self.earlier.take().into_iter().flat_map(|earlier| earlier.outcomes);
        outcomes.filter(|(_, outcome)| outcome.is_same_end()).collect()
    }

    pub fn add(&mut self, interruption: &Interruption, outcome: &Outcome) {
        self.write(&serde_json::json!([interruption, outcome]));
    }

    fn write(&mut self, line: &serde_json::Value) {
        writeln!(self.file, "{line}").expect("the journal can be written");
    }
}

impl Earlier {
    fn read(path: &PathBuf) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let all = serde_json::from_str(lines.next()?).ok()?;
        // The last line of a process that was killed may be incomplete.
        let outcomes = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        Some(Self { all, outcomes })
    }
}
