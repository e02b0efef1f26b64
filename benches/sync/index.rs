//! The standard index of 16 MB, and its variants.

use std::fs;
use std::path::Path;

use crate::support::{corpus, index_generator};

const DIGEST: &str = "    digest: ";
const CREATED: &str = "    created: ";
const HOME: &str = "    home: ";
const VERSION: &str = "    version: ";

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
        // 20 charts are more than enough for a megabyte.
        let text = index_generator::generate(2, megabytes * 20, 88);
        let (charts, end) = text.split_at(text.rfind("generated:").expect("the generator writes this line"));
        let mut size = 0;
        let lines = charts.split_inclusive('\n').take_while(|line| {
            size += line.len();
            size < megabytes * 1_000_000 || !is_key(line)
        });
        let text: String = lines.chain([end]).collect();
        Self { text }
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
        let newest = self.text[start..end].split_inclusive('\n').map(|line| match line {
            line if line.starts_with(VERSION) => format!("{VERSION}999.0.{number}\n"),
            line if line.starts_with(DIGEST) => format!("{DIGEST}{number:064x}\n"),
            line => line.to_owned(),
        });
        let newest: String = newest.collect();
        format!("{}{newest}{}", &self.text[..start], &self.text[start..])
    }

    /// Changes `created` of all versions.
    pub fn with_new_times(&self, number: usize) -> String {
        let mut text = String::with_capacity(self.text.len());
        for line in self.text.split_inclusive('\n') {
            if let Some(value) = line.strip_prefix(CREATED) {
                let quote = if value.starts_with('"') { "\"" } else { "" };
                text += &format!("{CREATED}{quote}2026-01-01T00:00:00.{number:09}Z{quote}\n");
            } else {
                text += line;
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

pub fn json(yaml: &str) -> String {
    let value: serde_json::Value = serde_yaml::from_str(yaml).expect("valid YAML");
    value.to_string()
}

fn four_times(path: &Path) -> String {
    let original = fs::read_to_string(path).expect("the corpus has grafana's index");
    let (head, entries) = original.split_once("entries:\n").expect("an index has entries");
    let (entries, tail) = entries.split_at(entries.rfind("\ngenerated:").expect("and the time of its generation") + 1);
    let mut text = format!("{head}entries:\n");
    for copy in 1..=4 {
        for line in entries.lines() {
            text += &match line.strip_suffix(':') {
                Some(name) if is_key(line) => format!("{name}-{copy}:\n"),
                _ if line.starts_with("    name: ") => format!("{line}-{copy}\n"),
                _ => format!("{line}\n"),
            };
        }
    }
    text + tail
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
    let largest = stored.max_by_key(|chart| chart.len());
    let largest = largest.expect("a chart has two versions");
    (largest[0], largest[1])
}
