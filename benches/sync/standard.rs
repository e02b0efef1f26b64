//! Syncs of the standard index, each measured right after its baseline.

use std::path::{Path, PathBuf};

use crate::index::{Index, json};
use crate::report::Limit::{self, AboveIdle, AtLeast, Cpu, PostgresCpu, Requests, Rows, Times};
use crate::report::Row;
use crate::rig::baseline::{self, EVENTS, PARSE, RECEIVING, Receiver};
use crate::rig::measure::Sample;
use crate::rig::{BenchProcess, Database, RUNS, Source};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::index_generator;
use crate::support::process::ScratchDir;

pub const PATH: &str = "/big/index.yaml";
/// Measurements of a change, of which the table shows the median.
const ROUNDS: usize = 9;
/// Syncs over which a measurement of an unchanged index is averaged.
const NOT_MODIFIED: usize = 12;
const NO_ETAG: usize = 2;
/// A rule like those of Kubeapps' dashboard. All charts match, so both syncs write the same rows.
const FILTER: &str = "  filterRule:\n    jq: .name | test($var0)\n    variables: { $var0: \"^[a-z]\" }\n";
/// MiB above idle.
const MEMORY: f64 = 12.0;
const UNCHANGED_KUBEAPPS: &str = "Kubeapps: 130 ms, 67 MiB";

/// The repository of the standard index.
pub fn source(server: &ChartServer) -> Source<'_> {
    Source {
        server,
        path: PATH,
        spec: format!("  type: helm\n  url: {}\n", server.url("/big")),
    }
}

/// Measures both databases and the baselines.
pub async fn run() -> Vec<Row> {
    let server = ChartServer::start().await;
    let mut bench = Bench::new(&server);
    println!("{}", bench.index.description());
    for database in [Database::Sqlite, Database::Postgres] {
        let mut process = bench.first_syncs(database).await;
        bench.unchanged(&mut process, database).await;
        bench.changes(&process, database).await;
        if database == Database::Sqlite {
            bench.json(&process).await;
            bench.unsplittable(&process).await;
            let directory = process.end().await;
            bench.writes(&directory.join("portolan.db")).await;
        } else {
            process.end().await;
        }
    }
    bench.large_chart().await;
    let name = format!("receiving and SHA-256: {}", bench.index.description());
    bench.rows.push(Row::baseline(&name, &bench.received));
    bench.rows
}

/// The standard index on a server, and the rows measured so far.
struct Bench<'a> {
    index: Index,
    page: Page,
    /// The index as a file, for baselines.
    file: PathBuf,
    _directory: ScratchDir,
    source: Source<'a>,
    receiver: Receiver,
    received: Vec<Sample>,
    /// CPU of one new version on SQLite.
    new_version: f64,
    rows: Vec<Row>,
}

impl<'a> Bench<'a> {
    fn new(server: &'a ChartServer) -> Self {
        let (index, directory) = (Index::standard(), ScratchDir::new("baseline"));
        Self {
            page: Page::new(index.text.clone()),
            file: directory.write("index.yaml", &index.text),
            index,
            _directory: directory,
            source: source(server),
            receiver: Receiver::start(),
            received: Vec::new(),
            new_version: 0.0,
            rows: Vec::new(),
        }
    }

    /// Adds a row; an empty `neighbor` means that there is no other software to compare with.
    fn push(&mut self, database: Database, row: Row, neighbor: &str, limits: &[Limit]) {
        let row = row.database(database.title()).limits(limits);
        let row = row.limits(&[AboveIdle(MEMORY)]);
        self.rows.push(match neighbor {
            "" => row,
            neighbor => row.neighbor(neighbor),
        });
    }

    async fn receive(&mut self) -> f64 {
        let url = self.source.server.url(PATH);
        let sample = self.receiver.receive(&[url]).await;
        self.received.push(sample);
        sample.cpu
    }

    /// Measures first syncs, in turn with a parse and with a filtered sync. The last process keeps running.
    async fn first_syncs(&mut self, database: Database) -> BenchProcess<'a> {
        let (mut parses, mut plain, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = None;
        self.source.server.serve(PATH, self.page.clone());
        for _ in 0..RUNS {
            let parse = baseline::parse(&self.file).await;
            parses.push(parse);
            let mut with_filter = self.source.clone();
            with_filter.spec.push_str(FILTER);
            let mut process = BenchProcess::start(database, &with_filter, &[]).await;
            let filter = process.first().await;
            process.end().await;
            let mut process = BenchProcess::start(database, &self.source, &[]).await;
            let sample = process.first().await;
            plain.push(sample.against(parse.cpu));
            filtered.push(filter.against(sample.cpu));
            if let Some(process) = last.replace(process) {
                process.end().await;
            }
        }
        let row = Row::new("First sync", &plain).against(PARSE);
        let limits = [Times(0.4), Cpu(1.0), PostgresCpu(0.15)];
        self.push(database, row, "Kubeapps: 8.0 s, 376 MiB", &limits);
        let row = Row::new("First sync with a filter", &filtered).against("without");
        self.push(database, row, "", &[Times(2.0)]);
        if database == Database::Sqlite {
            self.rows.push(Row::baseline("parse by `serde_yaml`", &parses));
        }
        last.expect("a process was started")
    }

