//! Deletes cached registry state in the transaction that deletes its charts, so that no served chart loses its state.

use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute_list};
use crate::catalog::oci::{OciRepository, upsert_repository};
use crate::catalog::record::{self, storable};
use crate::catalog::{Catalog, Error};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciRemovals {
    pub source: String,
    pub repositories: Vec<String>,
    /// Tags to delete, with the new state of their repository. Its `tags` are ignored.
    pub tags: Vec<(OciRepository, Vec<String>)>,
}

impl OciRemovals {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.repositories.is_empty() && self.tags.is_empty()
    }
}

impl Catalog {
    /// Deletes state without charts. With charts, use `SyncCommit::oci_removals`.
    pub async fn delete_oci(&self, name: &NamespacedName, removals: &OciRemovals) -> Result<(), Error> {
        self.write_long("delete state that left the registry", &name.namespace, async |tx| {
            record::lock(tx, name).await?;
            delete(tx, name, removals).await
        })
        .await
    }
}

pub(super) async fn delete(tx: &mut Transaction, name: &NamespacedName, removals: &OciRemovals) -> Result<(), Error> {
    for (repository, tags) in &removals.tags {
        upsert_repository(tx, name, &removals.source, repository).await?;
        delete_tags(tx, name, &repository.repository, tags).await?;
    }
    delete_repositories(tx, name, &removals.repositories).await
}

async fn delete_repositories(tx: &mut Transaction, name: &NamespacedName, removals: &[String]) -> Result<(), Error> {
    if removals.is_empty() {
        return Ok(());
    }
    let removals: Vec<_> = removals.iter().map(|repository| storable(repository)).collect();
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
        execute_list!(tx, sqlite, postgres, name; &removals);
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
    execute_list!(tx, SQLITE, POSTGRES, name, storable(repository); tags);
    Ok(())
}
