//! Serves reviews over HTTP. Any pod may connect, not only the API server, and may name any namespace. So clients are
//! served in turn, and then the namespaces of each client.
//!
//! ```text
//!  connection ─► memory of the body ─► body ─► turn of client and namespace ─► memory of the objects ─► review ─► answer
//! ```

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
use crate::budget::{Budget, Budgets, Exhausted, Reservation, SMALL_JSON, leave_runtime_if_large};
use crate::controllers::oam::PASS_COPIES;
use crate::runtime::fair_semaphore::{FairLimits, FairPermit, FairSemaphore, Requester};
use crate::server::Peer;
use crate::text::sanitize;

/// The owner of CPU and memory that reviews share with passes. Their namespaces may be forged, so that reviews together
/// have the share of one namespace. No namespace has this name.
const OWNER: &str = "reviews of webhooks";

/// An object of the largest size before and after a change, with the fields of a review.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// A body and the texts of its objects.
const COPIES: u64 = 2;
/// Memory that a review takes without a reservation: for its objects, for definitions, and for a revision.
const SMALL_OBJECTS: u64 = 1 << 20;
/// Reviews of all clients at once.
const MAX_REVIEWS: usize = 32;
/// Reviews of one namespace at once. Each may hold memory as long as its templates run.
const MAX_REVIEWS_OF_NAMESPACE: usize = 4;
/// Longest wait for each of memory, a turn and the body: as long as most reviews take, whose turn is then free.
const WAIT: Duration = Duration::from_secs(5);
/// Time of a review with all waits. The API server waits 10 s.
const TIMEOUT: Duration = Duration::from_secs(9);

/// Reserves memory for what a review reads beside `read` bytes. It does not wait, since it may hold memory already.
///
/// # Errors
/// No memory is left, in words for the author.
pub(super) fn reserve_more(budgets: &Budgets, read: u64, bytes: u64) -> Result<Option<Reservation>, String> {
    if read + bytes <= SMALL_OBJECTS {
        return Ok(None);
    }
    let memory = budgets.memory.try_reserve_more(OWNER, bytes);
    memory.map(Some).ok_or_else(|| "no memory left, try again".to_owned())
}

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

struct ReviewService<R> {
    reviewer: R,
    budgets: Budgets,
    /// Memory of bodies.
    bodies: Budget,
    turns: FairSemaphore,
    /// Memory of decoded objects.
    objects: Budget,
    metrics: WebhookMetrics,
}

/// Returns the routes of all webhooks.
pub fn routes(reviewer: impl Reviewer, budgets: &Budgets, metrics: WebhookMetrics) -> Router {
    let limits = FairLimits {
        total: MAX_REVIEWS,
        per_object: MAX_REVIEWS_OF_NAMESPACE,
    };
    let service = Arc::new(ReviewService {
        reviewer,
        budgets: budgets.clone(),
        bodies: budgets.sixteenths(2, "webhook_bodies"),
        turns: FairSemaphore::new(limits, budgets.metrics().of("webhook_reviews", 0)),
        objects: budgets.sixteenths(2, "webhook_objects"),
        metrics,
    });
    let mut routes = Router::new().route("/convert", post(convert));
    for webhook in Webhook::ALL {
        routes = routes.route(webhook.path(), review_route(webhook));
    }
    routes.with_state(service)
}

fn review_route<R: Reviewer>(webhook: Webhook) -> MethodRouter<Arc<ReviewService<R>>> {
    post(
        async move |State(service): State<Arc<ReviewService<R>>>,
                    Extension(Peer(peer)): Extension<Peer>,
                    headers: HeaderMap,
                    body: Body| {
            let start = Instant::now();
            let review = service.review(webhook, peer.to_string(), &headers, body);
            let (result, response) = match service.within_time(review).await {
                Ok((result, json)) => (result, json_response(json)),
                Err(refusal) => (refusal.result(), refusal.into_response()),
            };
            service.metrics.count(webhook, result, start.elapsed());
            response
        },
    )
}

async fn convert<R: Reviewer>(
    State(service): State<Arc<ReviewService<R>>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let converted = async {
        let body = service.read(&peer.to_string(), &headers, body).await?;
        convert_objects(&body.bytes).map_err(|error| RequestRefusal::Invalid(error.to_string()))
    };
    match service.within_time(converted).await {
        Ok(json) => json_response(json),
        Err(refusal) => refusal.into_response(),
    }
}

