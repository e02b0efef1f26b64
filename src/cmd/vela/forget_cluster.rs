//! Drops the records of objects in a cluster that can't be reached any more.

use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

use super::objects;
use crate::api::NamespacedName;
use crate::api::oam::compression::Format;
use crate::api::oam::{Application, ManagedResource, ResourceTracker};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::compression::CrdCheck;
use crate::controllers::oam::trackers::{LOCAL, decode, display_name, encode, remove};
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::kube_client::call;

/// Objects that an event names.
const MAX_NAMED: usize = 10;

/// Shows the records of a cluster's objects, and drops them if this is confirmed.
pub async fn forget_cluster(
    client: &Client,
    name: &NamespacedName,
    cluster: &str,
    is_confirmed: bool,
) -> Result<(), Error> {
    if cluster.is_empty() || cluster == LOCAL {
        return Err(Error::Usage(
            "invalid value for --forget-cluster: objects of the local cluster are deleted, not forgotten".to_owned(),
        ));
    }
    let mut forgotten = Vec::new();
    for tracker in objects::trackers(client, name).await? {
        let tracker_name = tracker.name_any();
        let entries = decode(&tracker.spec).map_err(failed_to(format!("decode ResourceTracker {tracker_name}")))?;
        let dropped: Vec<_> = entries
            .iter()
            .filter(|entry| entry.cluster == cluster)
            .cloned()
            .collect();
        let names = dropped
            .iter()
            .map(|entry| format!("{tracker_name}: {}", display_name(entry)));
        output::print(&output::section("", names))?;
        if let (true, Some(kept)) = (is_confirmed, remove(&entries, &dropped)) {
            write(client, tracker, kept).await?;
        }
        forgotten.extend(dropped);
    }
    let count = forgotten.len();
    if count == 0 {
        return output::print(&format!("{name} has no objects in cluster {cluster}\n"));
    }
    if !is_confirmed {
        return output::print(&format!(
            "{count} records of objects would be dropped, and the objects stay; add --yes to drop them\n"
        ));
    }
    publish(client, name, cluster, &forgotten).await?;
    output::print(&format!("{count} records of objects dropped\n"))
}

/// Writes a tracker in the version in which it was read, in its own format.
async fn write(client: &Client, mut tracker: ResourceTracker, entries: Vec<ManagedResource>) -> Result<(), Error> {
    let name = tracker.name_any();
    let formats = [Format::Gzip, Format::Zstd];
    let mut formats = formats.into_iter();
    let format = formats.find(|format| format.name() == tracker.spec.compression.type_);
    let encoded = encode(entries, format).map_err(failed_to(format!("encode ResourceTracker {name}")))?;
    let trackers: Api<ResourceTracker> = Api::all(client.clone());
    if tracker.spec.compression.is_empty() {
        let checked = CrdCheck::default().check(trackers.clone(), &encoded.compression).await;
        checked.map_err(Error::Failed)?;
    }
    tracker.spec.managed_resources = encoded.managed_resources;
    tracker.spec.compression = encoded.compression;
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match call(trackers.replace(&name, &parameters, &tracker)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) if error.is_conflict() => Err(Error::Failed(format!(
            "ResourceTracker {name} has changed meanwhile; run the command again"
        ))),
        Err(error) => Err(failed_to(format!("update ResourceTracker {name}"))(error)),
    }
}

async fn publish(
    client: &Client,
    name: &NamespacedName,
    cluster: &str,
    forgotten: &[ManagedResource],
) -> Result<(), Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
    let application = call(applications.get_opt(&name.name))
        .await
        .map_err(|error| objects::application_error(name, "read", error))?;
    // Trackers may outlive their Application.
    let Some(application) = application else {
        return Ok(());
    };
    let names: Vec<String> = forgotten.iter().take(MAX_NAMED).map(display_name).collect();
    let more = match forgotten.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let note = format!(
        "records of objects in cluster {cluster} dropped: {}{more}",
        names.join(", ")
    );
    let events = EventPublisher::new(client.clone(), FIELD_MANAGER);
    let event = Event::warning("ClusterForgotten", note);
    events
        .publish::<Application>(&application.metadata, "ForgetCluster", event)
        .await;
    Ok(())
}
