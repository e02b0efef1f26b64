//! Requests to a cluster that is not connected yet, or not any more. They pass no circuit, and read little.

use std::time::Duration;

use axum::body::to_bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tokio::time::timeout;
use tower::ServiceExt;

use super::circuit::NoResponse;
use super::connection::{RemoteTransport, failure};
use super::identities::IdentityKinds;
use crate::runtime::kube_client::review::{SELF_REVIEWS, self_review};

/// The time limit of a request, with its response.
const LIMIT: Duration = Duration::from_secs(5);
/// In bytes.
const MAX_RESPONSE: usize = 64 << 10;
/// Its UID identifies a cluster.
pub(super) const SYSTEM_NAMESPACE: &str = "kube-system";

pub(super) struct Answers {
    pub(super) version: Value,
    pub(super) can_impersonate: IdentityKinds,
    /// The UID of the namespace; `None` if the credential may not read it.
    pub(super) system_uid: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("the response is not that of an API server; check the endpoint")]
struct NotAnApiServer;

/// Asks all that a connection needs.
pub(super) async fn answers(transport: &RemoteTransport) -> Result<Answers, String> {
    let version = version(transport).await?;
    let (can_impersonate, system_uid) = futures::join!(can_impersonate(transport), system_uid(transport));
    Ok(Answers {
        version,
        can_impersonate: can_impersonate?,
        system_uid,
    })
}

pub(super) async fn version(transport: &RemoteTransport) -> Result<Value, String> {
    send(transport, "/version", None).await.map_err(|error| failure(&error))
}

/// An answer that is no refusal fails the attempt: without impersonation, users have the rights of the credential. So does
/// a credential that is not accepted: anyone may read the version.
///
/// The right to impersonate some by name is no right: who is impersonated is not known here.
pub(super) async fn can_impersonate(transport: &RemoteTransport) -> Result<IdentityKinds, String> {
    let [users, groups, service_accounts] = IdentityKinds::RESOURCES.map(|kind| may_impersonate(transport, kind));
    let (users, groups, service_accounts) = futures::try_join!(users, groups, service_accounts)?;
    Ok(IdentityKinds::of([users, groups, service_accounts]))
}

async fn may_impersonate(transport: &RemoteTransport, resource: &str) -> Result<bool, String> {
    let review = self_review("impersonate", "", resource);
    match send(transport, SELF_REVIEWS, Some(&review)).await {
        Ok(reviewed) => Ok(reviewed.pointer("/status/allowed").and_then(Value::as_bool) == Some(true)),
        Err(kube::Error::Api(status)) if matches!(status.code, 403..=405) => Ok(false),
        Err(error) => Err(failure(&error)),
    }
}

async fn system_uid(transport: &RemoteTransport) -> Option<String> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}");
    let namespace = send(transport, &path, None).await.ok()?;
    namespace.pointer("/metadata/uid")?.as_str().map(ToOwned::to_owned)
}

/// Gets a path, or posts a review. Returns the JSON object of the response.
async fn send(
    transport: &RemoteTransport,
    path: &str,
    review: Option<&SelfSubjectAccessReview>,
) -> Result<Value, kube::Error> {
    let request = match review {
        None => Request::get(path).body(Body::empty()),
        Some(review) => {
            let body = serde_json::to_vec(review).map_err(kube::Error::SerdeError)?;
            let request = Request::post(path).header(CONTENT_TYPE, "application/json");
            request.body(Body::from(body))
        }
    };
    let request = request.map_err(kube::Error::HttpError)?;
    match timeout(LIMIT, exchange(transport, request)).await {
        Ok(object) => object,
        Err(_) => Err(kube::Error::Service(Box::new(NoResponse(LIMIT)))),
    }
}

async fn exchange(transport: &RemoteTransport, request: Request<Body>) -> Result<Value, kube::Error> {
    let response = transport.clone().oneshot(request).await;
    let (head, body) = response.map_err(kube::Error::Service)?.into_parts();
    let body = to_bytes(body, MAX_RESPONSE).await;
    let object: Option<Value> = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
    let object = object.filter(Value::is_object);
    if head.status.is_success() {
        return object.ok_or_else(|| kube::Error::Service(Box::new(NotAnApiServer)));
    }
    Err(kube::Error::Api(Box::new(Status {
        code: head.status.as_u16(),
        message: message(head.status, object.as_ref()),
        ..Status::default()
    })))
}

fn message(status: StatusCode, object: Option<&Value>) -> String {
    let message = object.and_then(|object| object.get("message")?.as_str());
    let reason = || status.canonical_reason().unwrap_or("no message");
    message.unwrap_or_else(reason).to_owned()
}
