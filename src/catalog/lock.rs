//! The lock file beside a SQLite database: one process writes at a time.
//!
//! SQLite itself lets several processes write in turn. But a one-shot command that syncs beside a running controller would
//! change rows under its feet, and neither knows of the other (on Postgres an advisory lock for each repository does that work).
//! So whoever writes holds this lock, and the others say whom to ask. Reading needs no lock.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// The right to write into a SQLite database; given back when dropped, and by the kernel when the process ends however it ends.
#[derive(Debug)]
pub struct SqliteLock {
    _file: File,
    path: PathBuf,
}

/// Why the lock was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error(
        "the database {database} is in use by another portolan process{holder}: a second one must not write into it. \
         Ask the running one with `portolan resync NAME`, or stop it first; `portolan status`, `search` and `show` work beside it"
    )]
    Held {
        /// The database's file.
        database: String,
        /// ` (process N)` where it is known, else empty.
        holder: String,
    },
    /// The lock file can't be made or locked.
    #[error(
        "the lock file {path} can't be used: {source}; the folder of the database must be writable, on a file system that has locks"
    )]
    Unusable {
        /// The lock file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl SqliteLock {
    /// Takes the lock of the database at `database`, which need not exist yet.
    ///
    /// # Errors
    /// [`LockError::Held`] at once, without waiting, when another process has it.
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
        // The number is only for the message of the one that is refused: the lock is the kernel's, so a stale number harms nobody.
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(unusable)?;
        Ok(Self { _file: file, path })
    }

    /// The lock file. It stays when the lock is given back: removing it would let two processes lock two files of one name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// `<file>.lock` beside the real file, so that two names of one database (a link, a relative path) meet in one lock.
fn lock_path(database: &Path) -> PathBuf {
    let real = std::fs::canonicalize(database).unwrap_or_else(|_| database.to_path_buf());
    let mut path = OsString::from(real);
    path.push(".lock");
    PathBuf::from(path)
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // A number has few digits; whatever else stands in the file is not shown.
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
    fn a_second_writer_is_refused_and_told_whom_to_ask() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("portolan.db");
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
    fn two_names_of_one_database_meet_in_one_lock() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("portolan.db");
        std::fs::write(&database, "").unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        let _lock = SqliteLock::acquire(&database).unwrap();
        assert!(matches!(SqliteLock::acquire(&link), Err(LockError::Held { .. })));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = SqliteLock::acquire(&folder.path().join("none/portolan.db")).unwrap_err();
        assert!(matches!(error, LockError::Unusable { .. }), "{error}");
    }
}
