//! Webhook configurations whose webhooks nothing serves any more: they would refuse to let finalizers go.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::DeleteParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::pages::retry;
use super::{Log, StepOutcome, UninstallOptions};
use crate::runtime::kube_client::call;

/// Deletes the configurations of both kinds.
pub(super) async fn delete(client: &Client, options: &UninstallOptions, log: &Log<'_>) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    if let Some(name) = &options.webhook_configuration {
        delete_of_kind::<MutatingWebhookConfiguration>(client, name, options, log, &mut outcome).await;
        delete_of_kind::<ValidatingWebhookConfiguration>(client, name, options, log, &mut outcome).await;
    }
    outcome
}

async fn delete_of_kind<K>(
    client: &Client,
    name: &str,
    options: &UninstallOptions,
    log: &Log<'_>,
    outcome: &mut StepOutcome,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let parameters = DeleteParams {
        dry_run: options.dry_run,
        ..DeleteParams::default()
    };
    match retry(|| call(api.delete(name, &parameters))).await {
        Ok(_) => outcome.done += 1,
        Err(error) if error.is_not_found() => {}
        Err(error) => outcome.fail(log, format!("failed to delete {} {name}: {error}", K::kind(&()))),
    }
}
