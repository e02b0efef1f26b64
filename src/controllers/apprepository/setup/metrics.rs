use prometheus_client::registry::Registry;

use crate::controllers::apprepository::garbage::GarbageMetrics;
use crate::controllers::apprepository::jobs::JobMetrics;
use crate::controllers::apprepository::metrics::RepositoryMetrics;

#[derive(Clone, Debug)]
pub struct AppRepositoryMetrics {
    pub(super) repositories: RepositoryMetrics,
    pub(super) garbage: GarbageMetrics,
    pub(super) jobs: JobMetrics,
}

impl AppRepositoryMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            garbage: GarbageMetrics::register(registry),
            jobs: JobMetrics::register(registry),
            repositories: RepositoryMetrics::register(registry),
        }
    }
}
