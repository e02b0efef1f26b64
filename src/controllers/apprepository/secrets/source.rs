//! How the server of a repository is reached: what its object declares, with the values of the Secrets that it names. They are
//! read for each sync and dropped with it.

use std::sync::Arc;

use url::Url;

use super::{Credentials, SecretError, SecretSettings, Wanted};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::controllers::apprepository::sync::request::SyncError;
use crate::http::Access;

/// Where the values are that a declaration only names.
#[derive(Clone)]
pub enum Keys {
    /// In Secrets, beside the declaration.
    Named {
        /// Where Secrets are read.
        origin: Arc<Origin>,
        /// Where else they may be.
        settings: SecretSettings,
    },
    /// Given to a command, for the one repository that it is about.
    Given(Credentials),
}

impl Keys {
    /// What it takes to reach the server of the repository that `declaration` is about, and the names and versions of the Secrets
    /// that were read for that.
    ///
    /// # Errors
    /// A Secret is missing, can't be read, or holds what can't be used.
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
                // Whoever has changed a Secret can see from when on it counts.
                tracing::debug!(secrets = credentials.versions, "read Secrets");
                credentials
            }
        };
        let access = Access {
            authorization,
            // What is no URL is told of when it is about to be fetched.
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
