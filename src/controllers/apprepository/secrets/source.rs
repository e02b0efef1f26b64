use std::sync::Arc;

use url::Url;

use super::{RepositoryCredentials, SecretError, SecretRefs};
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::secrets;
use crate::controllers::apprepository::spec::RepositorySpec;
use crate::http::Access;

#[derive(Clone)]
pub enum CredentialSource {
    Secrets {
        origin: Arc<Origin>,
        kubeapps_namespace: String,
    },
    /// Credentials passed to a command for one repository.
    Static(RepositoryCredentials),
}

impl CredentialSource {
    pub async fn access(&self, spec: &RepositorySpec) -> Result<(Access, String), SecretError> {
        let access = &spec.access;
        let RepositoryCredentials {
            authorization,
            ca,
            versions,
        } = match self {
            Self::Static(credentials) => credentials.clone(),
            Self::Secrets { .. } if access.auth_header.is_none() && access.custom_ca.is_none() => {
                RepositoryCredentials::default()
            }
            Self::Secrets {
                origin,
                kubeapps_namespace,
            } => {
                let refs = SecretRefs {
                    header: access.auth_header.as_ref(),
                    ca: access.custom_ca.as_ref(),
                };
                let credentials = secrets::credentials(origin, &spec.name, refs, kubeapps_namespace).await?;
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
            namespace: spec.name.namespace.clone(),
            repository: spec.name.name.clone(),
            ..Access::default()
        };
        Ok((access, versions))
    }
}
