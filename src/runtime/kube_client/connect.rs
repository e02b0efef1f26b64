//! Builds a client from a kubeconfig, the pod's service account or an address.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderValue, Uri, header::USER_AGENT};
use kube::client::ClientBuilder;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::layer::layer_fn;
use tower::util::MapResult;

use super::large_responses::LargeResponses;
use super::metrics::{CountedService, HostMetrics, RequestMetrics};
use super::outage::observe;
use super::request_limits::{RequestLimiter, RequestLimits};
use super::response_size::limit_responses;
use super::response_timeout::{ResponseTimeout, TimeoutService};
use super::write_fence::{FenceLayer, FencedService, WriteFence};

/// The maximum time between two reads of a response. The API server ends watches after 290 s.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// If `None`, the default locations or the service account of the pod apply.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// Overrides the address in the kubeconfig.
    pub apiserver: Option<Uri>,
    /// No limits if `None`.
    pub limits: Option<RequestLimits>,
    /// Refuses writes unless this process leads; none if it runs alone.
    pub write_fence: Option<WriteFence>,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConnectError(pub(super) String);

pub async fn connect(options: &ConnectOptions, requests: &RequestMetrics) -> Result<Client, ConnectError> {
    let config = prepared_config(options).await?;
    let host = host_label(&config.cluster_url);
    let builder = ClientBuilder::try_from(config).map_err(|error| unusable(&error))?;
    let builder = with_layers(builder, options.write_fence.clone(), HostMetrics { requests, host });
    let builder = builder.with_layer(&layer_fn(|service| MapResult::new(service, observe)));
    let limiter = options
        .limits
        .map(|limits| RequestLimiter::new(limits, requests.in_flight()));
    Ok(limit_responses(builder.build(), limiter, LargeResponses::local()))
}

/// Returns a client without limits, fence and metrics: the transport of clients that have their own.
pub async fn connect_transport(options: &ConnectOptions) -> Result<Client, ConnectError> {
    let config = prepared_config(options).await?;
    let builder = ClientBuilder::try_from(config).map_err(|error| unusable(&error))?;
    Ok(builder.build())
}

/// Returns a client without limits, that sends no credentials but those of each request.
pub async fn connect_without_credentials(
    options: &ConnectOptions,
    requests: &RequestMetrics,
) -> Result<Client, ConnectError> {
    let mut config = prepared_config(options).await?;
    // Also the certificate of a client: it would count instead of the token.
    config.auth_info = AuthInfo::default();
    let host = host_label(&config.cluster_url);
    let builder = ClientBuilder::try_from(config).map_err(|error| unusable(&error))?;
    Ok(with_layers(builder, options.write_fence.clone(), HostMetrics { requests, host }).build())
}

pub(super) fn unusable(error: &kube::Error) -> ConnectError {
    ConnectError(format!("failed to create a client for the API server: {error}"))
}

