//! Checks of the rights that tenants may use: those of the controller, and those of others.

use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::oam::{Application, ApplicationRevision, ResourceTracker, labels};
use crate::cmd::output::checks::{Checked, Finding, fine};
use crate::cmd::vela::objects::{list_all, names_user};
use crate::controllers::oam::dispatch::admission::controls_elsewhere;
use crate::controllers::oam::start::authentication::find_protection;
use crate::controllers::oam::trackers::{Tracker, display_name};
use crate::runtime::kube_client::{ApiError, call};

const MAX_NAMES: usize = 10;
const PAGE_SIZE: u32 = 500;

pub(super) async fn check(client: &Client) -> Vec<Checked> {
    vec![
        check_protection(client).await,
        reported(check_applications(client).await, "list Applications"),
        reported(check_trackers(client).await, "list ResourceTrackers"),
        reported(check_revisions(client).await, "list ApplicationRevisions"),
    ]
}

/// Without the CRDs, which another check names, there is nothing to list.
pub(super) fn reported(result: Result<Checked, ApiError>, action: &str) -> Checked {
    match result {
        Ok(checked) => checked,
        Err(error) if error.is_not_found() => {
            fine(format!("nothing to check: no custom resource definition to {action}"))
        }
        Err(error) => Err(format!("failed to {action}: {error}")),
    }
}

async fn check_protection(client: &Client) -> Checked {
    match find_protection(client, None).await {
        Ok(Some(name)) => fine(format!("webhook {name} may protect the identities of Applications")),
        Ok(None) => Ok(Finding::Warning(
            "no webhook protects app.oam.dev/username and app.oam.dev/group: authors of Applications choose any user, unless \
             --default-service-account or --require-identity is set; the feature gate AuthenticateApplication needs a webhook"
                .to_owned(),
        )),
        Err(error) => Err(format!("failed to look for the webhook that protects identities: {error}")),
    }
}

async fn check_applications(client: &Client) -> Result<Checked, ApiError> {
    let names = names_of(client, |app: &Application| !names_user(app)).await?;
    if names.is_empty() {
        return Ok(fine("all Applications name an identity"));
    }
    Ok(Ok(Finding::Warning(format!(
        "{} have the rights of the controller, unless --default-service-account or --require-identity is set",
        listed(&names, "Applications")
    ))))
}

/// Looks for objects that give privileges in other namespaces. Once recorded, they are kept.
async fn check_trackers(client: &Client) -> Result<Checked, ApiError> {
    let mut objects = Vec::new();
    let mut undecodable = Vec::new();
    for tracker in list_all(&Api::<ResourceTracker>::all(client.clone()), &ListParams::default()).await? {
        let name = tracker.name_any();
        let namespace = tracker.labels().get(labels::APP_NAMESPACE).cloned().unwrap_or_default();
        match Tracker::decode(Arc::new(tracker)) {
            Ok(tracker) => objects.extend(
                (tracker.entries.iter())
                    .filter(|entry| controls_elsewhere(&namespace, &entry.api_version, &entry.namespace))
                    .map(|entry| format!("{} of {name}", display_name(entry))),
            ),
            Err(_) => undecodable.push(name),
        }
    }
    Ok(if !undecodable.is_empty() {
        Err(format!("{} can't be decoded", listed(&undecodable, "ResourceTrackers")))
    } else if objects.is_empty() {
        fine("no Application has applied objects of this controller in another namespace")
    } else {
        Ok(Finding::Warning(format!(
            "{} are in another namespace than their Application, where they may get other privileges",
            listed(&objects, "objects of this controller")
        )))
    })
}

async fn check_revisions(client: &Client) -> Result<Checked, ApiError> {
    let is_redacted = |revision: &ApplicationRevision| revision.annotations().contains_key(labels::REDACTED);
    let names = names_of(client, is_redacted).await?;
    if names.is_empty() {
        return Ok(fine("all ApplicationRevisions have the data that vela-core needs"));
    }
    Ok(Ok(Finding::Warning(format!(
        "{} lack the data of Secrets: vela-core would deploy empty ones, so don't give their Applications back; run \
         without --redact-secrets-in-revisions first",
        listed(&names, "ApplicationRevisions")
    ))))
}

/// Returns the names of the objects that `is_selected` by their metadata.
async fn names_of<K>(client: &Client, is_selected: impl Fn(&K) -> bool) -> Result<Vec<String>, ApiError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Default,
{
    let api: Api<K> = Api::all(client.clone());
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    let mut names = Vec::new();
    loop {
        let page = call(api.list_metadata(&parameters)).await?;
        for object in page.items {
            let mut with_metadata = K::default();
            *with_metadata.meta_mut() = object.metadata;
            if is_selected(&with_metadata) {
                let namespace = with_metadata.namespace().unwrap_or_default();
                names.push(format!("{namespace}/{}", with_metadata.name_any()));
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(names),
        }
    }
}

pub(super) fn listed(names: &[String], what: &str) -> String {
    let shown = names
        .iter()
        .take(MAX_NAMES)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().checked_sub(MAX_NAMES).filter(|more| *more > 0) {
        None => format!("{} {what} ({shown})", names.len()),
        Some(more) => format!("{} {what} ({shown} and {more} more)", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (1..=12).map(|number| format!("team/{number}")).collect();
        assert_eq!(listed(&names[..1], "Applications"), "1 Applications (team/1)");
        assert!(listed(&names, "Applications").ends_with("team/10 and 2 more)"));
    }
}
