//! Applications (core.oam.dev) that webhooks review: deployed, changed and deleted as without them, one changed by a webhook,
//! and one refused.

use serde_json::{Value, json};

use super::environment::{DEADLINE, Environment};
use super::kubevela::{self, KIND, deploy};
use crate::oam_apps::apps::config;
use crate::oam_webhooks::site::{Reviewed, SERVICE};
use crate::support::eventually::eventually;

/// No write passes without a review.
pub async fn reviewed() -> Reviewed {
    let reviewed = Reviewed::new("Fail").await;
    // Processes of other runs would warn of a Service without endpoints.
    let slice = json!({
        "metadata": { "labels": { "kubernetes.io/service-name": SERVICE } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.1"] }],
    });
    reviewed
        .site
        .apply("discovery.k8s.io/v1 EndpointSlice", SERVICE, slice)
        .await;
    reviewed
}

pub fn arguments(environment: &Environment) -> Vec<String> {
    let reviewed = environment.reviewed.as_ref().expect("webhooks are configured");
    let mut arguments = kubevela::arguments(environment);
    arguments.extend(reviewed.flags());
    arguments
}

pub async fn drive(environment: &Environment) {
    kubevela::drive(environment).await;
    let workflow = |steps: Value| json!({ "components": [config("named", "one")], "workflow": { "steps": steps } });
    // A webhook names the step.
    let step = json!({ "type": "apply-component", "properties": { "component": "named" } });
    deploy(environment, "named", workflow(json!([step]))).await;

    let suspend = json!({ "type": "suspend", "name": "same" });
    let twice = json!({ "spec": workflow(json!([suspend, suspend])) });
    eventually(
        DEADLINE,
        "an invalid Application to be refused",
        async || match environment.try_apply(KIND, "invalid", twice.clone()).await {
            Err(kube::Error::Api(status)) if status.message.contains("duplicated step name") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
}
