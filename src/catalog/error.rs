//! What can go wrong with the database, sorted by what is to be done about it.

use crate::api::NamespacedName;
use std::{fmt, io, time::Duration};

use sqlx::{migrate::MigrateError, postgres::PgDatabaseError, sqlite::SqliteError};

/// Why the catalogue could not be read or written. Each message is a sentence that says what to do; none holds the password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stored repository is another one than the work began with: it was deleted, or made anew, meanwhile. Nothing was written.
    #[error("the repository {repository} was replaced or removed meanwhile; nothing was written, look at it again")]
    Superseded {
        /// The repository.
        repository: NamespacedName,
    },
    /// What a commit called unchanged is not what is stored any more. Nothing was written. The commit is to be made anew, with the rows of all charts.
    #[error(
        "the stored charts are not the ones any more that the index was compared with; nothing was written, all of them are to be compared"
    )]
    OutdatedCuts,
    /// Tables had vanished; they have been made again, empty. The same call will succeed now.
    #[error("the catalogue's tables had vanished and were made anew; every repository is to be synced again")]
    TablesRebuilt,
    /// The database did not answer in time.
    #[error(
        "the catalogue gave up {doing} after {seconds} s; see whether the database is overloaded or cut off, it is tried again"
    )]
    TimedOut {
        /// What was tried, as in "gave up reading …".
        doing: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// There is no database to read.
    #[error(
        "there is no catalogue at {database} yet; start `portolan run` or `portolan sync` first, or name another with --database-url"
    )]
    NoDatabase {
        /// The database.
        database: String,
    },
    /// Something was to be written through a catalogue that was opened to read.
    #[error("the catalogue was opened to be read only; open it for writing to change it")]
    ReadOnly,
    /// Our own tables are of another release.
    #[error(
        "the tables of the catalogue do not fit this release of Portolan ({source}); run the release that wrote them, or a newer one"
    )]
    Schema {
        /// What does not fit.
        source: MigrateError,
    },
    /// Our own tables were created by a build of the time before the first release.
    #[error(
        "the tables portolan_* were created by a development build of Portolan and cannot be upgraded; drop all tables whose names begin with portolan_, or name another database with --database-url. The tables repos, charts and files can stay"
    )]
    DevelopmentTables,
    /// The rows that were to be written could not be read back from where they were kept.
    #[error(
        "the rows to be written could not be read back: {source}; see whether the disk of --spool-dir is full or broken"
    )]
    Rows {
        /// What the operating system said.
        source: io::Error,
    },
    /// A stored row is not of the shape that it has to be.
    #[error(
        "the stored chart {chart} is not of the shape that Kubeapps writes ({reason}); `portolan resync` of its repository puts it right"
    )]
    Malformed {
        /// `namespace/chart_id`.
        chart: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The details of a stored record are not what this release writes.
    #[error(
        "cannot read the record of repository {repository}: {reason}; if a newer release wrote it, run that release, otherwise delete its row from portolan_repositories to sync the repository again"
    )]
    UnreadableRecord {
        /// The repository.
        repository: NamespacedName,
        /// The error of the JSON decoder.
        reason: String,
    },
    /// The database said no, or could not be reached.
    #[error("the catalogue failed {doing}: {source}; {}", advice(.source))]
    Database {
        /// What was tried, as in "failed reading …".
        doing: &'static str,
        /// What the driver said.
        source: sqlx::Error,
    },
}

