//! The fuzz targets on stable Rust: over their seeds, over the odd inputs of the corpus, and over mutations of both.

mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{corpus, project};
use targets::{TARGETS, Target};

/// Larger inputs say no more, and take their time in a debug build.
const LARGEST: u64 = 64 * 1024;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.metadata().is_ok_and(|file| file.len() <= LARGEST) {
            found.push(path);
        }
    }
}

/// The inputs of a target that stand in the project: its seeds, and what fuzzing has found.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    files(&project("fuzz/seeds").join(name), &mut found);
    found.sort();
    found.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn every_target_has_seeds_and_stands_in_the_fuzz_package() {
    let manifest = fs::read_to_string(project("fuzz/Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(seeds(name).len() >= 3, "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let body = fs::read_to_string(project(&format!("fuzz/fuzz_targets/{name}.rs"))).unwrap();
        assert!(body.contains("targets::"), "{name}");
    }
}

#[test]
fn seeds_do_no_harm() {
    for (name, run) in TARGETS {
        seeds(name).iter().for_each(|seed| run(seed));
    }
}

/// Every input, to every target: what is odd for one is odder for another.
#[test]
fn odd_inputs_of_the_corpus_do_no_harm() {
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

/// Pieces that mean something to one notation or another.
const PIECES: [&str; 21] = [
    "\"", "{", "}", "[", "]", ":", ",", "\n", " ", "\\u0000", "null", "0", "-1", "1e999", "*a", "&a ", "(", ")", "|",
    "..", "$x",
];

/// A change of some bytes: where, how many go, and what comes.
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

/// A thousand mutations of a target's seeds, or as many as `PROPTEST_CASES` says.
fn survives_mutations((name, run): Target) {
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
fn mutated_seeds_do_no_harm() {
    // One thread a target: some take longer than all others together.
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(move || survives_mutations(target));
        }
    });
}
