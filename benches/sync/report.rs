//! The table: rows of measured cases with their baselines and limits.

use std::fs;
use std::path::PathBuf;

use crate::rig::{Sample, percentile};
use crate::support::project;

/// The generated table in a document is between these marks.
const BEGIN: &str = "<!-- figures: written by `make bench ARGS=--record` -->\n";
const END: &str = "<!-- end of figures -->";
const MEBIBYTE: f64 = 1_048_576.0;
pub const PLOT: &str = "performance.svg";
const COLUMNS: &str = "|case|database|CPU ms|against|wall ms|peak MiB|Postgres' CPU ms|rows|requests|limits|
|---|---|---:|---:|---:|---:|---:|---:|---:|---|
";
const README_COLUMNS: &str = "|case|database|CPU ms|wall ms|peak MiB|requests|other software|
|---|---|---:|---:|---:|---:|---|
";
/// The rows of the README: the case, without what follows in parentheses, the database, and the cost in other software.
const README_ROWS: [(&str, &str, &str); 6] = [
    ("First sync", "Postgres", "Kubeapps: 8.0 s, 376 MiB"),
    ("Unchanged, 304", "Postgres", "Kubeapps: 130 ms, 67 MiB"),
    ("One new version", "Postgres", "Kubeapps: 5.2 s, 323 MiB"),
    ("500 archives", "Postgres, no TLS", "Kubeapps: 500 archives per second"),
    (
        "100×5 Applications, 200 changes, p99",
        "",
        "kubernetes-sigs/application: median 70 s, at most 238 s",
    ),
    (
        "200 KubeVela Applications, created",
        "",
        "vela-core: 75 to 93 s, 33 to 38 s of CPU, 64 to 75 requests an Application, 166 MiB",
    ),
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

pub use Limit::{AboveIdle, AtLeast, Cpu, Peak, PostgresCpu, Requests, Rows, Times, Wall};

#[derive(Default)]
pub struct Row {
    case: String,
    database: String,
    sample: Sample,
    baseline: String,
    /// Limits; true if they hold.
    limits: Vec<(String, bool)>,
}

impl Row {
    pub fn new(case: &str, samples: &[Sample]) -> Self {
        Self {
            case: case.to_owned(),
            sample: Sample::combined(samples),
            ..Self::default()
        }
    }

    pub fn baseline(case: &str, samples: &[Sample]) -> Self {
        Self::new(&format!("*{case}*"), samples)
    }

    pub fn on(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }

    pub fn against(mut self, baseline: &str) -> Self {
        baseline.clone_into(&mut self.baseline);
        self
    }

    /// Adds a limit on a value that is not in the sample.
    pub fn limit(mut self, text: &str, holds: bool) -> Self {
        self.limits.push((text.to_owned(), holds));
        self
    }

    pub fn limits(self, limits: &[Limit]) -> Self {
        limits.iter().fold(self, |row, limit| {
            let (text, holds) = row.check(limit);
            row.limit(&text, holds)
        })
    }

    fn check(&self, limit: &Limit) -> (String, bool) {
        let (sample, ratio) = (&self.sample, self.sample.ratio());
        let peak = sample.peak as f64 / MEBIBYTE;
        let time = |name: &str, time: f64, most: f64| (format!("{name} {} ms", milliseconds(most)), time <= most);
        match *limit {
            Cpu(most) => time("CPU", sample.cpu, most),
            PostgresCpu(most) => time("Postgres", sample.postgres_cpu, most),
            Wall(most) => time("wall", sample.wall, most),
            Times(most) => (format!("{most}× {}", self.baseline), ratio <= most),
            AtLeast(least) => (format!("at least {least}× {}", self.baseline), ratio >= least),
            Peak(most) => (format!("{most} MiB"), peak <= most),
            AboveIdle(most) => (format!("+{most} MiB"), peak - sample.idle as f64 / MEBIBYTE <= most),
            Rows(count) => (format!("rows {count}"), sample.rows == Some(count)),
            Requests(count) => (format!("requests {count}"), sample.requests == Some(count)),
        }
    }

    fn line(&self) -> String {
        let sample = &self.sample;
        let if_measured = |value: f64, text: String| if value > 0.0 { text } else { String::new() };
        let time = |seconds| if_measured(seconds, milliseconds(seconds));
        let count = |value: Option<usize>| value.map_or_else(String::new, |value| value.to_string());
        let ratio = format!("{:.2}× {}", sample.ratio(), self.baseline);
        let (peak, idle) = (sample.peak as f64 / MEBIBYTE, sample.idle as f64 / MEBIBYTE);
        let above_idle = if_measured(idle, format!(" (+{:.1})", (peak - idle).max(0.0)));
        let usage = [
            time(sample.cpu),
            if_measured(sample.baseline, ratio),
            time(sample.wall),
            if_measured(peak, format!("{peak:.0}{above_idle}")),
            time(sample.postgres_cpu),
            count(sample.rows),
            count(sample.requests),
        ];
        let (usage, verdicts) = (usage.join("|"), verdicts(&self.limits));
        format!("|{}|{}|{usage}|{verdicts}|\n", self.case, self.database)
    }
}

/// Prints the rows of a part, and keeps them in `target/bench` until all parts are recorded.
pub fn keep(part: &str, rows: &[Row]) {
    let measured = format!("{} on {}", jiff::Timestamp::now().strftime("%-d %B %Y"), machine());
    let lines: String = rows.iter().map(Row::line).collect();
    println!("\n{measured}\n{COLUMNS}{lines}");
    fs::write(kept(part), format!("{measured}\n{lines}")).expect("target can be written");
}

/// Writes the kept rows into the documents, each part with the day it was measured, and the plot next to them. Parts without
/// rows are named.
pub fn record(parts: &[&str]) {
    let (mut tables, mut lines, mut days, mut missing) = (String::new(), String::new(), Vec::new(), Vec::new());
    for part in parts {
        let kept = fs::read_to_string(kept(part)).unwrap_or_default();
        let Some((day, rows)) = kept.split_once('\n') else {
            missing.push(*part);
            continue;
        };
        tables += &format!("### `{part}`\n\n{day}.\n\n{COLUMNS}{rows}\n");
        lines += rows;
        days.push(day.to_owned());
    }
    days.sort();
    days.dedup();
    if !missing.is_empty() {
        tables += &format!("Not measured: {}.\n", missing.join(", "));
    }
    let rows: String = README_ROWS.into_iter().map(|row| readme_line(&lines, row)).collect();
    replace("docs/explanation/performance.md", tables.trim_end());
    let days = days.join("; ");
    replace("README.md", &format!("Measured on {days}.\n\n{README_COLUMNS}{rows}"));
    fs::copy(kept(PLOT), project("docs/explanation").join(PLOT)).expect("the plot can be copied");
}

fn readme_line(lines: &str, (case, database, cost): (&str, &str, &str)) -> String {
    let mut rows = lines.lines().map(|line| line.split('|').collect::<Vec<_>>());
    let found = rows.find(|cells| cells[1].split(" (").next() == Some(case) && cells[2] == database);
    let cells = found.expect("a row of the README has another name");
    let shown = [1, 2, 3, 5, 6, 9].map(|column: usize| cells[column]);
    format!("|{}|{cost}|\n", shown.join("|"))
}

pub fn kept(name: &str) -> PathBuf {
    let directory = project("target/bench");
    fs::create_dir_all(&directory).expect("target can be written");
    directory.join(name)
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

/// Completes the name of a case whose wall time is a high percentile of these times.
pub fn with_median(case: &str, times: &[f64]) -> String {
    format!("{case} (median {} ms)", milliseconds(percentile(times, 50)))
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores ({model})")
}
