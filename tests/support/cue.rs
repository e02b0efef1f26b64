//! The evaluator `portolan-cue`, which is built with the feature `cue`.

use std::path::PathBuf;

/// Returns the executable in `PORTOLAN_CUE_EVALUATOR`, or the one that was built last.
pub fn executable() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_portolan-cue").into();
    let path: PathBuf = std::env::var_os("PORTOLAN_CUE_EVALUATOR").map_or_else(built, PathBuf::from);
    assert!(
        path.exists(),
        "{} is missing: use `make test`, or add `--features cue`, which needs Go",
        path.display()
    );
    path
}
