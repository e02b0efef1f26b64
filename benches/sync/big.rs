//! One repository with the standard big index: the first sync, with a filter and without, and the ways in which it goes on.

use std::time::{Duration, Instant};

use crate::baseline;
use crate::index::Index;
use crate::numbers::thousands;
use crate::report::{Case, Report, Row, Table};
use crate::rig::{Database, EVERY_SECOND, RUNS, Rig, asked, end, written};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::process::ScratchFolder;

/// Syncs over which the cheap ones are averaged: the clock that CPU is read from ticks a hundred times a second.
const NOT_MODIFIED: usize = 20;
const NO_ETAG: usize = 8;
const PATH: &str = "/big/index.yaml";
const PATIENCE: Duration = Duration::from_secs(60);
/// What these syncs are about is the index.
const FLAGS: [&str; 1] = ["--chart-files=none"];
/// A rule of the kind that Kubeapps' dashboard makes. It keeps all charts, so that both syncs write the same.
const FILTER: &str = "  filterRule:\n    jq: .name | test($var0)\n    variables: { $var0: \"^[a-z]\" }\n";

/// Measures all of it on both databases.
pub async fn run(report: &mut Report) {
    let index = Index::standard();
    let described = index.described();
    println!("{described}");
    let mut table = Table::default();
    for database in [Database::Sqlite, Database::Postgres] {
        let mut bench = Bench::new(&index, database).await;
        table.rows.extend(bench.first_syncs().await);
        bench.settle().await;
        let one = |bench: &mut Bench, case| {
            let samples = bench.rig.take();
            bench.rig.row(case, &samples, "1")
        };
        bench.rig.unchanged(&bench.server, PATH, NOT_MODIFIED, &FLAGS).await;
        table.rows.push(one(&mut bench, Case::NotModified));
        bench.server.serve(PATH, Page::new(index.text.clone()).without_etag());
        bench.rig.unchanged(&bench.server, PATH, NO_ETAG, &FLAGS).await;
        table.rows.push(one(&mut bench, Case::NoEtag));
        bench.server.serve(PATH, Page::new(index.text.clone()));
        let (charts, versions) = bench.new_versions().await;
        table.rows.push(one(&mut bench, Case::NewVersion));
        table.about = format!(
            "{described} ({} of them, in {charts} charts, are kept; the rest is of deprecated charts)",
            thousands(versions)
        );
    }
    let folder = ScratchFolder::new("baseline");
    table
        .rows
        .extend(baseline::of_index(&folder.write("index.yaml", &index.text)));
    report.index = Some(table);
}

/// A server of the index, and where it is brought.
struct Bench<'a> {
    index: &'a Index,
    server: ChartServer,
    rig: Rig,
}

impl<'a> Bench<'a> {
    async fn new(index: &'a Index, database: Database) -> Self {
        let server = ChartServer::start().await;
        server.serve(PATH, Page::new(index.text.clone()));
        Self {
            index,
            server,
            rig: Rig::new(database).await,
        }
    }

    /// Declares the repository; without an interval the default holds.
    fn declare(&self, more: &str) {
        let url = self.server.url("/big");
        self.rig.declare(&format!("  type: helm\n  url: {url}\n{more}"));
    }

    /// Without a filter and with one by turns, so that what else goes on meets both.
    async fn first_syncs(&mut self) -> Vec<Row> {
        let (mut plain, mut filtered) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            for (filter, samples) in [(FILTER, &mut filtered), ("", &mut plain)] {
                self.rig.fresh_database().await;
                self.declare(filter);
                let started = Instant::now();
                let portolan = self.rig.start(&FLAGS);
                written(&portolan, 1).await;
                self.rig.note_from_start(&portolan, started);
                end(portolan).await;
                samples.extend(self.rig.take());
            }
        }
        vec![
            self.rig.row(Case::First, &plain, "1"),
            self.rig.row(Case::Filtered, &filtered, "1"),
        ]
    }

    /// From now on the repository is synced every second. The change of the declaration alone makes it be compared once.
    async fn settle(&self) {
        self.declare(EVERY_SECOND);
        let portolan = self.rig.start(&FLAGS);
        asked(&self.server, PATH, 2).await;
        end(portolan).await;
    }

    /// A process that finds one more version, time and again. The charts and versions that were there before.
    async fn new_versions(&mut self) -> (usize, usize) {
        let portolan = self.rig.start(&FLAGS);
        portolan.ready(PATIENCE).await;
        asked(&self.server, PATH, 2).await;
        let metrics = portolan.metrics().await;
        let count = |name| metrics.sum(name, &[]).expect("it is told") as usize;
        let kept = (
            count("portolan_repository_charts"),
            count("portolan_repository_versions"),
        );
        for number in 1..=RUNS {
            let text = self.index.with_one_more(number);
            let before = self.rig.readings(&portolan).await;
            self.server.serve(PATH, Page::new(text));
            written(&portolan, number).await;
            self.rig.note_since(&before, &portolan, 1).await;
        }
        end(portolan).await;
        kept
    }
}