impl Error {
    /// Whether the same call may well succeed later: then it is retried with back-off rather than reported as stalled.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::OutdatedCuts | Self::TablesRebuilt | Self::TimedOut { .. } | Self::Rows { .. } => true,
            Self::Database { source, .. } => match cause(source) {
                Cause::Away | Cause::Busy | Cause::TableMissing | Cause::Full | Cause::NoSuchDatabase => true,
                Cause::ColumnMissing
                | Cause::Refused
                | Cause::Rights
                | Cause::ReadOnly
                | Cause::Damaged
                | Cause::Data
                | Cause::Other => false,
            },
            Self::Superseded { .. }
            | Self::NoDatabase { .. }
            | Self::ReadOnly
            | Self::Schema { .. }
            | Self::DevelopmentTables
            | Self::Malformed { .. }
            | Self::UnreadableRecord { .. } => false,
        }
    }

    /// The reason in CamelCase, for a condition, an event or a metric's label.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Superseded { .. } => "Superseded",
            Self::OutdatedCuts => "ChartsOutdated",
            Self::TablesRebuilt => "RebuildingCatalog",
            Self::TimedOut { .. } => "DatabaseTimeout",
            Self::Rows { .. } => "SpoolUnreadable",
            Self::NoDatabase { .. }
            | Self::ReadOnly
            | Self::Schema { .. }
            | Self::DevelopmentTables
            | Self::Malformed { .. }
            | Self::UnreadableRecord { .. } => "CatalogueUnusable",
            Self::Database { source, .. } => match cause(source) {
                Cause::Away | Cause::NoSuchDatabase => "DatabaseUnreachable",
                Cause::Busy => "DatabaseBusy",
                Cause::Full => "DatabaseFull",
                _ => "DatabaseFailed",
            },
        }
    }

    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::TableMissing)
    }

    /// Whether one of the rows that were written is at fault, rather than the database.
    pub(super) fn is_data(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::Data)
    }

    /// Whether the row that a written one refers to was taken away meanwhile.
    pub(super) fn is_reference_gone(&self) -> bool {
        let Self::Database {
            source: sqlx::Error::Database(error),
            ..
        } = self
        else {
            return false;
        };
        error.is_foreign_key_violation()
    }

    /// Whether somebody else was making the same tables at the same moment. `IF NOT EXISTS` does not shield from that:
    /// Postgres looks first and then trips over the unique indexes of its own catalogue.
    pub(super) fn is_schema_race(&self) -> bool {
        let source = match self {
            Self::Database { source, .. } => source,
            Self::Schema {
                source: MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _),
            } => source,
            _ => return false,
        };
        matches!(
            postgres_code(source),
            // unique_violation, duplicate_table, duplicate_object, deadlock_detected, "tuple concurrently updated"
            Some("23505" | "42P07" | "42710" | "40P01" | "XX000" | "42P01")
        )
    }

    /// Says what was being done; the first one to say it, who is nearest, is right.
    pub(super) fn during(self, now: &'static str) -> Self {
        match self {
            Self::Database { doing: "", source } => Self::Database { doing: now, source },
            other => other,
        }
    }

    pub(super) const fn timed_out(doing: &'static str, after: Duration) -> Self {
        Self::TimedOut {
            doing,
            seconds: after.as_secs(),
        }
    }

    /// The database's own words, for a part of a message.
    pub(super) fn bare(&self) -> String {
        match self {
            Self::Database {
                source: sqlx::Error::Database(error),
                ..
            } => error.message().to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        Self::Database { doing: "", source }
    }
}

