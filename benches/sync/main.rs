//! The figures of Portolan: what syncs cost the real binary in time, CPU, memory and requests. `make bench` runs it.
//!
//! ```text
//!  index ────► server on loopback ─┐
//!  archives ─► server on loopback ─┼► portolan run --manifests ─► SQLite, Postgres (big.rs, files.rs, registry.rs)
//!  tags ─► registry ─► proxy ──────┘
//!  index, archives ─► parsed whole, unpacked, hashed, each in a process of its own (baseline.rs)
//!  the index as it goes on, process by process ─► portolan run ─► rows, CPU by size   (delta.rs)
//!  index ─► portolan sync, counted by valgrind                                     (instructions.rs)
//!  1,000 AppRepositories ─► API server ─► portolan run ─► SQLite                   (many.rs)
//!  1,000 Applications, 10,000 components ─► API server ─► portolan run              (apps.rs)
//! ```
//!
//! The tables are printed and left in `target/bench/`. With `--record` they also take the places of the ones in
//! `docs/performance.md` and `README.md`; with `big`, `delta`, `instructions`, `files`, `registry`, `many` or `apps` only these parts are run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that can't go on says why and ends"
)]

mod apps;
mod baseline;
mod big;
mod delta;
mod files;
mod index;
mod instructions;
mod many;
mod measure;
mod numbers;
mod registry;
mod report;
mod rig;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod support;

use report::Report;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_given = |word: &str| arguments.iter().any(|argument| argument == word);
    if let Some(at) = arguments.iter().position(|argument| argument == baseline::ARGUMENT) {
        return baseline::child(&arguments[at + 1..]);
    }
    if let Some(at) = arguments
        .iter()
        .position(|argument| argument == delta::baselines::ARGUMENT)
    {
        return delta::baselines::child(&arguments[at + 1..]);
    }
    let parts = ["big", "delta", "instructions", "files", "registry", "many", "apps"];
    let is_all = !parts.into_iter().chain(delta::PARTS).any(is_given);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let report = runtime.block_on(async {
        let mut report = Report::default();
        if is_all || is_given("big") {
            big::run(&mut report).await;
        }
        let is_whole_delta = is_all || is_given("delta");
        if is_whole_delta || delta::PARTS.into_iter().any(is_given) {
            delta::run(&mut report, |part| is_whole_delta || is_given(part)).await;
        }
        if is_all || is_given("instructions") {
            instructions::run(&mut report).await;
        }
        if is_all || is_given("files") {
            files::run(&mut report).await;
        }
        if is_all || is_given("registry") {
            registry::run(&mut report).await;
        }
        if is_all || is_given("many") {
            many::run(&mut report).await;
        }
        if is_all || is_given("apps") {
            apps::run(&mut report).await;
        }
        report
    });
    report.publish(is_given("--record"));
}