fn json_response(json: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// A body with the memory that it takes.
struct HeldBody {
    bytes: body::Bytes,
    _memory: Option<Reservation>,
}

/// A request without a review. The failure policy of the webhook decides.
#[derive(Debug, thiserror::Error)]
enum RequestRefusal {
    #[error("too many reviews at once, try again")]
    Busy,
    #[error("the body is larger than {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body was not complete within {} s", WAIT.as_secs())]
    LateBody,
    #[error("the review did not end within {} s", TIMEOUT.as_secs())]
    LateReview,
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Failed(String),
}

impl From<Exhausted> for RequestRefusal {
    fn from(_: Exhausted) -> Self {
        Self::Busy
    }
}

impl RequestRefusal {
    const fn result(&self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::TooLarge | Self::LateBody | Self::Invalid(_) => "invalid",
            Self::LateReview | Self::Failed(_) => "failed",
        }
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::LateBody => StatusCode::REQUEST_TIMEOUT,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::LateReview | Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, sanitize(&self.to_string())).into_response()
    }
}

impl<R: Reviewer> ReviewService<R> {
    async fn within_time<T>(&self, work: impl Future<Output = Result<T, RequestRefusal>>) -> Result<T, RequestRefusal> {
        let work = self.budgets.offloadable(OWNER, work);
        timeout(TIMEOUT, work).await.unwrap_or(Err(RequestRefusal::LateReview))
    }

    async fn review(
        &self,
        webhook: Webhook,
        client: String,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<(&'static str, Vec<u8>), RequestRefusal> {
        let body = self.read(&client, headers, body).await?;
        let request =
            AdmissionReview::parse(&body.bytes).map_err(|error| RequestRefusal::Invalid(error.to_string()))?;
        let _turn = self.turn(&client, &request.namespace).await?;
        let _memory = self.memory_of_objects(&client, &request).await?;
        let verdict = self.reviewer.review(webhook, &request).await;
        let result = match &verdict {
            Verdict::Allowed { .. } => "allowed",
            Verdict::Invalid(_) | Verdict::Denied(_) => "refused",
            Verdict::Failed(_) => "failed",
        };
        let (name, namespace, uid) = (webhook.name(), &request.namespace, sanitize(&request.uid));
        // Without the text for the author, which may quote secret parameters.
        tracing::debug!(webhook = name, namespace, uid, result, "reviewed");
        match verdict {
            Verdict::Failed(message) => Err(RequestRefusal::Failed(message)),
            verdict => Ok((result, verdict.into_response(&request.uid))),
        }
    }

    async fn read(&self, client: &str, headers: &HeaderMap, body: Body) -> Result<HeldBody, RequestRefusal> {
        let length = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let length = length.unwrap_or(MAX_BODY);
        if length > MAX_BODY {
            return Err(RequestRefusal::TooLarge);
        }
        let memory = if length > SMALL_JSON {
            Some(self.bodies.reserve(client, COPIES * length as u64, WAIT).await?)
        } else {
            None
        };
        let read = timeout(WAIT, body::to_bytes(body, length)).await;
        let bytes = read
            .map_err(|_| RequestRefusal::LateBody)?
            .map_err(|_| RequestRefusal::TooLarge)?;
        leave_runtime_if_large(bytes.len()).await;
        Ok(HeldBody { bytes, _memory: memory })
    }

    async fn turn(&self, client: &str, namespace: &str) -> Result<FairPermit, RequestRefusal> {
        let turn = self.turns.acquire(Requester {
            class: client.to_owned(),
            group: namespace.to_owned(),
            object: format!("{client}/{namespace}"),
        });
        timeout(WAIT, turn).await.map_err(|_| RequestRefusal::Busy)
    }

    async fn memory_of_objects(
        &self,
        client: &str,
        request: &AdmissionRequest,
    ) -> Result<Option<Reservation>, RequestRefusal> {
        let bytes = PASS_COPIES * request.decoded_bytes().iter().sum::<u64>();
        if bytes <= SMALL_OBJECTS {
            return Ok(None);
        }
        Ok(Some(self.objects.reserve(client, bytes, WAIT).await?))
    }
}

#[cfg(test)]
mod tests;
