//! Test environment: a control plane, Postgres, chart repositories, and the `portolan` binary.
//!
//! One control plane and one Postgres server serve the whole test process; each test has its own namespace, database
//! and ports, so tests run concurrently. Everything started here ends with the test process, even if that is killed.

pub mod archives;
pub mod chart_server;
pub mod control_plane;
pub mod corpus;
pub mod cue;
pub mod eventually;
pub mod fault_proxy;
pub mod forward;
pub mod gate;
pub mod gitops;
pub mod helm;
#[allow(dead_code, reason = "the unit tests use the rest")]
pub mod index_generator;
pub mod portolan;
pub mod ports;
pub mod postgres;
pub mod postgres_proxy;
pub mod probes;
pub mod process;
pub mod proxy;
pub mod record;
pub mod registry;
pub mod shard_leases;
pub mod signal;
pub mod small_disk;
pub mod tls;
pub mod token_server;
pub mod watch_filter;
pub mod world;

use std::path::{Path, PathBuf};

/// Returns the path of a file or directory of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the files below a directory that have an extension.
pub fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_files(directory, extension, &mut files);
    files
}

fn add_files(directory: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            add_files(&path, extension, files);
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
}

/// Returns a directory for logs and unpacked test data, which is kept after the tests.
pub fn target_dir(name: &str) -> PathBuf {
    // Cargo's directory for integration tests is in the target directory.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}
