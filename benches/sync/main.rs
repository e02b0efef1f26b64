//! Benchmarks of the real binary (`make bench`): CPU, wall time, memory, requests and rows, compared with baselines.
//!
//! ```text
//!  index, archives, tags ─► server on loopback ─► portolan run --manifests ─► SQLite, Postgres   (rig/mod.rs)
//!                                  └────────────► baselines, processes of their own             (rig/baseline.rs)
//!  AppRepositories, Applications ─► API server ─► portolan run ─► SQLite                        (rig/cluster.rs)
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
mod first_import;
mod index;
mod isolation;
mod many;
mod oam;
mod registry;
mod report;
mod rig;
mod size;
mod standard;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use rig::baseline;

/// In the order of the table.
const PARTS: [&str; 12] = [
    "index",
    "size",
    "many",
    "namespaces",
    "files",
    "import",
    "registry",
    "apps",
    "oam",
    "workflows",
    "webhooks",
    "isolation",
];
const RECORD: &str = "--record";

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let Some((baseline::ARGUMENT, rest)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return baseline::child(rest);
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let unknown = words.iter().find(|word| **word != RECORD && !PARTS.contains(word));
    assert_eq!(unknown, None, "the parts are {PARTS:?}");
    let is_all = !words.iter().any(|word| PARTS.contains(word));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    for part in PARTS.into_iter().filter(|part| is_all || words.contains(part)) {
        println!("measuring {part}");
        let rows = runtime.block_on(async {
            match part {
                "index" => standard::run().await,
                "size" => size::run().await,
                "many" => many::run().await,
                "namespaces" => many::namespaces().await,
                "files" => files::run().await,
                "import" => first_import::run().await,
                "registry" => registry::run().await,
                "oam" => oam::run().await,
                "workflows" => oam::workflows::run().await,
                "webhooks" => oam::webhooks::run().await,
                "isolation" => isolation::run().await,
                _ => apps::run().await,
            }
        });
        report::keep(part, rows);
    }
    if words.contains(&RECORD) {
        report::record(&PARTS);
    }
}
