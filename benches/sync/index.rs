//! The standard index of 16 MB, and its variants.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::{corpus, index_generator};

const DIGEST: &str = "    digest: ";
const CREATED: &str = "    created: ";
const HOME: &str = "    home: ";
const VERSION: &str = "    version: ";

/// An index in YAML.
pub struct Index {
    pub text: String,
}

impl Index {
    /// Returns grafana's index four times over, or a generated one of the same size if the real indexes are missing.
    pub fn standard() -> Self {
        let text = match corpus::corpus() {
            Some(directory) => four_times(&directory.join("grafana__helm-charts/index.yaml")),
            None => index_generator::big_index(1),
        };
        Self { text }
    }

    /// Returns a generated index of about this size, with 88 versions per chart.
    pub fn of_megabytes(megabytes: usize) -> Self {
        /// More than enough charts for a megabyte.
        const CHARTS: usize = 20;
        let mut text = index_generator::generate(2, megabytes * CHARTS, 88);
        let end = text.split_off(text.rfind("generated:").expect("the generator writes this line"));
        let rest = text.split_off(text.floor_char_boundary(megabytes * 1_000_000));
        // Completes the last chart.
        let mut lines = rest.split_inclusive('\n');
        text.extend(lines.next());
        text.extend(lines.take_while(|line| !is_key(line)));
        Self { text: text + &end }
    }

    /// Describes origin, size and number of versions of the standard index.
    pub fn description(&self) -> String {
        let origin = match corpus::corpus() {
            Some(_) => "grafana's index, four times under other names",
            None => "a generated index",
        };
        let versions = self.text.lines().filter(|line| line.starts_with(VERSION)).count();
        let megabytes = self.text.len() as f64 / 1e6;
        format!("{origin}, {megabytes:.1} MB, {versions} versions")
    }

    /// Adds a newest version to the chart that has the most.
    pub fn with_one_more(&self, number: usize) -> String {
        let (start, end) = newest_of_the_largest(&self.text);
        let mut newest = String::new();
        for line in self.text[start..end].split_inclusive('\n') {
            if line.starts_with(VERSION) {
                let _ = writeln!(newest, "{VERSION}999.0.{number}");
            } else if line.starts_with(DIGEST) {
                let _ = writeln!(newest, "{DIGEST}{number:064x}");
            } else {
                newest.push_str(line);
            }
        }
        format!("{}{newest}{}", &self.text[..start], &self.text[start..])
    }

    /// Changes `created` of all versions.
    pub fn with_new_times(&self, number: usize) -> String {
        let mut text = String::with_capacity(self.text.len());
        for line in self.text.split_inclusive('\n') {
            match line.strip_prefix(CREATED) {
                Some(value) => {
                    let quote = if value.starts_with('"') { "\"" } else { "" };
                    let _ = writeln!(text, "{CREATED}{quote}2026-01-01T00:00:00.{number:09}Z{quote}");
                }
                None => text.push_str(line),
            }
        }
        text
    }

    /// Adds an alias in the last chart to an anchor in the first, so that charts can't be decoded alone.
    pub fn unsplittable(&self) -> Self {
        let first = self.text.find(HOME).expect("a version has a home") + HOME.len();
        let last = self.text.rfind(HOME).expect("a version has a home") + HOME.len();
        let end = last + self.text[last..].find('\n').expect("a line ends");
        assert!(first < last, "two versions have a home");
        let (before, between, after) = (&self.text[..first], &self.text[first..last], &self.text[end..]);
        let text = format!("{before}&home {between}*home{after}");
        Self { text }
    }
}

/// Converts YAML to JSON on one line.
pub fn json(yaml: &str) -> String {
    let value: serde_json::Value = serde_yaml::from_str(yaml).expect("valid YAML");
    value.to_string()
}

fn four_times(path: &Path) -> String {
    let original = fs::read_to_string(path).expect("the corpus has grafana's index");
    let mut text = String::with_capacity(original.len() * 4);
    let (head, entries) = original.split_once("entries:\n").expect("an index has entries");
    let (entries, tail) = entries.split_at(entries.rfind("\ngenerated:").expect("and the time of its generation") + 1);
    text.push_str(head);
    text.push_str("entries:\n");
    for copy in 1..=4 {
        for line in entries.lines() {
            text.push_str(line.strip_suffix(':').filter(|line| is_key(line)).unwrap_or(line));
            if is_key(line) {
                let _ = write!(text, "-{copy}:");
            } else if line.starts_with("    name: ") {
                let _ = write!(text, "-{copy}");
            }
            text.push('\n');
        }
    }
    text.push_str(tail);
    text
}

/// Returns true for a line that begins a chart.
fn is_key(line: &str) -> bool {
    line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -")
}

/// Returns start and end of the first version of the largest chart, without deprecated charts, which are not stored.
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
    let is_stored = |chart: &&Vec<usize>| !text[chart[0]..chart[1]].contains("\n    deprecated: true");
    let stored = charts.iter().filter(|chart| chart.len() > 1).filter(is_stored);
    let largest = stored
        .max_by_key(|chart| chart.len())
        .expect("a chart has two versions");
    (largest[0], largest[1])
}
