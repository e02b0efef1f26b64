//! Commands for trackers that the controller leaves unchanged without a confirmation.

use clap::Args;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::{ApplicationFlags, objects};
use crate::api::Partial;
use crate::api::oam::{Application, ResourceTracker, labels};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::CONFIRMED;
use crate::controllers::oam::trackers::{Owners, display_name};
use crate::runtime::kube_client::call;

/// Give the ResourceTrackers of a deleted Application to the one of the same name
///
/// An Application that was deleted without its objects leaves trackers, and one that is created again is refused.
#[derive(Args, Debug)]
pub struct Adopt {
    /// Name of the Application
    name: String,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Adopt {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let uid = application.uid().unwrap_or_default();
        let label = |tracker: &ResourceTracker| tracker.labels().get(labels::APP_UID).cloned().unwrap_or_default();
        let trackers = objects::trackers(&client, &name).await?;
        let foreign: Vec<_> = (trackers.iter())
            .filter(|tracker| !label(tracker).is_empty() && label(tracker) != uid)
            .collect();
        if foreign.is_empty() {
            return output::print(&format!("{name} has no trackers of another Application\n"));
        }
        let former: Vec<String> = foreign.iter().map(|tracker| label(tracker)).collect();
        check_gone(&client, &former).await?;
        let mut deleting = Vec::new();
        for tracker in foreign {
            let tracker_name = tracker.name_any();
            if tracker.metadata.deletion_timestamp.is_some() {
                deleting.push(tracker_name);
                continue;
            }
            adopt(&client, tracker, &application).await?;
            output::print(&format!("ResourceTracker {tracker_name}: adopted\n"))?;
        }
        if deleting.is_empty() {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "ResourceTrackers that are being deleted are not adopted, because their objects would be deleted with them: \
             {}; remove their finalizers to keep the objects",
            deleting.join(", ")
        )))
    }
}

/// Checks that no Application has one of these UIDs.
async fn check_gone(client: &Client, uids: &[String]) -> Result<(), Error> {
    let applications: Api<Partial<Application>> = Api::all(client.clone());
    let applications = objects::list_all(&applications, &ListParams::default())
        .await
        .map_err(failed_to("list all Applications, which may own the trackers"))?;
    let owner = applications.iter().find(|application| {
        let uid = application.metadata.uid.as_ref();
        uid.is_some_and(|uid| uids.contains(uid))
    });
    let name = |application: &Partial<Application>| {
        let meta = &application.metadata;
        let namespace = meta.namespace.clone().unwrap_or_default();
        format!("{namespace}/{}", meta.name.clone().unwrap_or_default())
    };
    match owner {
        None => Ok(()),
        Some(owner) => Err(Error::Failed(format!(
            "Application {} exists and owns the trackers; correct their labels {} and {}",
            name(owner),
            labels::APP_NAME,
            labels::APP_NAMESPACE
        ))),
    }
}

async fn adopt(client: &Client, tracker: &ResourceTracker, application: &Application) -> Result<(), Error> {
    let name = tracker.name_any();
    let mut patch = json!({
        "metadata": {
            "uid": tracker.uid(),
            "resourceVersion": tracker.resource_version(),
            "labels": { labels::APP_UID: application.uid() },
        },
    });
    // The generations of the new Application start at 1. A tracker of a later one would count as newer than the current.
    if tracker.spec.application_generation > application.metadata.generation.unwrap_or_default() {
        patch["spec"] = json!({ "applicationGeneration": 0 });
    }
    let trackers: Api<ResourceTracker> = Api::all(client.clone());
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match call(trackers.patch(&name, &parameters, &Patch::Merge(patch))).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_conflict() => Err(Error::Failed(format!(
            "ResourceTracker {name} has changed meanwhile; run the command again"
        ))),
        Err(error) => Err(failed_to(format!("adopt ResourceTracker {name}"))(error)),
    }
}

/// Confirm a garbage collection that the controller holds back
///
/// The controller deletes no objects of older versions while the current version has none of its own. Shows the objects of
/// older versions that the current one lacks.
#[derive(Args, Debug)]
pub struct VelaGc {
    /// Name of the Application
    name: String,
    /// Let the controller delete these objects in the current generation
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl VelaGc {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let inventory = objects::inventory(&client, &application).await?;
        let owners = Owners::of(&inventory);
        let old = inventory.history.iter().flat_map(|tracker| owners.owned_by(tracker));
        let names: Vec<String> = old.filter(|entry| !entry.skip_gc).map(display_name).collect();
        let count = names.len();
        output::print(&output::section("", names))?;
        if count == 0 {
            return output::print(&format!("{name} has no objects of older versions\n"));
        }
        if !self.confirm {
            return output::print(&format!(
                "{count} objects of older versions; add --confirm to let the controller delete them\n"
            ));
        }
        confirm(&client, &application).await?;
        output::print(&format!("{name}: collection of {count} objects confirmed\n"))
    }
}

/// Confirms the collection for the generation that was shown, unless the Application has changed since.
async fn confirm(client: &Client, application: &Application) -> Result<(), Error> {
    let name = objects::identity(application).name;
    let generation = application.metadata.generation.unwrap_or_default().to_string();
    let patch = json!({ "metadata": {
        "uid": application.uid(),
        "annotations": { CONFIRMED: generation },
    } });
    let applications: Api<Partial<Application>> = Api::namespaced(client.clone(), &name.namespace);
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = call(applications.patch(&name.name, &parameters, &Patch::Merge(patch)))
        .await
        .map_err(|error| objects::application_error(&name, "annotate", error))?;
    // The annotation of an older generation has no effect.
    if written.metadata.generation != application.metadata.generation {
        return Err(Error::Failed(format!(
            "Application {name} has changed meanwhile; run the command again"
        )));
    }
    Ok(())
}
