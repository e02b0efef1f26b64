//! The table: rows of measured cases with their baselines and limits.

pub mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::rig::measure::Sample;
use crate::support::project;

/// The generated table in a document is between these marks.
const BEGIN: &str = "<!-- figures: written by `make bench ARGS=--record` -->\n";
const END: &str = "<!-- end of figures -->";
const MEBIBYTE: f64 = 1_048_576.0;
pub const PLOT: &str = "performance.svg";
/// The rows of the README: the case, without what follows in parentheses, and the database.
const README_ROWS: [(&str, &str); 6] = [
    ("First sync", "Postgres"),
    ("Unchanged, 304", "Postgres"),
    ("One new version", "Postgres"),
    ("500 archives", "Postgres, no TLS"),
    ("100×5 Applications, 200 changes, p99", ""),
    ("200 KubeVela Applications, created", ""),
];

/// Limits of a case. Times are in seconds.
pub enum Limit {
    Cpu(f64),
    PostgresCpu(f64),
    Wall(f64),
    /// Multiples of the baseline's CPU.
    Times(f64),
    /// The minimum multiple of the baseline's CPU.
    AtLeast(f64),
    /// Peak memory in MiB, and peak memory above that before the case.
    Peak(f64),
    AboveIdle(f64),
    /// Exact numbers.
    Rows(usize),
    Requests(usize),
}

use Limit::{AboveIdle, AtLeast, Cpu, Peak, PostgresCpu, Requests, Rows, Times, Wall};

/// A row of the table.
#[derive(Serialize, Deserialize)]
pub struct Row {
    case: String,
    database: String,
    sample: Sample,
    /// The name of the baseline.
    baseline: String,
    /// Limits; true if they hold.
    limits: Vec<(String, bool)>,
    /// Measured cost of the same work in other software, for the README.
    neighbor: Option<String>,
}

impl Row {
    /// Combines the samples of a case.
    pub fn new(case: &str, samples: &[Sample]) -> Self {
        Self {
            case: case.to_owned(),
            database: String::new(),
            sample: Sample::combined(samples),
            baseline: String::new(),
            limits: Vec::new(),
            neighbor: None,
        }
    }

    pub fn baseline(case: &str, samples: &[Sample]) -> Self {
        Self::new(&format!("*{case}*"), samples)
    }

    pub fn database(mut self, title: &str) -> Self {
        title.clone_into(&mut self.database);
        self
    }

    pub fn against(mut self, baseline: &str) -> Self {
        baseline.clone_into(&mut self.baseline);
        self
    }

    pub fn neighbor(mut self, cost: &str) -> Self {
        self.neighbor = Some(cost.to_owned());
        self
    }

    /// Checks limits.
    pub fn limits(mut self, limits: &[Limit]) -> Self {
        let checked = limits.iter().map(|limit| self.check(limit));
        self.limits.extend(checked.collect::<Vec<_>>());
        self
    }

    fn check(&self, limit: &Limit) -> (String, bool) {
        let (sample, ratio) = (&self.sample, self.sample.ratio());
        let peak = sample.peak as f64 / MEBIBYTE;
        match *limit {
            Cpu(most) => (format!("CPU {} ms", milliseconds(most)), sample.cpu <= most),
            PostgresCpu(most) => (
                format!("Postgres {} ms", milliseconds(most)),
                sample.postgres_cpu <= most,
            ),
            Wall(most) => (format!("wall {} ms", milliseconds(most)), sample.wall <= most),
            Times(most) => (format!("{most}× {}", self.baseline), ratio <= most),
            AtLeast(least) => (format!("at least {least}× {}", self.baseline), ratio >= least),
            Peak(most) => (format!("{most} MiB"), peak <= most),
            AboveIdle(most) => (format!("+{most} MiB"), peak - sample.idle as f64 / MEBIBYTE <= most),
            Rows(count) => (format!("rows {count}"), sample.rows == Some(count)),
            Requests(count) => (format!("requests {count}"), sample.requests == Some(count)),
        }
    }

    /// Adds a limit on a value that is not in the sample.
    pub fn limit(mut self, text: &str, holds: bool) -> Self {
        self.limits.push((text.to_owned(), holds));
        self
    }

    fn is_in_readme(&self) -> bool {
        let case = self.case.split(" (").next().unwrap_or_default();
        README_ROWS.contains(&(case, self.database.as_str()))
    }

