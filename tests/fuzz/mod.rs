//! Runs the fuzz targets on stable Rust over seeds, odd inputs of the corpus and mutations.

mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{corpus, project};
use targets::{TARGETS, Target};

/// Larger inputs find no more bugs but are slow in a debug build.
const LARGEST: u64 = 64 * 1024;

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.metadata().is_ok_and(|file| file.len() <= LARGEST) {
            found.push(path);
        }
    }
}

/// Returns the seeds of a target.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    files(&project("fuzz/seeds").join(name), &mut found);
    found.sort();
    found.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn every_target_has_seeds_and_a_fuzz_binary() {
    let manifest = fs::read_to_string(project("fuzz/Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(seeds(name).len() >= 3, "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let body = fs::read_to_string(project(&format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(body.contains("targets::"), "{name}");
    }
}

/// Cargo refuses some names, such as those of its directories.
#[test]
fn cargo_accepts_the_manifest_of_the_fuzz_binaries() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version=1",
        "--manifest-path",
    ]);
    let output = cargo.arg(project("fuzz/Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn seeds_do_not_panic() {
    for (name, run) in TARGETS {
        seeds(name).iter().for_each(|seed| run(seed));
    }
}

/// Every input runs against every target.
#[test]
fn odd_inputs_of_the_corpus_do_not_panic() {
    let Some(corpus) = corpus::corpus() else { return };
    let mut odd = Vec::new();
    files(&corpus.join("odd"), &mut odd);
    for path in odd {
        let bytes = fs::read(&path).unwrap();
        for (_, run) in TARGETS {
            run(&bytes);
        }
    }
}

/// Fragments with a meaning in some format.
const PIECES: [&str; 21] = [
    "\"", "{", "}", "[", "]", ":", ",", "\n", " ", "\\u0000", "null", "0", "-1", "1e999", "*a", "&a ", "(", ")", "|",
    "..", "$x",
];

/// Position, removed length and inserted bytes.
type Change = (Index, usize, Vec<u8>);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let piece = prop_oneof![
        proptest::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec((any::<Index>(), 0..16_usize, piece), 1..5)
}

fn mutated(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for (place, length, piece) in changes {
        let start = place.index(bytes.len() + 1);
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, piece.iter().copied());
    }
    bytes
}

/// Runs 1,000 mutations of a target's seeds, or `PROPTEST_CASES`.
fn run_mutations((name, run): Target) {
    let seeds = seeds(name);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1000),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let inputs = (proptest::sample::select(seeds), changes());
    let outcome = runner.run(&inputs, |(seed, changes)| {
        run(&mutated(seed, &changes));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
}

#[test]
fn mutated_seeds_do_not_panic() {
    // One thread per target: some take longer than all others together.
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(move || run_mutations(target));
        }
    });
}
