//! Database errors, classified by the action they need.

use std::{io, time::Duration};

use sqlx::{migrate::MigrateError, postgres::PgDatabaseError, sqlite::SqliteError};

use super::Fault;
use crate::api::NamespacedName;

/// Error of a catalog call. The message never contains the password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository was deleted or recreated since the caller read it. Nothing was written.
    #[error("repository {repository} was replaced or deleted during the sync, nothing was written")]
    Superseded { repository: NamespacedName },
    /// A chart of `DigestUpdate::unchanged` has changed. Commit again with the rows of all charts.
    #[error("stored charts changed during the sync, retrying with a full comparison")]
    StaleDigests,
    /// Tables were missing and are recreated, empty. The same call can succeed now.
    #[error("catalog tables were missing and have been recreated; all repositories will be synced again")]
    TablesRebuilt,
    #[error(
        "timed out after {seconds}s trying to {operation}; check that the database is reachable and not overloaded"
    )]
    TimedOut { operation: &'static str, seconds: u64 },
    /// The server has not answered anything for this time.
    #[error(
        "failed to {operation}: the database can't be reached: no response within {seconds}s; check that it is up and that --database-url is correct"
    )]
    NoResponse { operation: &'static str, seconds: u64 },
    #[error("failed to {operation}: no database connection was free within {seconds}s; {advice}")]
    NoConnection {
        operation: &'static str,
        seconds: u64,
        advice: &'static str,
    },
    #[error(
        "failed to {operation}: the database refuses writes, also on new connections; check that --database-url leads to the primary, and the setting default_transaction_read_only of the database and of the user"
    )]
    ReadOnlyServer { operation: &'static str },
    #[error(
        "{subject} take {}, more than the limit of {} ({source_of_limit}); raise the limit, or reduce the repository by a filter",
        size(*.bytes),
        size(*.limit)
    )]
    QuotaExceeded {
        subject: String,
        bytes: u64,
        limit: u64,
        source_of_limit: String,
    },
    #[error(
        "the database is in use by the cluster {holder}, seen {seconds}s ago; use another database, or, if the clusters declare no repositories of the same namespace and name, start each with a --cluster-id of its own. A cluster that is gone loses the database after 5 minutes"
    )]
    OtherCluster { holder: String, seconds: u64 },
    #[error(
        "the database file {path} was replaced by one with repositories of another origin; restore the former file, or restart to use this one"
    )]
    ForeignFile { path: String },
    /// Another process leads. Nothing was written.
    #[error(
        "lost the lease {lease}: {holder} has written to the database with a newer generation of it; if the Lease was restored from a backup, delete it, which starts a newer generation"
    )]
    Fenced { lease: String, holder: String },
    #[error("database {database} does not exist; run `portolan run` or `portolan sync` first")]
    NoDatabase { database: String },
    /// Another program waits for the tables that we are creating. Retried.
    #[error("another program is creating the same tables")]
    TablesWanted,
    #[error("catalog is open for reading only")]
    ReadOnly,
    #[error(
        "catalog tables do not match this release of Portolan: {source}; run the release that wrote them, or a newer one"
    )]
    Schema { source: MigrateError },
    /// Tables of a newer release. Nothing was written.
    #[error(
        "a newer release of Portolan has upgraded the catalog to schema version {found}, and this release knows versions up to {supported}; run that release or a newer one, or restore a backup from before the upgrade"
    )]
    NewerSchema { found: i64, supported: i64 },
    /// Tables of an earlier release, or missing ones, in a process that must not change them. Nothing was written.
    #[error(
        "the tables portolan_* are not those of this release, and a Job never changes them: start `portolan run` of this release, or delete the Job if it is of a newer one"
    )]
    NotMigrated,
    #[error(
        "the tables portolan_* were created by a development build of Portolan and cannot be upgraded; drop all tables whose names begin with portolan_, or name another database with --database-url. The tables repos, charts and files can stay"
    )]
    DevelopmentTables,
    /// An export that can't be written or imported. Nothing was imported.
    #[error("{reason}")]
    Transfer { reason: String },
    #[error("failed to read the spooled rows: {source}; check the disk of --spool-dir")]
    Rows { source: io::Error },
    #[error("stored chart {chart} is malformed: {reason}; run `portolan resync` for its repository to rewrite it")]
    Malformed { chart: String, reason: String },
    #[error(
        "cannot read the record of repository {repository}: {reason}; if a newer release wrote it, run that release, otherwise delete its row from portolan_repositories to sync the repository again"
    )]
    UnreadableRecord { repository: NamespacedName, reason: String },
    #[error("failed to {operation}: {source}; {}", advice(.source))]
    Database {
        operation: &'static str,
        source: sqlx::Error,
    },
}

