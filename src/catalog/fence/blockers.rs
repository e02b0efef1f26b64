//! Transactions of a former leader that a new leader waits for.

use std::fmt;

use super::{HeldLease, stored_holder};
use crate::catalog::engine::Engine;
use crate::catalog::{Catalog, Error};

/// Sessions that hold locks on the fences, and the leader that wrote before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blockers {
    /// Empty if no leader has written before.
    pub former_holder: String,
    pub sessions: Vec<BlockingSession>,
}

#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct BlockingSession {
    pub pid: i32,
    /// Empty for a local socket.
    pub address: String,
    pub state: String,
    /// Age of the transaction.
    pub seconds: i64,
}

impl fmt::Display for BlockingSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pid,
            address,
            state,
            seconds,
        } = self;
        write!(f, "pid {pid}")?;
        if !address.is_empty() {
            write!(f, " from {address}")?;
        }
        write!(f, " ({state}, for {seconds}s)")
    }
}

impl Catalog {
    /// Returns the transactions that keep this leader from writing. SQLite has no other sessions.
    pub async fn blockers(&self) -> Result<Blockers, Error> {
        let lease = self.0.fences.held.read().first().cloned();
        self.on_connection(
            "list the sessions of the database",
            false,
            "",
            crate::catalog::SHORT_DEADLINE,
            async |connection| find(connection, lease.as_ref()).await,
        )
        .await
    }
}

async fn find(
    connection: &mut crate::catalog::engine::Connection,
    lease: Option<&HeldLease>,
) -> Result<Blockers, Error> {
    // Sessions that wait themselves, as our own writes do, are no cause.
    const SESSIONS: &str = "SELECT pid, coalesce(host(client_addr), '') AS address, coalesce(state, '') AS state,
            coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::bigint AS seconds
        FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid IN
            (SELECT pid FROM pg_locks WHERE granted AND relation = 'portolan_fences'::regclass)
            AND pid NOT IN (SELECT pid FROM pg_locks WHERE NOT granted)
        ORDER BY seconds DESC LIMIT 10";
    let former_holder = match lease {
        Some(lease) => stored_holder(connection, lease).await?,
        None => String::new(),
    };
    let sessions = match connection.executor() {
        Engine::Sqlite(_) => Vec::new(),
        Engine::Postgres(connection) => sqlx::query_as(SESSIONS).fetch_all(connection).await?,
    };
    Ok(Blockers {
        former_holder,
        sessions,
    })
}
