//! The way to the catalogue.

use crate::catalog::{Catalog, Database, Login, Password, Settings, lock::SqliteLock};

use super::{Failure, flags::DatabaseFlags};

/// The environment variable of the password of Postgres, as Kubeapps' programs have it.
const PASSWORD: &str = "DB_PASSWORD";

/// The password of the environment, if one is set.
#[must_use]
pub fn password_of_environment() -> Option<Password> {
    std::env::var(PASSWORD)
        .ok()
        .filter(|password| !password.is_empty())
        .map(Password::new)
}

/// How the database is opened, by the flags and the password that was found.
///
/// # Errors
/// Wrong usage, when the URL is of no form that is known.
pub fn settings(flags: &DatabaseFlags, password: Option<Password>) -> Result<Settings, Failure> {
    let set = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let login = Login {
        user: set(&flags.database_user),
        database: set(&flags.database_name),
        password,
    };
    let database =
        Database::parse(flags.database_url.reveal(), &login).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Settings {
        database,
        postgres_connections: flags.database_connections.get(),
    })
}

/// The catalogue, for commands that only read.
///
/// # Errors
/// When it can't be opened.
pub async fn open_read_only(flags: &DatabaseFlags) -> Result<Catalog, Failure> {
    let settings = settings(flags, password_of_environment())?;
    Catalog::open_read_only(&settings)
        .await
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The right to write: a lock file where the database is SQLite, nothing elsewhere. Held as long as anything is written.
///
/// # Errors
/// When another process has it.
pub fn lock(settings: &Settings) -> Result<Option<SqliteLock>, Failure> {
    settings
        .database
        .sqlite_path()
        .map(SqliteLock::acquire)
        .transpose()
        .map_err(|error| Failure::failed(error.to_string()))
}

/// The catalogue, for commands that write once.
///
/// # Errors
/// When another process has the right to write, or it can't be opened.
pub async fn open_to_write(flags: &DatabaseFlags) -> Result<(Catalog, Option<SqliteLock>), Failure> {
    let settings = settings(flags, password_of_environment())?;
    let lock = lock(&settings)?;
    let catalog = Catalog::open(&settings)
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok((catalog, lock))
}
