//! The evaluator `portolan-cue`, which `make tools` builds.

use std::path::PathBuf;

use super::project;

/// Returns the executable in `PORTOLAN_CUE_EVALUATOR`, or as built by `make tools`.
pub fn executable() -> PathBuf {
    let built = || project("target/tools/portolan-cue");
    let path: PathBuf = std::env::var_os("PORTOLAN_CUE_EVALUATOR").map_or_else(built, PathBuf::from);
    assert!(
        path.exists(),
        "{} is missing: run `make tools` first, or use `make test`",
        path.display()
    );
    path
}
