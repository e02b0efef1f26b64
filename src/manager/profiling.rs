//! The listener of `--profiling-addr`, with the paths of Go's pprof that have a meaning here.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use super::health::{Listening, listen_error};
use super::{Error, Options};
use crate::budget::ResourceMetrics;
use crate::server::Server;

const MAX_CONNECTIONS: usize = 16;

const INDEX: &str = "/debug/pprof/\n\ncmdline: the arguments of the process, without values that may be secret\n\n\
                     Other profiles are not available: use `perf record --pid` on the node.\n";

const NOT_AVAILABLE: &str = "this profile is not available; see /debug/pprof/\n";

/// Starts the listener, if it is enabled.
pub(super) async fn listen(options: &Options) -> Result<Option<Listening>, Error> {
    let Some(profiling) = &options.profiling else {
        return Ok(None);
    };
    let routes = routes(&profiling.command_line);
    let server = Server::bind(
        &profiling.address,
        routes,
        MAX_CONNECTIONS,
        ResourceMetrics::unregistered(),
    )
    .await;
    let server = server.map_err(|error| listen_error(&profiling.address, "--profiling-addr", &error))?;
    tracing::info!(address = %profiling.address, "serving profiles");
    Ok(Some(Listening::start(server)))
}

fn routes(command_line: &[String]) -> Router {
    // As in Go.
    let command_line = command_line.join("\0");
    Router::new()
        .route("/debug/pprof", get(INDEX))
        .route("/debug/pprof/", get(INDEX))
        .route("/debug/pprof/cmdline", get(command_line))
        .fallback((StatusCode::NOT_FOUND, NOT_AVAILABLE))
}
