//! The way to the catalogue.

use crate::catalog::{Catalog, Login, Password, Settings, lock::SqliteLock};
use crate::manager::{self, DatabaseOptions};

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

/// Returns the settings of the database from the flags and a password.
///
/// # Errors
/// Invalid usage: the URL has an unknown form.
pub fn settings(flags: &DatabaseFlags, password: Option<Password>) -> Result<Settings, Failure> {
    options(flags, password)
        .settings(None)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Returns the database of the controllers from the flags and a password.
#[must_use]
pub fn options(flags: &DatabaseFlags, password: Option<Password>) -> DatabaseOptions {
    let set = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    DatabaseOptions {
        url: flags.database_url.reveal().to_owned(),
        login: Login {
            user: set(&flags.database_user),
            database: set(&flags.database_name),
            password,
        },
        connections: flags.database_connections.get(),
        password_secret: None,
    }
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

/// The catalogue, for commands that write once.
///
/// # Errors
/// When another process has the right to write, or it can't be opened.
pub async fn open_to_write(flags: &DatabaseFlags) -> Result<(Catalog, Option<SqliteLock>), Failure> {
    let settings = settings(flags, password_of_environment())?;
    let lock = manager::lock(&settings).map_err(|error| Failure::failed(error.to_string()))?;
    let catalog = Catalog::open(&settings)
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok((catalog, lock))
}
