//! Errors of the catalog, classified by the action they need.

mod cause;
mod kind;

use std::error::Error as StdError;
use std::time::Duration;
use std::{fmt, io};

use sqlx::migrate::MigrateError;

pub use cause::ErrorCause;
pub use kind::ErrorKind;

use super::Fault;

/// Error of a catalog call. The message never contains the password.
#[derive(Debug)]
pub struct Error {
    /// A verb phrase that completes "failed to …"; empty until the call adds it.
    operation: &'static str,
    kind: ErrorKind,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, kind) = (self.operation, &self.kind);
        match kind {
            ErrorKind::TimedOut { seconds } => {
                write!(f, "timed out after {seconds}s trying to {operation}")?;
            }
            ErrorKind::NoResponse { .. } | ErrorKind::NoConnection { .. } | ErrorKind::ReadOnlyServer => {
                return write!(f, "failed to {operation}: {kind}");
            }
            ErrorKind::Database { .. } => write!(f, "failed to {operation}")?,
            ErrorKind::Schema { .. } => f.write_str("catalog tables do not match this release of Portolan")?,
            ErrorKind::Rows => f.write_str("failed to read the spooled rows")?,
            _ => return write!(f, "{kind}"),
        }
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        write!(f, "; {kind}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

impl Error {
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    const fn cause(&self) -> Option<ErrorCause> {
        match self.kind {
            ErrorKind::Database { cause, .. } => Some(cause),
            _ => None,
        }
    }

    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match &self.kind {
            ErrorKind::StaleDigests
            | ErrorKind::TablesRebuilt
            | ErrorKind::TimedOut { .. }
            | ErrorKind::TablesWanted
            | ErrorKind::NoResponse { .. }
            | ErrorKind::NoConnection { .. }
            | ErrorKind::ReadOnlyServer
            | ErrorKind::ForeignFile { .. }
            | ErrorKind::Fenced { .. }
            | ErrorKind::Rows => true,
            ErrorKind::Database { cause, .. } => cause.is_transient(),
            ErrorKind::Superseded { .. }
            | ErrorKind::QuotaExceeded { .. }
            | ErrorKind::OtherCluster { .. }
            | ErrorKind::NoDatabase { .. }
            | ErrorKind::ReadOnly
            | ErrorKind::Schema { .. }
            | ErrorKind::NewerSchema { .. }
            | ErrorKind::NotMigrated
            | ErrorKind::Transfer { .. }
            | ErrorKind::DevelopmentTables
            | ErrorKind::Malformed { .. }
            | ErrorKind::UnreadableRecord { .. } => false,
        }
    }

    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match &self.kind {
            ErrorKind::Superseded { .. } => "Superseded",
            ErrorKind::StaleDigests => "ChartsOutdated",
            ErrorKind::Fenced { .. } => "LeaseLost",
            ErrorKind::TablesRebuilt => "RebuildingCatalog",
            ErrorKind::TimedOut { .. } => "DatabaseTimeout",
            ErrorKind::NoResponse { .. } => "DatabaseUnreachable",
            ErrorKind::NoConnection { .. } | ErrorKind::TablesWanted => "DatabaseBusy",
            ErrorKind::ReadOnlyServer => "DatabaseReadOnly",
            ErrorKind::QuotaExceeded { .. } => "QuotaExceeded",
            ErrorKind::Rows => "SpoolUnreadable",
            ErrorKind::NoDatabase { .. }
            | ErrorKind::ReadOnly
            | ErrorKind::Schema { .. }
            | ErrorKind::NewerSchema { .. }
            | ErrorKind::NotMigrated
            | ErrorKind::Transfer { .. }
            | ErrorKind::DevelopmentTables
            | ErrorKind::OtherCluster { .. }
            | ErrorKind::ForeignFile { .. }
            | ErrorKind::Malformed { .. }
            | ErrorKind::UnreadableRecord { .. } => "CatalogUnusable",
            ErrorKind::Database { cause, .. } => cause.reason(),
        }
    }

    /// Returns the fault of the database that caused the error; `None` if it concerns one repository.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        match &self.kind {
            ErrorKind::NoResponse { .. } => Some(Fault::Unreachable),
            ErrorKind::ReadOnlyServer => Some(Fault::Unwritable),
            ErrorKind::Database { cause, .. } => match cause {
                ErrorCause::Locked => Some(Fault::Locked),
                ErrorCause::Standby | ErrorCause::DiskFull | ErrorCause::ReadOnly => Some(Fault::Unwritable),
                ErrorCause::LoginFailed | ErrorCause::TooManyConnections => Some(Fault::Unreachable),
                cause if cause.is_unreachable() => Some(Fault::Unreachable),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) const fn is_outage(&self) -> bool {
        match &self.kind {
            ErrorKind::TimedOut { .. } | ErrorKind::NoResponse { .. } | ErrorKind::ReadOnlyServer => true,
            ErrorKind::Database { cause, .. } => {
                cause.is_unreachable()
                    || matches!(cause, ErrorCause::Standby | ErrorCause::DiskFull | ErrorCause::ReadOnly)
            }
            _ => false,
        }
    }

    /// Returns true if all connections of this process are in use, while the server answers.
    #[must_use]
    pub const fn is_busy_pool(&self) -> bool {
        matches!(self.kind, ErrorKind::NoConnection { .. })
    }

    pub(super) const fn is_connection_limit(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::TooManyConnections))
    }

    pub(super) const fn is_busy(&self) -> bool {
        matches!(self.cause(), Some(cause) if cause.is_busy())
    }

    pub(super) const fn is_missing_table(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::TableMissing))
    }

    /// Returns true if another process has written the same rows, or holds a lock on them.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        match self.kind {
            ErrorKind::Superseded { .. } | ErrorKind::StaleDigests | ErrorKind::TablesRebuilt => true,
            _ => self.is_busy(),
        }
    }

    pub(super) const fn is_refused_login(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::LoginFailed))
    }

    pub(super) const fn is_read_only_server(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::Standby))
    }

    /// Returns true if the server has responded, so that the connection may be used again.
    pub(super) const fn leaves_connection_usable(&self) -> bool {
        match self.kind {
            ErrorKind::Database { cause, .. } => cause.is_response(),
            ErrorKind::TimedOut { .. } | ErrorKind::NoResponse { .. } | ErrorKind::NoConnection { .. } => false,
            _ => true,
        }
    }

    /// Returns true if a written value is at fault, not the database.
    pub(super) const fn is_invalid_data(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::InvalidData))
    }

    /// Returns true if the row that a written row refers to was deleted meanwhile.
    pub(super) const fn is_foreign_key_violation(&self) -> bool {
        matches!(self.cause(), Some(ErrorCause::ForeignKey))
    }

    pub(super) const fn is_schema_race(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::TablesWanted | ErrorKind::Schema { is_race: true } | ErrorKind::Database { is_race: true, .. }
        )
    }

    /// Returns the message of the server alone, or else the whole text.
    pub(super) fn database_message(&self) -> String {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref());
        match source {
            Some(sqlx::Error::Database(error)) => error.message().to_owned(),
            _ => self.to_string(),
        }
    }

    /// Adds the operation. The innermost context wins.
    pub(super) fn context(self, operation: &'static str) -> Self {
        if self.operation.is_empty() {
            Self { operation, ..self }
        } else {
            self
        }
    }

    pub(super) fn timed_out(operation: &'static str, after: Duration) -> Self {
        let seconds = after.as_secs();
        Self::from(ErrorKind::TimedOut { seconds }).context(operation)
    }

    pub(super) fn no_response(within: Duration) -> Self {
        let seconds = within.as_secs();
        ErrorKind::NoResponse { seconds }.into()
    }

    pub(super) fn rows(source: io::Error) -> Self {
        Self::new(ErrorKind::Rows, source)
    }

    fn new(kind: ErrorKind, source: impl StdError + Send + Sync + 'static) -> Self {
        Self {
            operation: "",
            kind,
            source: Some(Box::new(source)),
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self {
            operation: "",
            kind,
            source: None,
        }
    }
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        let kind = ErrorKind::Database {
            cause: ErrorCause::of(&source),
            is_race: cause::is_schema_race(&source),
        };
        Self::new(kind, source)
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
            source => {
                let is_race =
                    matches!(&source, MigrateError::ExecuteMigration(failed, _) if cause::is_schema_race(failed));
                Self::new(ErrorKind::Schema { is_race }, source)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn an_unreachable_database_is_transient_and_the_message_says_what_to_check() {
        let error = Error::from(sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionRefused)))
            .context("read the repository record")
            .context("sync the repository");
        assert!(error.is_transient());
        assert!(
            error.to_string().contains("failed to read the repository record"),
            "{error}"
        );
        assert!(error.to_string().contains("--database-url"), "{error}");
    }

    #[rstest]
    #[case(ErrorCause::Unreachable, "DatabaseUnreachable", true, Some(Fault::Unreachable), true)]
    #[case(ErrorCause::Tls, "DatabaseUnreachable", true, Some(Fault::Unreachable), true)]
    #[case(
        ErrorCause::PoolTimedOut,
        "DatabaseUnreachable",
        true,
        Some(Fault::Unreachable),
        true
    )]
    #[case(
        ErrorCause::NoSuchDatabase,
        "DatabaseUnreachable",
        true,
        Some(Fault::Unreachable),
        true
    )]
    #[case(ErrorCause::Standby, "DatabaseReadOnly", true, Some(Fault::Unwritable), true)]
    #[case(ErrorCause::DiskFull, "DatabaseFull", true, Some(Fault::Unwritable), true)]
    #[case(ErrorCause::ReadOnly, "DatabaseFailed", false, Some(Fault::Unwritable), true)]
    #[case(
        ErrorCause::TooManyConnections,
        "DatabaseBusy",
        true,
        Some(Fault::Unreachable),
        false
    )]
    #[case(ErrorCause::LoginFailed, "DatabaseFailed", false, Some(Fault::Unreachable), false)]
    #[case(ErrorCause::Locked, "DatabaseBusy", true, Some(Fault::Locked), false)]
    #[case(ErrorCause::Busy, "DatabaseBusy", true, None, false)]
    #[case(ErrorCause::ForeignKey, "DatabaseBusy", true, None, false)]
    #[case(ErrorCause::TableMissing, "DatabaseFailed", true, None, false)]
    #[case(ErrorCause::ColumnMissing, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::PermissionDenied, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::Corrupt, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::InvalidData, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::Pooler, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::Other, "DatabaseFailed", false, None, false)]
    #[case(ErrorCause::Client, "DatabaseFailed", false, None, false)]
    fn the_cause_decides_what_follows(
        #[case] cause: ErrorCause,
        #[case] reason: &str,
        #[case] is_transient: bool,
        #[case] fault: Option<Fault>,
        #[case] is_outage: bool,
    ) {
        let error = Error::from(ErrorKind::Database { cause, is_race: false });
        assert_eq!((error.reason(), error.is_transient()), (reason, is_transient));
        assert_eq!((error.fault(), error.is_outage()), (fault, is_outage));
    }

    #[rstest]
    #[case::timed_out(
        Error::timed_out("read the record", Duration::from_secs(60)),
        "timed out after 60s trying to read the record; check that the database is reachable and not overloaded"
    )]
    #[case::no_response(
        Error::no_response(Duration::from_secs(5)).context("read the record"),
        "failed to read the record: the database can't be reached: no response within 5s; check that it is up and that \
         --database-url is correct"
    )]
    #[case::no_connection(
        Error::from(ErrorKind::NoConnection { seconds: 10, advice: "raise --database-connections" }).context("write"),
        "failed to write: no database connection was free within 10s; raise --database-connections"
    )]
    #[case::database(
        Error::from(sqlx::Error::PoolClosed).context("write"),
        "failed to write: attempted to acquire a connection on a closed pool; check that the database is up and that \
         --database-url is correct"
    )]
    #[case::schema(
        MigrateError::VersionMissing(3).into(),
        "catalog tables do not match this release of Portolan: migration 3 was previously applied but is missing in the \
         resolved migrations; run the release that wrote them, or a newer one"
    )]
    #[case::rows(
        Error::rows(io::Error::other("gone")),
        "failed to read the spooled rows: gone; check the disk of --spool-dir"
    )]
    #[case::read_only(ErrorKind::ReadOnly.into(), "catalog is open for reading only")]
    fn a_text_joins_the_operation_the_source_and_the_next_step(#[case] error: Error, #[case] expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_value_that_can_not_be_written_is_no_answer_of_the_database() {
        let error = Error::from(serde_json::from_str::<u8>("x").unwrap_err());
        assert!(!error.is_transient() && !error.leaves_connection_usable());
        assert_eq!(error.reason(), "DatabaseFailed");
    }
}
