//! Builds the controllers from the options.
//!
//! ```text
//!  options ─► source ─► origin ─► catalog ─► queue ─► controllers
//! ```

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::database::DatabaseIdentity;
use super::startup::{self, CatalogAccess, OpenCatalog, Patience};
use super::{Error, Options, SourceOptions};
use crate::budget;
use crate::controllers::apprepository::Parts;
use crate::controllers::apprepository::origin::{ClusterOrigin, Directory, Origin};
use crate::controllers::oam::start::authentication;
use crate::controllers::oam::webhooks::{PreparedWebhooks, own_user};
use crate::controllers::{Controller, SetupContext, Source, application, apprepository, oam};
use crate::http::Fetcher;
use crate::runtime::controller::{self, Key};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{
    ApiError, ConnectOptions, api_server_endpoint, api_server_of_pod, connect, connect_transport,
};
use crate::runtime::leader_election;
use crate::runtime::ownership::OwnershipFilter;
use crate::runtime::shards::Shards;
use crate::runtime::watch;
use crate::runtime::workqueue::{self, Queue};

#[derive(Clone)]
pub struct ManagerMetrics {
    pub(super) queue: workqueue::WorkqueueMetrics,
    pub(super) workers: controller::WorkerMetrics,
    pub(super) requests: RequestMetrics,
    pub(super) leader_election: leader_election::LeaderElectionMetrics,
    apprepository: apprepository::AppRepositoryMetrics,
    application: application::metrics::ApplicationMetrics,
    /// `None` if the controller is disabled.
    pub(super) oam: Option<oam::SharedParts>,
}

impl ManagerMetrics {
    /// Registers all metrics. The controller oam and its evaluator have metrics only if the controller is enabled.
    pub fn register(registry: &mut Registry, budgets: &budget::Metrics, oam: Option<&oam::Options>) -> Self {
        budgets.register(registry);
        watch::metrics::register(registry);
        Self {
            queue: workqueue::WorkqueueMetrics::register(registry),
            workers: controller::WorkerMetrics::register(registry),
            apprepository: apprepository::AppRepositoryMetrics::register(registry),
            application: application::metrics::ApplicationMetrics::register(registry),
            oam: oam.map(|options| oam::SharedParts::register(registry, budgets, options)),
            requests: RequestMetrics::register(registry, budgets.of("api_requests", 0)),
            leader_election: leader_election::LeaderElectionMetrics::register(registry),
        }
    }
}

/// The controllers and the parts that they share.
pub struct Setup {
    pub context: SetupContext,
    pub repositories: Option<Repositories>,
    pub controllers: Vec<Controller>,
}

/// The AppRepository controller, whose parts commands use one by one.
pub struct Repositories {
    pub options: apprepository::Options,
    pub parts: Parts,
    pub catalog: OpenCatalog,
    /// The identity of this process to other users of the database.
    pub(super) identity: DatabaseIdentity,
}

impl Setup {
    /// `stopping` is canceled at shutdown.
    pub async fn new(
        options: &Options,
        metrics: &ManagerMetrics,
        patience: Patience,
        access: CatalogAccess,
        (shards, stopping): (Shards, CancellationToken),
    ) -> Result<Self, Error> {
        let source = connect_source(&options.source, &metrics.requests).await?;
        let context = SetupContext {
            queue: queue(options, &metrics.queue),
            source,
            budgets: options.budgets.clone(),
            ownership: OwnershipFilter::new(shards, options.label_selector.clone()),
            stopping,
        };
        let repositories = set_up_repositories(options, &context, metrics, patience, access).await?;
        let application = options.application.as_ref();
        let application = application.and_then(|options| application::setup(&context, options, &metrics.application));
        let oam = set_up_oam(options, &context, metrics, patience).await?;
        Ok(Self {
            context,
            repositories,
            controllers: application.into_iter().chain(oam).collect(),
        })
    }

    /// Builds the AppRepository controller for a command.
    pub async fn for_command(
        options: &Options,
        metrics: &ManagerMetrics,
        access: CatalogAccess,
    ) -> Result<(SetupContext, Repositories), Error> {
        let shared = (Shards::all(), CancellationToken::new());
        let setup = Self::new(options, metrics, Patience::Fail, access, shared).await?;
        let disabled = || Error("the controller apprepository is disabled".to_owned());
        Ok((setup.context, setup.repositories.ok_or_else(disabled)?))
    }
}

async fn set_up_repositories(
    options: &Options,
    context: &SetupContext,
    metrics: &ManagerMetrics,
    patience: Patience,
    access: CatalogAccess,
) -> Result<Option<Repositories>, Error> {
    let Some(mut enabled) = options.apprepository.clone() else {
        return Ok(None);
    };
    let connections = options.budgets.metrics().of("database_connections", 0);
    let catalog = startup::open(&options.database, &context.source, &connections, patience, access).await?;
    let origin = origin(&context.source, &options.cluster_id, patience).await?;
    let identity = DatabaseIdentity {
        origin: origin.id().to_owned(),
        cluster_id: (!origin.is_directory()).then(|| options.cluster_id.clone()),
    };
    enabled.sync.fetcher = without_api_server(&enabled.sync.fetcher, &options.source).await?;
    Ok(Some(Repositories {
        parts: apprepository::setup(context, &enabled, &catalog.catalog, origin, &metrics.apprepository),
        options: enabled,
        catalog,
        identity,
    }))
}

