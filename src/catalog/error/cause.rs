//! Classifies errors of Postgres and SQLite.

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCause {
    Unreachable,
    Tls,
    /// No connection of the pool was free in time.
    PoolTimedOut,
    /// Connected to a standby, or the database is read-only.
    Standby,
    /// A pooler lost a prepared statement, or refused a message.
    Pooler,
    TooManyConnections,
    /// Another session held a lock for longer than the lock timeout.
    Locked,
    /// Deadlock, serialization failure or a canceled statement.
    Busy,
    /// The referenced row was deleted meanwhile.
    ForeignKey,
    TableMissing,
    ColumnMissing,
    DiskFull,
    NoSuchDatabase,
    LoginFailed,
    PermissionDenied,
    ReadOnly,
    /// Not a database file, or a damaged file.
    Corrupt,
    InvalidData,
    Other,
    /// A request or an answer that can't be encoded or decoded.
    Client,
}

impl ErrorCause {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        use sqlx::Error as E;
        match error {
            E::Io(error) if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => Self::Tls,
            // A failed handshake arrives as either.
            E::Tls(_) => Self::Tls,
            E::PoolTimedOut => Self::PoolTimedOut,
            E::Io(_) | E::PoolClosed | E::WorkerCrashed => Self::Unreachable,
            E::Database(database) => {
                if let Some(postgres) = database.try_downcast_ref::<PgDatabaseError>() {
                    Self::of_sqlstate(postgres.code())
                } else if let Some(sqlite) = database.try_downcast_ref::<SqliteError>() {
                    Self::of_sqlite(sqlite)
                } else {
                    Self::Other
                }
            }
            _ => Self::Client,
        }
    }

    fn of_sqlstate(code: &str) -> Self {
        match code {
            "42P01" => Self::TableMissing,
            "42703" => Self::ColumnMissing,
            "42501" => Self::PermissionDenied,
            "3D000" => Self::NoSuchDatabase,
            "53100" => Self::DiskFull,
            "53300" => Self::TooManyConnections,
            // lock_not_available
            "55P03" => Self::Locked,
            // query_canceled, object_in_use, and a relation that was dropped while it was opened
            "57014" | "55006" | "XX000" => Self::Busy,
            // read_only_sql_transaction: still connected to the standby after a failover
            "25006" => Self::Standby,
            // invalid_sql_statement_name, duplicate_prepared_statement, protocol_violation
            "26000" | "42P05" | "08P01" => Self::Pooler,
            // foreign_key_violation: no value is at fault
            "23503" => Self::ForeignKey,
            _ => match code.get(..2) {
                Some("08" | "57") => Self::Unreachable,
                Some("40" | "53") => Self::Busy,
                Some("28") => Self::LoginFailed,
                // cardinality, data exception, constraint, program limit exceeded (key too long for its index)
                Some("21" | "22" | "23" | "54") => Self::InvalidData,
                _ => Self::Other,
            },
        }
    }

    /// Classifies by the primary result code, the low byte of the extended code.
    fn of_sqlite(error: &SqliteError) -> Self {
        let extended: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
        match extended & 0xff {
            // SQLITE_CONSTRAINT_FOREIGNKEY
            _ if extended == 787 => Self::ForeignKey,
            1 if error.message().starts_with("no such table") => Self::TableMissing,
            1 if error.message().starts_with("no such column") => Self::ColumnMissing,
            1 if error.message().starts_with("malformed JSON") => Self::InvalidData,
            5 | 6 => Self::Locked,
            // SQLITE_READONLY_DBMOVED: the file was deleted, and is opened again soon
            8 if extended == 1032 => Self::Unreachable,
            8 => Self::ReadOnly,
            10 | 14 => Self::Unreachable,
            11 | 26 => Self::Corrupt,
            13 => Self::DiskFull,
            18 | 19 => Self::InvalidData,
            _ => Self::Other,
        }
    }

    pub(super) const fn is_unreachable(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::Tls | Self::PoolTimedOut | Self::NoSuchDatabase
        )
    }

    pub(super) const fn is_busy(self) -> bool {
        matches!(self, Self::Busy | Self::ForeignKey | Self::Locked)
    }

    pub(super) const fn is_transient(self) -> bool {
        self.is_unreachable()
            || self.is_busy()
            || matches!(
                self,
                Self::Standby | Self::TooManyConnections | Self::TableMissing | Self::DiskFull
            )
    }

    /// Returns true if the server has responded, so that the connection may be used again.
    pub(super) const fn is_response(self) -> bool {
        !matches!(
            self,
            Self::Unreachable | Self::Tls | Self::PoolTimedOut | Self::Standby | Self::Pooler | Self::Client
        )
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Unreachable | Self::Tls | Self::PoolTimedOut | Self::NoSuchDatabase => "DatabaseUnreachable",
            Self::Standby => "DatabaseReadOnly",
            Self::TooManyConnections | Self::Locked | Self::Busy | Self::ForeignKey => "DatabaseBusy",
            Self::DiskFull => "DatabaseFull",
            _ => "DatabaseFailed",
        }
    }

    pub(super) const fn advice(self) -> &'static str {
        match self {
            Self::Tls => "check sslmode and sslrootcert in --database-url, and the server's certificate",
            Self::PoolTimedOut => "all connections to the file were in use",
            Self::Unreachable => "check that the database is up and that --database-url is correct",
            Self::Standby => "it is read-only; new connections follow a fail-over",
            Self::Pooler => {
                "a pooler in transaction mode needs --database-pooler transaction here, and max_prepared_statements above 0 (PgBouncer 1.21 or later) and ignore_startup_parameters = extra_float_digits there"
            }
            Self::TooManyConnections => {
                "raise max_connections of the server or CONNECTION LIMIT of the user, or stop other users of the database"
            }
            Self::Locked => "another session has locked the tables or rows for long",
            Self::Busy | Self::ForeignKey => "the database was busy",
            Self::ColumnMissing => {
                "the tables are from an older release; `portolan run` or `portolan sync` upgrades them or explains the next step"
            }
            Self::TableMissing => "`portolan run` and `portolan sync` create the tables",
            Self::DiskFull => "free space on the database's disk",
            Self::NoSuchDatabase => "create the database, or select another one with --database-url or --database-name",
            Self::LoginFailed => "check the user and the password (DB_PASSWORD)",
            Self::PermissionDenied => "grant the user permission to create and alter tables in this database",
            Self::ReadOnly => "make the file and its directory writable",
            Self::Corrupt => {
                "the file is damaged or not a SQLite database; move it away to start with an empty catalog"
            }
            Self::InvalidData | Self::Other | Self::Client => "see the log of the database",
        }
    }
}

