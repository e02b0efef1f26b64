use std::sync::Arc;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use serde::Serialize;

use super::exposition::{self, Exposition};
use super::health::{self, HealthCheck};
use super::metrics_auth::{Authorize, Authorizer, require_permission};

/// `/livez` with its old name `/healthz`, and `/readyz`. `?verbose` lists the checks; a failure always does. The checks
/// `ping` of controller-runtime succeed as long as the process responds.
pub fn probe_routes(live: Vec<HealthCheck>, ready: Vec<HealthCheck>) -> Router {
    let (live, ready): (Arc<[HealthCheck]>, Arc<[HealthCheck]>) = (live.into(), ready.into());
    Router::new()
        .route("/livez", probe("livez", Arc::clone(&live)))
        .route("/healthz", probe("healthz", live))
        .route("/readyz", probe("readyz", ready))
        .route("/healthz/ping", get("ok"))
        .route("/readyz/ping", get("ok"))
}

fn probe(endpoint: &'static str, checks: Arc<[HealthCheck]>) -> axum::routing::MethodRouter {
    get(async move |RawQuery(query): RawQuery| {
        let report = health::report(endpoint, &checks).await;
        let mut parameters = query.iter().flat_map(|query| query.split('&'));
        let is_verbose = parameters.any(|pair| pair.split('=').next() == Some("verbose"));
        if !report.is_ok {
            (StatusCode::SERVICE_UNAVAILABLE, report.text).into_response()
        } else if is_verbose {
            report.text.into_response()
        } else {
            format!("{endpoint} check passed\n").into_response()
        }
    })
}

/// The response of `/info`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    pub version: &'static str,
    /// The version of KubeVela that the controller oam stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compat_version: Option<String>,
    /// The storage driver of the controller oam.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_driver: Option<String>,
}

pub fn info_routes(info: &Info) -> Router {
    let info = serde_json::json!(info).to_string();
    Router::new().route("/info", get(([(CONTENT_TYPE, "application/json")], info)))
}

/// Returns the route `/metrics`. With `authorize`, it requires a bearer token.
pub fn metrics_routes(registry: Arc<Registry>, authorize: Option<Authorize>) -> Router {
    let routes = Router::new()
        .route("/metrics", get(exposition::serve))
        .with_state(Exposition::new(registry));
    match authorize {
        None => routes,
        Some(authorize) => {
            let authorizer = Arc::new(Authorizer::new(authorize));
            routes.route_layer(from_fn_with_state(authorizer, require_permission))
        }
    }
}