    /// Writes the row; the README has fewer columns.
    fn write(&self, text: &mut String, is_readme: bool) {
        let sample = &self.sample;
        let shown = |value: f64| {
            if value > 0.0 {
                milliseconds(value)
            } else {
                String::new()
            }
        };
        let peak = match (sample.peak, sample.idle) {
            (0, _) => String::new(),
            (peak, 0) => format!("{:.0}", peak as f64 / MEBIBYTE),
            (peak, idle) => {
                let above = peak.saturating_sub(idle) as f64 / MEBIBYTE;
                format!("{:.0} (+{above:.1})", peak as f64 / MEBIBYTE)
            }
        };
        let count = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
        let against = if sample.baseline > 0.0 {
            format!("{:.2}× {}", sample.ratio(), self.baseline)
        } else {
            String::new()
        };
        let neighbor = self.neighbor.clone().unwrap_or_default();
        let mut cells = vec![self.case.clone(), self.database.clone(), shown(sample.cpu)];
        if is_readme {
            cells.extend([shown(sample.wall), peak, count(sample.requests), neighbor]);
        } else {
            cells.extend([against, shown(sample.wall), peak, shown(sample.postgres_cpu)]);
            cells.extend([count(sample.rows), count(sample.requests), verdicts(&self.limits)]);
        }
        let _ = writeln!(text, "|{}|", cells.join("|"));
    }
}

/// The measured rows of a part, kept in `target/bench` until all parts are recorded.
#[derive(Serialize, Deserialize)]
struct Part {
    measured: String,
    rows: Vec<Row>,
}

/// Prints the rows of a part and keeps them.
pub fn keep(part: &str, rows: Vec<Row>) {
    let measured = format!("{} on {}", jiff::Timestamp::now().strftime("%-d %B %Y"), machine());
    let (file, part) = (kept(&format!("{part}.json")), Part { measured, rows });
    let text = serde_json::to_vec(&part).expect("rows are JSON");
    fs::write(file, text).expect("target can be written");
    println!("\n{}", table(&[part], false));
}

/// Writes the kept rows of all parts into the documents, and the plot next to them.
pub fn record(parts: &[&str]) {
    let read = |name: &&str| {
        let kept = fs::read(kept(&format!("{name}.json")));
        let kept = kept.unwrap_or_else(|_| panic!("the part {name} was not measured: run `make bench ARGS={name}`"));
        serde_json::from_slice(&kept).expect("rows are JSON")
    };
    let parts: Vec<Part> = parts.iter().map(read).collect();
    let shown = parts
        .iter()
        .flat_map(|part| &part.rows)
        .filter(|row| row.is_in_readme());
    assert_eq!(shown.count(), README_ROWS.len(), "a row of the README has another name");
    replace("docs/explanation/performance.md", &table(&parts, false));
    replace("README.md", &table(&parts, true));
    fs::copy(kept(PLOT), project("docs/explanation").join(PLOT)).expect("the plot can be copied");
}

/// Returns the path of a result file below `target`.
pub fn kept(name: &str) -> PathBuf {
    let directory = project("target/bench");
    fs::create_dir_all(&directory).expect("target can be written");
    directory.join(name)
}

fn table(parts: &[Part], is_readme: bool) -> String {
    let mut measured: Vec<&str> = parts.iter().map(|part| part.measured.as_str()).collect();
    measured.dedup();
    let measured = measured.join("; ");
    let mut text = format!("Measured on {measured}, shared with servers and database.\n\n");
    text.push_str(if is_readme {
        "|case|database|CPU ms|wall ms|peak MiB|requests|other software|\n|---|---|---:|---:|---:|---:|---|\n"
    } else {
        "|case|database|CPU ms|against|wall ms|peak MiB|Postgres' CPU ms|rows|requests|limits|\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---|\n"
    });
    let rows = parts.iter().flat_map(|part| &part.rows);
    for row in rows.filter(|row| !is_readme || row.is_in_readme()) {
        row.write(&mut text, is_readme);
    }
    text
}

fn replace(document: &str, text: &str) {
    let path = project(document);
    let old = fs::read_to_string(&path).expect("the document can be read");
    let (before, rest) = old.split_once(BEGIN).expect("the document has the mark");
    let (_, after) = rest.split_once(END).expect("and the end mark");
    fs::write(&path, format!("{before}{BEGIN}\n{text}\n{END}{after}")).expect("the document can be written");
}

/// Lists the limits that hold, then the others.
fn verdicts(limits: &[(String, bool)]) -> String {
    let lists = [(true, "holds"), (false, "**missed**")].map(|(wanted, verdict)| {
        let of = limits.iter().filter(|(_, holds)| *holds == wanted);
        let names: Vec<&str> = of.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{verdict}: {}", names.join(", ")))
    });
    lists.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Formats seconds as milliseconds with three digits, the precision of these measurements.
pub fn milliseconds(seconds: f64) -> String {
    let value = seconds * 1000.0;
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores ({model})")
}