async fn set_up_oam(
    options: &Options,
    context: &SetupContext,
    metrics: &ManagerMetrics,
    patience: Patience,
) -> Result<Option<Controller>, Error> {
    let (Source::Cluster(client), Some(mut oam), Some(parts)) = (&context.source, options.oam.clone(), &metrics.oam)
    else {
        return Ok(None);
    };
    if oam.identity.needs_webhook() {
        let find = || authentication::find_protection(client, oam.webhooks.as_ref());
        let protection = patience
            .get("the webhook of Applications", ApiError::is_retryable, find)
            .await?;
        let webhook = protection.ok_or_else(|| Error(authentication::UNPROTECTED.to_owned()))?;
        tracing::info!(
            webhook,
            "this webhook has to write and protect the identities of Applications"
        );
    }
    oam.fetcher = without_api_server(&oam.fetcher, &options.source).await?;
    oam.joined.fetcher = without_api_server(&oam.joined.fetcher, &options.source).await?;
    oam.joined.requests = metrics.requests.clone();
    if let SourceOptions::Cluster(cluster) = &options.source {
        oam.joined.write_fence.clone_from(&cluster.write_fence);
        let gateway = connect_transport(cluster).await.map_err(Error::from_display)?;
        oam.joined.gateway = Some(oam::GatewayClient(gateway));
    }
    let webhooks = prepare_webhooks(&options.source, &oam, parts, &metrics.requests, patience).await?;
    Ok(oam::setup(context, &oam, parts, webhooks))
}

async fn prepare_webhooks(
    source: &SourceOptions,
    oam: &oam::Options,
    parts: &oam::SharedParts,
    requests: &RequestMetrics,
    patience: Patience,
) -> Result<Option<PreparedWebhooks>, Error> {
    let (Some(options), Some(metrics), SourceOptions::Cluster(cluster)) =
        (&oam.webhooks, parts.webhook_metrics(), source)
    else {
        return Ok(None);
    };
    // As in KubeVela, whose Deployments of other shards have no certificate.
    if oam.shard.as_ref().is_some_and(|shard| shard.id != shard.default_id) {
        return Ok(None);
    }
    // A standby serves webhooks too.
    let unfenced = ConnectOptions {
        write_fence: None,
        ..cluster.clone()
    };
    let client = connect(&unfenced, requests).await.map_err(Error::from_display)?;
    let review = "the SelfSubjectReview of Kubernetes 1.28 and newer";
    let user = patience
        .get(review, ApiError::is_retryable, || own_user(&client))
        .await?;
    let prepared = PreparedWebhooks::new(options, client, user, metrics).await;
    prepared.map(Some).map_err(Error::from_display)
}

/// Keeps tenants from reaching the API server from within.
pub(super) async fn without_api_server(fetcher: &Fetcher, source: &SourceOptions) -> Result<Fetcher, Error> {
    let SourceOptions::Cluster(cluster) = source else {
        return Ok(fetcher.clone());
    };
    let endpoint = api_server_endpoint(cluster).await.map_err(Error::from_display)?;
    let endpoints = [endpoint].into_iter().chain(api_server_of_pod()).collect();
    Ok(fetcher.without_api_server(endpoints).await)
}

pub(super) async fn connect_source(options: &SourceOptions, requests: &RequestMetrics) -> Result<Source, Error> {
    match options {
        SourceOptions::Directory(manifests) => Ok(Source::Directory(manifests.clone())),
        SourceOptions::Cluster(cluster) => {
            let client = connect(cluster, requests).await.map_err(Error::from_display)?;
            Ok(Source::Cluster(client))
        }
    }
}

pub(super) async fn origin(source: &Source, cluster_id: &str, patience: Patience) -> Result<Origin, Error> {
    match source {
        Source::Cluster(client) => {
            let connect = || ClusterOrigin::new(client.clone(), cluster_id);
            // An API server that starts may answer any read with 410.
            let is_temporary = |error: &ApiError| error.is_retryable() || error.code == Some(410);
            let cluster = patience.get("the API server", is_temporary, connect).await?;
            Ok(Origin::Cluster(Box::new(cluster)))
        }
        Source::Directory(manifests) => Directory::new(manifests).map(Origin::Directory).map_err(|error| {
            Error(format!(
                "failed to read the directory --manifests {}: {error}",
                manifests.display()
            ))
        }),
    }
}

fn queue(options: &Options, metrics: &workqueue::WorkqueueMetrics) -> Queue<Key> {
    let apprepository = options.apprepository.iter().flat_map(apprepository::Options::classes);
    let application = options.application.iter().flat_map(application::Options::classes);
    let oam = options.oam.iter().flat_map(oam::Options::classes);
    let settings = workqueue::QueueSettings {
        classes: apprepository.chain(application).chain(oam).collect(),
        rate_per_second: options.queue_rate,
        burst: options.queue_burst,
    };
    Queue::new(settings, metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_kubevelas_applications_exist_only_with_their_controller() {
        let mut registry = Registry::default();
        let _metrics = ManagerMetrics::register(&mut registry, &budget::Metrics::default(), None);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("portolan_applications"), "{text}");
        assert!(!text.contains("portolan_oam") && !text.contains("kubevela"), "{text}");
    }
}
