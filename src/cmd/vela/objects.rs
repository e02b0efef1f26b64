//! Reads Applications and what belongs to them from a cluster.

use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Api, ListParams};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::oam::labels::{SERVICE_ACCOUNT_ANNOTATION, USER_ANNOTATION};
use crate::api::oam::{Application, ApplicationRevision, GROUP, ResourceTracker, labels};
use crate::api::{Guarded, NamespacedName};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::revisions::names::revision_number;
use crate::controllers::oam::trackers::{AppIdentity, Inventory, Tracker, tracker_selector};
use crate::runtime::kube_client::{ApiError, call};

/// Objects per page of a list. Revisions and trackers have up to 1.5 MiB.
const PAGE_SIZE: u32 = 50;
const MAX_OBJECTS: usize = 50_000;

pub async fn list_all<K>(api: &Api<K>, parameters: &ListParams) -> Result<Vec<K>, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut parameters = parameters.clone().limit(PAGE_SIZE);
    let mut objects = Vec::new();
    loop {
        let page = call(api.list(&parameters)).await?;
        objects.extend(page.items);
        if objects.len() > MAX_OBJECTS {
            return Err(ApiError::bad_request(format!(
                "more than {MAX_OBJECTS} objects; choose a namespace with -n"
            )));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Lists the Applications of a namespace, or of all.
pub async fn list_applications(client: &Client, namespace: Option<&str>) -> Result<Vec<Guarded<Application>>, Error> {
    let applications: Api<Guarded<Application>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = list_all(&applications, &ListParams::default()).await;
    listed.map_err(|error| match error.code {
        Some(404) => not_installed(),
        Some(403) if namespace.is_none() => Error::Failed(format!(
            "failed to list Applications: {error}; omit -A and use -n NAMESPACE"
        )),
        _ => failed_to("list Applications")(error),
    })
}

/// Lists the objects of a namespace that can be decoded; none if the kind is not installed.
pub async fn list_decodable<K>(client: &Client, namespace: &str) -> Result<Vec<K>, ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<Guarded<K>> = Api::namespaced(client.clone(), namespace);
    match list_all(&api, &ListParams::default()).await {
        Ok(objects) => Ok(objects.into_iter().filter_map(decoded).collect()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub fn decoded<K>(Guarded(DeserializeGuard(object)): Guarded<K>) -> Option<K> {
    object.ok()
}

/// Returns the error of a request for an Application, with what to do.
pub fn application_error(name: &NamespacedName, action: &str, error: ApiError) -> Error {
    match error.code {
        // The message of the API server names an object that is missing, but not a kind.
        Some(404) if error.message.contains(&name.name) => Error::Failed(format!(
            "Application {name} not found; set its namespace with -n, or list all with `portolan vela list -A`"
        )),
        Some(404) => not_installed(),
        _ => failed_to(format!("{action} Application {name}"))(error),
    }
}

pub fn not_installed() -> Error {
    Error::Failed(format!(
        "the CRDs of {GROUP} are not installed; install them with `portolan crds core.oam.dev --apply`"
    ))
}

pub async fn application(client: &Client, name: &NamespacedName) -> Result<Application, Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
    let application = call(applications.get(&name.name)).await;
    application.map_err(|error| application_error(name, "read", error))
}

/// Returns the revisions of an Application, oldest first.
pub async fn revisions(client: &Client, name: &NamespacedName) -> Result<Vec<ApplicationRevision>, Error> {
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    let selector = ListParams::default().labels(&format!("{}={}", labels::APP_NAME, name.name));
    let mut revisions = list_all(&revisions, &selector)
        .await
        .map_err(failed_to(format!("list the revisions of {name}")))?;
    revisions.sort_by_key(|revision| revision_number(&revision.name_any()));
    Ok(revisions)
}

/// Returns the trackers that are labeled with the name of an Application.
pub async fn trackers(client: &Client, name: &NamespacedName) -> Result<Vec<ResourceTracker>, Error> {
    let trackers: Api<ResourceTracker> = Api::all(client.clone());
    list_all(&trackers, &ListParams::default().labels(&tracker_selector(name)))
        .await
        .map_err(failed_to(format!("list the ResourceTrackers of {name}")))
}

pub async fn inventory(client: &Client, application: &Application) -> Result<Inventory, Error> {
    let identity = identity(application);
    let trackers = trackers(client, &identity.name).await?;
    let trackers: Result<Vec<_>, _> = trackers.into_iter().map(Arc::new).map(Tracker::decode).collect();
    Ok(Inventory::of(&identity, trackers?)?)
}

/// Returns true if an Application names the user with whose rights it acts.
pub fn names_user(application: &Application) -> bool {
    [USER_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION].iter().any(|name| {
        let annotation = application.annotations().get(*name);
        annotation.is_some_and(|text| !text.trim().is_empty())
    })
}

pub fn identity(application: &Application) -> AppIdentity {
    let version = application.annotations().get(labels::PUBLISH_VERSION);
    AppIdentity {
        name: NamespacedName::of(&application.metadata).unwrap_or_default(),
        uid: application.uid().unwrap_or_default(),
        generation: application.metadata.generation.unwrap_or_default(),
        publish_version: version.filter(|version| !version.is_empty()).cloned(),
    }
}
