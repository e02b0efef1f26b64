//! Connections to the API servers of joined clusters.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::body::Body as ResponseBody;
use axum::http::{Request, Response, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use super::credential::{ClusterAccess, ClusterCredential};
use super::gateway;
use super::identities::IdentityKinds;
use crate::http::{API_SERVER, FetchError, Fetcher};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::write_fence::WriteFence;
use crate::runtime::kube_client::{
    ApiError, RemoteOptions, RemotePermits, RequestLimits, RequestTimeouts, connect_remote,
};

/// Includes DNS and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limits of requests until the head of their response.
pub(super) const HEAD_LIMITS: RequestTimeouts = RequestTimeouts {
    get: Duration::from_secs(5),
    list: Duration::from_secs(20),
    write: Duration::from_secs(10),
};
/// Time that a request has besides. A circuit must see the end of the limit of the head before the request is dropped.
const MARGIN: Duration = Duration::from_secs(1);
const INFLIGHT: usize = 32;
const PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(49);
const BURST: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// Sends requests to paths below the URL of a cluster, with its credential.
pub(super) type RemoteTransport = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A connection to a joined cluster that is up.
pub struct Connection {
    pub client: Client,
    /// The response of `GET /version`.
    pub version: Value,
    /// The identities that requests may have instead of the credential's.
    pub can_impersonate: IdentityKinds,
    /// Differs between connections.
    pub number: u64,
}

/// Returns the options of the clients of all clusters, which share them.
#[must_use]
pub fn remote_options(write_fence: Option<WriteFence>) -> RemoteOptions {
    RemoteOptions {
        limits: RequestLimits {
            inflight: INFLIGHT,
            per_second: Some(PER_SECOND),
            burst: Some(BURST),
            timeouts: Some(RequestTimeouts {
                get: HEAD_LIMITS.get + MARGIN,
                list: HEAD_LIMITS.list + MARGIN,
                write: HEAD_LIMITS.write + MARGIN,
            }),
        },
        write_fence,
        permits: RemotePermits::default(),
    }
}

/// Returns a client of a cluster, or the reason why there is none. Sends nothing yet.
///
/// The fetcher decides which addresses are allowed. `gateway` sends requests through cluster-gateway, and has no limits.
pub async fn connect(
    cluster: &str,
    access: ClusterAccess,
    fetcher: &Fetcher,
    gateway: &Client,
    requests: &RequestMetrics,
    options: &RemoteOptions,
) -> Result<Client, String> {
    let (transport, url) = match access {
        ClusterAccess::Direct(credential) => transport(*credential, fetcher).await?,
        ClusterAccess::Gateway => gateway::transport(gateway, cluster)?,
    };
    Ok(connect_remote(transport, &url, requests, options))
}

/// Same for the transport of a client, with the URL of the cluster.
pub(super) async fn transport(
    credential: ClusterCredential,
    fetcher: &Fetcher,
) -> Result<(RemoteTransport, Uri), String> {
    let ClusterCredential { endpoint, access } = credential;
    let url: Uri = match endpoint.as_str().parse() {
        Ok(url) => url,
        Err(error) => return Err(format!("endpoint is not a URL: {error}")),
    };
    let fetcher = fetcher.with(access).map_err(|error| refusal(&error))?;
    let transport = fetcher.transport(&endpoint, CONNECT_TIMEOUT).await;
    let transport = transport.map_err(|error| refusal(&error))?;
    let transport = ServiceExt::<Request<Body>>::map_response(transport, |response| response.map(ResponseBody::new));
    Ok((BoxCloneSyncService::new(transport), url))
}

fn refusal(error: &FetchError) -> String {
    match error {
        FetchError::InvalidUrl(problem) => format!("endpoint is not usable: {problem}"),
        FetchError::InvalidCa(problem) => format!("the authority (ca.crt or ca) {problem}; store certificates in PEM"),
        FetchError::InvalidCredentials => {
            "token contains characters that are not allowed in an HTTP header; check its value".to_owned()
        }
        FetchError::Client(problem) => format!("tls.crt and tls.key are not usable: {problem}"),
        FetchError::InvalidProxy { problem, .. } => format!("proxy-url is not usable: {problem}"),
        FetchError::AddressRefused { why, .. } if *why == API_SERVER => {
            format!("{error}; use the name local for the cluster of Portolan")
        }
        other => other.to_string(),
    }
}

/// Returns what failed in a request to a joined cluster, and what to do.
#[must_use]
pub fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Service(cause) => transport_failure(cause),
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

pub(super) fn transport_failure(cause: &BoxError) -> String {
    match cause.downcast_ref::<FetchError>() {
        Some(FetchError::Untrusted { host, detail }) => format!(
            "the certificate of {host} is not trusted: {detail}; check ca.crt or ca in the Secret, and the host name"
        ),
        Some(error) => error.to_string(),
        None => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::http::secret::Secret;
    use crate::http::{Access, Settings};

    fn credential(endpoint: &str) -> ClusterCredential {
        ClusterCredential {
            endpoint: endpoint.parse().unwrap(),
            access: Access::default(),
        }
    }

    async fn refused(credential: ClusterCredential) -> String {
        let fetcher = Fetcher::new(Settings::default()).unwrap();
        let problem = transport(credential, &fetcher).await.err().unwrap();
        assert!(!problem.contains("hunter2"), "{problem}");
        problem
    }

    #[tokio::test]
    async fn values_that_are_not_usable_are_named_before_a_connection() {
        let mut certificate = credential("https://10.0.0.1");
        certificate.access.client_certificate = Some(Secret::new("hunter2".to_owned()));
        let problem = refused(certificate).await;
        assert!(problem.starts_with("tls.crt and tls.key are not usable: "), "{problem}");
        let mut token = credential("https://10.0.0.1");
        token.access.authorization = Some(Secret::new("Bearer hunter2\nhunter2".to_owned()));
        assert!(refused(token).await.starts_with("token contains characters"));
        let mut authority = credential("https://10.0.0.1");
        authority.access.ca = Some(b"hunter2".to_vec());
        assert_eq!(
            refused(authority).await,
            "the authority (ca.crt or ca) contains no certificate; store certificates in PEM"
        );
        let problem = refused(credential("https://169.254.169.254")).await;
        assert!(problem.contains("it is link-local"), "{problem}");
    }

    #[test]
    fn an_endpoint_that_is_refused_is_named_as_such() {
        let problem = refusal(&FetchError::InvalidUrl("missing host".to_owned()));
        assert_eq!(problem, "endpoint is not usable: missing host");
    }

    #[test]
    fn failures_say_what_to_do() {
        let status = |code| {
            kube::Error::Api(Box::new(Status {
                code,
                message: "no".to_owned(),
                ..Status::default()
            }))
        };
        assert!(failure(&status(401)).ends_with("; renew it in the Secret"));
        assert_eq!(failure(&status(503)), "the API server returned 503: no");
        let untrusted = FetchError::Untrusted {
            host: "prod:6443".to_owned(),
            detail: "unknown issuer".to_owned(),
        };
        let failure = failure(&kube::Error::Service(Box::new(untrusted)));
        assert!(failure.contains("check ca.crt or ca in the Secret"), "{failure}");
    }
}
