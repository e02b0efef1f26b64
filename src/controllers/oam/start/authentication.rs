//! The webhook that writes and protects the identities of Applications. Without it, the feature gate
//! `AuthenticateApplication` lets authors of Applications choose any user.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use url::Url;

use super::webhooks::{MAX_CONFIGURATIONS, WebhookServices, is_of_service};
use crate::api::oam::GROUP;
use crate::controllers::Task;
use crate::controllers::oam::WebhookOptions;
use crate::controllers::oam::metrics::OamMetrics;
use crate::runtime::kube_client::{ApiError, call};

const RESOURCE: &str = "applications";
const VERSION: &str = "v1beta1";
/// The policy of failures that refuses writes, and the default.
const FAIL: &str = "Fail";
const PERIOD: Duration = Duration::from_mins(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub const UNPROTECTED: &str = "feature gate AuthenticateApplication needs a mutating webhook for Applications with endpoints, \
     which writes and protects the annotations app.oam.dev/username and app.oam.dev/group; install one that names \
     core.oam.dev and applications, has failurePolicy Fail and neither selectors nor matchConditions, or accept what authors \
     of Applications write there with --trust-identity-annotations";

/// The webhook is called for all writes to Applications, and answers. That of `served`, the webhooks of this process, does
/// not need endpoints: they come once the process is ready. Returns its configuration and name.
pub async fn find_protection(client: &Client, served: Option<&WebhookOptions>) -> Result<Option<String>, ApiError> {
    let parameters = ListParams::default().limit(MAX_CONFIGURATIONS);
    let configurations = call(Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&parameters)).await?;
    let mut services = WebhookServices::new(client);
    for configuration in configurations {
        for webhook in configuration
            .webhooks
            .iter()
            .flatten()
            .filter(|webhook| is_called(webhook))
        {
            let service = webhook.client_config.service.as_ref();
            let is_ours = service
                .zip(served)
                .is_some_and(|(service, served)| is_of_service(service, served));
            if is_ours || is_served(webhook, &mut services).await? {
                return Ok(Some(format!("{}/{}", configuration.name_any(), webhook.name)));
            }
        }
    }
    Ok(None)
}

/// Ignores webhooks for all kinds, as policy engines have. Requires all writes, and a failure policy that refuses.
fn is_called(webhook: &MutatingWebhook) -> bool {
    let is_always_called = [&webhook.namespace_selector, &webhook.object_selector]
        .into_iter()
        .flatten()
        .all(selects_all)
        && webhook.match_conditions.iter().flatten().next().is_none();
    let rules = || webhook.rules.iter().flatten();
    is_always_called
        && webhook.failure_policy.as_deref().unwrap_or(FAIL) == FAIL
        && ["CREATE", "UPDATE"]
            .iter()
            .all(|operation| rules().any(|rule| covers(rule, operation)))
}

fn selects_all(selector: &LabelSelector) -> bool {
    selector.match_labels.iter().flatten().next().is_none()
        && selector.match_expressions.iter().flatten().next().is_none()
}

fn covers(rule: &RuleWithOperations, operation: &str) -> bool {
    let names = |list: &Option<Vec<String>>, name: &str| list.iter().flatten().any(|entry| entry == name);
    let includes = |list: &Option<Vec<String>>, name: &str| names(list, "*") || names(list, name);
    names(&rule.api_groups, GROUP)
        && names(&rule.resources, RESOURCE)
        && includes(&rule.api_versions, VERSION)
        && includes(&rule.operations, operation)
        && rule.scope.as_deref() != Some("Cluster")
}

async fn is_served(webhook: &MutatingWebhook, services: &mut WebhookServices<'_>) -> Result<bool, ApiError> {
    match (&webhook.client_config.service, &webhook.client_config.url) {
        (Some(service), _) => services.is_ready(service).await,
        (None, Some(url)) => Ok(accepts_connections(url).await),
        (None, None) => Ok(false),
    }
}

