//! Builds the HTTP settings of a repository from its spec and Secrets.

use std::sync::Arc;

use url::Url;

use super::{Credentials, SecretError, SecretSettings, Wanted};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Access;

#[derive(Clone)]
pub enum Keys {
    Named {
        origin: Arc<Origin>,
        settings: SecretSettings,
    },
    /// Credentials passed to a command for one repository.
    Given(Credentials),
}

impl Keys {
    /// Returns the HTTP settings for the repository's server, and the versions of the Secrets that were read.
    pub async fn access(&self, declaration: &RepositorySpec) -> Result<(Access, String), SyncError> {
        let reach = &declaration.reach;
        let Credentials {
            authorization,
            ca,
            versions,
        } = match self {
            Self::Given(credentials) => credentials.clone(),
            Self::Named { .. } if reach.auth_header.is_none() && reach.custom_ca.is_none() => Credentials::default(),
            Self::Named { origin, settings } => {
                let wanted = Wanted {
                    header: reach.auth_header.as_ref(),
                    ca: reach.custom_ca.as_ref(),
                };
                let credentials = secrets::credentials(origin, &declaration.name, wanted, settings).await?;
                // Shows when a changed Secret is first used.
                tracing::debug!(secrets = credentials.versions, "read Secrets");
                credentials
            }
        };
        let access = Access {
            authorization,
            // An invalid URL is reported when it is fetched.
            scope: Url::parse(&declaration.url).ok(),
            pass_credentials: reach.pass_credentials,
            ca,
            insecure: reach.insecure,
            proxies: reach.proxies.clone(),
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
