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

type AppState = (Arc<[Check]>, Arc<Registry>);

/// Returns routes for `/livez`, `/healthz`, `/readyz` and `/metrics`. `?verbose` is accepted but always implied.
pub fn routes(ready: Vec<Check>, registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/livez", get(async || "livez check passed\n"))
        .route("/healthz", get(async || "healthz check passed\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state((Arc::from(ready), registry))
}

async fn readyz(State((ready, _)): State<AppState>) -> Response {
    let report = health::report("readyz", &ready).await;
    match report.is_ready {
        true => report.text.into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, report.text).into_response(),
    }
}

async fn metrics(State((_, registry)): State<AppState>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut body = String::new();
    match text::encode(&mut body, &registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to encode metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
