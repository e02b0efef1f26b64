//! An Application as it would be deployed, and what the cluster has of it.

use std::collections::HashSet;

use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Client, ResourceExt};

use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, labels};
use crate::cmd::vela::manifests::Manifest;
use crate::cmd::vela::objects;
use crate::cmd::vela::render::definition_set::DefinitionSet;
use crate::cmd::vela::render::plan::Plan;
use crate::cmd::vela::render::{first_revision, live_definitions, parse_supported};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::parse::{Definitions, Parsed};
use crate::controllers::oam::placement::service_key;
use crate::controllers::oam::revisions::names::is_revision_of;
use crate::controllers::oam::revisions::{
    Candidate, Recorded, expand, hash, is_record_of, is_release_of, is_unchanged, recorded_application,
};
use crate::controllers::oam::trackers::Inventory;
use crate::runtime::kube_client::call;

pub struct Target {
    pub name: NamespacedName,
    /// As deployed: of the file, with what others have set; or of the revision, if it is the published version.
    pub application: Application,
    pub parsed: Parsed,
    pub plan: Plan,
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

impl Target {
    pub async fn read(client: &Client, manifest: &Manifest, shared: &str) -> Result<Self, Error> {
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
        Self::of(client, declared, live.as_ref(), (&definitions, shared)).await
    }

    /// Compares an Application as it is declared with what the cluster has. `definitions` come with the namespace of those
    /// for all Applications.
    pub async fn of(
        client: &Client,
        declared: Application,
        live: Option<&Application>,
        (definitions, shared): (&DefinitionSet, &str),
    ) -> Result<Self, Error> {
        let name = objects::identity(&declared).name;
        let inventory = match live {
            Some(live) => objects::inventory(client, live).await?,
            None => Inventory::default(),
        };
        let status = live.and_then(|live| live.status.clone()).unwrap_or_default();
        let latest = status.latest_revision;
        let latest = latest.filter(|latest| is_revision_of(&name.name, &latest.name));
        let recorded = match &latest {
            Some(latest) => Revision::read(client, &name.namespace, &latest.name).await?,
            None => None,
        };
        let definitions = live_definitions(&declared, definitions, &name.namespace, shared);
        let Deployed {
            application,
            parsed,
            plan,
            is_new_revision,
        } = deployed(declared, &definitions, recorded)?;
        let has_finished = status.workflow.is_some_and(|workflow| workflow.finished);
        let version = |application: &Application| application.annotations().get(labels::PUBLISH_VERSION).cloned();
        let is_same = |live: &Application| live.spec == application.spec && version(live) == version(&application);
        let healthy = status.services.into_iter().filter(|service| service.workload_healthy);
        Ok(Self {
            revision: latest.unwrap_or_else(|| first_revision(&name.name)),
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

struct Revision {
    object: ApplicationRevision,
    contents: ApplicationRevisionSpec,
}

impl Revision {
    async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<Self>, Error> {
        let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), namespace);
        let object = call(revisions.get_opt(name)).await;
        let Some(object) = object.map_err(failed_to(format!("read revision {name}")))? else {
            return Ok(None);
        };
        let contents = expand(&object.spec).map_err(failed_to(format!("read revision {name}")))?;
        let contents = contents.into_owned();
        Ok(Some(Self { object, contents }))
    }
}

struct Deployed {
    application: Application,
    parsed: Parsed,
    plan: Plan,
    is_new_revision: bool,
}

impl Deployed {
    fn new(
        application: Application,
        parsed: Parsed,
        definitions: &Definitions<'_>,
        is_new_revision: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            plan: Plan::new(&application, &parsed, definitions)?,
            application,
            parsed,
            is_new_revision,
        })
    }
}

/// Decides which Application a pass deploys, with which definitions.
fn deployed(
    declared: Application,
    definitions: &Definitions<'_>,
    recorded: Option<Revision>,
) -> Result<Deployed, Error> {
    let Some(recorded) = recorded else {
        let parsed = parse_supported(&declared, definitions)?;
        return Deployed::new(declared, parsed, definitions, true);
    };
    let name = recorded.object.name_any();
    let recorded_first = definitions.recorded_first(&name, &recorded.contents);
    if is_release_of(&recorded.object, &declared) {
        let application = recorded_application(&recorded.object, &recorded.contents);
        let parsed = parse_supported(&application, &Definitions::frozen(&name, &recorded.contents))?;
        return Deployed::new(application, parsed, &recorded_first, false);
    }
    let parsed = match parse_supported(&declared, definitions) {
        // What runs is kept, although a definition was deleted since.
        Err(_) if is_record_of(&recorded.object, &recorded.contents, &declared) => {
            let parsed = parse_supported(&declared, &recorded_first)?;
            return Deployed::new(declared, parsed, &recorded_first, false);
        }
        parsed => parsed?,
    };
    let contents = parsed.contents(&declared);
    let candidate = Candidate {
        hash: &hash(&contents)?,
        spec: &contents,
        publish_version: declared.annotations().get(labels::PUBLISH_VERSION).map(String::as_str),
        auto_update: declared.annotations().contains_key(labels::AUTO_UPDATE),
    };
    let latest = Recorded::of(&recorded.object, &recorded.contents);
    if !is_unchanged(&latest, &candidate) {
        return Deployed::new(declared, parsed, definitions, true);
    }
    let parsed = parse_supported(&declared, &recorded_first)?;
    Deployed::new(declared, parsed, &recorded_first, false)
}
