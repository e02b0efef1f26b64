//! Changes Applications in the version in which they were read, again if they changed meanwhile.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::manifests::{MAX_ATTEMPTS, changed_too_often, patch_parameters};
use super::objects;
use crate::api::oam::{Application, ApplicationStatus};
use crate::api::{NamespacedName, Partial};
use crate::cmd::{Error, failed_to};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::workflow::operations::OperationError;
use crate::runtime::kube_client::call;
use crate::runtime::three_way;

/// Attempts for a change of a status, which the controller changes often while a workflow runs.
const MAX_STATUS_ATTEMPTS: u32 = 8;
/// Time after the first conflict; it doubles after each.
const PAUSE: Duration = Duration::from_millis(20);

pub async fn replace(
    client: &Client,
    name: &NamespacedName,
    mut change: impl FnMut(&mut DynamicObject),
) -> Result<DynamicObject, Error> {
    let applications = dynamic_api(client, &name.namespace);
    let failed = |error| objects::application_error(name, "change", error);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    for _ in 0..MAX_ATTEMPTS {
        let mut live = call(applications.get(&name.name)).await.map_err(failed)?;
        change(&mut live);
        match call(applications.replace(&name.name, &parameters, &live)).await {
            Err(error) if error.is_conflict() => {}
            written => return written.map_err(failed),
        }
    }
    Err(changed_too_often(&format!("Application {name}")))
}

pub fn dynamic_api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Application>(&()))
}

/// Changes a status. An unchanged one is not written.
pub async fn change_status<T>(
    client: &Client,
    name: &NamespacedName,
    mut change: impl FnMut(&mut ApplicationStatus) -> Result<T, OperationError>,
) -> Result<T, Error> {
    let applications: Api<Partial<Application>> = Api::namespaced(client.clone(), &name.namespace);
    for attempt in 0..MAX_STATUS_ATTEMPTS {
        let application = objects::application(client, name).await?;
        let before = application.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let result = change(&mut after).map_err(|error| refused(name, &error))?;
        let Some(change) = three_way::difference(&fields(&before)?, &fields(&after)?) else {
            return Ok(result);
        };
        let patch = json!({
            "metadata": { "uid": application.uid(), "resourceVersion": application.resource_version() },
            "status": change,
        });
        match call(applications.patch_status(&name.name, &patch_parameters(), &Patch::Merge(patch))).await {
            Ok(_) => return Ok(result),
            Err(error) if error.is_conflict() => sleep(PAUSE * 2_u32.pow(attempt)).await,
            Err(error) => return Err(objects::application_error(name, "change the status of", error)),
        }
    }
    Err(changed_too_often(&format!("Application {name}")))
}

/// Sets or removes an annotation, unless more than the status has changed since the Application was read.
pub async fn annotate(client: &Client, read: &Application, annotation: &str, value: Option<&str>) -> Result<(), Error> {
    let name = objects::identity(read).name;
    let applications: Api<Partial<Application>> = Api::namespaced(client.clone(), &name.namespace);
    let mut version = read.resource_version();
    for attempt in 0..MAX_STATUS_ATTEMPTS {
        let patch = json!({ "metadata": {
            "uid": read.uid(),
            "resourceVersion": version,
            "annotations": { annotation: value },
        } });
        match call(applications.patch(&name.name, &patch_parameters(), &Patch::Merge(patch))).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() => sleep(PAUSE * 2_u32.pow(attempt)).await,
            Err(error) => return Err(objects::application_error(&name, "annotate", error)),
        }
        let live = objects::application(client, &name).await?;
        if !has_same_contents(read, &live) {
            return Err(Error::Failed("has changed meanwhile; run the command again".to_owned()));
        }
        version = live.resource_version();
    }
    Err(changed_too_often(&format!("Application {name}")))
}

/// Returns true for two versions of an object that differ in the status at most.
fn has_same_contents(one: &Application, other: &Application) -> bool {
    let (one, other) = (&one.metadata, &other.metadata);
    let is_same_spec = one.uid == other.uid && one.generation == other.generation;
    is_same_spec && one.labels == other.labels && one.annotations == other.annotations
}

pub fn refused(name: &NamespacedName, error: &OperationError) -> Error {
    Error::Failed(format!("{name}: {error}"))
}

fn fields(status: &ApplicationStatus) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(status).map_err(failed_to("encode the status"))? {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}
