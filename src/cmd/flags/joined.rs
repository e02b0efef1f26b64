//! Connections of commands to joined clusters.

use std::fmt::Display;

use axum::http::{Request, header::CONTENT_TYPE};
use clap::Args;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::ClusterFlags;
use super::fetch::AddressFlags;
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::clusters::connection::{connect, failure, remote_options};
use crate::controllers::oam::clusters::credential::ClusterAccess;
use crate::http::{Fetcher, Settings};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::review::{SELF_REVIEWS, self_review};
use crate::runtime::kube_client::{RemoteOptions, api_server_endpoint, api_server_of_pod, connect_transport};

const VERSION: &str = "/version";

/// The joined clusters that a command accepts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Joined clusters")]
pub struct ConnectorFlags {
    /// Accept joined clusters without ca.crt or https, whose credentials can be stolen on the way
    #[arg(long)]
    pub allow_insecure_clusters: bool,
    #[command(flatten)]
    pub addresses: AddressFlags,
}

impl ConnectorFlags {
    /// `cluster` is the controller's own, which is no joined one.
    pub async fn connector(&self, cluster: &ClusterFlags) -> Result<Connector, Error> {
        let api_server = api_server_of_pod();
        let fetcher = Fetcher::new(Settings {
            allow_private_networks: self.addresses.allow_private_networks,
            allow_loopback: self.addresses.allow_loopback || api_server.is_none(),
            ..Settings::default()
        });
        let options = cluster.connect_options()?;
        let own = api_server_endpoint(&options).await?;
        let fetcher = fetcher.map_err(failed_to("create the HTTP client"))?;
        Ok(Connector {
            fetcher: fetcher
                .without_api_server([own].into_iter().chain(api_server).collect())
                .await,
            gateway: connect_transport(&options).await?,
            allow_insecure: self.allow_insecure_clusters,
            options: remote_options(None),
        })
    }
}

/// Makes clients of joined clusters.
pub struct Connector {
    fetcher: Fetcher,
    /// Sends requests through cluster-gateway.
    gateway: Client,
    allow_insecure: bool,
    options: RemoteOptions,
}

impl Connector {
    /// Returns a client, or the reason why the cluster is refused. Sends nothing to it.
    pub async fn connect(&self, secret: &Secret) -> Result<Client, String> {
        let access = ClusterAccess::parse(secret, self.allow_insecure).map_err(|error| error.to_string())?;
        let (name, requests) = (secret.name_any(), RequestMetrics::default());
        connect(&name, access, &self.fetcher, &self.gateway, &requests, &self.options).await
    }
}

/// Returns the response of `GET /version`, or what failed and what to do.
pub async fn version(client: &Client) -> Result<Value, String> {
    let version: Value = get(client, VERSION).await?;
    if version["gitVersion"].is_string() {
        return Ok(version);
    }
    Err(not_of_an_api_server(VERSION))
}

/// Returns true if the credential has a right in the cluster, in all namespaces.
pub async fn may(client: &Client, verb: &str, group: &str, resource: &str) -> Result<bool, String> {
    let review = self_review(verb, group, resource);
    let reviewed: SelfSubjectAccessReview = post(client, SELF_REVIEWS, &review).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, String> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| invalid(&error))?;
    send(client, path, request).await
}

async fn post<T: DeserializeOwned>(client: &Client, path: &str, object: &impl Serialize) -> Result<T, String> {
    let body = serde_json::to_vec(object).map_err(|error| invalid(&error))?;
    let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(body);
    send(client, path, request.map_err(|error| invalid(&error))?).await
}

/// kube logs responses that it cannot decode, and these are from outside.
async fn send<T: DeserializeOwned>(client: &Client, path: &str, request: Request<Vec<u8>>) -> Result<T, String> {
    let text = client.request_text(request).await.map_err(|error| failure(&error))?;
    serde_json::from_str(&text).map_err(|_| not_of_an_api_server(path))
}

fn not_of_an_api_server(path: &str) -> String {
    format!("the response of {path} is not that of an API server; check the endpoint")
}

fn invalid(error: &dyn Display) -> String {
    format!("failed to create a request: {error}")
}
