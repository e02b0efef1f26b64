//! The standard big index, and how it goes on.

use std::fs;
use std::path::Path;

use crate::numbers::thousands;
use crate::support::{corpus, index_generator};

/// An index, and what it is made from.
pub struct Index {
    /// For the report.
    pub origin: String,
    /// YAML.
    pub text: String,
}

impl Index {
    /// grafana's four times over where the real indexes are, and a generated one of the same size elsewhere.
    pub fn standard() -> Self {
        match corpus::corpus() {
            Some(folder) => Self {
                origin: "grafana's index, four times under other names".to_owned(),
                text: four_times(&folder.join("grafana__helm-charts/index.yaml")),
            },
            None => Self {
                origin: "a generated index".to_owned(),
                text: index_generator::big_index(1),
            },
        }
    }

    /// What it is, how large, and how many versions it has.
    pub fn described(&self) -> String {
        let megabytes = self.text.len() as f64 / 1e6;
        let versions = thousands(self.versions());
        format!("{}, {megabytes:.1} MB, {versions} versions", self.origin)
    }

    /// Chart versions in it.
    fn versions(&self) -> usize {
        self.text
            .lines()
            .filter(|line| line.starts_with("    version: "))
            .count()
    }

    /// The same with one more version, the newest, of the chart that has most of them.
    pub fn with_one_more(&self, number: usize) -> String {
        let (start, end) = newest_of_the_largest(&self.text);
        let mut newest = String::new();
        for line in self.text[start..end].split_inclusive('\n') {
            if line.starts_with("    version: ") {
                newest.push_str(&format!("    version: 999.0.{number}\n"));
            } else if line.starts_with("    digest: ") {
                newest.push_str(&format!("    digest: {number:064x}\n"));
            } else {
                newest.push_str(line);
            }
        }
        format!("{}{newest}{}", &self.text[..start], &self.text[start..])
    }
}

fn four_times(path: &Path) -> String {
    let original = fs::read_to_string(path).expect("the corpus has grafana's index");
    let mut text = String::with_capacity(original.len() * 4);
    let (head, entries) = original.split_once("entries:\n").expect("an index has entries");
    let (entries, tail) = entries.split_at(entries.rfind("\ngenerated:").expect("and says when it was made") + 1);
    text.push_str(head);
    text.push_str("entries:\n");
    for copy in 1..=4 {
        for line in entries.lines() {
            text.push_str(line.strip_suffix(':').filter(|line| is_key(line)).unwrap_or(line));
            if is_key(line) {
                text.push_str(&format!("-{copy}:"));
            } else if line.starts_with("    name: ") {
                text.push_str(&format!("-{copy}"));
            }
            text.push('\n');
        }
    }
    text.push_str(tail);
    text
}

/// Whether a line names a chart.
fn is_key(line: &str) -> bool {
    line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -")
}

/// Where the first version of the largest chart begins and ends. A deprecated chart is in no catalogue, so it does not count.
fn newest_of_the_largest(text: &str) -> (usize, usize) {
    let mut charts: Vec<Vec<usize>> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if is_key(line) {
            charts.push(Vec::new());
        } else if line.starts_with("  - ")
            && let Some(chart) = charts.last_mut()
        {
            chart.push(offset);
        }
        offset += line.len();
    }
    let newest = |chart: &Vec<usize>| (chart[0], chart[1]);
    let kept = charts.iter().filter(|chart| {
        chart.len() > 1 && {
            let (start, end) = newest(chart);
            !text[start..end].contains("\n    deprecated: true")
        }
    });
    kept.max_by_key(|chart| chart.len())
        .map(newest)
        .expect("a chart that is not deprecated has two versions")
}