/// Returns true if another process created the same tables at the same time. `IF NOT EXISTS` does not protect against
/// that: Postgres checks first and then violates the unique indexes of its own catalog.
pub(super) fn is_schema_race(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let postgres = error.try_downcast_ref::<PgDatabaseError>();
    matches!(
        postgres.map(PgDatabaseError::code),
        // unique_violation, duplicate_table, duplicate_object, deadlock_detected, "tuple concurrently updated"
        Some("23505" | "42P07" | "42710" | "40P01" | "XX000" | "42P01")
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("42P01", ErrorCause::TableMissing)]
    #[case("42703", ErrorCause::ColumnMissing)]
    #[case("40001", ErrorCause::Busy)]
    #[case("40P01", ErrorCause::Busy)]
    #[case("55P03", ErrorCause::Locked)]
    #[case("53300", ErrorCause::TooManyConnections)]
    #[case("57014", ErrorCause::Busy)]
    #[case("23503", ErrorCause::ForeignKey)]
    #[case("53100", ErrorCause::DiskFull)]
    #[case("57P01", ErrorCause::Unreachable)]
    #[case("57P03", ErrorCause::Unreachable)]
    #[case("08006", ErrorCause::Unreachable)]
    #[case("25006", ErrorCause::Standby)]
    #[case("26000", ErrorCause::Pooler)]
    #[case("08P01", ErrorCause::Pooler)]
    #[case("28P01", ErrorCause::LoginFailed)]
    #[case("22P05", ErrorCause::InvalidData)]
    #[case("23505", ErrorCause::InvalidData)]
    #[case("54000", ErrorCause::InvalidData)]
    #[case("42601", ErrorCause::Other)]
    #[case("", ErrorCause::Other)]
    fn sqlstates_map_to_causes(#[case] code: &str, #[case] expected: ErrorCause) {
        assert_eq!(ErrorCause::of_sqlstate(code), expected);
    }

    #[test]
    fn a_failed_handshake_is_told_from_a_refused_connection() {
        let handshake = io::Error::other(rustls::Error::HandshakeNotComplete);
        assert_eq!(ErrorCause::of(&sqlx::Error::Io(handshake)), ErrorCause::Tls);
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(ErrorCause::of(&sqlx::Error::Io(refused)), ErrorCause::Unreachable);
    }

    #[rstest]
    #[case(ErrorCause::Unreachable, false)]
    #[case(ErrorCause::Client, false)]
    #[case(ErrorCause::Standby, false)]
    #[case(ErrorCause::Pooler, false)]
    #[case(ErrorCause::NoSuchDatabase, true)]
    #[case(ErrorCause::InvalidData, true)]
    #[case(ErrorCause::Other, true)]
    fn a_connection_stays_usable_after_a_response(#[case] cause: ErrorCause, #[case] expected: bool) {
        assert_eq!(cause.is_response(), expected);
    }
}
