//! A folder of manifests as the origin of declarations.

use std::path::{Path, PathBuf};

use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use super::News;
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
        let path: PathBuf = path.canonicalize()?;
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            id: format!("folder-{hex}"),
        })
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
