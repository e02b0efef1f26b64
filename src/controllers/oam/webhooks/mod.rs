//! Webhooks for Applications and definitions, at the paths of KubeVela. Every replica serves them, leader or not.
//!
//! ```text
//!  API server ── TLS ──► serve ─► reviewer ─► applications | definitions ─► verdict
//!                          ▲                         │
//!                     certificates          caches, evaluator, access reviews
//! ```

mod applications;
mod certificates;
mod convert;
mod definitions;
mod inspect;
mod metrics;
mod review;
mod reviewer;
mod serve;

use std::io;

use futures::FutureExt;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use self::certificates::CertificateSourceError;
use self::metrics::WebhookMetrics;
use self::reviewer::Webhooks;
use super::definitions::DefinitionCaches;
use super::{Options, WebhookOptions};
use crate::budget::Budgets;
use crate::controllers::{Serve, Task};
use crate::cue::Evaluator;
use crate::runtime::kube_client::{ApiError, call};
use crate::server::tls::{CertificateMetrics, ServedCertificate};
use crate::server::{ListenAddress, Server, ServerLimits};

/// Connections of API servers, which have one for each review at a time.
const MAX_CONNECTIONS: usize = 128;

/// Metrics of the server and of its certificate. The default is not exported.
#[derive(Clone, Debug, Default)]
pub struct WebhookServerMetrics {
    reviews: WebhookMetrics,
    certificate: CertificateMetrics,
}

impl WebhookServerMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            reviews: WebhookMetrics::register(registry),
            certificate: CertificateMetrics::register(registry),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("failed to listen on {address}: {cause}; choose another port with --webhook-port")]
    Listen { address: ListenAddress, cause: io::Error },
    #[error("failed to prepare TLS for webhooks: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Certificate(#[from] CertificateSourceError),
}

/// A server with its first certificate, before it answers.
pub struct PreparedWebhooks {
    options: WebhookOptions,
    metrics: WebhookServerMetrics,
    listener: TcpListener,
    certificate: ServedCertificate,
    keep_certificate: Task,
    client: Client,
    own_user: String,
}

impl PreparedWebhooks {
    /// Binds the port, and waits for the first certificate. The client must be allowed to write without a Lease, since each
    /// replica serves webhooks.
    ///
    /// # Errors
    /// The port can't be bound, or there is no certificate.
    pub async fn new(
        options: &WebhookOptions,
        client: Client,
        own_user: String,
        metrics: &WebhookServerMetrics,
    ) -> Result<Self, WebhookError> {
        let address = options.address.clone();
        let listener = address.bind().await;
        let listener = listener.map_err(|cause| WebhookError::Listen { address, cause })?;
        let certificate = ServedCertificate::new(metrics.certificate.clone())?;
        let mut keep = {
            let (source, client, served) = (options.certificate.clone(), client.clone(), certificate.clone());
            async move { certificates::keep(&source, &client, &served).await }.boxed()
        };
        tokio::select! {
            kept = &mut keep => match kept? {},
            () = certificate.ready() => {}
        }
        let keep_certificate = keep.map(|kept| match kept {
            Ok(never) => match never {},
            Err(error) => tracing::error!(%error, "failed to keep the certificate of webhooks"),
        });
        Ok(Self {
            options: options.clone(),
            metrics: metrics.clone(),
            listener,
            certificate,
            keep_certificate: keep_certificate.boxed(),
            client,
            own_user,
        })
    }

    /// Returns the server, and the task that renews its certificate.
    #[must_use]
    pub fn into_server(
        self,
        options: &Options,
        caches: &DefinitionCaches,
        evaluator: &Evaluator,
        budgets: &Budgets,
    ) -> (Serve, Task) {
        let reviewer = Webhooks::new(&self, options, caches, evaluator, budgets);
        let routes = serve::routes(reviewer, budgets, self.metrics.reviews);
        let server = Server::new(
            self.listener,
            routes,
            ServerLimits::for_webhooks(MAX_CONNECTIONS),
            Some(self.certificate.server_config()),
            budgets.metrics().of("webhook_connections", MAX_CONNECTIONS as u64),
        );
        if let Ok(address) = server.local_addr() {
            tracing::info!(%address, "serving webhooks");
        }
        let serve: Serve = Box::new(move |shutdown| server.run(shutdown).boxed());
        (serve, self.keep_certificate)
    }
}

/// Returns the user of the client, whose changes the webhooks leave as they are.
///
/// # Errors
/// The API server does not name the user. Those before Kubernetes 1.28 can't.
pub async fn own_user(client: &Client) -> Result<String, ApiError> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let reviewed = call(api.create(&PostParams::default(), &SelfSubjectReview::default())).await?;
    let user = reviewed.status.and_then(|status| status.user_info?.username);
    let user = user.filter(|user| !user.is_empty());
    user.ok_or_else(|| ApiError::bad_request("the API server does not name the user of this process".to_owned()))
}
