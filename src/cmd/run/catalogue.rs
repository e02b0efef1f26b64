//! Opening the catalogue for writing, with a password that may stand in a Secret.

use kube::Client;

use super::{Run, patience::Patience, source::Source};
use crate::api::NamespacedName;
use crate::catalog::lock::SqliteLock;
use crate::catalog::{Catalog, Error, Password};
use crate::cmd::cluster::{self, given};
use crate::cmd::{Failure, database};
use crate::controllers::apprepository::origin::{SecretReadError, read_secret};

/// The Secret with the password where Kubeapps' arguments name none.
const KUBEAPPS_SECRET: &str = "kubeapps-db";

/// The catalogue as it was opened.
pub(super) struct Opened {
    pub(super) catalog: Catalog,
    /// Held as long as anything may be written.
    pub(super) lock: Option<SqliteLock>,
    /// Whether the database could be reached, so that the tables are as they have to be.
    pub(super) is_there: bool,
}

/// Opens the catalogue, and takes the right to write where there is a lock for it. A service goes on without its database: an
/// object that is being deleted has to say why it waits, and to hear that it need not.
pub(super) async fn open(run: &Run, source: &Source, patience: Patience) -> Result<Opened, Failure> {
    let password = match (database::password_of_environment(), source) {
        (Some(password), _) => Some(password),
        (None, Source::Cluster(client)) => password_of_secret(run, client, patience).await?,
        (None, Source::Folder(_)) => None,
    };
    let settings = database::settings(&run.database, password)?;
    let lock = database::lock(&settings)?;
    tracing::info!(database = %settings.database, "opening catalog");
    match (Catalog::open(&settings).await, patience, Catalog::open_lazy(&settings)) {
        (Ok(catalog), _, _) => Ok(Opened {
            catalog,
            lock,
            is_there: true,
        }),
        (Err(error), Patience::Wait, Some(catalog)) if error.is_transient() => {
            tracing::warn!(%error, "failed to reach the database, syncs wait for it");
            Ok(Opened {
                catalog,
                lock,
                is_there: false,
            })
        }
        (Err(error), _, _) => Err(Failure::failed(format!("can't open the catalogue: {error}"))),
    }
}

/// Brings the tables up to date as soon as the database can be reached. Ends only when they never can be.
pub(super) async fn make_ready(catalog: Catalog) {
    let made = Patience::Wait
        .get("the database", Error::is_transient, || catalog.ensure_tables())
        .await;
    match made {
        Ok(_) => std::future::pending().await,
        Err(error) => tracing::error!(%error, "failed to set up the database"),
    }
}

/// The password in the Secret that the flags name. Kubeapps' own arguments may leave the name to its default; other forms of the URL may
/// hold a password themselves, or need none.
async fn password_of_secret(run: &Run, client: &Client, patience: Patience) -> Result<Option<Password>, Failure> {
    let name = match given(run.database_secret_name.as_deref()) {
        Some(name) => name,
        None if !run.database.database_url.reveal().contains("://") => KUBEAPPS_SECRET,
        None => return Ok(None),
    };
    if run.database.database_url.reveal().trim().starts_with("sqlite:") {
        return Ok(None);
    }
    let namespace = cluster::own_namespace(run.namespace.as_deref());
    let name = NamespacedName {
        namespace,
        name: name.to_owned(),
    };
    let what = format!("the Secret {name} with the password of the database (or set DB_PASSWORD)");
    let read = || async {
        match read_secret(client, &name).await {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(SecretReadError::Invalid("there is none".to_owned())),
            Err(error) => Err(error),
        }
    };
    let may_pass = |error: &SecretReadError| matches!(error, SecretReadError::Unavailable(_));
    let mut content = patience.get(&what, may_pass, read).await?;
    let value = content.data.remove(&run.database_secret_key);
    match value.map(String::from_utf8) {
        Some(Ok(password)) => Ok(Some(Password::new(password.trim_end_matches('\n')))),
        Some(Err(_)) => Err(Failure::failed(format!(
            "the key {} of {what} is no text",
            run.database_secret_key
        ))),
        None => Err(Failure::failed(format!(
            "{what} has no key {}: name another with --database-secret-key",
            run.database_secret_key
        ))),
    }
}
