use prometheus_client::registry::Registry;

use crate::controllers::apprepository::garbage::GarbageMetrics;
use crate::controllers::apprepository::jobs::JobMetrics;
use crate::controllers::apprepository::metrics::RepositoryMetrics;
use crate::controllers::apprepository::news_delivery::NewsMetrics;

#[derive(Clone, Debug)]
pub struct AppRepositoryMetrics {
    pub(super) repositories: RepositoryMetrics,
    pub(super) garbage: GarbageMetrics,
    pub(super) jobs: JobMetrics,
    pub(super) news: NewsMetrics,
}

impl AppRepositoryMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            garbage: GarbageMetrics::register(registry),
            jobs: JobMetrics::register(registry),
            news: NewsMetrics::register(registry),
            repositories: RepositoryMetrics::register(registry),
        }
    }
}
