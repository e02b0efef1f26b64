//! The database of the catalog.

use std::num::NonZeroU32;

use clap::{Args, ValueEnum};

use super::{
    non_empty,
    parse::{Sensitive, bytes},
};
use crate::catalog::{Catalog, CatalogSettings, Login, Migrations, Password, Pooler, StorageLimits};
use crate::cmd::Error;
use crate::manager::{self, DatabaseOptions};

const PASSWORD_VARIABLE: &str = "DB_PASSWORD";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Database")]
pub struct DatabaseFlags {
    /// Database: sqlite://FILE, postgres://USER@HOST/NAME[?sslmode=verify-full], or HOST:PORT as in Kubeapps (with
    /// --database-user and --database-name)
    #[arg(long, value_name = "URL", default_value = "sqlite://portolan.db")]
    pub database_url: Sensitive,
    /// Postgres user if the URL contains none; set DB_PASSWORD to the password
    #[arg(long, value_name = "USER", default_value = "postgres")]
    pub database_user: String,
    /// Postgres database if the URL contains none
    #[arg(long, value_name = "NAME", default_value = "charts")]
    pub database_name: String,
    /// Maximum number of connections to Postgres; one is kept for clean-up
    #[arg(long, value_name = "N", default_value = "10")]
    pub database_connections: NonZeroU32,
    /// Mode of a pooler in front of Postgres, such as PgBouncer
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    pub database_pooler: PoolerMode,
    /// Maximum number of bytes that the charts and files of a repository take in the database (default: 4Gi, and with
    /// SQLite at most a quarter of the volume)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_repository_bytes: Option<u64>,
    /// Maximum number of bytes that all repositories of a namespace take in the database (default: no limit)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_namespace_bytes: Option<u64>,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolerMode {
    /// No pooler, or one in session mode
    #[default]
    Session,
    /// A pooler in transaction mode with prepared statements
    Transaction,
}

impl From<PoolerMode> for Pooler {
    fn from(mode: PoolerMode) -> Self {
        match mode {
            PoolerMode::Session => Self::Session,
            PoolerMode::Transaction => Self::Transaction,
        }
    }
}

impl DatabaseFlags {
    pub fn options(&self) -> DatabaseOptions {
        let set = |text: &str| non_empty(Some(text)).map(str::to_owned);
        let password = std::env::var(PASSWORD_VARIABLE)
            .ok()
            .filter(|password| !password.is_empty());
        DatabaseOptions {
            url: self.database_url.reveal().to_owned(),
            login: Login {
                user: set(&self.database_user),
                database: set(&self.database_name),
                password: password.map(Password::new),
            },
            connections: self.database_connections.get(),
            pooler: self.database_pooler.into(),
            limits: StorageLimits {
                repository: self.max_repository_bytes,
                namespace: self.max_namespace_bytes,
            },
            password_secret: None,
        }
    }

    pub fn settings(&self) -> Result<CatalogSettings, Error> {
        let settings = self.options().settings(None);
        settings.map_err(|error| Error::Usage(error.to_string()))
    }

    /// Opens the catalog for `query`, without a lock.
    pub async fn read<T>(&self, query: impl AsyncFnOnce(&Catalog) -> Result<T, Error>) -> Result<T, Error> {
        let catalog = Catalog::open_read_only(&self.settings()?).await?;
        let result = query(&catalog).await;
        catalog.close().await;
        result
    }

    /// Locks and opens the catalog for `change`.
    pub async fn write<T>(&self, change: impl AsyncFnOnce(&Catalog) -> Result<T, Error>) -> Result<T, Error> {
        self.write_with(Migrations::Run, change).await
    }

    pub async fn write_with<T>(
        &self,
        migrations: Migrations,
        change: impl AsyncFnOnce(&Catalog) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let settings = CatalogSettings {
            migrations,
            ..self.settings()?
        };
        let _lock = manager::lock(&settings)?;
        let catalog = Catalog::open(&settings).await?;
        let result = change(&catalog).await;
        catalog.close().await;
        result
    }
}