impl Error {
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::StaleDigests
            | Self::TablesRebuilt
            | Self::TimedOut { .. }
            | Self::TablesWanted
            | Self::NoResponse { .. }
            | Self::NoConnection { .. }
            | Self::ReadOnlyServer { .. }
            | Self::ForeignFile { .. }
            | Self::Fenced { .. }
            | Self::Rows { .. } => true,
            Self::Database { source, .. } => matches!(
                cause(source),
                Cause::Unreachable
                    | Cause::Standby
                    | Cause::TooManyConnections
                    | Cause::Locked
                    | Cause::Busy
                    | Cause::TableMissing
                    | Cause::DiskFull
                    | Cause::NoSuchDatabase
            ),
            Self::Superseded { .. }
            | Self::QuotaExceeded { .. }
            | Self::OtherCluster { .. }
            | Self::NoDatabase { .. }
            | Self::ReadOnly
            | Self::Schema { .. }
            | Self::NewerSchema { .. }
            | Self::NotMigrated
            | Self::Transfer { .. }
            | Self::DevelopmentTables
            | Self::Malformed { .. }
            | Self::UnreadableRecord { .. } => false,
        }
    }

    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Superseded { .. } => "Superseded",
            Self::StaleDigests => "ChartsOutdated",
            Self::Fenced { .. } => "LeaseLost",
            Self::TablesRebuilt => "RebuildingCatalog",
            Self::TimedOut { .. } => "DatabaseTimeout",
            Self::NoResponse { .. } => "DatabaseUnreachable",
            Self::NoConnection { .. } | Self::TablesWanted => "DatabaseBusy",
            Self::ReadOnlyServer { .. } => "DatabaseReadOnly",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::Rows { .. } => "SpoolUnreadable",
            Self::NoDatabase { .. }
            | Self::ReadOnly
            | Self::Schema { .. }
            | Self::NewerSchema { .. }
            | Self::NotMigrated
            | Self::Transfer { .. }
            | Self::DevelopmentTables
            | Self::OtherCluster { .. }
            | Self::ForeignFile { .. }
            | Self::Malformed { .. }
            | Self::UnreadableRecord { .. } => "CatalogUnusable",
            Self::Database { source, .. } => match cause(source) {
                Cause::Unreachable | Cause::NoSuchDatabase => "DatabaseUnreachable",
                Cause::Standby => "DatabaseReadOnly",
                Cause::TooManyConnections | Cause::Locked | Cause::Busy => "DatabaseBusy",
                Cause::DiskFull => "DatabaseFull",
                _ => "DatabaseFailed",
            },
        }
    }

    /// Returns true for a fault of the database, not of one repository.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::NoResponse { .. } | Self::ReadOnlyServer { .. } => true,
            Self::Database { source, .. } => matches!(
                cause(source),
                Cause::Unreachable | Cause::Standby | Cause::DiskFull | Cause::ReadOnly | Cause::NoSuchDatabase
            ),
            _ => false,
        }
    }

    /// Returns the fault of the database that caused the error; `None` if it concerns one repository.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::NoResponse { .. } => Some(Fault::Unreachable),
            Self::ReadOnlyServer { .. } => Some(Fault::Unwritable),
            Self::Database { source, .. } => match cause(source) {
                Cause::Unreachable | Cause::NoSuchDatabase | Cause::LoginFailed | Cause::TooManyConnections => {
                    Some(Fault::Unreachable)
                }
                Cause::Locked => Some(Fault::Locked),
                Cause::Standby | Cause::DiskFull | Cause::ReadOnly => Some(Fault::Unwritable),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns true if all connections of this process are in use, while the server answers.
    #[must_use]
    pub const fn is_busy_pool(&self) -> bool {
        matches!(self, Self::NoConnection { .. })
    }

    /// Returns true if the server allows no more connections.
    pub(super) fn is_connection_limit(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::TooManyConnections)
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Database { source, .. } if matches!(cause(source), Cause::Busy | Cause::Locked))
    }

    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::TableMissing)
    }

    /// Returns true if another process has written the same rows, or holds a lock on them.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Superseded { .. } | Self::StaleDigests | Self::TablesRebuilt => true,
            Self::Database { .. } => self.is_busy(),
            _ => false,
        }
    }

    pub(super) fn is_refused_login(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::LoginFailed)
    }

    pub(super) fn is_read_only_server(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::Standby)
    }

    /// Returns true if the server has responded, so that the connection may be used again.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::Database { source, .. } => {
                matches!(source, sqlx::Error::Database(_))
                    && !matches!(cause(source), Cause::Unreachable | Cause::Standby | Cause::Pooler)
            }
            Self::TimedOut { .. } | Self::NoResponse { .. } | Self::NoConnection { .. } => false,
            _ => true,
        }
    }

    /// Returns true if a written value is at fault, not the database.
    pub(super) fn is_invalid_data(&self) -> bool {
        matches!(self, Self::Database { source, .. } if cause(source) == Cause::InvalidData)
    }

    /// Returns true if the row that a written row refers to was deleted meanwhile.
    pub(super) fn is_foreign_key_violation(&self) -> bool {
        matches!(self, Self::Database { source: sqlx::Error::Database(error), .. } if error.is_foreign_key_violation())
    }

    /// Returns true if another process created the same tables at the same time. `IF NOT EXISTS` does not protect
    /// against that: Postgres checks first and then violates the unique indexes of its own catalog.
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

    /// Adds the operation, as a verb phrase that completes "failed to …". The innermost context wins.
    pub(super) fn context(self, operation: &'static str) -> Self {
        match self {
            Self::Database { operation: "", source } => Self::Database { operation, source },
            Self::NoResponse { operation: "", seconds } => Self::NoResponse { operation, seconds },
            Self::NoConnection {
                operation: "",
                seconds,
                advice,
            } => Self::NoConnection {
                operation,
                seconds,
                advice,
            },
            other => other,
        }
    }

    pub(super) const fn timed_out(operation: &'static str, after: Duration) -> Self {
        Self::TimedOut {
            operation,
            seconds: after.as_secs(),
        }
    }

    pub(super) const fn no_response(within: Duration) -> Self {
        Self::NoResponse {
            operation: "",
            seconds: within.as_secs(),
        }
    }

    pub(super) fn database_message(&self) -> String {
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
        Self::Database { operation: "", source }
    }
}

