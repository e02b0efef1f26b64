//! Serves reviews over HTTP. Any pod may connect, not only the API server: turns and memory are shared by the address of
//! the client, and nothing is done for a client that is not done for the API server.
//!
//! ```text
//!  connection ─► turn of the client ─► body, in time and bytes ─► memory ─► review ─► answer
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Router, body};
use tokio::time::timeout;

use super::convert::convert as convert_objects;
use super::metrics::WebhookMetrics;
use super::review::{AdmissionRequest, AdmissionReview, Verdict};
use crate::api::oam::DefinitionKind;
use crate::budget::{Budget, leave_runtime_if_large};
use crate::server::Peer;
use crate::text::{sanitize, truncate};

/// An object of the largest size before and after a change, with the fields of a review.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// Reviews of all clients at once.
pub const MAX_REVIEWS: u64 = 32;
/// A body and the texts of its objects.
const COPIES: u64 = 2;
const TURN_TIMEOUT: Duration = Duration::from_secs(4);
const BODY_TIMEOUT: Duration = Duration::from_secs(4);
/// The API server waits 10 s.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(6);
const MAX_MESSAGE: usize = 16 * 1024;

/// A webhook by what it reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    MutateApplications,
    ValidateApplications,
    MutateComponentDefinitions,
    ValidateDefinitions(DefinitionKind),
}

impl Webhook {
    pub const ALL: [Self; 7] = [
        Self::MutateApplications,
        Self::ValidateApplications,
        Self::MutateComponentDefinitions,
        Self::ValidateDefinitions(DefinitionKind::Component),
        Self::ValidateDefinitions(DefinitionKind::Trait),
        Self::ValidateDefinitions(DefinitionKind::Policy),
        Self::ValidateDefinitions(DefinitionKind::WorkflowStep),
    ];

    /// Returns the path, as KubeVela's webhook configurations have it.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::MutateApplications => "/mutating-core-oam-dev-v1beta1-applications",
            Self::ValidateApplications => "/validating-core-oam-dev-v1beta1-applications",
            Self::MutateComponentDefinitions => "/mutating-core-oam-dev-v1beta1-componentdefinitions",
            Self::ValidateDefinitions(kind) => match kind {
                DefinitionKind::Component => "/validating-core-oam-dev-v1beta1-componentdefinitions",
                DefinitionKind::Trait => "/validating-core-oam-dev-v1beta1-traitdefinitions",
                DefinitionKind::Policy => "/validating-core-oam-dev-v1beta1-policydefinitions",
                DefinitionKind::WorkflowStep => "/validating-core-oam-dev-v1beta1-workflowstepdefinitions",
            },
        }
    }

    /// Returns the name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MutateApplications => "mutate-applications",
            Self::ValidateApplications => "validate-applications",
            Self::MutateComponentDefinitions => "mutate-componentdefinitions",
            Self::ValidateDefinitions(kind) => match kind {
                DefinitionKind::Component => "validate-componentdefinitions",
                DefinitionKind::Trait => "validate-traitdefinitions",
                DefinitionKind::Policy => "validate-policydefinitions",
                DefinitionKind::WorkflowStep => "validate-workflowstepdefinitions",
            },
        }
    }
}

pub trait Reviewer: Send + Sync + 'static {
    fn review(&self, webhook: Webhook, request: &AdmissionRequest) -> impl Future<Output = Verdict> + Send;
}

struct Service<R> {
    reviewer: R,
    /// Turns of clients.
    turns: Budget,
    /// Memory of bodies.
    memory: Budget,
    metrics: WebhookMetrics,
}

/// Returns the routes of all webhooks. `turns` has one permit for each review at a time, `memory` bytes of bodies.
pub fn routes(reviewer: impl Reviewer, turns: Budget, memory: Budget, metrics: WebhookMetrics) -> Router {
    let service = Arc::new(Service {
        reviewer,
        turns,
        memory,
        metrics,
    });
    let mut routes = Router::new().route("/convert", post(convert));
    for webhook in Webhook::ALL {
        routes = routes.route(webhook.path(), review_route(webhook));
    }
    routes.with_state(service)
}

