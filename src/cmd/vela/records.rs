//! Drops records of objects from the trackers of an Application. The objects stay.

use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};

use super::objects;
use crate::api::NamespacedName;
use crate::api::oam::compression::Format;
use crate::api::oam::{Application, ManagedResource, ResourceTracker};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::compression::CrdCheck;
use crate::controllers::oam::trackers::{decode, display_name, encode, remove};
use crate::runtime::events::{Event, EventPublisher};
use crate::runtime::kube_client::call;

/// Objects that an event names.
const MAX_NAMED: usize = 10;

/// Shows the chosen records, and drops them if this is confirmed. Returns them.
pub async fn drop_records(
    client: &Client,
    name: &NamespacedName,
    is_confirmed: bool,
    is_chosen: impl Fn(&ManagedResource) -> bool,
) -> Result<Vec<ManagedResource>, Error> {
    let mut chosen = Vec::new();
    for tracker in objects::trackers(client, name).await? {
        let tracker_name = tracker.name_any();
        let entries = decode(&tracker.spec).map_err(failed_to(format!("decode ResourceTracker {tracker_name}")))?;
        let dropped: Vec<_> = entries.iter().filter(|entry| is_chosen(entry)).cloned().collect();
        let names = dropped
            .iter()
            .map(|entry| format!("{tracker_name}: {}", display_name(entry)));
        output::print(&output::section("", names))?;
        if let (true, Some(kept)) = (is_confirmed, remove(&entries, &dropped)) {
            write(client, tracker, kept).await?;
        }
        chosen.extend(dropped);
    }
    Ok(chosen)
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

/// Publishes an event with the names of dropped records.
pub async fn publish(
    client: &Client,
    name: &NamespacedName,
    (reason, action): (&'static str, &'static str),
    note: &str,
    dropped: &[ManagedResource],
) -> Result<(), Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
    let application = call(applications.get_opt(&name.name))
        .await
        .map_err(|error| objects::application_error(name, "read", error))?;
    // Trackers may outlive their Application.
    let Some(application) = application else {
        return Ok(());
    };
    let names: Vec<String> = dropped.iter().take(MAX_NAMED).map(display_name).collect();
    let more = match dropped.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let event = Event::warning(reason, format!("{note}: {}{more}", names.join(", ")));
    let events = EventPublisher::new(client.clone(), FIELD_MANAGER);
    events
        .publish::<Application>(&application.metadata, action, event)
        .await;
    Ok(())
}
