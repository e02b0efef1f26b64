use std::path::{Path, PathBuf};

use super::SecretReadError;
use crate::api::NamespacedName;
use crate::runtime::manifests::{self, SecretContent, SecretFileError, directory_id};
use crate::text::printable;

pub struct Directory {
    id: String,
    path: PathBuf,
}

impl Directory {
    pub fn new(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            id: directory_id(path)?,
            path: path.to_owned(),
        })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn secret(&self, name: &NamespacedName) -> Result<Option<SecretContent>, SecretReadError> {
        let (path, name) = (self.path.clone(), name.clone());
        let read = tokio::task::spawn_blocking(move || manifests::secret(&path, &name)).await;
        match read {
            Ok(Ok(content)) => Ok(content),
            Ok(Err(SecretFileError::Invalid(why))) => Err(SecretReadError::Invalid(printable(&why))),
            Ok(Err(SecretFileError::Unreadable(cause))) => Err(SecretReadError::Unavailable(printable(&cause))),
            Err(error) => Err(SecretReadError::Unavailable(error.to_string())),
        }
    }
}
