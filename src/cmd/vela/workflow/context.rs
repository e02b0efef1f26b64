//! Reads and changes the ConfigMap with the values of a workflow.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::api::is_object_name;
use crate::api::oam::Application;
use crate::cmd::vela::manifests::{MAX_ATTEMPTS, changed_too_often, patch_parameters};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::workflow::operations::{Removed, forget};
use crate::runtime::kube_client::call;

/// Returns the ConfigMap that the status names, unless it belongs to another object or is gone.
pub async fn context_map(client: &Client, application: &Application) -> Result<Option<ConfigMap>, Error> {
    let workflow = application.status.as_ref().and_then(|status| status.workflow.as_ref());
    let backend = workflow.and_then(|workflow| workflow.context_backend.as_ref());
    let name = backend.and_then(|backend| backend.name.as_deref());
    // The status, which users may write, names it.
    let Some(name) = name.filter(|name| is_object_name(name)) else {
        return Ok(None);
    };
    let map = call(config_maps(client, application).get_opt(name))
        .await
        .map_err(failed_to(format!("read ConfigMap {name}")))?;
    let uid = application.uid();
    let is_owned = |map: &ConfigMap| {
        map.owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == uid.as_ref())
    };
    Ok(map.filter(is_owned))
}

/// Removes the values that a restart makes invalid.
pub async fn forget_values(client: &Client, application: &Application, removed: &Removed) -> Result<(), Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(map) = context_map(client, application).await? else {
            return Ok(());
        };
        let name = map.name_any();
        let before = map.data.clone().unwrap_or_default();
        let mut after = before.clone();
        let is_changed = forget(&mut after, removed);
        if !is_changed.map_err(failed_to(format!("change ConfigMap {name}")))? {
            return Ok(());
        }
        let patch = json!({
            "metadata": { "uid": map.uid(), "resourceVersion": map.resource_version() },
            "data": change(&before, &after),
        });
        let maps = config_maps(client, application);
        match call(maps.patch(&name, &patch_parameters(), &Patch::Merge(patch))).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(failed_to(format!("change ConfigMap {name}"))(error)),
        }
    }
    Err(changed_too_often("ConfigMap of the workflow"))
}

/// Returns the keys that differ; null removes one.
fn change<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> BTreeMap<&'a str, Option<&'a str>> {
    let keys = before.keys().chain(after.keys());
    let changed = keys.filter(|key| before.get(*key) != after.get(*key));
    changed
        .map(|key| (key.as_str(), after.get(key).map(String::as_str)))
        .collect()
}

fn config_maps(client: &Client, application: &Application) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &application.namespace().unwrap_or_default())
}