fn review_route<R: Reviewer>(webhook: Webhook) -> MethodRouter<Arc<Service<R>>> {
    post(
        async move |State(service): State<Arc<Service<R>>>,
                    Extension(Peer(peer)): Extension<Peer>,
                    headers: HeaderMap,
                    body: Body| {
            let start = Instant::now();
            let (result, response) = match service.review(webhook, peer, &headers, body).await {
                Ok((result, json)) => (result, json_response(json)),
                Err(refusal) => (refusal.result(), refusal.into_response()),
            };
            service.metrics.count(webhook, result, start.elapsed());
            response
        },
    )
}

async fn convert<R: Reviewer>(
    State(service): State<Arc<Service<R>>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let converted = async {
        let held = service.read(peer, &headers, body).await?;
        convert_objects(&held.body).map_err(|error| Refusal::Invalid(error.to_string()))
    };
    match converted.await {
        Ok(json) => json_response(json),
        Err(refusal) => refusal.into_response(),
    }
}

fn json_response(json: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// A body, with the turn and the memory that it takes.
struct HeldBody {
    body: body::Bytes,
    _turn: crate::budget::Reservation,
    _memory: crate::budget::Reservation,
}

/// A request without a review. The failure policy of the webhook decides.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("too many reviews at once, try again")]
    Busy,
    #[error("the body is larger than {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body was not complete within {} s", BODY_TIMEOUT.as_secs())]
    Late,
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    const fn result(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::TooLarge | Self::Late | Self::Invalid(_) => "invalid",
            Self::Failed(_) => "failed",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, truncate(&sanitize(&self.to_string()), MAX_MESSAGE)).into_response()
    }
}

impl<R: Reviewer> Service<R> {
    async fn review(
        &self,
        webhook: Webhook,
        peer: IpAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(&'static str, Vec<u8>), Refusal> {
        let held = self.read(peer, headers, body).await?;
        leave_runtime_if_large(held.body.len()).await;
        let request = AdmissionReview::parse(&held.body).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let reviewed = timeout(REVIEW_TIMEOUT, self.reviewer.review(webhook, &request)).await;
        let verdict = reviewed.map_err(|_| {
            let limit = REVIEW_TIMEOUT.as_secs();
            Refusal::Failed(format!("the review did not end within {limit} s"))
        })?;
        let (webhook, namespace) = (webhook.name(), request.namespace.as_str());
        let result = match &verdict {
            Verdict::Allowed { .. } => "allowed",
            Verdict::Invalid(message) | Verdict::Denied(message) => {
                tracing::debug!(webhook, namespace, reason = %sanitize(message), "object refused");
                "refused"
            }
            Verdict::Failed(message) => {
                tracing::warn!(webhook, namespace, error = %sanitize(message), "review failed");
                return Err(Refusal::Failed(message.clone()));
            }
        };
        Ok((result, verdict.into_response(&request.uid)))
    }

    /// Waits for the client's turn, and reads the body.
    async fn read(&self, peer: IpAddr, headers: &HeaderMap, body: Body) -> Result<HeldBody, Refusal> {
        let client = peer.to_canonical().to_string();
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = length.unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return Err(Refusal::TooLarge);
        }
        let turn = self.turns.reserve(&client, 1, TURN_TIMEOUT).await;
        let turn = turn.map_err(|_| Refusal::Busy)?;
        let memory = self.memory.reserve(&client, COPIES * length as u64, TURN_TIMEOUT).await;
        let memory = memory.map_err(|_| Refusal::Busy)?;
        let read = timeout(BODY_TIMEOUT, body::to_bytes(body, length)).await;
        let body = read.map_err(|_| Refusal::Late)?.map_err(|_| Refusal::TooLarge)?;
        Ok(HeldBody {
            body,
            _turn: turn,
            _memory: memory,
        })
    }
}
