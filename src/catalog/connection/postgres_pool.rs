//! Connections to Postgres, bounded by permits. The pool of sqlx retries until its timeout and hides why a connection
//! is refused. Here a server at its limit, and an unreachable server, are known at once.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use tokio::time::{Instant, timeout};

use super::failover::ConnectionGeneration;
use crate::catalog::{Error, Password, Pooler};

/// Short, because waiting blocks a worker, and the caller retries anyway.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that were idle for this long are pinged before use, because a firewall may have dropped them. Fresher
/// connections are not, because a ping costs as much as most statements.
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// As in the pool of sqlx.
const MAX_IDLE: Duration = Duration::from_secs(10 * 60);
const MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// Set after connecting, since poolers refuse unknown startup parameters.
const SESSION_TIMEOUTS: &str =
    "SET lock_timeout = '5s'; SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'";

/// A handle; clones share the connections.
#[derive(Clone, Debug)]
pub(super) struct PostgresPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: RwLock<PgConnectOptions>,
    pooler: Pooler,
    generation: Arc<ConnectionGeneration>,
    /// The connection that was used last is used first, so that surplus connections become too old.
    idle: Mutex<Vec<IdleSession>>,
    open: Arc<AtomicUsize>,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct IdleSession {
    session: Session,
    since: Instant,
}

#[derive(Debug)]
struct Session {
    connection: PgConnection,
    opened: Instant,
    _counted: OpenCount,
}

#[derive(Debug)]
struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection in use, closed on drop unless it was released.
pub(in crate::catalog) struct PostgresConnection {
    session: Session,
    pool: PostgresPool,
}

impl Deref for PostgresConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.session.connection
    }
}

impl DerefMut for PostgresConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.session.connection
    }
}

impl PostgresConnection {
    /// Returns the connection to the pool, unless it is amid a transaction.
    pub(super) fn release(self) {
        let Self { session, pool } = self;
        if !session.connection.is_in_transaction() && !pool.0.is_closed.load(Ordering::Acquire) {
            let since = Instant::now();
            pool.0.idle.lock().push(IdleSession { session, since });
        }
    }
}

impl PostgresPool {
    pub(super) fn new(options: &PgConnectOptions, pooler: Pooler, generation: Arc<ConnectionGeneration>) -> Self {
        Self(Arc::new(Shared {
            options: RwLock::new(options.clone().disable_statement_logging()),
            pooler,
            generation,
            idle: Mutex::default(),
            open: Arc::default(),
            is_closed: AtomicBool::new(false),
        }))
    }

    pub(super) fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Returns an idle connection that still responds, or a new connection.
    pub(super) async fn acquire(&self) -> Result<PostgresConnection, Error> {
        let session = timeout(CONNECT_TIMEOUT, async {
            match self.idle_session().await {
                Some(session) => Ok(session),
                None => self.connect().await,
            }
        })
        .await
        .map_err(|_| Error::no_response(CONNECT_TIMEOUT))??;
        let pool = self.clone();
        Ok(PostgresConnection { session, pool })
    }

    /// Opens a connection beside the pool, and closes it. Any answer of the server counts, except an outage.
    pub(super) async fn ask(&self) -> Result<(), Error> {
        let options = self.0.options.read().clone();
        match options.connect().await.map_err(Error::from) {
            Ok(connection) => Ok(connection.close().await?),
            Err(error) if error.is_outage() => Err(error),
            Err(_) => Ok(()),
        }
    }

    /// Closes the idle connections, which are broken if the server was away.
    pub(super) fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.0.idle.lock());
        drop(idle);
    }

    pub(super) fn set_password(&self, Password(password): &Password) {
        let mut options = self.0.options.write();
        *options = options.clone().password(password);
    }

    /// Closes the idle connections now, and the others after their use.
    pub(super) async fn close(&self) {
        self.0.is_closed.store(true, Ordering::Release);
        let idle = std::mem::take(&mut *self.0.idle.lock());
        let close = |idle: IdleSession| timeout(PING_TIMEOUT, idle.session.connection.close());
        // A server that does not respond notices the end of the connection.
        let _ = futures::future::join_all(idle.into_iter().map(close)).await;
    }

    async fn idle_session(&self) -> Option<Session> {
        loop {
            let IdleSession { mut session, since } = self.take_idle()?;
            if since.elapsed() < MAX_IDLE_WITHOUT_PING {
                return Some(session);
            }
            let ping = timeout(PING_TIMEOUT, session.connection.ping()).await;
            if matches!(ping, Ok(Ok(()))) {
                return Some(session);
            }
        }
    }

    /// Takes the connection that was used last, and closes connections that are too old.
    fn take_idle(&self) -> Option<IdleSession> {
        let mut idle = self.0.idle.lock();
        idle.retain(|IdleSession { session, since }| {
            let age = session.opened.elapsed();
            since.elapsed() < MAX_IDLE && age < MAX_AGE && !self.0.generation.is_retired(age)
        });
        idle.pop()
    }

    async fn connect(&self) -> Result<Session, Error> {
        let options = self.0.options.read().clone();
        let mut connection = options.connect().await?;
        if self.0.pooler == Pooler::Session {
            connection.execute(sqlx::raw_sql(SESSION_TIMEOUTS)).await?;
        }
        Ok(Session {
            connection,
            opened: Instant::now(),
            _counted: OpenCount::new(&self.0.open),
        })
    }
}