/// For values that are written; serialization fails only for a bug.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        sqlx::Error::Encode(Box::new(error)).into()
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

fn size(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    match bytes.div_ceil(MEBIBYTE) {
        0 | 1 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Unreachable,
    /// Connected to a standby, or the database is read-only.
    Standby,
    /// A pooler lost a prepared statement, or refused a message.
    Pooler,
    TooManyConnections,
    /// Another session held a lock for longer than the lock timeout.
    Locked,
    /// Deadlock, serialization failure or a canceled statement.
    Busy,
    TableMissing,
    ColumnMissing,
    DiskFull,
    NoSuchDatabase,
    LoginFailed,
    PermissionDenied,
    ReadOnly,
    /// Not a database file, or a damaged one.
    Corrupt,
    InvalidData,
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
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => Cause::Unreachable,
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

fn postgres_cause(code: &str) -> Cause {
    match code {
        "42P01" => Cause::TableMissing,
        "42703" => Cause::ColumnMissing,
        "42501" => Cause::PermissionDenied,
        "3D000" => Cause::NoSuchDatabase,
        "53100" => Cause::DiskFull,
        "53300" => Cause::TooManyConnections,
        // lock_not_available
        "55P03" => Cause::Locked,
        // query_canceled, object_in_use, and a relation that was dropped while it was opened
        "57014" | "55006" | "XX000" => Cause::Busy,
        // read_only_sql_transaction: still connected to the standby after a failover
        "25006" => Cause::Standby,
        // invalid_sql_statement_name, duplicate_prepared_statement, protocol_violation
        "26000" | "42P05" | "08P01" => Cause::Pooler,
        // foreign_key_violation: the referenced row was deleted, no value is at fault
        "23503" => Cause::Busy,
        _ => match code.get(..2) {
            Some("08" | "57") => Cause::Unreachable,
            Some("40" | "53") => Cause::Busy,
            Some("28") => Cause::LoginFailed,
            // cardinality, data exception, constraint, program limit exceeded (key too long for its index)
            Some("21" | "22" | "23" | "54") => Cause::InvalidData,
            _ => Cause::Other,
        },
    }
}

/// Classifies by the primary result code, the low byte of the extended code.
fn sqlite_cause(error: &SqliteError) -> Cause {
    use sqlx::error::DatabaseError;
    let extended: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
    match extended & 0xff {
        // SQLITE_CONSTRAINT_FOREIGNKEY
        _ if extended == 787 => Cause::Busy,
        1 if error.message().starts_with("no such table") => Cause::TableMissing,
        1 if error.message().starts_with("no such column") => Cause::ColumnMissing,
        1 if error.message().starts_with("malformed JSON") => Cause::InvalidData,
        5 | 6 => Cause::Locked,
        // SQLITE_READONLY_DBMOVED: the file was deleted, and is opened again soon
        8 if extended == 1032 => Cause::Unreachable,
        8 => Cause::ReadOnly,
        10 | 14 => Cause::Unreachable,
        11 | 26 => Cause::Corrupt,
        13 => Cause::DiskFull,
        18 | 19 => Cause::InvalidData,
        _ => Cause::Other,
    }
}

/// Returns true for TLS errors. A failed handshake arrives as a connection error that wraps the TLS error.
fn is_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()),
        _ => false,
    }
}

