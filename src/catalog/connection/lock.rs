//! Lock file next to a SQLite database: only one process writes.
//!
//! SQLite itself would let several processes write in turn. A one-shot sync next to a running controller would then
//! change rows that the controller relies on. Postgres has an advisory lock per repository. Readers need no lock.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// The exclusive right to write a SQLite database. The kernel releases it when the process ends.
#[derive(Debug)]
pub struct SqliteLock {
    _file: File,
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(
        "database {database} is in use by another portolan process{holder}; request a sync from it with \
         `portolan resync NAME`, or stop it first. `portolan status`, `search` and `show` work while it runs"
    )]
    Held {
        database: String,
        /// ` (process N)` if known, else empty.
        holder: String,
    },
    #[error(
        "failed to lock {path}: {source}; the directory of the database must be writable, on a file system that supports locks"
    )]
    Unusable { path: String, source: std::io::Error },
}

impl SqliteLock {
    /// Locks a database, which need not exist yet. Fails immediately if another process has the lock.
    pub fn acquire(database: &Path) -> Result<Self, LockError> {
        let path = lock_path(database);
        let unusable = |source| LockError::Unusable {
            path: path.display().to_string(),
            source,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held {
                    database: database.display().to_string(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // The process ID is only for error messages. The kernel holds the lock, so a stale ID is harmless.
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(unusable)?;
        Ok(Self { _file: file, path })
    }

    /// The file is never deleted: two processes could then lock two files of the same name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns `<file>.lock` next to the real file, so that a link and a relative path lead to the same lock.
fn lock_path(database: &Path) -> PathBuf {
    let real = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_path_buf());
    let mut path = OsString::from(real);
    path.push(".lock");
    PathBuf::from(path)
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // Content that is not a process ID is not shown.
    match file.take(20).read_to_string(&mut text) {
        Ok(_) => text
            .trim()
            .parse::<u32>()
            .map_or_else(|_| String::new(), |pid| format!(" (process {pid})")),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_and_the_error_names_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("portolan.db");
        let lock = SqliteLock::acquire(&database).unwrap();
        let refused = SqliteLock::acquire(&database).unwrap_err();
        assert!(matches!(refused, LockError::Held { .. }));
        let message = refused.to_string();
        assert!(message.contains("portolan resync"), "{message}");
        assert!(message.contains(&std::process::id().to_string()), "{message}");
        drop(lock);
        SqliteLock::acquire(&database).unwrap();
    }

    #[test]
    fn a_link_to_a_database_shares_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("portolan.db");
        std::fs::write(&database, "").unwrap();
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        let _lock = SqliteLock::acquire(&database).unwrap();
        assert!(matches!(SqliteLock::acquire(&link), Err(LockError::Held { .. })));
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let error = SqliteLock::acquire(&directory.path().join("none/portolan.db")).unwrap_err();
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
    }
}
