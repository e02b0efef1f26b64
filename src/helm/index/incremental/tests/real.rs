//! Replays published histories of real indexes, or of generated ones.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::corpus;

fn indexes_in(directory: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == "yaml"));
    paths.sort();
    paths
}

/// Replays a history. Returns the number of parsed charts after the first index, and of all charts. Indexes with one
/// chart do not count.
fn replay(indexes: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let (mut state, mut parsed, mut all) = (CatalogState::empty(), 0, 0);
    for (number, index) in indexes.enumerate() {
        let limits = DecodeLimits::default();
        let incremental = compare(&state, &index, &limits, usize::MAX).unwrap_or_else(|error| panic!("{error}"));
        let Some(incremental) = incremental else { continue };
        assert!(!incremental.state.charts.is_empty(), "full decode");
        if number > 0 && incremental.state.charts.len() > 1 {
            parsed += incremental.parsed.len();
            all += incremental.state.charts.len();
        }
        state = incremental.state;
    }
    (parsed, all)
}

#[test]
fn real_histories_decode_incrementally() {
    let Some(corpus) = corpus::corpus() else {
        for seed in 0..3 {
            let first = generator::generate(seed, 10, 10);
            let second = first.replace("created: \"20", "created: \"21");
            let third = second.replacen("  version: ", "  version: 7", 1);
            let history = [first, second, third].map(String::into_bytes);
            assert_eq!(replay(history.into_iter()), (1, 20));
        }
        return;
    };
    let repositories: Vec<PathBuf> = fs::read_dir(corpus)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    std::thread::scope(|scope| {
        for half in repositories.chunks(repositories.len().div_ceil(2)) {
            scope.spawn(move || {
                for repository in half {
                    for history in ["history", "history-sparse"] {
                        // Every other step takes half the time and is enough.
                        let paths = indexes_in(repository.join(history)).into_iter().step_by(2);
                        let (parsed, all) = replay(paths.map(|path| fs::read(path).unwrap()));
                        // One repository republishes all charts in one step, another one the newest version of each.
                        let is_small_step = history == "history" && all > 0;
                        let name = repository.display();
                        assert!(!is_small_step || parsed < all, "{name}: {parsed} of {all}");
                    }
                }
            });
        }
    });
}
