//! Detects that a SQLite file was deleted or replaced. Open connections would go on writing a file without a name.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use parking_lot::Mutex;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use crate::catalog::{Catalog, Error, ErrorKind, SHORT_DEADLINE};

#[derive(Debug)]
pub struct SqliteFile {
    path: PathBuf,
    open: Mutex<OpenFile>,
}

/// Device and inode.
type FileIdentity = Option<(u64, u64)>;

#[derive(Clone, Copy, Debug, Default)]
struct OpenFile {
    database: FileIdentity,
    /// The write-ahead log, which exists while the database is open.
    log: FileIdentity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqliteFileState {
    Same,
    Deleted,
    Replaced,
}

impl SqliteFile {
    pub(super) fn new(path: &Path) -> Self {
        let file = Self {
            path: path.to_owned(),
            open: Mutex::default(),
        };
        file.remember();
        file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn remember(&self) {
        self.open.lock().database = identity(&self.path).ok().flatten();
        self.remember_log();
    }

    /// Remembers the write-ahead log, which the first transaction creates.
    pub(in crate::catalog) fn remember_log(&self) {
        self.open.lock().log = identity(&self.beside("-wal")).ok().flatten();
    }

    /// Deletes the write-ahead log of the closed database, if it is still there: SQLite would apply it to the new file.
    pub(super) fn delete_old_log(&self) -> io::Result<()> {
        let log = self.beside("-wal");
        let current = identity(&log)?;
        if current.is_some() && current == self.open.lock().log {
            fs::remove_file(log)?;
            match fs::remove_file(self.beside("-shm")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(suffix);
        PathBuf::from(path)
    }

    pub fn state(&self) -> io::Result<SqliteFileState> {
        let current = identity(&self.path)?;
        if current.is_none() {
            return Ok(SqliteFileState::Deleted);
        }
        if current != self.open.lock().database {
            return Ok(SqliteFileState::Replaced);
        }
        self.remember_log();
        Ok(SqliteFileState::Same)
    }

    pub async fn origins(&self) -> Result<Vec<String>, Error> {
        const SELECT: &str = "SELECT DISTINCT origin FROM portolan_repositories WHERE origin <> 'one-shot'";
        // Without the write-ahead log, which may belong to the former file.
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .immutable(true)
            .read_only(true);
        let mut connection = options.disable_statement_logging().connect().await?;
        let origins = sqlx::query_scalar(SELECT).fetch_all(&mut connection).await;
        // Reading has changed nothing that an error could lose.
        let _ = connection.close().await;
        match origins.map_err(Error::from) {
            Err(error) if error.is_missing_table() => Ok(Vec::new()),
            origins => origins,
        }
    }
}

fn identity(path: &Path) -> io::Result<FileIdentity> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some((metadata.dev(), metadata.ino()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Catalog {
    /// Opens the file at the path of the database if it is another file. Returns true then: every repository needs a
    /// sync. Does not open a file with repositories of other origins only, and all calls fail.
    pub async fn follow_file(&self, origin: &str) -> Result<bool, Error> {
        let Some(file) = self.0.pools.sqlite_file() else {
            return Ok(false);
        };
        match file.state().map_err(sqlx::Error::Io)? {
            SqliteFileState::Same => {
                self.0.is_foreign_file.store(false, Ordering::Relaxed);
                return Ok(false);
            }
            SqliteFileState::Deleted => {
                self.0.is_foreign_file.store(false, Ordering::Relaxed);
                tracing::error!(path = %file.path().display(), "database file was deleted, creating it");
            }
            SqliteFileState::Replaced => {
                let origins = file
                    .origins()
                    .await
                    .map_err(|error| error.context("read the new database file"))?;
                let is_foreign = !origins.is_empty() && !origins.iter().any(|other| other == origin);
                self.0.is_foreign_file.store(is_foreign, Ordering::Relaxed);
                self.ensure_own_file()?;
                tracing::warn!(path = %file.path().display(), "database file was replaced, opening the new one");
            }
        }
        let reopened = tokio::time::timeout(SHORT_DEADLINE, self.0.pools.reopen()).await;
        reopened.unwrap_or_else(|_| Err(Error::timed_out("open the database file", SHORT_DEADLINE)))?;
        self.create_tables().await?;
        self.notify_rebuilt();
        Ok(true)
    }

    /// Fails if the file at the path of the database belongs to another origin: it replaced the open file.
    pub(in crate::catalog) fn ensure_own_file(&self) -> Result<(), Error> {
        match self.0.pools.sqlite_file() {
            Some(file) if self.0.is_foreign_file.load(Ordering::Relaxed) => Err(ErrorKind::ForeignFile {
                path: file.path().display().to_string(),
            }
            .into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_deleted_or_replaced_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("portolan.db");
        fs::write(&path, "").unwrap();
        let file = SqliteFile::new(&path);
        assert_eq!(file.state().unwrap(), SqliteFileState::Same);
        fs::write(directory.path().join("other.db"), "").unwrap();
        fs::rename(directory.path().join("other.db"), &path).unwrap();
        assert_eq!(file.state().unwrap(), SqliteFileState::Replaced);
        fs::remove_file(&path).unwrap();
        assert_eq!(file.state().unwrap(), SqliteFileState::Deleted);
    }
}
