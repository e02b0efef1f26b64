//! What a sync costs by the size of the index, and by the size of the change.

use super::baselines::Receiver;
use super::figures::{Line, Point};
use super::station::Station;
use crate::index::Index;
use crate::measure::median;
use crate::rig::{Database, RUNS, end};
use crate::support::chart_server::Page;

/// In MB, about.
const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Versions that are others.
const CHANGES: [usize; 4] = [1, 10, 100, 1000];
/// Syncs over which those that find nothing are averaged.
const UNCHANGED: usize = 3;
const NAMES: [&str; 4] = [
    "first sync",
    "one new version",
    "unchanged, no ETag",
    "receive and SHA-256",
];

/// By the size of the index.
pub async fn by_size() -> Vec<Line> {
    let mut lines = NAMES.map(|name| Line {
        name,
        points: Vec::new(),
    });
    let mut receiver = Receiver::start();
    for size in SIZES {
        let index = Index::of_megabytes(size);
        let megabytes = index.text.len() as f64 / 1e6;
        let page = Page::new(index.text.clone());
        let mut station = Station::start(Database::Sqlite).await;
        let first = station.first(page.clone()).await.cpu;
        station.settle(UNCHANGED).await;
        let (mut changed, mut received) = (Vec::new(), Vec::new());
        for number in 1..=RUNS {
            received.push(receiver.cpu(&station.url()).await);
            changed.push(station.change(Page::new(index.with_one_more(number))).await.cpu);
        }
        station.change(page.clone()).await;
        let unchanged = station.unchanged(Some(page.without_etag()), UNCHANGED).await.cpu;
        end(station.portolan).await;
        for (line, cpu) in lines
            .iter_mut()
            .zip([first, median(changed), unchanged, median(received)])
        {
            println!("{megabytes:.1} MB, {}: {:.1} ms", line.name, cpu * 1e3);
            line.points.push(Point { x: megabytes, cpu });
        }
    }
    lines.into()
}

/// By the versions of the standard big index that are others.
pub async fn by_change(index: &Index) -> Vec<Line> {
    let mut station = Station::start(Database::Sqlite).await;
    let mut receiver = Receiver::start();
    let first = station.first(Page::new(index.text.clone())).await.cpu;
    station.settle(UNCHANGED).await;
    let (mut points, mut received) = (Vec::new(), Vec::new());
    let mut number = 0;
    for count in CHANGES {
        let mut changed = Vec::new();
        // Each time from an index that has other archives at the same places.
        number += 1;
        station.change(Page::new(index.with_changes(count, number))).await;
        for _ in 0..RUNS {
            number += 1;
            let sync = station.change(Page::new(index.with_changes(count, number))).await;
            println!("{count} versions changed: {:.1} ms, {} rows", sync.cpu * 1e3, sync.rows);
            changed.push(sync.cpu);
            received.push(receiver.cpu(&station.url()).await);
        }
        points.push(Point {
            x: count as f64,
            cpu: median(changed),
        });
    }
    end(station.portolan).await;
    let level = |cpu: f64| CHANGES.map(|count| Point { x: count as f64, cpu }).to_vec();
    vec![
        Line {
            name: NAMES[0],
            points: level(first),
        },
        Line {
            name: "changed versions",
            points,
        },
        Line {
            name: NAMES[3],
            points: level(median(received)),
        },
    ]
}
