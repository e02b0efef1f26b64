//! An Application as it would be deployed, and what the cluster has of it.

use std::collections::HashSet;

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};

use super::deployed::{Deployed, DeployedRevision, latest_revision, read_latest};
use crate::api::NamespacedName;
use crate::api::oam::{Application, LatestRevision, labels};
use crate::cmd::Error;
use crate::cmd::vela::joined::Clusters;
use crate::cmd::vela::manifests::ManifestObject;
use crate::cmd::vela::objects;
use crate::cmd::vela::render::definition_set::DefinitionSet;
use crate::cmd::vela::render::plan::RenderPlan;
use crate::cmd::vela::render::{first_revision, parse_supported};
use crate::controllers::oam::parse::{Definitions, Parsed};
use crate::controllers::oam::placement::service_key;
use crate::controllers::oam::trackers::Inventory;
use crate::runtime::kube_client::call;

pub struct DiffTarget {
    pub name: NamespacedName,
    /// As deployed: of the file, with what others have set; or of the revision, if it is the published version.
    pub application: Application,
    pub parsed: Parsed,
    pub plan: RenderPlan,
    /// The current revision, or else the first one.
    pub revision: LatestRevision,
    pub inventory: Inventory,
    /// The workflow runs, for a new revision or because it has not finished.
    pub runs: bool,
    pub is_new_revision: bool,
    /// Another tracker becomes the current one, so that objects which it lacks are collected.
    pub has_new_tracker: bool,
    /// The components whose workload is healthy, by the identity of their status.
    pub healthy: HashSet<[String; 4]>,
}

impl DiffTarget {
    pub async fn read(clusters: &Clusters, manifest: &ManifestObject, shared: &str) -> Result<Self, Error> {
        let client = clusters.own();
        let name = manifest.name.clone();
        let resource = ApiResource::erase::<Application>(&());
        let applications: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name.namespace, &resource);
        let object = call(applications.get_opt(&name.name))
            .await
            .map_err(|error| objects::application_error(&name, "read", error))?;
        let decode = |object| {
            let application = serde_json::from_value::<Application>(object);
            application.map_err(|error| Error::Failed(format!("Application {name}: {error}")))
        };
        let declared = decode(manifest.applied_to(object.as_ref())?)?;
        let live = object.map(|object| decode(serde_json::to_value(object)?)).transpose()?;
        let definitions = DefinitionSet::of_cluster(client, [&name.namespace, shared]).await?;
        Self::of(clusters, declared, live.as_ref(), (&definitions, shared)).await
    }

    /// Compares an Application as it is declared with what the cluster has. `definitions` come with the namespace of those
    /// for all Applications.
    pub async fn of(
        clusters: &Clusters,
        declared: Application,
        live: Option<&Application>,
        (definitions, shared): (&DefinitionSet, &str),
    ) -> Result<Self, Error> {
        let client = clusters.own();
        let name = objects::identity(&declared).name;
        let inventory = match live {
            Some(live) => objects::inventory(client, live).await?,
            None => Inventory::default(),
        };
        let status = live.and_then(|live| live.status.clone()).unwrap_or_default();
        let recorded = match live {
            Some(live) => read_latest(client, live)
                .await?
                .map(DeployedRevision::new)
                .transpose()?,
            None => None,
        };
        let definitions = Definitions::live_for(&declared, definitions, &name.namespace, shared);
        let Deployed {
            application,
            parsed,
            definitions,
            is_new_revision,
        } = Deployed::new(declared, definitions, recorded.as_ref(), parse_supported)?;
        let plan = RenderPlan::new(&application, &parsed, &definitions, Some(clusters.joined().await))?;
        let has_finished = status.workflow.is_some_and(|workflow| workflow.finished);
        let version = |application: &Application| application.annotations().get(labels::PUBLISH_VERSION).cloned();
        let is_same = |live: &Application| live.spec == application.spec && version(live) == version(&application);
        let healthy = status.services.into_iter().filter(|service| service.workload_healthy);
        Ok(Self {
            revision: live
                .and_then(latest_revision)
                .unwrap_or_else(|| first_revision(&name.name)),
            has_new_tracker: !live.is_some_and(is_same),
            runs: is_new_revision || !has_finished,
            healthy: healthy.map(|service| service_key(&service)).collect(),
            name,
            application,
            parsed,
            plan,
            inventory,
            is_new_revision,
        })
    }
}
