//! What of a sync follows the change: the figures of a delta sync, held against the least that can be done with the bytes.
//!
//! The process is seen from outside alone: what it takes of CPU and memory (`/proc`), what it asks the server for, and which rows
//! of charts it writes.

pub mod baselines;
mod cases;
mod crowd;
pub mod figures;
mod plot;
mod rows;
mod sizes;
mod station;
pub mod tables;
mod texts;

use figures::Delta;
use station::Station;

use crate::index::Index;
use crate::report::Report;
use crate::rig::{Database, end};
use crate::support::chart_server::Page;

/// The parts of it, by the words that ask for one alone.
pub const PARTS: [&str; 4] = ["delta-cases", "delta-memory", "delta-many", "delta-plot"];

/// Measures the parts that are asked for.
pub async fn run(report: &mut Report, is_wanted: impl Fn(&str) -> bool) {
    let index = Index::standard();
    let mut delta = Delta {
        about: index.described(),
        ..Delta::default()
    };
    println!("delta sync: {}", delta.about);
    if is_wanted("delta-cases") {
        delta.cases = cases::run(&index, &mut delta.baselines).await;
    }
    if is_wanted("delta-memory") {
        delta.hostile = hostile().await;
    }
    if is_wanted("delta-plot") {
        delta.by_size = sizes::by_size().await;
        delta.by_change = sizes::by_change(&index).await;
    }
    if is_wanted("delta-many") {
        delta.many = Some(crowd::many(crowd::MANY).await);
        delta.most = Some(crowd::many(crowd::MOST).await);
        delta.namespaces = Some(crowd::namespaces(&index).await);
    }
    report.delta = Some(delta);
}

/// What an index that nobody should send takes of memory, in a process each.
async fn hostile() -> Vec<(&'static str, u64)> {
    let mut peaks = Vec::new();
    for (name, text) in texts::hostile() {
        let mut station = Station::start(Database::Sqlite).await;
        let peak = station.attempt(Page::new(text)).await.peak;
        println!("{name}: {} MiB above idle", peak >> 20);
        peaks.push((name, peak));
        end(station.portolan).await;
    }
    peaks
}
