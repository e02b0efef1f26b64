//! CPU of syncs by the size of a generated index, for the plot.

use std::error::Error;

use plotters::prelude::*;

use crate::index::Index;
use crate::report::{PLOT, Row, kept};
use crate::rig::{BenchProcess, ChartServer, Page, RUNS, SQLITE, Sample, baseline};
use crate::standard::PATH;

/// Approximate sizes in MB.
const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const UNCHANGED: usize = 3;
const LINES: [&str; 4] = [
    "first sync",
    "one new version",
    "unchanged, no ETag",
    "receiving and SHA-256",
];
/// Size in MB and CPU in ms.
type Point = (f64, f64);

pub async fn run() -> Vec<Row> {
    let mut lines: [Vec<Point>; 4] = Default::default();
    let server = ChartServer::start().await;
    for size in SIZES {
        let index = Index::of_megabytes(size);
        let page = Page::new(index.text.clone());
        server.serve(PATH, page.clone());
        let mut process = BenchProcess::start(SQLITE, &server, PATH, &[]).await;
        let first = process.first().await;
        process.sync_every_second(UNCHANGED).await;
        let (mut changed, mut received) = (Vec::new(), Vec::new());
        for number in 1..=RUNS {
            received.push(baseline::measure("receive", &[server.url(PATH)]).await);
            changed.push(process.change(Page::new(index.with_one_more(number))).await);
        }
        process.change(page.clone()).await;
        server.serve(PATH, page.without_etag());
        let unchanged = process.unchanged(UNCHANGED).await;
        process.end().await;
        let megabytes = index.text.len() as f64 / 1e6;
        let samples = [
            first,
            Sample::combined(&changed),
            unchanged,
            Sample::combined(&received),
        ];
        for ((name, line), sample) in LINES.iter().zip(&mut lines).zip(samples) {
            println!("{megabytes:.1} MB, {name}: {:.1} ms", sample.cpu * 1e3);
            line.push((megabytes, sample.cpu * 1e3));
        }
    }
    draw(lines).expect("the plot can be drawn");
    Vec::new()
}

/// Draws the lines as SVG, both axes logarithmic.
fn draw(lines: [Vec<Point>; 4]) -> Result<(), Box<dyn Error>> {
    let path = kept(PLOT);
    let root = SVGBackend::new(&path, (800, 480)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("CPU of a sync by the size of the index (SQLite)", ("sans-serif", 26))
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(76)
        .build_cartesian_2d((0.9..40.0).log_scale().base(2.0), (1.0..1000.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 20))
        .x_desc("index, MB")
        .y_desc("CPU, ms")
        .x_label_formatter(&f64::to_string)
        .y_label_formatter(&f64::to_string)
        .draw()?;
    for (index, (name, points)) in LINES.into_iter().zip(lines).enumerate() {
        let style = Palette99::pick(index).filled().stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 20))
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
