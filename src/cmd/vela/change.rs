//! Changes Applications in the version in which they were read, again if they changed meanwhile.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, Patch, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::manifests::{changed_too_often, patch_parameters};
use super::objects;
use crate::api::oam::{Application, ApplicationStatus};
use crate::api::{NamespacedName, Partial};
use crate::cmd::{Error, failed_to};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::workflow::operations::OperationError;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::three_way;

/// The controller changes a status often while a workflow runs.
const MAX_ATTEMPTS: u32 = 8;
/// Time after the first conflict; it doubles after each.
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an attempt until it returns a result. Nothing means a conflict.
async fn until_written<T>(
    name: &NamespacedName,
    mut attempt: impl AsyncFnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    for conflicts in 0..MAX_ATTEMPTS {
        if let Some(result) = attempt().await? {
            return Ok(result);
        }
        sleep(PAUSE * 2_u32.pow(conflicts)).await;
    }
    Err(changed_too_often(&format!("Application {name}")))
}

/// Returns nothing after a conflict.
fn written<T>(name: &NamespacedName, action: &str, response: Result<T, ApiError>) -> Result<Option<T>, Error> {
    match response {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_conflict() => Ok(None),
        Err(error) => Err(objects::application_error(name, action, error)),
    }
}

pub async fn replace(
    client: &Client,
    name: &NamespacedName,
    mut change: impl FnMut(&mut DynamicObject),
) -> Result<DynamicObject, Error> {
    let applications = dynamic_api(client, &name.namespace);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    until_written(name, async || {
        let mut live = call(applications.get(&name.name))
            .await
            .map_err(|error| objects::application_error(name, "change", error))?;
        change(&mut live);
        let response = call(applications.replace(&name.name, &parameters, &live)).await;
        written(name, "change", response)
    })
    .await
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
    until_written(name, async || {
        let application = objects::application(client, name).await?;
        let before = application.status.clone().unwrap_or_default();
        let mut after = before.clone();
        let result = change(&mut after).map_err(|error| refused(name, &error))?;
        let Some(difference) = three_way::difference(&fields(&before)?, &fields(&after)?) else {
            return Ok(Some(result));
        };
        let patch = json!({
            "metadata": { "uid": application.uid(), "resourceVersion": application.resource_version() },
            "status": difference,
        });
        let response = call(applications.patch_status(&name.name, &patch_parameters(), &Patch::Merge(patch))).await;
        Ok(written(name, "change the status of", response)?.map(|_| result))
    })
    .await
}

/// Sets or removes an annotation, unless more than the status has changed since the Application was read.
pub async fn annotate(client: &Client, read: &Application, annotation: &str, value: Option<&str>) -> Result<(), Error> {
    let name = &objects::identity(read).name;
    let applications: Api<Partial<Application>> = Api::namespaced(client.clone(), &name.namespace);
    let mut known = read.resource_version();
    until_written(name, async || {
        let version = match known.take() {
            Some(version) => version,
            None => unchanged_version(client, name, read).await?,
        };
        let patch = json!({ "metadata": {
            "uid": read.uid(),
            "resourceVersion": version,
            "annotations": { annotation: value },
        } });
        let response = call(applications.patch(&name.name, &patch_parameters(), &Patch::Merge(patch))).await;
        Ok(written(name, "annotate", response)?.map(drop))
    })
    .await
}

/// Returns the current version of an Application of which at most the status has changed since it was read.
async fn unchanged_version(client: &Client, name: &NamespacedName, read: &Application) -> Result<String, Error> {
    let live = objects::application(client, name).await?;
    if has_same_contents(read, &live) {
        return Ok(live.resource_version().unwrap_or_default());
    }
    Err(Error::Failed("has changed meanwhile; run the command again".to_owned()))
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
