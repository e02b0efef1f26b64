//! How the index goes on, and what nobody should send.

use std::fmt::Write as _;

use crate::index::Index;
use crate::support::index_generator;

const DIGEST: &str = "    digest: ";
const CREATED: &str = "    created: ";
const HOME: &str = "    home: ";
/// Bytes of a hostile index.
const HOSTILE: usize = 16_000_000;

impl Index {
    /// One of about so many megabytes: as many charts as that takes, of 88 versions each.
    pub fn of_megabytes(megabytes: usize) -> Self {
        /// More than enough, of whatever size they come out.
        const CHARTS: usize = 20;
        let enough = index_generator::generate(2, megabytes * CHARTS, 88);
        let (charts, end) = enough.split_at(enough.rfind("generated:").expect("it says when it was made"));
        let (_, behind) = charts.split_at(charts.floor_char_boundary(megabytes * 1_000_000));
        let is_chart = |line: &str| line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -");
        // The first of them is the rest of one.
        let lines = behind.split_inclusive('\n').enumerate();
        let until_chart = lines.take_while(|(number, line)| *number == 0 || !is_chart(line));
        let rest: usize = until_chart.map(|(_, line)| line.len()).sum();
        Self {
            origin: "a generated index".to_owned(),
            text: format!("{}{end}", &charts[..charts.len() - behind.len() + rest]),
        }
    }

    /// The same, in which all versions were made at another time.
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

    /// The same, in which the archives of so many versions, from all over the file, are others.
    pub fn with_changes(&self, count: usize, number: usize) -> String {
        let all = self.text.lines().filter(|line| line.starts_with(DIGEST)).count();
        let apart = all / count;
        let (mut text, mut seen) = (String::with_capacity(self.text.len()), 0);
        for line in self.text.split_inclusive('\n') {
            if line.starts_with(DIGEST) {
                let is_chosen = seen % apart == apart / 2 && seen / apart < count;
                seen += 1;
                if is_chosen {
                    let _ = writeln!(text, "{DIGEST}{:064x}", number * all + seen);
                    continue;
                }
            }
            text.push_str(line);
        }
        text
    }

    /// The same charts, but the last of them refers to a text of the first, so that neither can be read by itself.
    pub fn uncuttable(&self) -> Self {
        let first = self.text.find(HOME).expect("a version has a home") + HOME.len();
        let last = self.text.rfind(HOME).expect("a version has a home") + HOME.len();
        let end = last + self.text[last..].find('\n').expect("a line ends");
        assert!(first < last, "two versions have homes");
        Self {
            origin: self.origin.clone(),
            text: format!(
                "{}&home {}*home{}",
                &self.text[..first],
                &self.text[first..last],
                &self.text[end..]
            ),
        }
    }
}

/// The same in JSON, on one line.
pub fn json(yaml: &str) -> String {
    let value: serde_json::Value = serde_yaml::from_str(yaml).expect("it is YAML");
    value.to_string()
}

/// Indexes of 16 MB, or that would be much larger in memory, and what they are.
pub fn hostile() -> Vec<(&'static str, String)> {
    let index = |entries: &str| format!("apiVersion: v1\nentries:\n{entries}");
    let mut names = String::new();
    let mut number = 0;
    while names.len() < HOSTILE {
        number += 1;
        let _ = writeln!(names, "  a{number}:");
    }
    let version = |more: &str| index(&format!("  bomb:\n  - name: bomb\n    version: 1.0.0\n{more}"));
    let mut bomb = String::from("    a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        let _ = writeln!(bomb, "    a{level}: &a{level} [{aliases}]");
    }
    vec![
        (
            "16 MB of empty versions (`  -`)",
            index(&format!("  empty:\n{}", "  -\n".repeat(HOSTILE / 4))),
        ),
        ("16 MB of charts without versions (`  a1:`)", index(&names)),
        ("one chart of 14,000 versions", index_generator::generate(1, 1, 14_000)),
        ("aliases of aliases (a YAML bomb)", version(&bomb)),
        (
            "one text of 16 MB",
            version(&format!("    description: {}\n", "x".repeat(HOSTILE))),
        ),
        (
            "a list in a list, 100,000 deep",
            version(&format!("    sources: {}\n", "[".repeat(100_000))),
        ),
        (
            "one text of 16 MB in JSON",
            format!(
                "{{\"entries\":{{\"a\":[{{\"name\":\"a\",\"version\":\"1.0.0\",\"description\":\"{}\"}}]}}}}",
                "x".repeat(HOSTILE)
            ),
        ),
    ]
}
