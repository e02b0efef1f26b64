//! Test environment: a control plane, Postgres, chart repositories, and the `portolan` binary.
//!
//! One control plane and one Postgres server serve the whole test process; each test takes its own namespace, database
//! and ports, so tests run side by side. Whatever is started here ends with the test process, however that ends.

pub mod archives;
pub mod chart_server;
pub mod control_plane;
pub mod corpus;
pub mod eventually;
pub mod fault_proxy;
pub mod forward;
pub mod gate;
pub mod helm;
#[allow(dead_code, reason = "the tests of the decoder use the rest")]
pub mod index_generator;
pub mod portolan;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod registry;
pub mod tls;
pub mod token_server;
pub mod world;

use std::path::{Path, PathBuf};

/// A file or folder of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder for logs and unpacked test material, kept after the tests for whoever looks into a failure.
pub fn target_folder(name: &str) -> PathBuf {
    // The folder that Cargo gives to integration tests lies in the target folder, wherever that is.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}