impl From<MigrateError> for Error {
    fn from(source: MigrateError) -> Self {
        match source {
            MigrateError::Execute(source) => source.into(),
            source => Self::Schema { source },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// Can't be reached, or is stopping or starting.
    Away,
    /// Others were in the way: a time-out for a lock, a deadlock, a serialization failure, too many connections.
    Busy,
    TableMissing,
    ColumnMissing,
    /// No space left.
    Full,
    NoSuchDatabase,
    /// User or password.
    Refused,
    /// The user may not do this.
    Rights,
    /// A file that can't be written.
    ReadOnly,
    /// Not a database, or a broken one.
    Damaged,
    /// A value that the database can't hold.
    Data,
    Other,
}

fn postgres_code(error: &sqlx::Error) -> Option<&str> {
    match error {
        sqlx::Error::Database(error) => error.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::code),
        _ => None,
    }
}

fn cause(error: &sqlx::Error) -> Cause {
    use sqlx::Error as E;
    match error {
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => Cause::Away,
        E::Database(database) => {
            if let Some(postgres) = database.try_downcast_ref::<PgDatabaseError>() {
                postgres_cause(postgres.code())
            } else if let Some(sqlite) = database.try_downcast_ref::<SqliteError>() {
                sqlite_cause(sqlite)
            } else {
                Cause::Other
            }
        }
        _ => Cause::Other,
    }
}

/// By SQLSTATE, whose first two characters are its class.
fn postgres_cause(code: &str) -> Cause {
    match code {
        "42P01" => Cause::TableMissing,
        "42703" => Cause::ColumnMissing,
        "42501" => Cause::Rights,
        "3D000" => Cause::NoSuchDatabase,
        "53100" => Cause::Full,
        // query_canceled, lock_not_available, object_in_use; an index or table that was dropped while it was being opened
        "57014" | "55P03" | "55006" | "XX000" => Cause::Busy,
        // read_only_sql_transaction: a fail-over left us with a standby
        "25006" => Cause::Away,
        // foreign_key_violation: the row that is referred to was taken away, and no value is at fault
        "23503" => Cause::Busy,
        _ => match code.get(..2) {
            Some("08" | "57") => Cause::Away,
            Some("40" | "53") => Cause::Busy,
            Some("28") => Cause::Refused,
            // cardinality, data exception, constraint, program limit exceeded (a key too long for its index)
            Some("21" | "22" | "23" | "54") => Cause::Data,
            _ => Cause::Other,
        },
    }
}

/// By the primary result code, the low byte of the extended one.
fn sqlite_cause(error: &SqliteError) -> Cause {
    use sqlx::error::DatabaseError;
    let extended: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
    match extended & 0xff {
        // SQLITE_CONSTRAINT_FOREIGNKEY
        _ if extended == 787 => Cause::Busy,
        1 if error.message().starts_with("no such table") => Cause::TableMissing,
        1 if error.message().starts_with("no such column") => Cause::ColumnMissing,
        1 if error.message().starts_with("malformed JSON") => Cause::Data,
        5 | 6 => Cause::Busy,
        8 => Cause::ReadOnly,
        10 | 14 => Cause::Away,
        11 | 26 => Cause::Damaged,
        13 => Cause::Full,
        18 | 19 => Cause::Data,
        _ => Cause::Other,
    }
}

struct Advice(&'static str);

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A handshake that fails comes as an error of the connection, with that of TLS inside.
fn is_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}

fn advice(error: &sqlx::Error) -> Advice {
    if is_tls(error) {
        return Advice("check sslmode and sslrootcert in --database-url, and the server's certificate");
    }
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return Advice("check that the database is up, or allow more connections; it is tried again");
    }
    Advice(match cause(error) {
        Cause::Away => "check that the database is up and that --database-url leads to it; it is tried again",
        Cause::Busy => "others were in the way, it is tried again",
        Cause::ColumnMissing => {
            "the tables are of an older release: `portolan run` or `portolan sync` upgrades them or says what to do"
        }
        Cause::TableMissing => "the tables are made by `portolan run` and `portolan sync`",
        Cause::Full => "make room on the database's disk; it is tried again",
        Cause::NoSuchDatabase => "create the database, or name another one in --database-url or with --database-name",
        Cause::Refused => "check the user and the password (DB_PASSWORD)",
        Cause::Rights => "grant the user the right to create and change tables in this database",
        Cause::ReadOnly => "make the file and its folder writable",
        Cause::Damaged => "the file is damaged or no SQLite database; move it away, the catalogue is then built anew",
        Cause::Data | Cause::Other => "the database's log may say more",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_sorted_by_what_is_to_be_done() {
        for (code, expected) in [
            ("42P01", Cause::TableMissing),
            ("42703", Cause::ColumnMissing),
            ("40001", Cause::Busy),
            ("40P01", Cause::Busy),
            ("55P03", Cause::Busy),
            ("53300", Cause::Busy),
            ("23503", Cause::Busy),
            ("53100", Cause::Full),
            ("57P01", Cause::Away),
            ("57P03", Cause::Away),
            ("08006", Cause::Away),
            ("28P01", Cause::Refused),
            ("22P05", Cause::Data),
            ("23505", Cause::Data),
            ("54000", Cause::Data),
            ("42601", Cause::Other),
            ("", Cause::Other),
        ] {
            assert_eq!(postgres_cause(code), expected, "{code}");
        }
    }

    #[test]
    fn a_database_that_is_away_is_transient_and_the_message_says_what_to_check() {
        let error = Error::from(sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionRefused)))
            .during("reading a repository");
        assert!(error.is_transient());
        assert!(error.to_string().contains("failed reading a repository"), "{error}");
        assert!(error.to_string().contains("--database-url"), "{error}");
    }
}
