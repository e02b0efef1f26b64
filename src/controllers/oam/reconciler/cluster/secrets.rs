use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

use super::Cluster;
use super::reads::foreign_secrets;
use crate::controllers::oam::functions::secrets::Secrets;
use crate::controllers::oam::trackers::LOCAL;
use crate::runtime::kube_client::{ApiError, call};

/// The Secrets that functions may use for the Application.
pub struct VisibleSecrets {
    client: Client,
    definition_namespace: String,
    /// The only namespace whose Secrets may be seen.
    only: Option<String>,
}

impl Cluster<'_> {
    pub fn secrets(&self) -> VisibleSecrets {
        VisibleSecrets {
            client: self.objects.client().clone(),
            definition_namespace: self.env.options().definition_namespace.clone(),
            only: (!self.sees_all_secrets(LOCAL)).then(|| self.env.name.namespace.clone()),
        }
    }
}

impl VisibleSecrets {
    fn check(&self, namespace: &str) -> Result<(), String> {
        match &self.only {
            Some(only) if only != namespace => Err(foreign_secrets(namespace)),
            _ => Ok(()),
        }
    }

    pub fn secret_api(&self, namespace: &str) -> Result<Api<Secret>, ApiError> {
        self.check(namespace).map_err(ApiError::bad_request)?;
        Ok(Api::namespaced(self.client.clone(), namespace))
    }

    /// Returns the ConfigMaps of templates. In another namespace, the rights of this controller would read them.
    pub fn templates(&self, namespace: &str) -> Result<Api<ConfigMap>, ApiError> {
        if namespace != self.definition_namespace && self.check(namespace).is_err() {
            let message = format!(
                "templates of configs in namespace {namespace:?} can't be used with the rights of this controller; use one \
                 in the own namespace or in {:?}",
                self.definition_namespace
            );
            return Err(ApiError::bad_request(message));
        }
        Ok(Api::namespaced(self.client.clone(), namespace))
    }

    pub fn definition_namespace(&self) -> &str {
        &self.definition_namespace
    }
}

impl Secrets for VisibleSecrets {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ApiError> {
        call(self.secret_api(namespace)?.get_opt(name)).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request, Response};
    use kube::client::Body;

    use super::*;

    fn secrets(only: Option<&str>) -> VisibleSecrets {
        let service = tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        VisibleSecrets {
            client: Client::new(service, "default"),
            definition_namespace: "vela-system".to_owned(),
            only: only.map(str::to_owned),
        }
    }

    #[tokio::test]
    async fn templates_of_other_tenants_need_rights_of_their_own() {
        let tenant = secrets(Some("team"));
        assert!(tenant.templates("team").is_ok() && tenant.templates("vela-system").is_ok());
        let error = tenant.templates("other").unwrap_err().to_string();
        assert!(error.contains("namespace \"other\" can't be used"), "{error}");
        assert!(tenant.secret_api("vela-system").is_err());
        assert!(secrets(None).templates("other").is_ok());
    }
}
