//! The CA in webhook configurations.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::SelfSigned;
use super::keeper::SelfSignedError;
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::{ApiError, call};

pub(super) struct Configurations {
    mutating: Option<MutatingWebhookConfiguration>,
    validating: Option<ValidatingWebhookConfiguration>,
}

impl Configurations {
    pub(super) async fn read(client: &Client, settings: &SelfSigned) -> Result<Self, SelfSignedError> {
        Ok(Self {
            mutating: read(client, settings).await?,
            validating: read(client, settings).await?,
        })
    }

    /// Returns the kinds whose configuration does not exist, or has no webhook of the Service.
    pub(super) fn absent(&self, settings: &SelfSigned) -> Vec<&'static str> {
        fn is_absent<K: WebhookConfiguration>(configuration: Option<&K>, settings: &SelfSigned) -> bool {
            configuration.is_none_or(|configuration| webhooks_of_service(configuration, settings).next().is_none())
        }
        let mutating = is_absent(self.mutating.as_ref(), settings).then_some(MutatingWebhookConfiguration::KIND);
        let validating = is_absent(self.validating.as_ref(), settings).then_some(ValidatingWebhookConfiguration::KIND);
        mutating.into_iter().chain(validating).collect()
    }

    /// Writes the CAs to the webhooks of the Service that have others.
    pub(super) async fn set_ca(
        &self,
        client: &Client,
        settings: &SelfSigned,
        ca_bundle: &str,
    ) -> Result<(), SelfSignedError> {
        set_ca(client, self.mutating.as_ref(), settings, ca_bundle).await?;
        set_ca(client, self.validating.as_ref(), settings, ca_bundle).await
    }
}

pub(super) trait WebhookConfiguration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {
    const KIND: &'static str;

    fn client_configs(&self) -> impl Iterator<Item = &WebhookClientConfig>;
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    const KIND: &'static str = "MutatingWebhookConfiguration";

    fn client_configs(&self) -> impl Iterator<Item = &WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config)
    }
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    const KIND: &'static str = "ValidatingWebhookConfiguration";

    fn client_configs(&self) -> impl Iterator<Item = &WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config)
    }
}

async fn read<K: WebhookConfiguration>(client: &Client, settings: &SelfSigned) -> Result<Option<K>, SelfSignedError> {
    let read = call(Api::<K>::all(client.clone()).get_opt(&settings.configuration)).await;
    read.map_err(|cause| failed::<K>("get", settings, cause))
}

fn failed<K: WebhookConfiguration>(verb: &'static str, settings: &SelfSigned, cause: ApiError) -> SelfSignedError {
    SelfSignedError::Request {
        verb,
        object: format!("{} {}", K::KIND, settings.configuration),
        cause,
    }
}

/// Returns the webhooks of the Service, with their indexes.
fn webhooks_of_service<'a>(
    configuration: &'a impl WebhookConfiguration,
    settings: &'a SelfSigned,
) -> impl Iterator<Item = (usize, &'a WebhookClientConfig)> {
    configuration.client_configs().enumerate().filter(|(_, config)| {
        config
            .service
            .as_ref()
            .is_some_and(|service| service.name == settings.service && service.namespace == settings.namespace)
    })
}

async fn set_ca<K: WebhookConfiguration>(
    client: &Client,
    configuration: Option<&K>,
    settings: &SelfSigned,
    ca_bundle: &str,
) -> Result<(), SelfSignedError> {
    let Some(operations) = configuration.and_then(|configuration| patch(configuration, settings, ca_bundle)) else {
        return Ok(());
    };
    let failed = |cause| failed::<K>("patch", settings, cause);
    let patch = serde_json::from_value(Value::Array(operations));
    let patch = patch.map_err(|error| failed(ApiError::bad_request(error.to_string())))?;
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api = Api::<K>::all(client.clone());
    let patch = Patch::Json::<()>(patch);
    let patched = call(api.patch_metadata(&settings.configuration, &parameters, &patch)).await;
    patched.map_err(failed)?;
    tracing::info!(
        kind = K::KIND,
        name = settings.configuration,
        "wrote the CA of webhooks"
    );
    Ok(())
}

/// Returns the operations of a JSON patch, unless all webhooks of the Service have these CAs.
pub(super) fn patch(
    configuration: &impl WebhookConfiguration,
    settings: &SelfSigned,
    ca_bundle: &str,
) -> Option<Vec<Value>> {
    let ca_bundle = k8s_openapi::ByteString(ca_bundle.into());
    let outdated = webhooks_of_service(configuration, settings).filter(|(_, config)| {
        let current = config.ca_bundle.as_ref();
        current != Some(&ca_bundle)
    });
    let writes: Vec<_> = outdated
        .map(|(index, _)| {
            let path = format!("/webhooks/{index}/clientConfig/caBundle");
            json!({ "op": "add", "path": path, "value": ca_bundle })
        })
        .collect();
    let version = &configuration.meta().resource_version;
    let test = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version });
    (!writes.is_empty()).then(|| [test].into_iter().chain(writes).collect())
}
