//! The kinds of objects that the API server has, as a review needs them.

use std::collections::BTreeMap;

use kube::Client;

use super::super::review::Verdict;
use crate::api::is_object_name;
use crate::controllers::oam::objects::ObjectError;
use crate::runtime::kube_client::{ApiError, call};

/// The resources of one review. Each version of a group is read once.
pub(super) struct ServedResources {
    client: Client,
    /// The plural of each kind, by version of the API. `None` for a version that is not served.
    versions: BTreeMap<String, Option<BTreeMap<String, String>>>,
}

impl ServedResources {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            versions: BTreeMap::new(),
        }
    }

    /// Returns the name of a kind as RBAC has it, such as `deployments.apps`.
    ///
    /// # Errors
    /// `no_match` makes the refusal for a kind that is not served, from the text that KubeVela has for it.
    pub(super) async fn resource(
        &mut self,
        api_version: &str,
        kind: &str,
        no_match: impl FnOnce(String) -> String + Send,
    ) -> Result<String, Verdict> {
        if !self.versions.contains_key(api_version) {
            let plurals = plurals(&self.client, api_version)
                .await
                .map_err(|error| Verdict::Failed(format!("failed to discover the kinds of {api_version}: {error}")))?;
            self.versions.insert(api_version.to_owned(), plurals);
        }
        let plurals = self.versions.get(api_version).and_then(Option::as_ref);
        let Some(plural) = plurals.and_then(|plurals| plurals.get(kind)) else {
            let error = ObjectError::NotInstalled {
                kind: kind.to_owned(),
                version: api_version.to_owned(),
            };
            return Err(Verdict::Denied(no_match(error.to_string())));
        };
        Ok(match api_version.split_once('/') {
            Some((group, _)) => format!("{plural}.{group}"),
            None => plural.clone(),
        })
    }
}

async fn plurals(client: &Client, api_version: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
    // The text becomes a part of a path.
    let list = match api_version.split_once('/') {
        None if is_object_name(api_version) => call(client.list_core_api_resources(api_version)).await,
        Some((group, version)) if is_object_name(group) && is_object_name(version) => {
            call(client.list_api_group_resources(api_version)).await
        }
        _ => return Ok(None),
    };
    let list = match list {
        Ok(list) => list,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let resources = list.resources.into_iter();
    // Subresources have the kinds of others.
    let resources = resources.filter(|resource| !resource.name.contains('/'));
    Ok(Some(resources.map(|resource| (resource.kind, resource.name)).collect()))
}
