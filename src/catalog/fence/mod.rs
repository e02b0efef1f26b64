//! Fences writes by the generation of the leader's Lease: a leader that was suspended cannot write once another leads.
//!
//! ```text
//!  take the Lease ─► hold_lease ─► each write transaction: statements ─► check ─► commit
//!                                                                          │
//!                 stored generation: newer ─► Fenced    same ─► commit    older or none ─► store ours, commit
//! ```
//!
//! The check is the last statement before the commit and locks the row until then. A claim by a newer leader therefore
//! comes before the check, which fails, or after the commit. A leader that is suspended amid a transaction does not
//! delay the claim, unless it is between the two. Each transaction can store the generation, so a database that was
//! away at the time of the claim, was restored or has a new file needs no special case.

mod blockers;

use std::collections::HashSet;

use parking_lot::RwLock;
use tokio::sync::watch;

use super::connection::Transaction;
use super::engine::{Connection, Engine, on_engine};
use super::{Catalog, Error, ErrorKind};

pub use blockers::{Blockers, BlockingSession};

/// The generation of a Lease. A Lease that was deleted starts its transitions again, but is created later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseGeneration {
    /// Seconds since 1970, by the clock of the API server.
    pub created: i64,
    pub transitions: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub origin: String,
    /// `namespace/name`.
    pub name: String,
    pub generation: LeaseGeneration,
    pub holder: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceVerdict {
    Current,
    /// The row is of an earlier leader.
    Outdated,
    /// Another leader has claimed the database since.
    Fenced,
}

