//! The listener of `--debug-addr`: the log filter, and the paths of Go's pprof that have a meaning here.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::health::{Listening, listen_error};
use super::{Error, Options};
use crate::budget::ResourceMetrics;
use crate::server::cpu_profile::{self, ProfileError};
use crate::server::{ListenAddress, Server, ServerLimits, log_filter_routes};

const MAX_CONNECTIONS: usize = 16;
/// The duration of a profile without `seconds`, as in Go.
const DEFAULT_DURATION: Duration = Duration::from_secs(30);

const INDEX: &str = "/debug/pprof/\n\n\
                     profile?seconds=N: the CPU time of N seconds (30; at most 60), for `go tool pprof`\n\
                     cmdline: the arguments of the process, without values that may be secret\n\n\
                     Other profiles are not available: use `perf record --pid` on the node.\n";

const NOT_AVAILABLE: &str = "this profile is not available; see /debug/pprof/\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugListener {
    pub address: ListenAddress,
    /// The flag of the address, for errors.
    pub flag: &'static str,
    /// The arguments of the process, without secrets.
    pub command_line: Vec<String>,
}

/// Starts the listener, if it is enabled.
pub(super) async fn listen(options: &Options) -> Result<Option<Listening>, Error> {
    let Some(listener) = &options.debug else {
        return Ok(None);
    };
    let mut routes = profile_routes(&listener.command_line);
    if let Some(filter) = &options.log_filter {
        routes = routes.merge(log_filter_routes(Arc::clone(filter), listener.address.is_loopback()));
    }
    let server = Server::bind(
        &listener.address,
        routes,
        ServerLimits::with_probes(MAX_CONNECTIONS),
        ResourceMetrics::unregistered(),
    )
    .await
    .map_err(|error| listen_error(&listener.address, listener.flag, &error))?;
    tracing::info!(address = %listener.address, "serving profiles and the log filter");
    Ok(Some(Listening::start(server)))
}

fn profile_routes(command_line: &[String]) -> Router {
    // As in Go.
    let command_line = command_line.join("\0");
    Router::new()
        .route("/debug/pprof", get(INDEX))
        .route("/debug/pprof/", get(INDEX))
        .route("/debug/pprof/cmdline", get(command_line))
        .route("/debug/pprof/profile", get(profile))
        .fallback((StatusCode::NOT_FOUND, NOT_AVAILABLE))
}

async fn profile(RawQuery(query): RawQuery) -> Response {
    let duration = duration(query.as_deref().unwrap_or_default());
    match cpu_profile::record(duration).await {
        Ok(profile) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, "attachment; filename=\"profile\""),
            ];
            (headers, profile).into_response()
        }
        Err(error @ ProfileError::Busy) => (StatusCode::CONFLICT, format!("{error}\n")).into_response(),
        Err(error @ ProfileError::Memory) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn duration(query: &str) -> Duration {
    let mut parameters = query.split('&').filter_map(|pair| pair.split_once('='));
    let seconds = parameters.find(|(name, _)| *name == "seconds");
    let seconds = seconds.and_then(|(_, seconds)| seconds.parse().ok());
    let duration = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    duration.unwrap_or(DEFAULT_DURATION).min(cpu_profile::MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("seconds=5", 5)]
    #[case("debug=1&seconds=5", 5)]
    #[case("seconds=3600", 60)]
    #[case("seconds=18446744073709551615", 60)]
    #[case("", 30)]
    #[case("seconds=0", 30)]
    #[case("seconds=-1", 30)]
    fn a_profile_takes_at_most_a_minute(#[case] query: &str, #[case] seconds: u64) {
        assert_eq!(duration(query), Duration::from_secs(seconds));
    }
}
