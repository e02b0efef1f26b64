//! Forgetting what a registry has no more: with the charts that go with it, in one transaction, so that nothing is forgotten that is
//! still served.

use sqlx::types::Json;

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction};
use crate::catalog::oci::{OciRepository, upsert_repository};
use crate::catalog::record::{self, storable};
use crate::catalog::{COMMIT_DEADLINE, Catalog, Error};

/// What is known of a registry, and is no more in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciGone {
    /// The source that is looked at now, as in [`Catalog::save_oci`].
    pub source: String,
    /// Repositories.
    pub repositories: Vec<String>,
    /// Tags, each time with their repository as it is known without them (its other tags are not looked at).
    pub tags: Vec<(OciRepository, Vec<String>)>,
}

impl OciGone {
    /// Whether there is nothing to forget.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.repositories.is_empty() && self.tags.is_empty()
    }
}

impl Catalog {
    /// Forgets what is no more, where no charts have to go with it: else [`crate::catalog::Commit::gone`] does it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_oci(&self, name: &NamespacedName, gone: &OciGone) -> Result<(), Error> {
        self.must_be_writable()?;
        self.call("forgetting what a registry has no more", COMMIT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            record::lock(&mut tx, name).await?;
            forget(&mut tx, name, gone).await?;
            tx.commit().await
        })
        .await
    }
}

/// Forgets what is no more.
pub(super) async fn forget(tx: &mut Transaction, name: &NamespacedName, gone: &OciGone) -> Result<(), Error> {
    for (repository, tags) in &gone.tags {
        upsert_repository(tx, name, &gone.source, repository).await?;
        delete_tags(tx, name, &repository.repository, tags).await?;
    }
    delete_repositories(tx, name, &gone.repositories).await
}

async fn delete_repositories(tx: &mut Transaction, name: &NamespacedName, gone: &[String]) -> Result<(), Error> {
    if gone.is_empty() {
        return Ok(());
    }
    let gone: Vec<_> = gone.iter().map(|repository| storable(repository)).collect();
    for (sqlite, postgres) in [
        (
            "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2
                AND repository IN (SELECT value FROM json_each($3))",
            "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2 AND repository = ANY($3)",
        ),
        (
            "DELETE FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2
                AND repository IN (SELECT value FROM json_each($3))",
            "DELETE FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2 AND repository = ANY($3)",
        ),
    ] {
        match &mut *tx {
            Engine::Sqlite(tx) => {
                let query = sqlx::query(sqlite).bind(&name.namespace).bind(&name.name);
                query.bind(Json(&gone)).execute(&mut **tx).await?;
            }
            Engine::Postgres(tx) => {
                let query = sqlx::query(postgres).bind(&name.namespace).bind(&name.name);
                query.bind(&gone).execute(&mut **tx).await?;
            }
        }
    }
    Ok(())
}

async fn delete_tags(
    tx: &mut Transaction,
    name: &NamespacedName,
    repository: &str,
    tags: &[String],
) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2 AND repository = $3
        AND tag IN (SELECT value FROM json_each($4))";
    const POSTGRES: &str = "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2 AND repository = $3
        AND tag = ANY($4)";
    if tags.is_empty() {
        return Ok(());
    }
    match tx {
        Engine::Sqlite(tx) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            let query = query.bind(storable(repository)).bind(Json(tags));
            query.execute(&mut **tx).await?;
        }
        Engine::Postgres(tx) => {
            let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
            let query = query.bind(storable(repository)).bind(tags);
            query.execute(&mut **tx).await?;
        }
    }
    Ok(())
}
