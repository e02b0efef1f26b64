//! The tables.

use std::fmt::Write as _;
use std::fs;

use crate::apps::tables::Apps;
use crate::delta::figures::Delta;
use crate::files::ARCHIVES;
use crate::instructions::Instructions;
use crate::numbers::{a_second, mebibytes, seconds, short, thousands};
use crate::registry::TAGS;
use crate::support::project;

/// The most CPU that a first sync of the standard big index may take, in seconds.
const FIRST_SYNC_CPU: f64 = 1.0;
/// The most CPU that an answer of 304 may take, in seconds.
const NOT_MODIFIED_CPU: f64 = 0.010;
/// The most memory that any of it may take.
const MEMORY: u64 = 100 << 20;
/// How many times the CPU of a first sync it may take with a filter.
const FILTER: f64 = 2.0;
/// The longest that 1,000 repositories may take from the start of the process to all Ready, in seconds.
const COLD_START: f64 = 60.0;

/// Where the figures of syncs stand in a document.
const SYNCS: &str = "<!-- figures: written by `make bench ARGS=--record` -->\n";
/// Those of Applications.
const APPS: &str = "<!-- figures of Applications: written by `make bench ARGS=\"apps --record\"` -->\n";
/// Those of a delta sync.
const DELTA: &str = "<!-- figures of delta syncs: written by `make bench ARGS=\"delta --record\"` -->\n";
/// Those of instructions.
const INSTRUCTIONS: &str = "<!-- figures of instructions: written by `make bench ARGS=\"instructions --record\"` -->\n";
/// The plot of delta syncs, and how the document shows it.
const DELTA_PLOT: &str = "performance-delta.svg";

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Case {
    First,
    Filtered,
    NotModified,
    NoEtag,
    NewVersion,
    /// All files of many versions.
    Archives,
    LimitedArchives,
    /// A single archive, or none.
    NoArchive,
    LargeArchive,
    HugeArchive,
    EndlessArchive,
    Bomb,
    /// The tags of a registry.
    FirstTags,
    LimitedTags,
    TagsWithFiles,
    UnchangedTags,
    NewTag,
    /// By another than Portolan.
    Baseline(&'static str),
}

impl Case {
    pub fn title(self) -> String {
        match self {
            Self::First => "First sync, from the start of the process",
            Self::Filtered => "The same with a filter, `.name | test($var0)`",
            Self::NotModified => "Unchanged, 304",
            Self::NoEtag => "Unchanged, no ETag",
            Self::NewVersion => "One new version",
            Self::Archives => "All files, no limit of requests a second",
            Self::LimitedArchives => "All files, with the default limits",
            Self::NoArchive => "None asked for",
            Self::LargeArchive => "Taken",
            Self::HugeArchive => "Refused by its announced length",
            Self::EndlessArchive => "Refused at 20 MiB, its length not announced",
            Self::Bomb => "Refused while it is unpacked, 1 GiB of zeros",
            Self::FirstTags => "First sync, no limit of requests a second",
            Self::LimitedTags => "First sync, with the default limits",
            Self::TagsWithFiles => "First sync and all files, no limit of requests a second",
            Self::UnchangedTags => "Unchanged",
            Self::NewTag => "One new tag",
            Self::Baseline(what) => return format!("*{what}*"),
        }
        .to_owned()
    }
}

/// A line of the table of syncs.
#[derive(Clone)]
pub struct Row {
    /// What was done.
    pub case: Case,
    /// Where the rows went.
    pub database: String,
    /// Seconds.
    pub wall: Option<f64>,
    /// Seconds of our process.
    pub cpu: f64,
    /// Seconds of the database's processes.
    pub postgres_cpu: Option<f64>,
    /// Bytes.
    pub peak: u64,
    /// What was asked of the server; of a single archive, its size.
    pub requests: String,
}

/// Lines about one thing.
#[derive(Default)]
pub struct Table {
    /// What it is about.
    pub about: String,
    pub rows: Vec<Row>,
}

/// What many repositories took.
pub struct Many {
    pub repositories: usize,
    pub wall: f64,
    pub cpu: f64,
    pub peak: u64,
    pub chart_requests: usize,
    pub api_requests: String,
}

/// Everything that was measured.
#[derive(Default)]
pub struct Report {
    pub index: Option<Table>,
    pub archives: Option<Table>,
    pub memory: Option<Table>,
    pub registry: Option<Table>,
    pub many: Option<Many>,
    pub apps: Option<Apps>,
    pub delta: Option<Delta>,
    pub instructions: Option<Instructions>,
}

/// A table of what figures are held against.
pub struct Limits(String);

impl Limits {
    /// A table without lines.
    pub fn new() -> Self {
        Self("| limit | measured | |\n|---|---:|---|\n".to_owned())
    }

    /// Adds a limit, what was measured, and whether that is within it.
    pub fn line(&mut self, limit: &str, measured: &str, holds: bool) {
        let verdict = if holds { "holds" } else { "**missed**" };
        let _ = writeln!(self.0, "| {limit} | {measured} | {verdict} |");
    }

    /// The table.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl Table {
    /// Writes the lines; with the name of a count, how many of so many there were a second.
    fn write(&self, text: &mut String, requests: &str, rate: Option<(&str, usize)>) {
        let has_postgres = self.rows.iter().any(|row| row.postgres_cpu.is_some());
        let mut columns = vec!["case", "database", "wall s", "CPU s", "peak MiB", requests];
        columns.extend(has_postgres.then_some("Postgres' CPU s"));
        columns.extend(rate.map(|(name, _)| name));
        let _ = writeln!(text, "| {} |", columns.join(" | "));
        let _ = writeln!(
            text,
            "|---|---|---:|---:|---:|---|{}",
            "---:|".repeat(columns.len() - 6)
        );
        for row in &self.rows {
            let mut cells = vec![
                row.case.title(),
                row.database.clone(),
                row.wall.map_or_else(String::new, seconds),
                seconds(row.cpu),
                format!("{:.0}", mebibytes(row.peak)),
                row.requests.clone(),
            ];
            cells.extend(has_postgres.then(|| row.postgres_cpu.map_or_else(String::new, seconds)));
            cells.extend(rate.map(|(_, count)| row.wall.map_or_else(String::new, |wall| a_second(count, wall))));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
}

impl Report {
    fn rows(&self) -> impl Iterator<Item = &Row> {
        let tables = [&self.index, &self.archives, &self.memory, &self.registry];
        tables.into_iter().flatten().flat_map(|table| &table.rows)
    }

    fn of(&self, case: Case) -> impl Iterator<Item = &Row> {
        self.rows().filter(move |row| row.case == case)
    }

    /// Prints the tables and writes them; with `record` also into the documents, where they replace those of the same parts.
    pub fn publish(&self, record: bool) {
        let measured = format!("Measured on {} on {}.\n", today(), machine());
        let syncs = (!self.is_without_syncs()).then(|| format!("{measured}{}\n{}", self.tables(), self.limits()));
        let apps = self.apps.as_ref();
        let apps_text = apps.map(|apps| format!("{measured}{}\n{}", apps.tables(), apps.limits()));
        let delta_text = self.delta.as_ref().map(|delta| format!("{measured}{}", delta.text()));
        let instructions = self.instructions.as_ref();
        let instructions = instructions.map(|instructions| format!("{measured}{}", instructions.text()));
        let all: Vec<_> = [&syncs, &delta_text, &instructions, &apps_text]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        let all = all.join("\n");
        println!("\n{all}");
        let folder = project("target/bench");
        fs::create_dir_all(&folder).expect("the target folder can be written");
        fs::write(folder.join("figures.md"), all).expect("the target folder can be written");
        let plot = self.delta.as_ref().and_then(Delta::plot);
        if let Some(plot) = &plot {
            fs::write(folder.join(DELTA_PLOT), plot).expect("the target folder can be written");
        }
        if !record {
            return;
        }
        if let Some(text) = syncs {
            replace("docs/performance.md", SYNCS, &text);
            replace("README.md", SYNCS, &self.summary());
        }
        if let Some(mut text) = delta_text {
            if let Some(plot) = plot {
                fs::write(project("docs").join(DELTA_PLOT), plot).expect("it can be written");
                let _ = write!(
                    text,
                    "\n![CPU of a sync by the size of the index and by the size of the change]({DELTA_PLOT})\n"
                );
            }
            replace("docs/performance.md", DELTA, &text);
        }
        if let Some(text) = instructions {
            replace("docs/performance.md", INSTRUCTIONS, &text);
        }
        if let (Some(apps), Some(text)) = (apps, apps_text) {
            replace("docs/performance.md", APPS, &text);
            replace("README.md", APPS, &apps.summary());
        }
    }

    fn is_without_syncs(&self) -> bool {
        self.rows().next().is_none() && self.many.is_none()
    }

    fn tables(&self) -> String {
        let mut text = String::new();
        if let Some(table) = &self.index {
            let _ = write!(text, "\nOne repository: {}.\n\n", table.about);
            table.write(&mut text, "requests", None);
        }
        if let Some(table) = &self.archives {
            let _ = write!(
                text,
                "\nChart files: {}; from the start of the process.\n\n",
                table.about
            );
            table.write(&mut text, "requests", Some(("archives a second", ARCHIVES)));
        }
        if let Some(table) = &self.memory {
            text.push_str("\nOne archive, from the start of the process:\n\n");
            table.write(&mut text, "size", None);
        }
        if let Some(table) = &self.registry {
            let _ = write!(text, "\nOne OCI repository: {}.\n\n", table.about);
            table.write(&mut text, "requests", None);
        }
        if let Some(many) = &self.many {
            let _ = write!(
                text,
                "\n{} repositories of one small index each, real API server, SQLite:\n\n\
                 | case | wall s | CPU s | peak MiB | requests for indexes | requests to the API server |\n\
                 |---|---:|---:|---:|---:|---|\n\
                 | start of the process to all Ready | {} | {} | {:.0} | {} | {} |\n",
                thousands(many.repositories),
                seconds(many.wall),
                seconds(many.cpu),
                mebibytes(many.peak),
                thousands(many.chart_requests),
                many.api_requests,
            );
        }
        text
    }

    /// What the figures are held against.
    fn limits(&self) -> String {
        let mut limits = Limits::new();
        let mut line = |limit: &str, measured: String, holds: bool| limits.line(limit, &measured, holds);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        if self.index.is_some() {
            let cpu = most(&mut self.of(Case::First).map(|row| row.cpu));
            line(
                "first sync: 1 s of CPU",
                format!("{} s", seconds(cpu)),
                cpu <= FIRST_SYNC_CPU,
            );
            let cpu = most(&mut self.of(Case::NotModified).map(|row| row.cpu));
            line(
                "304: 10 ms of CPU",
                format!("{:.1} ms", cpu * 1000.0),
                cpu <= NOT_MODIFIED_CPU,
            );
            let pairs = self.of(Case::First).zip(self.of(Case::Filtered));
            let factor = most(&mut pairs.map(|(plain, filtered)| filtered.cpu / plain.cpu));
            line(
                "with a filter: twice the CPU",
                format!("{factor:.2} times"),
                factor <= FILTER,
            );
        }
        let ours = self.rows().filter(|row| !matches!(row.case, Case::Baseline(_)));
        let peak = most(&mut ours.map(|row| row.peak as f64)) as u64;
        if peak > 0 {
            line(
                "any sync, any archive: 100 MiB",
                format!("{:.0} MiB", mebibytes(peak)),
                peak <= MEMORY,
            );
        }
        if let Some(many) = &self.many {
            let name = format!("{} repositories", thousands(many.repositories));
            line(
                &format!("{name}: 60 s"),
                format!("{} s", seconds(many.wall)),
                many.wall <= COLD_START,
            );
            line(
                &format!("{name}: 100 MiB"),
                format!("{:.0} MiB", mebibytes(many.peak)),
                many.peak <= MEMORY,
            );
        }
        limits.into_text()
    }

    /// The short table of the README.
    fn summary(&self) -> String {
        let find = |case: Case, database: &str| {
            self.of(case).find(|row| row.database == database).map_or_else(
                || "–".to_owned(),
                |row| format!("{}, {:.0} MiB", short(row.cpu), mebibytes(row.peak)),
            )
        };
        let mut text = String::from(
            "CPU and peak memory of the process for one sync of a repository whose index has some 14,000 versions in 16 MB. Kubeapps is the \
             asset-syncer v2.12.1 with Postgres, on an index of that size and two cores as well. It does more: it also asks for the archives \
             of versions that are new (in the first sync here all 14,000 requests were refused; with the new version 247 were answered).\n\n\
             | | Portolan, SQLite | Portolan, Postgres | Kubeapps |\n|---|---:|---:|---:|\n",
        );
        let cases = [
            ("first sync", Case::First, "8.0 s, 376 MiB"),
            ("unchanged (304)", Case::NotModified, "0.13 s, 67 MiB"),
            ("unchanged, server without ETags", Case::NoEtag, "0.13 s, 67 MiB"),
            ("one new version", Case::NewVersion, "5.2 s, 323 MiB"),
        ];
        for (title, case, neighbour) in cases {
            let (sqlite, postgres) = (find(case, "SQLite"), find(case, "Postgres"));
            let _ = writeln!(text, "| {title} | {sqlite} | {postgres} | {neighbour} |");
        }
        if let Some(row) = self.of(Case::Archives).next() {
            let _ = writeln!(
                text,
                "\nFiles of {ARCHIVES} archives of common size: {} a second, {:.0} MiB, once the limit of 50 requests a second for a host is \
                 lifted.",
                row.wall.map_or_else(String::new, |wall| a_second(ARCHIVES, wall)),
                mebibytes(row.peak),
            );
        }
        if let (Some(first), Some(unchanged)) = (self.of(Case::FirstTags).next(), self.of(Case::UnchangedTags).next()) {
            let _ = writeln!(
                text,
                "\n{TAGS} tags in an OCI registry: {} of CPU and {} at first; unchanged {} and {}.",
                short(first.cpu),
                first.requests,
                short(unchanged.cpu),
                unchanged.requests,
            );
        }
        if let Some(many) = &self.many {
            let _ = writeln!(
                text,
                "\n{} small repositories, from the start of the process until a real API server has all of them Ready: {} s, {:.0} MiB.",
                thousands(many.repositories),
                seconds(many.wall),
                mebibytes(many.peak),
            );
        }
        text
    }
}

/// Puts `text` between the marks of a document: the one behind which it stands, and that of the end of figures.
fn replace(document: &str, begin: &str, text: &str) {
    const END: &str = "<!-- end of figures -->";
    let path = project(document);
    let old = fs::read_to_string(&path).expect("the document is there");
    let (before, rest) = old.split_once(begin).expect("it has the mark of the figures");
    let (_, after) = rest.split_once(END).expect("and that of their end");
    fs::write(&path, format!("{before}{begin}\n{}\n\n{END}{after}", text.trim_end())).expect("it can be written");
}

fn today() -> String {
    jiff::Timestamp::now().strftime("%-d %B %Y").to_string()
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores ({model}), which the servers and the database share")
}
