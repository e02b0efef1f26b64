//! Syncs of the standard index, each measured right after its baseline.

use std::path::{Path, PathBuf};

use crate::index::{Index, json};
use crate::report::{AboveIdle, AtLeast, Cpu, Limit, PostgresCpu, Requests, Row, Rows, Times};
use crate::rig::baseline::{RECEIVING, measure};
use crate::rig::{BenchProcess, ChartServer, POSTGRES, Page, RUNS, SQLITE, Sample};
use crate::support::index_generator::generate;
use crate::support::process::ScratchDir;

pub const PATH: &str = "/big/index.yaml";
/// Measurements of a change, of which the table shows the median.
const ROUNDS: usize = 9;
/// Syncs over which a measurement of an unchanged index is averaged.
const NOT_MODIFIED: usize = 12;
const NO_ETAG: usize = 2;
/// A rule like those of Kubeapps' dashboard. All charts match, so both syncs write the same rows.
const FILTER: &str = "  filterRule:\n    jq: .name | test($var0)\n    variables: { $var0: \"^[a-z]\" }\n";

pub async fn run() -> Vec<Row> {
    let (server, directory) = (ChartServer::start().await, ScratchDir::new("baseline"));
    let index = Index::standard();
    println!("{}", index.description());
    let mut bench = Bench {
        page: Page::new(index.text.clone()),
        file: directory.write("index.yaml", &index.text),
        index,
        server: &server,
        received: Vec::new(),
        rows: Vec::new(),
    };
    for database in [SQLITE, POSTGRES] {
        let mut process = bench.first_syncs(database).await;
        let new_version = bench.changes(&mut process, database).await;
        if database == SQLITE {
            let text = |index: &Index, number| json(&index.with_one_more(number));
            let case = ("One new version, JSON", RECEIVING, 2.6);
            bench.variant(&process, case, text).await;
            let text = |index: &Index, number| index.unsplittable().with_one_more(number);
            let case = ("One new version, index can't be split", "events", 2.0);
            let events = bench.variant(&process, case, text).await;
            bench.rows.push(Row::baseline("events of granit-parser", &events));
        }
        let directory = process.end().await;
        if database == SQLITE {
            bench.writes(&directory.join("portolan.db"), new_version).await;
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
    server: &'a ChartServer,
    received: Vec<Sample>,
    rows: Vec<Row>,
}

impl<'a> Bench<'a> {
    fn push(&mut self, database: &str, row: Row, limits: &[Limit]) {
        // MiB.
        let row = row.on(database).limits(limits).limits(&[AboveIdle(12.0)]);
        self.rows.push(row);
    }

    async fn receive(&mut self) -> f64 {
        let sample = measure("receive", &[self.server.url(PATH)]).await;
        self.received.push(sample);
        sample.cpu
    }

    /// Measures first syncs, in turn with a parse and with a filtered sync. The last process keeps running.
    async fn first_syncs(&mut self, database: &str) -> BenchProcess<'a> {
        let (mut parses, mut plain, mut filtered) = (Vec::new(), Vec::new(), Vec::new());
        let mut last: Option<BenchProcess<'a>> = None;
        self.server.serve(PATH, self.page.clone());
        for _ in 0..RUNS {
            if let Some(process) = last.take() {
                process.end().await;
            }
            let parse = measure("parse", &[&self.file]).await;
            parses.push(parse);
            let mut process = BenchProcess::start(database, self.server, PATH, &[]).await;
            process.spec.push_str(FILTER);
            let filter = process.first().await;
            process.end().await;
            let process = last.insert(BenchProcess::start(database, self.server, PATH, &[]).await);
            let sample = process.first().await;
            plain.push(sample.against(parse.cpu));
            filtered.push(filter.against(sample.cpu));
        }
        let row = Row::new("First sync", &plain).against("parse");
        self.push(database, row, &[Times(0.4), Cpu(1.0), PostgresCpu(0.15)]);
        let row = Row::new("First sync with a filter", &filtered).against("without");
        self.push(database, row, &[Times(2.0)]);
        if database == SQLITE {
            self.rows.push(Row::baseline("parse by `serde_yaml`", &parses));
        }
        last.expect("a process was started")
    }

    /// Measures common changes of an index. Returns the CPU of one new version.
    async fn changes(&mut self, process: &mut BenchProcess<'a>, database: &str) -> f64 {
        process.sync_every_second(NOT_MODIFIED).await;
        let not_modified = vec![process.unchanged.against(self.receive().await)];
        let (mut no_etag, mut one_more) = (Vec::new(), Vec::new());
        let (mut one_less, mut new_times) = (Vec::new(), Vec::new());
        for number in 1..=ROUNDS {
            let received = self.receive().await;
            self.server.serve(PATH, self.page.clone().without_etag());
            no_etag.push(process.unchanged(NO_ETAG).await.against(received));
            process.change(self.page.clone()).await;
            let page = Page::new(self.index.with_one_more(number));
            one_more.push(process.change(page).await.against(received));
            one_less.push(process.change(self.page.clone()).await.against(received));
            let page = Page::new(self.index.with_new_times(number));
            new_times.push(process.change(page).await.against(received));
            process.change(self.page.clone()).await;
        }
        let new_version = Sample::combined(&one_more).cpu;
        for (case, samples, limits) in [
            ("Unchanged, 304", not_modified, vec![Cpu(0.001), Requests(1), Rows(0)]),
            ("Unchanged, no ETag", no_etag, vec![Times(1.9), Rows(0)]),
            ("One new version", one_more, vec![Times(2.6), Rows(1)]),
            ("One version removed", one_less, vec![Rows(1)]),
            ("All `created` times new", new_times, vec![Times(2.1), Rows(0)]),
        ] {
            self.push(database, Row::new(case, &samples).against(RECEIVING), &limits);
        }
        new_version
    }

    /// Measures one new version of a variant of the index; version 0 is there before. Returns the baselines.
    async fn variant(
        &mut self,
        process: &BenchProcess<'a>,
        (case, against, times): (&str, &str, f64),
        text: fn(&Index, usize) -> String,
    ) -> Vec<Sample> {
        process.change(Page::new(text(&self.index, 0))).await;
        let (mut samples, mut baselines) = (Vec::new(), Vec::new());
        for number in 1..=ROUNDS {
            let baseline = match against {
                RECEIVING => measure("receive", &[self.server.url(PATH)]).await,
                _ => measure(against, &[&self.file]).await,
            };
            baselines.push(baseline);
            let page = Page::new(text(&self.index, number));
            samples.push(process.change(page).await.against(baseline.cpu));
        }
        let row = Row::new(case, &samples).against(against);
        self.push(SQLITE, row, &[Times(times), Rows(1)]);
        baselines
    }

    /// Measures a parse that writes all rows, to compare with one new version.
    async fn writes(&mut self, database: &Path, new_version: f64) {
        let mut samples = Vec::new();
        for _ in 0..RUNS {
            let sample = measure("write", &[self.file.as_path(), database]).await;
            samples.push(sample.against(new_version));
        }
        let row = Row::baseline("parse and write all rows", &samples).against("one new version");
        self.rows.push(row.limits(&[AtLeast(15.0)]));
    }

    /// Measures the chart that takes the most memory, since a chart is decoded at once.
    async fn large_chart(&mut self) {
        self.server.serve(PATH, Page::new(generate(1, 1, 14_000)));
        let mut process = BenchProcess::start(SQLITE, self.server, PATH, &[]).await;
        let sample = process.first().await;
        process.end().await;
        let row = Row::new("First sync, one chart of 14,000 versions", &[sample]);
        self.push(SQLITE, row, &[]);
    }
}
