//! Waiting for the API server and the database at startup.

use std::fmt::Display;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use futures::FutureExt;
use tokio::time::timeout;

use super::Error;
use super::database::{self, DatabaseIdentity};
use crate::api::NamespacedName;
use crate::budget::ResourceMetrics;
use crate::catalog::lock::{LockError, SqliteLock};
use crate::catalog::{
    self, Catalog, CatalogSettings, Database, Login, Migrations, Password, Pooler, SettingsError, StorageLimits,
};
use crate::controllers::apprepository::origin::{SecretReadError, read_secret};
use crate::controllers::{Source, Task};

pub(super) const TABLES_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Retries: the API server or the database may start later than the service.
    Wait,
    /// Fails, as commands do.
    Fail,
}

impl Patience {
    /// Calls `attempt` until it succeeds, as long as its errors are transient.
    pub(super) async fn get<T, E: Display, F>(
        self,
        what: &str,
        is_transient: impl Fn(&E) -> bool,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, E>>,
    {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_secs(1))
            .with_max_delay(Duration::from_secs(60))
            .without_max_times()
            .with_jitter();
        attempt
            .retry(backoff)
            .when(|error| self == Self::Wait && is_transient(error))
            .notify(|error, delay| tracing::warn!(%error, retry_in = ?delay, "failed to reach {what}, retrying"))
            .await
            .map_err(|error| Error(format!("failed to reach {what}: {error}")))
    }
}

/// The database of the catalog. Without `Debug`: the URL may hold a password.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// The URL, in one of the forms of [`Database::parse`].
    pub url: String,
    /// The login where the URL has none.
    pub login: Login,
    pub connections: u32,
    pub pooler: Pooler,
    pub limits: StorageLimits,
    /// The Secret with the password, read if `login` has none, and when Postgres refuses the password.
    pub password_secret: Option<PasswordSecret>,
}

/// A key of a Secret that holds the password of the database.
#[derive(Clone, Debug)]
pub struct PasswordSecret {
    pub name: NamespacedName,
    pub key: String,
}

impl DatabaseOptions {
    /// Returns true if the database is a SQLite file, which one process may open for writing.
    #[must_use]
    pub fn is_sqlite(&self) -> bool {
        let settings = self.settings(None);
        settings.is_ok_and(|settings| settings.database.sqlite_path().is_some())
    }

    /// Returns the Secret to read when Postgres refuses the password, with the client for it.
    pub(super) fn password_source(&self, source: &Source) -> Option<(PasswordSecret, kube::Client)> {
        match (&self.password_secret, source) {
            (Some(secret), Source::Cluster(client)) => Some((secret.clone(), client.clone())),
            _ => None,
        }
    }

    /// Uses `password` if `login` has none. Fails if the URL has an unknown form.
    pub fn settings(&self, password: Option<Password>) -> Result<CatalogSettings, SettingsError> {
        let mut login = self.login.clone();
        login.password = login.password.or(password);
        Ok(CatalogSettings {
            database: Database::parse(&self.url, &login)?,
            postgres_connections: self.connections,
            pooler: self.pooler,
            migrations: Migrations::Run,
            limits: self.limits,
            metrics: ResourceMetrics::unregistered(),
        })
    }
}

/// Locks SQLite against other writers. Fails if another process holds the lock.
pub fn lock(settings: &CatalogSettings) -> Result<Option<SqliteLock>, LockError> {
    settings.database.sqlite_path().map(SqliteLock::acquire).transpose()
}

