//! Tombstones of objects that exist: the API server was restored from a backup, to a time before their deletion.

use std::sync::Arc;

use kube::api::ObjectMeta;

use super::origin::Origin;
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog};
use crate::runtime::kube_client::ApiError;

#[derive(Clone)]
pub struct Tombstones {
    pub catalog: Catalog,
    pub origin: Arc<Origin>,
}

#[derive(Debug, thiserror::Error)]
pub enum TombstoneError {
    #[error("request to the API server failed: {0}")]
    Api(#[from] ApiError),
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

impl Tombstones {
    /// Returns the time of the tombstone of an object that exists; `None` without a tombstone, or if it is true.
    pub async fn find_outdated(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<Option<i64>, TombstoneError> {
        let uid = meta.uid.as_deref().unwrap_or_default();
        // Before the API server is asked: a deletion afterwards has another time.
        let Some(deleted_at) = self.catalog.deleted_at(uid).await? else {
            return Ok(None);
        };
        Ok(self.origin.is_live(name, meta).await?.then_some(deleted_at))
    }

    /// Lets an object that was restored be synced again.
    pub async fn forget_outdated(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<(), TombstoneError> {
        if let Some(deleted_at) = self.find_outdated(name, meta).await? {
            let uid = meta.uid.as_deref().unwrap_or_default();
            self.catalog.forget_deletion(name, uid, deleted_at).await?;
        }
        Ok(())
    }
}