fn advice(error: &sqlx::Error) -> &'static str {
    if is_tls(error) {
        return "check sslmode and sslrootcert in --database-url, and the server's certificate";
    }
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return "all connections to the file were in use";
    }
    match cause(error) {
        Cause::Unreachable => "check that the database is up and that --database-url is correct",
        Cause::Standby => "it is read-only; new connections follow a fail-over",
        Cause::Pooler => {
            "a pooler in transaction mode needs --database-pooler transaction here, and max_prepared_statements above 0 (PgBouncer 1.21 or later) and ignore_startup_parameters = extra_float_digits there"
        }
        Cause::TooManyConnections => {
            "raise max_connections of the server or CONNECTION LIMIT of the user, or stop other users of the database"
        }
        Cause::Locked => "another session has locked the tables or rows for long",
        Cause::Busy => "the database was busy",
        Cause::ColumnMissing => {
            "the tables are from an older release; `portolan run` or `portolan sync` upgrades them or explains the next step"
        }
        Cause::TableMissing => "`portolan run` and `portolan sync` create the tables",
        Cause::DiskFull => "free space on the database's disk",
        Cause::NoSuchDatabase => "create the database, or select another one with --database-url or --database-name",
        Cause::LoginFailed => "check the user and the password (DB_PASSWORD)",
        Cause::PermissionDenied => "grant the user permission to create and alter tables in this database",
        Cause::ReadOnly => "make the file and its directory writable",
        Cause::Corrupt => "the file is damaged or not a SQLite database; move it away to start with an empty catalog",
        Cause::InvalidData | Cause::Other => "see the log of the database",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_map_to_causes() {
        for (code, expected) in [
            ("42P01", Cause::TableMissing),
            ("42703", Cause::ColumnMissing),
            ("40001", Cause::Busy),
            ("40P01", Cause::Busy),
            ("55P03", Cause::Locked),
            ("53300", Cause::TooManyConnections),
            ("57014", Cause::Busy),
            ("23503", Cause::Busy),
            ("53100", Cause::DiskFull),
            ("57P01", Cause::Unreachable),
            ("57P03", Cause::Unreachable),
            ("08006", Cause::Unreachable),
            ("25006", Cause::Standby),
            ("26000", Cause::Pooler),
            ("08P01", Cause::Pooler),
            ("28P01", Cause::LoginFailed),
            ("22P05", Cause::InvalidData),
            ("23505", Cause::InvalidData),
            ("54000", Cause::InvalidData),
            ("42601", Cause::Other),
            ("", Cause::Other),
        ] {
            assert_eq!(postgres_cause(code), expected, "{code}");
        }
    }

    #[test]
    fn an_unreachable_database_is_transient_and_the_message_says_what_to_check() {
        let error = Error::from(sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionRefused)))
            .context("read the repository record");
        assert!(error.is_transient());
        assert!(
            error.to_string().contains("failed to read the repository record"),
            "{error}"
        );
        assert!(error.to_string().contains("--database-url"), "{error}");
    }
}
