//! Requests to clusters behind cluster-gateway, by the aggregated API of Portolan's own API server.
//!
//! ```text
//!  /api/v1/pods ─► /apis/cluster.core.oam.dev/v1alpha1/clustergateways/NAME/proxy/api/v1/pods ─► cluster-gateway ─► cluster
//! ```
//! The own API server takes the headers of impersonation: it checks the right of the user to `clustergateways/proxy`, and
//! tells cluster-gateway who asks. The query stays as it is; cluster-gateway before 1.7 refuses `dryRun`.

use std::sync::Arc;

use axum::body::{Body as ResponseBody, to_bytes};
use axum::http::{Request, Response, StatusCode, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use super::connection::RemoteTransport;
use crate::runtime::kube_client::ApiError;

const API: &str = "/apis/cluster.core.oam.dev/v1alpha1";
const GROUP: &str = "cluster.core.oam.dev";
const RESOURCE: &str = "clustergateways";
/// In bytes. An object is not found in fewer words.
const MAX_STATUS: usize = 64 << 10;

/// A response that does not come from the cluster, so that it says nothing about objects there.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    #[error(
        "the API server of Portolan does not serve cluster.core.oam.dev/v1alpha1; install cluster-gateway, or join the \
         cluster with endpoint type Const"
    )]
    NotServed,
    #[error("cluster-gateway does not know the cluster: {0}")]
    UnknownCluster(String),
    #[error("cluster-gateway does not respond, the API server of Portolan returned {0}; check its Deployment")]
    NotAvailable(u16),
    #[error("failed to send a request through the API server of Portolan: {0}")]
    NotSent(String),
}

/// Returns the transport to a cluster, with a URL whose host is the name of the cluster. `client` has no limits: those of
/// other clusters must not hold permits of the API server.
pub(super) fn transport(client: &Client, cluster: &str) -> Result<(RemoteTransport, Uri), String> {
    let url = format!("https://{cluster}").parse::<Uri>();
    let url = url.map_err(|error| format!("its name is no host name: {error}"))?;
    let prefix: Arc<str> = format!("{API}/{RESOURCE}/{cluster}/proxy").into();
    let client = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, prefix) = (client.clone(), Arc::clone(&prefix));
        async move { send(&client, &prefix, request).await }
    });
    Ok((BoxCloneSyncService::new(service), url))
}

async fn send(client: &Client, prefix: &str, mut request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = format!("{prefix}{path}").parse()?;
    let response = client.send(request).await.map_err(|error| not_sent(&error))?;
    match response.status() {
        StatusCode::NOT_FOUND => of_cluster(client, response).await,
        status if is_of_aggregator(status) && !is_json(&response) => {
            Err(GatewayError::NotAvailable(status.as_u16()).into())
        }
        _ => Ok(response.map(ResponseBody::new)),
    }
}

/// Returns a response that something is not found, unless that is cluster-gateway or the cluster. Objects would count as
/// deleted otherwise.
async fn of_cluster(client: &Client, response: Response<Body>) -> Result<Response<ResponseBody>, BoxError> {
    let (head, body) = response.into_parts();
    let body = to_bytes(ResponseBody::new(body), MAX_STATUS).await?;
    match serde_json::from_slice::<Value>(&body) {
        Ok(status) if is_of_gateway(&status) => {
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            return Err(GatewayError::UnknownCluster(message).into());
        }
        Ok(_) => {}
        // API servers write no JSON for paths that they do not serve.
        Err(_) => check_served(client).await?,
    }
    Ok(Response::from_parts(head, ResponseBody::from(body)))
}

fn is_of_gateway(status: &Value) -> bool {
    let details = &status["details"];
    details["group"] == GROUP && details["kind"] == RESOURCE
}

async fn check_served(client: &Client) -> Result<(), GatewayError> {
    let request = Request::get(API).body(Body::empty());
    let request = request.map_err(|error| GatewayError::NotSent(error.to_string()))?;
    let response = client.send(request).await.map_err(|error| not_sent(&error))?;
    match response.status() {
        StatusCode::NOT_FOUND => Err(GatewayError::NotServed),
        status if is_of_aggregator(status) => Err(GatewayError::NotAvailable(status.as_u16())),
        _ => Ok(()),
    }
}

/// Returns true for statuses by which the API server says that an aggregated API server does not respond.
fn is_of_aggregator(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

fn is_json(response: &Response<Body>) -> bool {
    let type_ = response.headers().get("content-type");
    type_.is_some_and(|type_| type_.as_bytes().starts_with(b"application/json"))
}

fn not_sent(error: &kube::Error) -> GatewayError {
    GatewayError::NotSent(ApiError::from(error).to_string())
}

#[cfg(test)]
mod tests;
