//! Reads a Secret from the API server. Its content is never logged.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;

use crate::api::NamespacedName;
use crate::runtime::kube_client::call;
use crate::runtime::manifests::SecretContent;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretReadError {
    #[error("not allowed to read it: grant the service account the verb get on secrets")]
    Forbidden,
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Unavailable(String),
}

#[derive(Deserialize)]
struct WireSecret {
    metadata: WireMetadata,
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

/// Reads a Secret; `None` if it does not exist. The name must be a valid object name.
pub async fn read(client: &Client, name: &NamespacedName) -> Result<Option<SecretContent>, SecretReadError> {
    let path = Secret::url_path(&(), Some(&name.namespace));
    let request = Request::new(path)
        .get(&name.name, &GetParams::default())
        .map_err(|error| SecretReadError::Unavailable(error.to_string()))?;
    // As text: the client would log the whole response if it could not decode it.
    let text = match call(client.request_text(request)).await {
        Ok(text) => text,
        Err(error) => {
            let problem = match error.code {
                Some(404) => return Ok(None),
                Some(403) => return Err(SecretReadError::Forbidden),
                Some(_) => "API server rejected the request",
                None => "request to the API server failed",
            };
            return Err(SecretReadError::Unavailable(format!("{problem}: {error}")));
        }
    };
    // The decoder's message may quote the content.
    let secret: WireSecret = serde_json::from_str(&text)
        .map_err(|_| SecretReadError::Unavailable("the response of the API server is not a Secret".to_owned()))?;
    let values = secret.data.unwrap_or_default().into_iter();
    Ok(Some(SecretContent {
        version: format!("{}.{}", secret.metadata.uid, secret.metadata.resource_version),
        data: values.map(|(key, ByteString(value))| (key, value)).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;
    use tracing::Level;

    use super::*;
    use crate::trace::log_lines::LogLines;

    fn name() -> NamespacedName {
        NamespacedName {
            namespace: "team-a".to_owned(),
            name: "auth".to_owned(),
        }
    }

    /// Returns a client whose API server always sends this response.
    fn answering(status: u16, body: &str) -> Client {
        let body = body.to_owned();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            assert_eq!(request.uri(), "/api/v1/namespaces/team-a/secrets/auth");
            let answer = http::Response::builder()
                .status(status)
                .body(Body::from(body.clone().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
        });
        Client::new(service, "default")
    }

    fn refusal(code: u16) -> String {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "refused", "code": code })
            .to_string()
    }

    #[tokio::test]
    async fn values_and_version_are_read() {
        let secret = json!({
            "metadata": { "uid": "u", "resourceVersion": "7", "annotations": { "a": "b" } },
            "data": { "token": "aHVzaA==" }, "type": "Opaque",
        });
        let content = read(&answering(200, &secret.to_string()), &name())
            .await
            .ok()
            .flatten()
            .unwrap();
        assert_eq!(content.version, "u.7");
        assert_eq!(content.data, BTreeMap::from([("token".to_owned(), b"hush".to_vec())]));
    }

    #[rstest]
    #[case(404, None)]
    #[case(403, Some(false))]
    #[case(401, Some(true))]
    #[case(429, Some(true))]
    #[case(500, Some(true))]
    #[tokio::test]
    async fn an_error_status_means_not_found_forbidden_or_transient(#[case] code: u16, #[case] may_pass: Option<bool>) {
        let read = read(&answering(code, &refusal(code)), &name()).await;
        match may_pass {
            None => assert!(matches!(read, Ok(None))),
            Some(may_pass) => {
                let error = read.err().unwrap();
                assert_eq!(matches!(error, SecretReadError::Unavailable(_)), may_pass, "{error:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_response_times_out() {
        let never = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let error = read(&Client::new(never, "default"), &name()).await.err().unwrap();
        assert!(
            matches!(&error, SecretReadError::Unavailable(cause) if cause.contains("30s")),
            "{error:?}"
        );
    }

    #[rstest]
    #[case(json!({ "metadata": {}, "data": { "token": ["hush"] } }).to_string())]
    #[case(json!({ "metadata": {}, "data": { "token": "hush%" } }).to_string())]
    #[case(json!({ "metadata": {}, "data": "hush" }).to_string())]
    #[case("hush".to_owned())]
    #[tokio::test]
    async fn a_response_that_can_t_be_decoded_is_not_logged(#[case] answer: String) {
        let (log, logging) = LogLines::start(Level::TRACE);
        let error = read(&answering(200, &answer), &name()).await.err().unwrap();
        tracing::info!("the log is kept");
        drop(logging);
        let logged = log.text();
        assert!(
            logged.contains("the log is kept") && !logged.contains("hush"),
            "{logged}"
        );
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
}
