//! Where bytes from outside wait.

use std::path::Path;

use tempfile::SpooledTempFile;

/// Bytes that are kept in memory; more goes into an unlinked temporary file.
const IN_MEMORY: usize = 256 * 1024;

/// A place for bytes: in memory, and beyond 256 KiB in a file of this folder, or of the system's for such files.
pub(super) fn spool(folder: Option<&Path>) -> SpooledTempFile {
    match folder {
        Some(folder) => SpooledTempFile::new_in(IN_MEMORY, folder),
        None => SpooledTempFile::new(IN_MEMORY),
    }
}