pub struct OpenCatalog {
    pub catalog: Catalog,
    /// Held as long as anything may be written to SQLite.
    pub lock: Option<SqliteLock>,
    tables: Tables,
    password: Option<(PasswordSecret, kube::Client)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tables {
    Ready,
    /// Created or migrated once the database is reachable.
    Unreachable,
    /// Created or migrated once this replica leads.
    Deferred,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogAccess {
    /// Creates or migrates the tables.
    Write,
    /// Same, but later: a standby only prepares connections to Postgres.
    WriteOnceLeading,
    /// Changes nothing. Missing tables stay missing.
    Read,
}

/// Opens the catalog, and takes its lock to write.
pub(super) async fn open(
    options: &DatabaseOptions,
    source: &Source,
    metrics: &ResourceMetrics,
    patience: Patience,
    access: CatalogAccess,
) -> Result<OpenCatalog, Error> {
    let secret = options.password_source(source);
    let password = password(options, source, patience).await?;
    let mut settings = options.settings(password).map_err(Error::from_display)?;
    settings.metrics = metrics.clone();
    if access == CatalogAccess::Read {
        let opened = Catalog::open_read_only(&settings).await;
        return Ok(OpenCatalog {
            catalog: opened.map_err(|error| failed_to_open(&error))?,
            lock: None,
            tables: Tables::Ready,
            password: secret,
        });
    }
    let is_standby = access == CatalogAccess::WriteOnceLeading;
    let lazy = Catalog::open_lazy(&settings);
    let mut opened = match lazy {
        Some(catalog) if is_standby || patience == Patience::Wait => OpenCatalog {
            catalog,
            lock: None,
            tables: Tables::Deferred,
            password: secret,
        },
        _ => {
            let lock = lock(&settings).map_err(Error::from_display)?;
            tracing::info!(database = %settings.database, "opening catalog");
            OpenCatalog {
                catalog: Catalog::open(&settings).await.map_err(|error| failed_to_open(&error))?,
                lock,
                tables: Tables::Ready,
                password: secret,
            }
        }
    };
    if !is_standby {
        opened.ensure_tables().await?;
    }
    Ok(opened)
}

impl OpenCatalog {
    /// Creates or migrates the tables if that was deferred. An unreachable database is no error: objects that are being
    /// deleted can still report the reason for the delay.
    pub(super) async fn ensure_tables(&mut self) -> Result<(), Error> {
        if self.tables != Tables::Deferred {
            return Ok(());
        }
        tracing::info!("opening catalog");
        // Applications do not need the database, so they do not wait for it.
        self.tables = match timeout(TABLES_TIMEOUT, self.catalog.ensure_tables()).await {
            Ok(Ok(_)) => Tables::Ready,
            Ok(Err(error)) if error.is_transient() => {
                tracing::warn!(%error, "failed to reach the database, syncs wait for it");
                Tables::Unreachable
            }
            Ok(Err(error)) => return Err(failed_to_open(&error)),
            Err(_) => {
                tracing::warn!("no response from the database within {TABLES_TIMEOUT:?}, syncs wait for it");
                Tables::Unreachable
            }
        };
        Ok(())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.tables == Tables::Ready
    }

    /// Returns the tasks of each replica that leads a shard. They create or migrate the tables, if that is left to do.
    pub(super) fn shard_tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        if let Some((secret, client)) = self.password.clone() {
            tasks.push(database::refresh_password(self.catalog.clone(), secret, client).boxed());
        }
        if self.tables == Tables::Unreachable {
            tasks.push(retry_tables(self.catalog.clone()).boxed());
        }
        tasks
    }

    pub(super) fn leader_tasks(&self, identity: &DatabaseIdentity) -> Vec<Task> {
        database::leader_tasks(&self.catalog, identity)
    }
}

fn failed_to_open(error: &catalog::Error) -> Error {
    Error(format!("failed to open the catalog: {error}"))
}

/// Returns only on a permanent error.
async fn retry_tables(catalog: Catalog) {
    let ensured = Patience::Wait
        .get("the database", catalog::Error::is_transient, || catalog.ensure_tables())
        .await;
    match ensured {
        Ok(_) => std::future::pending().await,
        Err(error) => tracing::error!(%error, "failed to set up the database"),
    }
}

/// Returns the password of the Secret, if one is needed.
pub(super) async fn password(
    options: &DatabaseOptions,
    source: &Source,
    patience: Patience,
) -> Result<Option<Password>, Error> {
    match (&options.password_secret, source) {
        (Some(secret), Source::Cluster(client)) if options.login.password.is_none() => {
            read_password(secret, client, patience).await.map(Some)
        }
        _ => Ok(None),
    }
}

pub(super) async fn read_password(
    secret: &PasswordSecret,
    client: &kube::Client,
    patience: Patience,
) -> Result<Password, Error> {
    let PasswordSecret { name, key } = secret;
    let what = format!("the Secret {name} with the database password (or set DB_PASSWORD)");
    let read = || async {
        match read_secret(client, name).await {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(SecretReadError::Invalid("it does not exist".to_owned())),
            Err(error) => Err(error),
        }
    };
    let is_transient = |error: &SecretReadError| matches!(error, SecretReadError::Unavailable(_));
    let mut content = patience.get(&what, is_transient, read).await?;
    match content.data.remove(key).map(String::from_utf8) {
        Some(Ok(password)) => Ok(Password::new(password.trim_end_matches('\n'))),
        Some(Err(_)) => Err(Error(format!("the key {key} of {what} is not UTF-8 text"))),
        None => Err(Error(format!("{what} has no key {key}; set --database-secret-key"))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn tries(patience: Patience, may_pass: bool) -> (Result<u32, Error>, u32) {
        let tries = Cell::new(0);
        let attempt = || {
            tries.set(tries.get() + 1);
            let result = if tries.get() < 5 { Err("away") } else { Ok(7) };
            async move { result }
        };
        let result = patience.get("the database", |_: &&str| may_pass, attempt).await;
        (result, tries.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_retries_transient_errors() {
        assert_eq!(tries(Patience::Wait, true).await, (Ok(7), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_not_retried() {
        let (result, tries) = tries(Patience::Wait, false).await;
        assert_eq!(
            (result.unwrap_err().to_string().as_str(), tries),
            ("failed to reach the database: away", 1)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_does_not_retry() {
        assert_eq!(tries(Patience::Fail, true).await.1, 1);
    }
}
