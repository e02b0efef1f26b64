//! Builds the HTTP settings of a repository from its spec and Secrets.

use std::sync::Arc;

use url::Url;

use super::{Credentials, SecretError, SecretRefs, SecretSettings};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Access;

#[derive(Clone)]
pub enum CredentialSource {
    Secrets {
        origin: Arc<Origin>,
        settings: SecretSettings,
    },
    /// Credentials passed to a command for one repository.
    Static(Credentials),
}

impl CredentialSource {
    /// Returns the HTTP settings for the repository's server, and the versions of the Secrets that were read.
    pub async fn access(&self, spec: &RepositorySpec) -> Result<(Access, String), SyncError> {
        let access = &spec.access;
        let Credentials {
            authorization,
            ca,
            versions,
        } = match self {
            Self::Static(credentials) => credentials.clone(),
            Self::Secrets { .. } if access.auth_header.is_none() && access.custom_ca.is_none() => {
                Credentials::default()
            }
            Self::Secrets { origin, settings } => {
                let refs = SecretRefs {
                    header: access.auth_header.as_ref(),
                    ca: access.custom_ca.as_ref(),
                };
                let credentials = secrets::credentials(origin, &spec.name, refs, settings).await?;
                // Shows when a changed Secret is first used.
                tracing::debug!(secrets = credentials.versions, "read Secrets");
                credentials
            }
        };
        let access = Access {
            authorization,
            // An invalid URL is reported when it is fetched.
            scope: Url::parse(&spec.url).ok(),
            pass_credentials: access.pass_credentials,
            ca,
            insecure: access.insecure,
            proxies: access.proxies.clone(),
        };
        Ok((access, versions))
    }
}

impl From<SecretError> for SyncError {
    fn from(error: SecretError) -> Self {
        Self {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            transient: error.is_transient(),
            retry_after: None,
        }
    }
}
