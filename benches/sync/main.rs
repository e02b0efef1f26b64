//! Benchmarks of the real binary (`make bench`): CPU, wall time, memory, requests and rows, compared with baselines.
//!
//! ```text
//!  index, archives, tags ─► server on loopback ─► portolan run --manifests ─► SQLite, Postgres   (rig/process.rs)
//!                                  └────────────► baselines, processes of their own             (rig/baseline.rs)
//!  AppRepositories, Applications ─► API server ─► portolan run ─► SQLite                        (rig/cluster.rs)
//!  load generator ─► portolan serve ─► SQLite, Postgres, filled by portolan sync                (serve/)
//!  webhooks ─► portolan serve --only=hooks ─► API server ─► portolan run ─► SQLite              (pushes.rs)
//! ```
//!
//! Arguments name the parts to run; by default, all run. `--record` writes the results of all parts, including those of
//! earlier runs, to `docs/explanation/performance.md` and `README.md`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails ends with a message"
)]

mod apps;
mod files;
mod index;
mod isolation;
mod many;
mod oam;
mod pushes;
mod registry;
mod releases;
mod report;
mod rig;
mod serve;
mod size;
mod standard;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use report::Row;
use rig::baseline;

/// In the order of the table.
const PARTS: &str = "index size many namespaces files import registry apps oam scale joined workflows webhooks isolation serve releases pushes";
const RECORD: &str = "--record";

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [baseline::ARGUMENT, words @ ..] = words.as_slice() {
        return baseline::child(words);
    }
    let parts: Vec<&str> = PARTS.split(' ').collect();
    let unknown = words.iter().find(|word| **word != RECORD && !parts.contains(word));
    assert_eq!(unknown, None, "the parts are {PARTS}");
    let is_all = !words.iter().any(|word| parts.contains(word));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    for part in parts.iter().filter(|part| is_all || words.contains(part)) {
        println!("measuring {part}");
        report::keep(part, &runtime.block_on(measure(part)));
    }
    if words.contains(&RECORD) {
        report::record(&parts);
    }
}

async fn measure(part: &str) -> Vec<Row> {
    match part {
        "index" => standard::run().await,
        "size" => size::run().await,
        "many" => many::run().await,
        "namespaces" => many::namespaces().await,
        "files" => files::run().await,
        "import" => files::large().await,
        "registry" => registry::run().await,
        "apps" => apps::run().await,
        "oam" => oam::run().await,
        "scale" => oam::scale().await,
        "joined" => oam::joined::run().await,
        "workflows" => oam::workflows::run().await,
        "webhooks" => oam::webhooks::run().await,
        "serve" => serve::run().await,
        "releases" => releases::run().await,
        "pushes" => pushes::run().await,
        _ => isolation::run().await,
    }
}
