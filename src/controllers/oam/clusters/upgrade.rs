//! The Secrets of clusters that KubeVela 1.1 joined, which lack the label of the credential type.

use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::sleep;

use super::credential::X509_CERTIFICATE;
use super::registry::JoinedClusters;
use super::{CREDENTIAL_TYPE, MAX_CLUSTERS};
use crate::runtime::kube_client::{ApiError, call};

const OLD_LABEL: &str = "cluster.core.oam.dev/cluster-credential";
/// KubeVela upgrades no others: it joined clusters with certificates only.
const TYPE: &str = "type=kubernetes.io/tls";
const RETRY: Duration = Duration::from_secs(30);

impl JoinedClusters {
    /// Adds the label once, with a warning for each Secret that may not be changed. Only the leader may call it. Never
    /// returns.
    pub async fn upgrade_secrets(self) {
        let secrets = self.secrets();
        while let Err(error) = upgrade(&secrets).await {
            if !error.is_retryable() {
                tracing::warn!(%error, "failed to look for Secrets of clusters with label {OLD_LABEL}");
                break;
            }
            sleep(RETRY).await;
        }
        pending().await
    }
}

async fn upgrade(secrets: &Api<Secret>) -> Result<(), ApiError> {
    let old = ListParams::default().labels(&format!("{OLD_LABEL},!{CREDENTIAL_TYPE}"));
    let listed = call(secrets.list_metadata(&old.fields(TYPE).limit(MAX_CLUSTERS))).await?;
    let patch = json!({ "metadata": { "labels": { CREDENTIAL_TYPE: X509_CERTIFICATE } } });
    for secret in listed.items {
        let cluster = secret.name_any();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        match call(secrets.patch_metadata(&cluster, &parameters, &patch)).await {
            Ok(_) => tracing::info!(
                cluster,
                "added label {CREDENTIAL_TYPE} to the Secret of an older KubeVela"
            ),
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => tracing::warn!(
                cluster,
                %error,
                "cluster is not joined: its Secret of an older KubeVela lacks label \
                 {CREDENTIAL_TYPE}={X509_CERTIFICATE}, which Portolan may not add"
            ),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tracing::Level;

    use super::*;
    use crate::trace::log_lines::LogLines;

    type Requests = Arc<Mutex<Vec<String>>>;

    /// Returns the Secrets of an API server with two old ones, of which `b` may not be changed.
    fn secrets() -> (Api<Secret>, Requests) {
        let requests = Requests::default();
        let record = Arc::clone(&requests);
        let server = tower::service_fn(move |request: Request<Body>| {
            let record = Arc::clone(&record);
            async move {
                let (head, body) = request.into_parts();
                let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
                record.lock().push(format!("{} {} {body}", head.method, head.uri));
                let is_refused = head.uri.path().ends_with("/b");
                let (code, object) = match head.method {
                    Method::GET => {
                        let items = json!([{ "metadata": { "name": "b" } }, { "metadata": { "name": "a" } }]);
                        (200, json!({ "metadata": {}, "items": items }))
                    }
                    _ if is_refused => (403, json!({ "code": 403, "message": "secrets \"b\" is forbidden" })),
                    _ => (200, json!({ "metadata": { "name": "a" } })),
                };
                let response = Response::builder().status(code);
                let response = response.body(Body::from(object.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        (Api::namespaced(Client::new(server, "default"), "vela-system"), requests)
    }

    #[tokio::test]
    async fn old_secrets_get_the_label_and_one_that_may_not_be_changed_is_named() {
        let (log, _logging) = LogLines::start(Level::WARN);
        let (secrets, requests) = secrets();
        upgrade(&secrets).await.unwrap();
        let requests = requests.lock();
        let selectors = [
            "labelSelector=cluster.core.oam.dev%2Fcluster-credential%2C%21",
            "fieldSelector=type%3D",
        ];
        assert!(
            selectors.iter().all(|selector| requests[0].contains(selector)),
            "{requests:?}"
        );
        let label =
            "{\"metadata\":{\"labels\":{\"cluster.core.oam.dev/cluster-credential-type\":\"X509Certificate\"}}}";
        assert!(
            requests[2].starts_with("PATCH") && requests[2].contains("/a?") && requests[2].ends_with(label),
            "{requests:?}"
        );
        let lines = log.lines();
        assert!(
            lines.len() == 1 && lines[0].contains("secrets \"b\" is forbidden"),
            "{lines:?}"
        );
    }
}
