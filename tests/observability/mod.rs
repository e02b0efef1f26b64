//! Metrics, alerts, logs, traces and the debug bundle of the real binary.

mod alerts;
mod bundle;
mod log_filter;
mod metrics;
#[cfg(feature = "otel")]
mod receiver;
mod traces;

use crate::support::chart_server::Page;
use crate::support::world::World;

/// Serves an index with one chart and returns the URL of the repository.
fn serve_index(world: &World, name: &str) -> String {
    let index = crate::cluster::index(&[("web", &["1.0.0"])]);
    world.server.serve(&format!("/{name}/index.yaml"), Page::new(index));
    world.server.url(&format!("/{name}"))
}