impl HeldLease {
    /// Two leaders cannot have the same generation, unless the Lease was edited: then the first to write wins.
    fn verdict(&self, stored: LeaseGeneration, holder: &str) -> FenceVerdict {
        match self.generation.cmp(&stored) {
            std::cmp::Ordering::Greater => FenceVerdict::Outdated,
            std::cmp::Ordering::Equal if holder == self.holder => FenceVerdict::Current,
            _ => FenceVerdict::Fenced,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Fences {
    held: RwLock<Vec<HeldLease>>,
    stored: RwLock<HashSet<String>>,
    /// The error of a refused write; no further write is tried.
    refusal: watch::Sender<Option<FenceRefusal>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FenceRefusal {
    lease: String,
    holder: String,
}

impl From<FenceRefusal> for Error {
    fn from(FenceRefusal { lease, holder }: FenceRefusal) -> Self {
        ErrorKind::Fenced { lease, holder }.into()
    }
}

impl Fences {
    pub(super) fn has_lease(&self) -> bool {
        !self.held.read().is_empty()
    }

    pub(super) fn ensure_open(&self) -> Result<(), Error> {
        match self.refusal.borrow().clone() {
            Some(refusal) => Err(refusal.into()),
            None => Ok(()),
        }
    }

    /// Checks the generations of the held Leases as the last statement of a transaction, and stores newer generations.
    pub(super) async fn check(&self, tx: &mut Transaction) -> Result<(), Error> {
        let held = self.held.read().clone();
        let Some(first) = held.first() else {
            return Ok(());
        };
        self.store_new(tx, &held).await?;
        let names: Vec<&str> = held.iter().map(|lease| lease.name.as_str()).collect();
        let stored = read_stored(tx, &first.origin, &names).await?;
        for lease in &held {
            let row = stored.iter().find(|row| row.0 == lease.name);
            let verdict = row.map_or(FenceVerdict::Outdated, |(_, created, transitions, holder)| {
                let (created, transitions) = (*created, *transitions);
                lease.verdict(LeaseGeneration { created, transitions }, holder)
            });
            match verdict {
                FenceVerdict::Current => {}
                // Stored by a transaction that was rolled back, or deleted since.
                FenceVerdict::Outdated if store(tx, lease).await? => {
                    self.stored.write().remove(&lease.name);
                }
                // A newer leader has stored its generation since the row was read.
                FenceVerdict::Outdated => return Err(self.refuse(lease, "another replica")),
                FenceVerdict::Fenced => {
                    let holder = row.map_or("another replica", |row| row.3.as_str());
                    return Err(self.refuse(lease, holder));
                }
            }
        }
        Ok(())
    }

    /// Runs before any row is locked for sharing: two transactions that share its lock and then write it would
    /// deadlock.
    async fn store_new(&self, tx: &mut Transaction, held: &[HeldLease]) -> Result<(), Error> {
        let mut new: Vec<&HeldLease> = held.iter().collect();
        new.retain(|lease| !self.stored.read().contains(&lease.name));
        new.sort_by(|a, b| a.name.cmp(&b.name));
        for lease in new {
            if !store(tx, lease).await? {
                let newer = read_stored(tx, &lease.origin, &[lease.name.as_str()]).await?;
                let holder = newer.first().map_or("another replica", |row| row.3.as_str());
                return Err(self.refuse(lease, holder));
            }
            self.stored.write().insert(lease.name.clone());
        }
        Ok(())
    }

    fn refuse(&self, lease: &HeldLease, holder: &str) -> Error {
        let refusal = FenceRefusal {
            lease: lease.name.clone(),
            holder: holder.to_owned(),
        };
        self.refusal.send_replace(Some(refusal.clone()));
        refusal.into()
    }
}

type FenceRow = (String, i64, i64, String);

/// Returns the stored generations. On Postgres they are locked until the transaction ends, and concurrent transactions
/// of the same leader share the lock.
async fn read_stored(tx: &mut Transaction, origin: &str, leases: &[&str]) -> Result<Vec<FenceRow>, Error> {
    const SQLITE: &str = "SELECT lease, created, transitions, holder FROM portolan_fences
        WHERE origin = $1 AND lease IN (SELECT value FROM json_each($2))";
    const POSTGRES: &str = "SELECT lease, created, transitions, holder FROM portolan_fences
        WHERE origin = $1 AND lease = ANY($2) ORDER BY lease FOR SHARE";
    Ok(match tx.executor() {
        Engine::Sqlite(connection) => {
            let select = sqlx::query_as(SQLITE).bind(origin).bind(sqlx::types::Json(leases));
            select.fetch_all(connection).await?
        }
        Engine::Postgres(connection) => {
            let select = sqlx::query_as(POSTGRES).bind(origin).bind(leases);
            select.fetch_all(connection).await?
        }
    })
}

/// Returns the leader that last wrote with a Lease, without waiting for its locks.
async fn stored_holder(connection: &mut Connection, lease: &HeldLease) -> Result<String, Error> {
    const SELECT: &str = "SELECT holder FROM portolan_fences WHERE origin = $1 AND lease = $2";
    let holder: Option<String> = on_engine!(connection.executor(), executor => sqlx::query_scalar(SELECT)
        .bind(&lease.origin)
        .bind(&lease.name)
        .fetch_optional(executor)
        .await?);
    Ok(holder.unwrap_or_default())
}

/// Stores a generation unless a newer generation was stored meanwhile. Returns false then.
async fn store(tx: &mut Transaction, lease: &HeldLease) -> Result<bool, Error> {
    const UPSERT: &str = "INSERT INTO portolan_fences (origin, lease, created, transitions, holder)
        VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (origin, lease) DO UPDATE
        SET created = excluded.created, transitions = excluded.transitions, holder = excluded.holder
        WHERE (portolan_fences.created, portolan_fences.transitions) < (excluded.created, excluded.transitions)
            OR (portolan_fences.created, portolan_fences.transitions, portolan_fences.holder)
                = (excluded.created, excluded.transitions, excluded.holder)";
    let LeaseGeneration { created, transitions } = lease.generation;
    let written = on_engine!(tx.executor(), executor => sqlx::query(UPSERT)
        .bind(&lease.origin)
        .bind(&lease.name)
        .bind(created)
        .bind(transitions)
        .bind(&lease.holder)
        .execute(executor)
        .await?
        .rows_affected());
    Ok(written > 0)
}

impl Catalog {
    /// Further writes fail with [`ErrorKind::Fenced`] once a process with a newer generation of the Lease has written.
    pub fn hold_lease(&self, lease: HeldLease) {
        let mut held = self.0.fences.held.write();
        self.0.fences.stored.write().remove(&lease.name);
        held.retain(|other| other.name != lease.name);
        held.push(lease);
    }

    /// Stores the generations of the held Leases, so that earlier leaders cannot write from now on.
    pub async fn claim_leases(&self) -> Result<(), Error> {
        if !self.0.fences.has_lease() {
            return Ok(());
        }
        // Each write transaction does.
        self.write("claim the database for this leader", "", async |_| Ok(()))
            .await
    }

    /// Waits until a write was refused because another process leads; returns the reason.
    pub async fn fenced(&self) -> Error {
        let mut refusal = self.0.fences.refusal.subscribe();
        let refusal = refusal
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|refusal| refusal.clone());
        match refusal {
            Some(refusal) => refusal.into(),
            // The sender lives as long as the catalog.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests;
