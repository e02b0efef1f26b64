//! Webhooks of KubeVela whose Service has no endpoints: the API server refuses all writes to Applications.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use tokio::time::sleep;

use crate::api::oam::GROUP;
use crate::controllers::oam::WebhookOptions;
use crate::controllers::{FIELD_MANAGER, Task};
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::kube_client::{ApiError, call};

/// Larger clusters have a few dozens.
pub(super) const MAX_CONFIGURATIONS: u32 = 500;
const MAX_SLICES: u32 = 100;
const RETRY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookKind {
    Mutating,
    Validating,
}

/// A webhook configuration for the group with a Service without ready endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct Unserved {
    pub kind: WebhookKind,
    pub meta: ObjectMeta,
    /// The first Service without ready endpoints, as `namespace/name`.
    pub service: String,
}

impl Unserved {
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn removal(&self) -> String {
        let kind = match self.kind {
            WebhookKind::Mutating => "mutatingwebhookconfiguration",
            WebhookKind::Validating => "validatingwebhookconfiguration",
        };
        format!("kubectl delete {kind} {}", self.name())
    }

    #[must_use]
    pub fn message(&self) -> String {
        format!(
            "no endpoints for service {}, so the API server refuses writes to resources of {GROUP}; remove the webhook with `{}`",
            self.service,
            self.removal()
        )
    }
}

/// Returns a task that warns once, in the log and in an event.
#[must_use]
pub fn warn_task(client: Client, served: Option<WebhookOptions>) -> Task {
    async move {
        while let Err(error) = warn(&client, served.as_ref()).await {
            tracing::warn!(%error, "failed to check the webhooks of {GROUP}");
            if !error.is_retryable() {
                break;
            }
            sleep(RETRY).await;
        }
        std::future::pending().await
    }
    .boxed()
}

async fn warn(client: &Client, served: Option<&WebhookOptions>) -> Result<(), ApiError> {
    let unserved = find_unserved(client, served).await?;
    let events = EventPublisher::new(client.clone(), FIELD_MANAGER);
    for webhook in unserved {
        let message = webhook.message();
        tracing::warn!(webhook = webhook.name(), "{message}");
        let event = Event::warning("WebhookUnavailable", message);
        match webhook.kind {
            WebhookKind::Mutating => {
                let published = events.publish::<MutatingWebhookConfiguration>(&webhook.meta, "Start", event);
                published.await;
            }
            WebhookKind::Validating => {
                let published = events.publish::<ValidatingWebhookConfiguration>(&webhook.meta, "Start", event);
                published.await;
            }
        }
    }
    Ok(())
}

/// Leaves out the Service of `served`, the webhooks of this process: it has endpoints once the process is ready.
pub async fn find_unserved(client: &Client, served: Option<&WebhookOptions>) -> Result<Vec<Unserved>, ApiError> {
    let mut services = WebhookServices::new(client);
    let mut unserved = Vec::new();
    for (kind, meta, references) in configurations(client).await? {
        for reference in references {
            let is_ours = served.is_some_and(|served| is_of_service(&reference, served));
            if !is_ours && !services.is_ready(&reference).await? {
                unserved.push(Unserved {
                    kind,
                    meta,
                    service: format!("{}/{}", reference.namespace, reference.name),
                });
                break;
            }
        }
    }
    Ok(unserved)
}

/// A configuration, and the Services of its webhooks for the group.
type Configuration = (WebhookKind, ObjectMeta, Vec<ServiceReference>);

async fn configurations(client: &Client) -> Result<Vec<Configuration>, ApiError> {
    let parameters = ListParams::default().limit(MAX_CONFIGURATIONS);
    let mutating = call(Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&parameters)).await?;
    let validating = call(Api::<ValidatingWebhookConfiguration>::all(client.clone()).list(&parameters)).await?;
    let mutating = mutating.into_iter().map(|configuration| {
        let webhooks = configuration.webhooks.iter().flatten();
        let services = webhooks.filter_map(|webhook| {
            required_service(
                webhook.rules.as_deref(),
                webhook.failure_policy.as_deref(),
                &webhook.client_config,
            )
        });
        (WebhookKind::Mutating, meta_of(&configuration), services.collect())
    });
    let validating = validating.into_iter().map(|configuration| {
        let webhooks = configuration.webhooks.iter().flatten();
        let services = webhooks.filter_map(|webhook| {
            required_service(
                webhook.rules.as_deref(),
                webhook.failure_policy.as_deref(),
                &webhook.client_config,
            )
        });
        (WebhookKind::Validating, meta_of(&configuration), services.collect())
    });
    Ok(mutating.chain(validating).collect())
}

fn meta_of(configuration: &impl Resource) -> ObjectMeta {
    ObjectMeta {
        name: Some(configuration.name_any()),
        uid: configuration.uid(),
        ..ObjectMeta::default()
    }
}

pub(super) fn is_of_service(reference: &ServiceReference, served: &WebhookOptions) -> bool {
    reference.name == served.service && reference.namespace == served.namespace
}

fn required_service(
    rules: Option<&[RuleWithOperations]>,
    failure_policy: Option<&str>,
    client: &WebhookClientConfig,
) -> Option<ServiceReference> {
    let mut groups = rules
        .into_iter()
        .flatten()
        .flat_map(|rule| rule.api_groups.iter().flatten());
    let is_for_group = groups.any(|group| group == GROUP);
    (is_for_group && failure_policy != Some("Ignore"))
        .then(|| client.service.clone())
        .flatten()
}

pub(super) struct WebhookServices<'a> {
    client: &'a Client,
    /// By namespace and name. Several webhooks of a configuration share a Service.
    are_ready: BTreeMap<(String, String), bool>,
}

impl<'a> WebhookServices<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self {
            client,
            are_ready: BTreeMap::new(),
        }
    }

    pub(super) async fn is_ready(&mut self, service: &ServiceReference) -> Result<bool, ApiError> {
        let key = (service.namespace.clone(), service.name.clone());
        if let Some(is_ready) = self.are_ready.get(&key) {
            return Ok(*is_ready);
        }
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &service.namespace);
        let labels = format!("kubernetes.io/service-name={}", service.name);
        let parameters = ListParams::default().labels(&labels).limit(MAX_SLICES);
        let slices = call(slices.list(&parameters)).await?;
        let is_ready = slices.items.iter().any(has_ready_endpoint) || self.is_external(service).await?;
        self.are_ready.insert(key, is_ready);
        Ok(is_ready)
    }

    /// Returns true for a name outside of the cluster, which has no endpoints.
    async fn is_external(&self, service: &ServiceReference) -> Result<bool, ApiError> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace);
        match call(services.get_opt(&service.name)).await {
            Ok(found) => {
                let spec = found.and_then(|found| found.spec);
                Ok(spec.is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName")))
            }
            // A role of an earlier release lacks the right.
            Err(error) if error.is_forbidden() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn has_ready_endpoint(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().any(|endpoint| {
        let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
        // An unknown state counts as ready.
        ready != Some(false)
    })
}
