//! Connections to the API servers of joined clusters.

use std::time::Duration;

use axum::http::Uri;
use kube::Client;

use super::credential::ClusterCredential;
use crate::http::{FetchError, Fetcher};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{ApiError, connect_remote};

/// Includes DNS and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a client of a cluster, or the reason why there is none. Sends nothing yet.
///
/// The fetcher decides which addresses are allowed.
pub async fn connect(
    credential: ClusterCredential,
    fetcher: &Fetcher,
    requests: &RequestMetrics,
) -> Result<Client, String> {
    let ClusterCredential { endpoint, access } = credential;
    let url: Uri = match endpoint.as_str().parse() {
        Ok(url) => url,
        Err(error) => return Err(format!("endpoint is not a URL: {error}")),
    };
    let fetcher = fetcher.with(access).map_err(|error| refusal(&error))?;
    let transport = fetcher.transport(&endpoint, CONNECT_TIMEOUT).await;
    let transport = transport.map_err(|error| refusal(&error))?;
    Ok(connect_remote(transport, &url, requests))
}

fn refusal(error: &FetchError) -> String {
    match error {
        FetchError::InvalidCa(problem) => format!("ca.crt {problem}; store certificates in PEM"),
        FetchError::InvalidCredentials => {
            "token contains characters that are not allowed in an HTTP header; check its value".to_owned()
        }
        FetchError::Client(problem) => format!("tls.crt and tls.key are not usable: {problem}"),
        FetchError::InvalidProxy { problem, .. } => format!("proxy-url is not usable: {problem}"),
        other => other.to_string(),
    }
}

/// Returns what failed in a request to a joined cluster, and what to do.
#[must_use]
pub fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Service(cause) => match cause.downcast_ref::<FetchError>() {
            Some(FetchError::Untrusted { host, detail }) => format!(
                "the certificate of {host} is not trusted: {detail}; check ca.crt in the Secret and the host name"
            ),
            Some(error) => error.to_string(),
            None => cause.to_string(),
        },
        kube::Error::Api(status) if status.code == 401 => {
            "the API server does not accept the credential; renew it in the Secret".to_owned()
        }
        kube::Error::Api(status) => {
            let error = ApiError::from(error);
            format!("the API server returned {}: {error}", status.code)
        }
        other => ApiError::from(other).to_string(),
    }
}
