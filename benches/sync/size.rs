//! CPU of syncs by the size of a generated index, for the plot.

use crate::index::Index;
use crate::report::plot::{Line, draw};
use crate::report::{PLOT, Row, kept};
use crate::rig::baseline::Receiver;
use crate::rig::measure::Sample;
use crate::rig::{BenchProcess, Database, RUNS};
use crate::standard;
use crate::support::chart_server::{ChartServer, Page};

/// Approximate sizes in MB.
const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const UNCHANGED: usize = 3;
const NAMES: [&str; 4] = [
    "first sync",
    "one new version",
    "unchanged, no ETag",
    "receiving and SHA-256",
];

/// Measures all sizes and draws the plot.
pub async fn run() -> Vec<Row> {
    let mut lines = NAMES.map(|name| Line {
        name,
        points: Vec::new(),
    });
    let mut receiver = Receiver::start();
    let server = ChartServer::start().await;
    let source = standard::source(&server);
    for size in SIZES {
        let index = Index::of_megabytes(size);
        let page = Page::new(index.text.clone());
        server.serve(standard::PATH, page.clone());
        let mut process = BenchProcess::start(Database::Sqlite, &source, &[]).await;
        let first = process.first().await;
        process.sync_every_second(UNCHANGED).await;
        let (mut changed, mut received) = (Vec::new(), Vec::new());
        for number in 1..=RUNS {
            received.push(receiver.receive(&[server.url(standard::PATH)]).await);
            changed.push(process.change(Page::new(index.with_one_more(number))).await);
        }
        process.change(page.clone()).await;
        server.serve(standard::PATH, page.without_etag());
        let unchanged = process.unchanged(UNCHANGED).await;
        process.end().await;
        let megabytes = index.text.len() as f64 / 1e6;
        let (changed, received) = (Sample::combined(&changed), Sample::combined(&received));
        let samples = [first, changed, unchanged, received];
        for (line, sample) in lines.iter_mut().zip(samples) {
            println!("{megabytes:.1} MB, {}: {:.1} ms", line.name, sample.cpu * 1e3);
            line.points.push((megabytes, sample.cpu));
        }
    }
    draw(&lines, &kept(PLOT)).expect("the plot can be drawn");
    Vec::new()
}