pub(super) async fn prepared_config(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let mut config = config(options).await?;
    // The work queue retries and logs; a client that retries silently only holds a worker.
    config.default_retry = false;
    // Otherwise, a list without a response would stop the watch.
    config.read_timeout = Some(READ_TIMEOUT);
    let user_agent = concat!("portolan/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(config)
}

/// Adds what clients of all API servers have.
pub(super) fn with_layers<S>(
    builder: ClientBuilder<S>,
    write_fence: Option<WriteFence>,
    metrics: HostMetrics<'_>,
) -> ClientBuilder<CountedService<TimeoutService<FencedService<S>>>> {
    // The fence comes last: a request may wait in all others.
    builder
        .with_layer(&FenceLayer(write_fence))
        .with_layer(&ResponseTimeout::default())
        .with_layer(&metrics)
}

/// Returns host and port as in client-go's label, without user information.
pub(super) fn host_label(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

pub async fn api_server_endpoint(options: &ConnectOptions) -> Result<(String, u16), ConnectError> {
    let url = config(options).await?.cluster_url;
    let default_port = if url.scheme_str() == Some("http") { 80 } else { 443 };
    let host = url.host().unwrap_or_default().to_owned();
    Ok((host, url.port_u16().unwrap_or(default_port)))
}

/// Returns host and port of the API server if this process runs in a pod.
pub fn api_server_of_pod() -> Option<(String, u16)> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST")
        .ok()
        .filter(|host| !host.is_empty())?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT")
        .ok()
        .and_then(|port| port.parse().ok());
    Some((host, port.unwrap_or(443)))
}

pub(super) async fn config(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let kube_options = KubeConfigOptions {
        context: options.context.clone(),
        ..KubeConfigOptions::default()
    };
    let file = options.kubeconfig.as_deref();
    let invalid = |error: KubeconfigError| {
        let file = file.map_or_else(String::new, |file| format!(" {}", file.display()));
        ConnectError(format!("cannot use kubeconfig{file}: {error}"))
    };
    let config = if let Some(file) = file {
        let kubeconfig = Kubeconfig::read_from(file).map_err(invalid)?;
        Config::from_custom_kubeconfig(kubeconfig, &kube_options)
            .await
            .map_err(invalid)
    } else if options.context.is_some() {
        Config::from_kubeconfig(&kube_options).await.map_err(invalid)
    } else {
        Config::infer().await.map_err(|error| {
            ConnectError(format!(
                "no API server configured: {error}; set --kubeconfig, run in a pod, or use --manifests DIR"
            ))
        })
    };
    match (config, &options.apiserver) {
        (Ok(config), None) => Ok(config),
        (Ok(mut config), Some(cluster_url)) => {
            config.cluster_url = cluster_url.clone();
            Ok(config)
        }
        // As with kubectl, an address is enough if the API server asks for no credentials.
        (Err(_), Some(cluster_url)) if file.is_none() && options.context.is_none() => {
            Ok(Config::new(cluster_url.clone()))
        }
        (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::budget::ResourceMetrics;

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: 'https://one.example:6443'}}
- {name: two, cluster: {server: 'https://two.example:6443'}}
users: [{name: u, user: {token: t}}]
contexts:
- {name: one, context: {cluster: one, user: u, namespace: here}}
- {name: two, context: {cluster: two, user: u}}
";

    #[tokio::test]
    async fn context_and_address_of_the_options_override_the_kubeconfig() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, KUBECONFIG).unwrap();
        let options = ConnectOptions {
            kubeconfig: Some(file),
            ..ConnectOptions::default()
        };
        let one = config(&options).await.unwrap();
        assert_eq!(
            (one.cluster_url.host(), one.default_namespace.as_str()),
            (Some("one.example"), "here")
        );
        let two = config(&ConnectOptions {
            context: Some("two".into()),
            ..options.clone()
        })
        .await
        .unwrap();
        assert_eq!(two.cluster_url.host(), Some("two.example"));
        let other = config(&ConnectOptions {
            apiserver: Some(Uri::from_static("https://127.0.0.1:1")),
            ..options
        })
        .await
        .unwrap();
        assert_eq!(other.cluster_url.port_u16(), Some(1));
    }

    #[tokio::test]
    async fn requests_are_counted_with_the_host_of_the_api_server() {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry, ResourceMetrics::unregistered());
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        fs::write(&file, KUBECONFIG).unwrap();
        let options = ConnectOptions {
            kubeconfig: Some(file),
            // Nothing listens there.
            apiserver: Some(Uri::from_static("http://me:hunter2@127.0.0.1:1")),
            ..ConnectOptions::default()
        };
        let client = connect(&options, &requests).await.unwrap();
        client.apiserver_version().await.unwrap_err();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let series = "rest_client_requests_total{code=\"<error>\",host=\"127.0.0.1:1\",method=\"GET\"} 1";
        assert!(text.contains(series), "{text}");
    }

    #[tokio::test]
    async fn an_error_names_the_missing_kubeconfig() {
        let options = ConnectOptions {
            kubeconfig: Some("/nowhere/config".into()),
            ..ConnectOptions::default()
        };
        let error = config(&options).await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/config"), "{error}");
    }
}
