//! Real indexes as they were published one after another; generated ones where there are none.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::corpus;

fn indexes_in(folder: PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == "yaml"));
    paths.sort();
    paths
}

/// Follows a history. Gives how many charts were read after its beginning, and how many there were. Those of one chart don't count.
fn replay(indexes: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let (mut memory, mut read, mut all) = (Memory::empty(), 0, 0);
    for (number, index) in indexes.enumerate() {
        let limits = DecodeLimits::default();
        let delta = compare(&memory, &index, &limits, usize::MAX).unwrap_or_else(|error| panic!("{error}"));
        let Some(delta) = delta else { continue };
        assert!(!delta.memory.charts.is_empty(), "it was not cut");
        if number > 0 && delta.memory.charts.len() > 1 {
            read += delta.read.len();
            all += delta.memory.charts.len();
        }
        memory = delta.memory;
    }
    (read, all)
}

#[test]
fn real_histories_are_followed_change_by_change() {
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
                        // Every other step is enough to be followed, and takes half the time.
                        let paths = indexes_in(repository.join(history)).into_iter().step_by(2);
                        let (read, all) = replay(paths.map(|path| fs::read(path).unwrap()));
                        // One repository publishes all charts anew in one step, another one the newest version of each.
                        let is_small_step = history == "history" && all > 0;
                        let name = repository.display();
                        assert!(!is_small_step || read < all, "{name}: {read} of {all}");
                    }
                }
            });
        }
    });
}
