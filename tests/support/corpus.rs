//! Finds real indexes, which are not part of the project.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// Returns the directory of unpacked real indexes, one subdirectory per repository: from `PORTOLAN_CORPUS`, or
/// `../shared/corpus` next to the project. `None` if neither exists, or the variable is empty; tests then generate
/// indexes. Prints which indexes are used.
pub fn corpus() -> Option<&'static Path> {
    static UNPACKED: OnceLock<Option<PathBuf>> = OnceLock::new();
    UNPACKED
        .get_or_init(|| {
            let packed = packed()?;
            let unpacked = unpack(&packed, "corpus");
            println!("using the real indexes of {}", packed.display());
            Some(unpacked)
        })
        .as_deref()
        .or_else(|| {
            println!("using generated indexes: PORTOLAN_CORPUS is not set and ../shared/corpus does not exist");
            None
        })
}

/// Returns the directory of rows written by Kubeapps' syncer: `PORTOLAN_GOLDENS`, or from the archive in `goldens` next
/// to the corpus.
pub fn goldens() -> Option<&'static Path> {
    static UNPACKED: OnceLock<Option<PathBuf>> = OnceLock::new();
    UNPACKED
        .get_or_init(|| {
            if let Some(named) = env::var_os("PORTOLAN_GOLDENS") {
                return Some(named.into());
            }
            let directory = packed()?.parent()?.join("goldens");
            directory
                .join("kubeapps-rows.tar.xz")
                .exists()
                .then(|| unpack(&directory, "goldens"))
        })
        .as_deref()
}

/// Returns the directory of renderings and Applications recorded from KubeVela: `PORTOLAN_OAM_GOLDENS`, or from the
/// archives in `oam-goldens` next to the corpus.
pub fn oam_goldens() -> Option<&'static Path> {
    static UNPACKED: OnceLock<Option<PathBuf>> = OnceLock::new();
    UNPACKED
        .get_or_init(|| {
            if let Some(named) = env::var_os("PORTOLAN_OAM_GOLDENS") {
                return Some(named.into());
            }
            let directory = packed()?.parent()?.join("oam-goldens");
            directory.exists().then(|| unpack(&directory, "oam-goldens"))
        })
        .as_deref()
}

fn packed() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    match env::var_os("PORTOLAN_CORPUS") {
        None => beside.canonicalize().ok(),
        Some(named) => (!named.is_empty()).then(|| named.into()),
    }
}

/// Unpacks all archives of a directory below the target directory, once.
fn unpack(directory: &Path, name: &str) -> PathBuf {
    let executable = env::current_exe().unwrap();
    let build = executable.ancestors().nth(2).unwrap();
    let unpacked = build.join(name);
    if unpacked.exists() {
        return unpacked;
    }
    // Tests run concurrently, also in several processes: the first rename wins.
    let half = build.join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&half).unwrap();
    for archive in fs::read_dir(directory).unwrap() {
        let path = archive.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "xz") {
            let status = Command::new("tar")
                .arg("xJf")
                .arg(&path)
                .arg("-C")
                .arg(&half)
                .status()
                .unwrap();
            assert!(status.success(), "tar failed to unpack {}", path.display());
        }
    }
    if fs::rename(&half, &unpacked).is_err() {
        fs::remove_dir_all(&half).unwrap();
    }
    unpacked
}