    async fn unchanged(&mut self, process: &mut BenchProcess<'a>, database: Database) {
        process.sync_every_second(NOT_MODIFIED).await;
        let sample = process.unchanged.against(self.receive().await);
        let row = Row::new("Unchanged, 304", &[sample]).against(RECEIVING);
        self.push(database, row, UNCHANGED_KUBEAPPS, &[Cpu(0.001), Requests(1), Rows(0)]);
    }

    /// Measures common changes of an index.
    async fn changes(&mut self, process: &BenchProcess<'a>, database: Database) {
        let (mut no_etag, mut one_more) = (Vec::new(), Vec::new());
        let (mut one_less, mut new_times) = (Vec::new(), Vec::new());
        for number in 1..=ROUNDS {
            let received = self.receive().await;
            self.source.server.serve(PATH, self.page.clone().without_etag());
            no_etag.push(process.unchanged(NO_ETAG).await.against(received));
            process.change(self.page.clone()).await;
            let page = Page::new(self.index.with_one_more(number));
            one_more.push(process.change(page).await.against(received));
            one_less.push(process.change(self.page.clone()).await.against(received));
            let page = Page::new(self.index.with_new_times(number));
            new_times.push(process.change(page).await.against(received));
            process.change(self.page.clone()).await;
        }
        if database == Database::Sqlite {
            self.new_version = Sample::combined(&one_more).cpu;
        }
        let row = Row::new("Unchanged, no ETag", &no_etag).against(RECEIVING);
        self.push(database, row, UNCHANGED_KUBEAPPS, &[Times(1.9), Rows(0)]);
        let row = Row::new("One new version", &one_more).against(RECEIVING);
        self.push(database, row, "Kubeapps: 5.2 s, 323 MiB", &[Times(2.6), Rows(1)]);
        let row = Row::new("One version removed", &one_less).against(RECEIVING);
        self.push(database, row, "", &[Rows(1)]);
        let row = Row::new("All `created` times new", &new_times).against(RECEIVING);
        self.push(database, row, "", &[Times(2.1), Rows(0)]);
    }

    /// Measures the same index in JSON on one line.
    async fn json(&mut self, process: &BenchProcess<'a>) {
        process.change(Page::new(json(&self.index.text))).await;
        let mut samples = Vec::new();
        for number in 1..=ROUNDS {
            // Not `receive`, because these bytes are different.
            let url = self.source.server.url(PATH);
            let received = self.receiver.receive(&[url]).await.cpu;
            let page = Page::new(json(&self.index.with_one_more(number)));
            samples.push(process.change(page).await.against(received));
        }
        let row = Row::new("One new version, JSON", &samples).against(RECEIVING);
        self.push(Database::Sqlite, row, "", &[Times(2.6), Rows(1)]);
    }

    /// Measures an index that can't be split.
    async fn unsplittable(&mut self, process: &BenchProcess<'a>) {
        let index = self.index.unsplittable();
        process.change(Page::new(index.text.clone())).await;
        let (mut samples, mut events) = (Vec::new(), Vec::new());
        for number in 1..=ROUNDS {
            let baseline = baseline::events(&self.file).await;
            events.push(baseline);
            let page = Page::new(index.with_one_more(number));
            samples.push(process.change(page).await.against(baseline.cpu));
        }
        let row = Row::new("One new version, index can't be split", &samples).against(EVENTS);
        self.push(Database::Sqlite, row, "", &[Times(2.0), Rows(1)]);
        self.rows.push(Row::baseline("events of granit-parser", &events));
    }

    /// Measures a parse that writes all rows, to compare with one new version.
    async fn writes(&mut self, database: &Path) {
        let mut samples = Vec::new();
        for _ in 0..RUNS {
            let sample = baseline::parse_and_write(&self.file, database).await;
            samples.push(sample.against(self.new_version));
        }
        let row = Row::baseline("parse and write all rows", &samples).against("one new version");
        self.rows.push(row.limits(&[AtLeast(15.0)]));
    }

    /// Measures the chart that takes the most memory, since a chart is decoded at once.
    async fn large_chart(&mut self) {
        let text = index_generator::generate(1, 1, 14_000);
        self.source.server.serve(PATH, Page::new(text));
        let mut process = BenchProcess::start(Database::Sqlite, &self.source, &[]).await;
        let sample = process.first().await;
        process.end().await;
        let row = Row::new("First sync, one chart of 14,000 versions", &[sample]);
        self.push(Database::Sqlite, row, "", &[]);
    }
}