async fn accepts_connections(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let Some((host, port)) = url.host_str().zip(url.port_or_known_default()) else {
        return false;
    };
    let address = (host.trim_matches(['[', ']']), port);
    matches!(timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Returns a task that warns, and sets a metric, while no webhook protects identities.
#[must_use]
pub fn watch_task(client: Client, metrics: OamMetrics, served: Option<WebhookOptions>) -> Task {
    async move {
        let mut was_protected = true;
        loop {
            match find_protection(&client, served.as_ref()).await {
                Ok(protection) => {
                    let is_protected = protection.is_some();
                    metrics.set_identities_unprotected(!is_protected);
                    match (was_protected, is_protected) {
                        (true, false) => tracing::warn!("{UNPROTECTED}"),
                        (false, true) => tracing::info!("a webhook protects identities again"),
                        _ => {}
                    }
                    was_protected = is_protected;
                }
                Err(error) => tracing::warn!(%error, "failed to look for the webhook that protects identities"),
            }
            sleep(PERIOD).await;
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;

    fn rule(groups: &[&str], resources: &[&str], operations: &[&str]) -> Value {
        json!({ "apiGroups": groups, "apiVersions": ["v1beta1"], "resources": resources, "operations": operations })
    }

    #[rstest]
    #[case::kubevelas(&[rule(&["core.oam.dev"], &["applications"], &["CREATE", "UPDATE"])], true)]
    #[case::of_everything(&[rule(&["*"], &["*"], &["*"])], false)]
    #[case::of_all_resources_of_the_group(&[rule(&["core.oam.dev"], &["*"], &["*"])], false)]
    #[case::of_all_groups(&[rule(&["*"], &["applications"], &["*"])], false)]
    #[case::for_all_operations(&[rule(&["core.oam.dev"], &["applications"], &["*"])], true)]
    #[case::in_two_rules(
        &[rule(&["core.oam.dev"], &["applications"], &["CREATE"]), rule(&["core.oam.dev"], &["applications"], &["UPDATE"])],
        true
    )]
    #[case::without_updates(&[rule(&["core.oam.dev"], &["applications"], &["CREATE"])], false)]
    #[case::of_definitions(&[rule(&["core.oam.dev"], &["componentdefinitions"], &["*"])], false)]
    #[case::of_another_group(&[rule(&["app.k8s.io"], &["applications"], &["*"])], false)]
    #[case::without_rules(&[], false)]
    fn a_webhook_that_protects_is_called_for_all_writes_to_applications(
        #[case] rules: &[Value],
        #[case] expected: bool,
    ) {
        let webhook = json!({
            "name": "w", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}, "rules": rules,
        });
        assert_eq!(is_called(&serde_json::from_value(webhook).unwrap()), expected);
    }

    /// KubeVela's chart renders `Ignore`, and turns it to `Fail` after the installation.
    #[rstest]
    #[case::as_kubevelas(json!({ "failurePolicy": "Fail", "namespaceSelector": {}, "objectSelector": {} }), true)]
    #[case::by_default(json!({}), true)]
    #[case::that_may_fail(json!({ "failurePolicy": "Ignore" }), false)]
    #[case::in_some_namespaces(json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } }), false)]
    #[case::for_some_objects(
        json!({ "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "Exists" }] } }),
        false
    )]
    #[case::on_conditions(json!({ "matchConditions": [{ "name": "c", "expression": "true" }] }), false)]
    #[case::of_another_version(
        json!({ "rules": [{ "apiGroups": ["core.oam.dev"], "apiVersions": ["v1alpha2"], "resources": ["applications"],
            "operations": ["*"] }] }),
        false
    )]
    #[case::for_cluster_scoped_objects(
        json!({ "rules": [{ "apiGroups": ["core.oam.dev"], "apiVersions": ["*"], "resources": ["applications"],
            "operations": ["*"], "scope": "Cluster" }] }),
        false
    )]
    fn a_webhook_that_protects_lets_no_application_pass(#[case] settings: Value, #[case] expected: bool) {
        let mut webhook = json!({
            "name": "w", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {},
            "rules": [rule(&["core.oam.dev"], &["applications"], &["CREATE", "UPDATE"])],
        });
        webhook
            .as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        assert_eq!(is_called(&serde_json::from_value(webhook).unwrap()), expected);
    }

    #[tokio::test]
    async fn a_url_counts_if_something_listens_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/mutate", listener.local_addr().unwrap());
        assert!(accepts_connections(&url).await);
        drop(listener);
        assert!(!accepts_connections(&url).await);
        assert!(!accepts_connections("https:///x").await);
    }
}
