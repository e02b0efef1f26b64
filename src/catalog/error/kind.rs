use super::ErrorCause;
use crate::api::NamespacedName;

/// The kind of an [`Error`](super::Error). Its text is the text of the error, or the end of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The repository was deleted or recreated since the caller read it. Nothing was written.
    #[error("repository {repository} was replaced or deleted during the sync, nothing was written")]
    Superseded { repository: NamespacedName },
    /// A chart of `DigestUpdate::unchanged` has changed. Commit again with the rows of all charts.
    #[error("stored charts changed during the sync, retrying with a full comparison")]
    StaleDigests,
    /// Tables were missing and are recreated, empty. The same call can succeed now.
    #[error("catalog tables were missing and have been recreated; all repositories will be synced again")]
    TablesRebuilt,
    #[error("check that the database is reachable and not overloaded")]
    TimedOut { seconds: u64 },
    /// The server has not answered anything for this time.
    #[error(
        "the database can't be reached: no response within {seconds}s; check that it is up and that --database-url is correct"
    )]
    NoResponse { seconds: u64 },
    #[error("no database connection was free within {seconds}s; {advice}")]
    NoConnection { seconds: u64, advice: &'static str },
    #[error(
        "the database refuses writes, also on new connections; check that --database-url leads to the primary, and the setting default_transaction_read_only of the database and of the user"
    )]
    ReadOnlyServer,
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
    /// The tables do not match the migrations of this release.
    #[error("run the release that wrote them, or a newer one")]
    Schema {
        /// Another process created the same tables at the same time.
        is_race: bool,
    },
    /// Tables of a newer release. Nothing was written.
    #[error(
        "a newer release of Portolan has upgraded the catalog to schema version {found}, and this release knows versions up to {supported}; run that release or a newer one, or restore a backup from before the upgrade"
    )]
    NewerSchema { found: i64, supported: i64 },
    /// Missing tables, or tables of an earlier release, in a process that must not change them. Nothing was written.
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
    #[error("check the disk of --spool-dir")]
    Rows,
    #[error("stored chart {chart} is malformed: {reason}; run `portolan resync` for its repository to rewrite it")]
    Malformed { chart: String, reason: String },
    #[error(
        "cannot read the record of repository {repository}: {reason}; if a newer release wrote it, run that release, otherwise delete its row from portolan_repositories to sync the repository again"
    )]
    UnreadableRecord { repository: NamespacedName, reason: String },
    #[error("{}", .cause.advice())]
    Database {
        cause: ErrorCause,
        /// Another process created the same tables at the same time.
        is_race: bool,
    },
}

fn size(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    match bytes.div_ceil(MEBIBYTE) {
        0 | 1 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    }
}
