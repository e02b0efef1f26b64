//! What is served: health and metrics.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text, registry::Registry};

use super::health::{self, Check};

/// What the routes answer from.
#[derive(Clone)]
struct Parts {
    ready: Arc<[Check]>,
    registry: Arc<Registry>,
}

/// `/livez` and `/healthz` say that the process turns; `/readyz` asks all checks and lists them; `/metrics` is OpenMetrics text.
/// A query such as Kubernetes' `?verbose` is accepted, and changes nothing: the list is always there.
pub fn routes(ready: Vec<Check>, registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/livez", get(async || "livez check passed\n"))
        .route("/healthz", get(async || "healthz check passed\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Parts {
            ready: ready.into(),
            registry,
        })
}

async fn readyz(State(parts): State<Parts>) -> Response {
    let report = health::report("readyz", &parts.ready).await;
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, report.text).into_response()
}

async fn metrics(State(parts): State<Parts>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut body = String::new();
    match text::encode(&mut body, &parts.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to encode metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
