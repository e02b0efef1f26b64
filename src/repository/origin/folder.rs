//! A folder of manifests as the origin of declarations.

use std::path::Path;

use kube::api::ObjectMeta;

use super::News;
use crate::informer::manifests::folder_id;
use crate::text::printable;

/// A folder of manifests.
pub struct Folder {
    id: String,
}

impl Folder {
    /// The folder at `path`, known by its absolute path.
    ///
    /// # Errors
    /// There is no such folder, or it can't be read.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        Ok(Self { id: folder_id(path)? })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn publish(meta: &ObjectMeta, news: &News) {
        let (namespace, name) = (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let note = printable(&news.note);
        if news.warning {
            tracing::warn!(namespace, name, reason = news.reason, "{note}");
        } else {
            tracing::info!(namespace, name, reason = news.reason, "{note}");
        }
    }
}
