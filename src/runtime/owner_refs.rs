//! Changes owner references of any object with conditional patches.
//!
//! Server-side apply merges owner references by UID, so it can neither replace a stale UID nor remove references of
//! other writers. A JSON patch with a version test can.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use url::Url;

use super::kube_client::{ApiError, call};
use super::watch::Resource;
use super::watch::projection::Decoded;

const MAX_ATTEMPTS: usize = 5;
/// Objects per page of a list.
const PAGE: u32 = 500;

#[derive(Clone, Debug, PartialEq)]
pub enum OwnerChange {
    /// Adds a reference, and replaces a reference with the same name, kind and version.
    Set(OwnerReference),
    Remove(String),
}

#[derive(Clone, Debug)]
pub enum Changed {
    Written(ObjectMeta),
    Unchanged(ObjectMeta),
    /// The object was deleted or recreated.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The API server refuses; a retry does not help until a user changes something.
    #[error("{0}")]
    Refused(String),
    /// May pass: no response or overload.
    #[error("{0}")]
    Transient(String),
    /// Other writers change the object again and again.
    #[error("it keeps changing")]
    Contended,
}

impl From<ApiError> for ChangeError {
    fn from(error: ApiError) -> Self {
        if error.is_retryable() {
            Self::Transient(error.message)
        } else {
            Self::Refused(error.message)
        }
    }
}

#[derive(Clone, Debug)]
pub struct OwnerTarget {
    pub resource: Resource,
    pub namespace: Option<String>,
    pub name: String,
    /// A recreated object has another UID and is not changed.
    pub uid: String,
    pub version: String,
    pub owners: Vec<OwnerReference>,
}

/// Returns the owner references after the change; none if nothing changes.
#[must_use]
pub fn changed(owners: &[OwnerReference], change: &OwnerChange) -> Option<Vec<OwnerReference>> {
    match change {
        OwnerChange::Set(desired) => {
            let has_same_name = |owner: &OwnerReference| {
                owner.api_version == desired.api_version && owner.kind == desired.kind && owner.name == desired.name
            };
            let others = || owners.iter().filter(|owner| !has_same_name(owner));
            let same_name: Vec<_> = owners.iter().filter(|owner| has_same_name(owner)).collect();
            // Other writers may have set `controller` or `blockOwnerDeletion` on purpose; only the UID matters.
            if let [owner] = same_name[..]
                && owner.uid == desired.uid
            {
                return None;
            }
            Some(others().chain([desired]).cloned().collect())
        }
        OwnerChange::Remove(uid) => {
            let remaining: Vec<_> = owners.iter().filter(|owner| owner.uid != *uid).cloned().collect();
            (remaining.len() < owners.len()).then_some(remaining)
        }
    }
}

pub async fn owned_by(
    client: &Client,
    resource: &Resource,
    namespace: &str,
    uid: &str,
) -> Result<Vec<OwnerTarget>, ApiError> {
    let api: Api<Decoded<()>> = Api::namespaced_with(client.clone(), namespace, &resource.api);
    let (mut owned, mut parameters) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = call(api.list_metadata(&parameters)).await?;
        let metadata = page.items.into_iter().map(|object| object.metadata);
        let is_owned = |meta: &ObjectMeta| meta.owner_references.iter().flatten().any(|owner| owner.uid == uid);
        owned.extend(metadata.filter(is_owned).map(|meta| OwnerTarget {
            resource: resource.clone(),
            namespace: Some(namespace.to_owned()),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            owners: meta.owner_references.unwrap_or_default(),
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(owned),
        }
    }
}

/// Objects that are gone, recreated or unchanged are not written. If an object has changed meanwhile, it is read, so
/// that concurrent changes are not lost, and written only if `confirm` still returns true.
pub async fn change<F>(
    client: &Client,
    manager: &str,
    target: &OwnerTarget,
    change: &OwnerChange,
    confirm: impl Fn(ObjectMeta) -> F,
) -> Result<Changed, ChangeError>
where
    F: Future<Output = Result<bool, ChangeError>>,
{
    let api: Api<Decoded<()>> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &target.resource.api),
        None => Api::all_with(client.clone(), &target.resource.api),
    };
    let parameters = PatchParams::apply(manager);
    let name = path_segment(&target.name);
    // Usually the last seen version is current, and no read is needed.
    if let Some(owners) = changed(&target.owners, change) {
        let patch = patch(Some(&target.version), &owners)?;
        match call(api.patch(&name, &parameters, &patch)).await {
            Ok(written) => return Ok(Changed::Written(written.meta)),
            Err(error) => match error.code {
                Some(404) => return Ok(Changed::Gone),
                // A failed test, or another cause, which the following read reveals.
                Some(409 | 422) => {}
                _ => return Err(error.into()),
            },
        }
    }
    let mut last_version = None;
    for _ in 0..MAX_ATTEMPTS {
        let Some(object) = call(api.get_opt(&name)).await? else {
            return Ok(Changed::Gone);
        };
        let meta = &object.meta;
        if meta.uid.as_deref() != Some(target.uid.as_str()) {
            return Ok(Changed::Gone);
        }
        // An object being deleted needs no owners.
        if matches!(change, OwnerChange::Set(_)) && meta.deletion_timestamp.is_some() {
            return Ok(Changed::Unchanged(object.meta));
        }
        let Some(owners) = changed(object.owner_references(), change) else {
            return Ok(Changed::Unchanged(object.meta));
        };
        if !confirm(meta.clone()).await? {
            return Ok(Changed::Unchanged(object.meta));
        }
        let patch = patch(meta.resource_version.as_deref(), &owners)?;
        match call(api.patch(&name, &parameters, &patch)).await {
            Ok(written) => return Ok(Changed::Written(written.meta)),
            Err(error) => match error.code {
                Some(404) => return Ok(Changed::Gone),
                Some(409) => {}
                // A failed test; if the object is unchanged, the owners themselves are invalid.
                Some(422) if last_version != meta.resource_version => {}
                _ => return Err(error.into()),
            },
        }
        last_version = object.meta.resource_version;
    }
    Err(ChangeError::Contended)
}

/// Encodes a name for a URL, which kube does not. Names of custom resources may contain anything but `/` and `%`.
#[must_use]
pub fn path_segment(name: &str) -> String {
    let Ok(mut url) = Url::parse("http://localhost") else {
        return name.to_owned();
    };
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.push(name);
    }
    url.path().trim_start_matches('/').to_owned()
}

fn patch(version: Option<&str>, owners: &[OwnerReference]) -> Result<Patch<()>, ChangeError> {
    const PATH: &str = "/metadata/ownerReferences";
    let test = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version });
    let write = if owners.is_empty() {
        json!({ "op": "remove", "path": PATH })
    } else {
        json!({ "op": "add", "path": PATH, "value": owners })
    };
    let patch = serde_json::from_value(json!([test, write]))
        .map_err(|error: serde_json::Error| ChangeError::Refused(error.to_string()))?;
    Ok(Patch::Json(patch))
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    fn owner(name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "app.k8s.io/v1beta1".to_owned(),
            kind: "Application".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(false),
            block_owner_deletion: Some(true),
        }
    }

    fn uids(owners: Option<Vec<OwnerReference>>) -> Option<Vec<String>> {
        owners.map(|owners| owners.into_iter().map(|owner| owner.uid).collect())
    }

    #[test]
    fn names_are_encoded_for_urls() {
        assert_eq!(path_segment("web-1.example"), "web-1.example");
        assert_eq!(path_segment("system:node"), "system:node");
        assert_eq!(path_segment("my role?<ü"), "my%20role%3F%3C%C3%BC");
    }

    #[test]
    fn an_owner_is_added_once() {
        let set = OwnerChange::Set(owner("a", "1"));
        assert_eq!(uids(changed(&[], &set)).unwrap(), ["1"]);
        assert_eq!(uids(changed(&[owner("b", "2")], &set)).unwrap(), ["2", "1"]);
        assert_eq!(changed(&[owner("b", "2"), owner("a", "1")], &set), None);
    }

    #[test]
    fn a_stale_owner_of_the_same_name_is_replaced() {
        let stale = OwnerReference {
            controller: Some(true),
            ..owner("a", "old")
        };
        let set = OwnerChange::Set(owner("a", "1"));
        assert_eq!(changed(std::slice::from_ref(&stale), &set), Some(vec![owner("a", "1")]));
        assert_eq!(changed(&[stale, owner("a", "1")], &set), Some(vec![owner("a", "1")]));
    }

    /// Adds an owner to a Pod that has changed since it was planned; returns the result and the methods of the requests.
    async fn add_after_conflict(is_confirmed: bool, current: serde_json::Value) -> (Changed, Vec<String>) {
        let methods: Arc<Mutex<Vec<String>>> = Arc::default();
        let received = Arc::clone(&methods);
        let server = tower::service_fn(move |request: Request<Body>| {
            let mut received = received.lock();
            received.push(request.method().to_string());
            let (code, body) = if received.len() == 1 {
                let conflict = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409,
                    "reason": "Conflict", "message": "changed" });
                (409, conflict)
            } else {
                (200, json!({ "metadata": current }))
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            ready(Ok::<_, std::convert::Infallible>(response.unwrap()))
        });
        let resource = Resource {
            api: kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
            is_namespaced: true,
            can_list: true,
        };
        let target = OwnerTarget {
            resource,
            namespace: Some("team".to_owned()),
            name: "web".to_owned(),
            uid: "uid-web".to_owned(),
            version: "1".to_owned(),
            owners: Vec::new(),
        };
        let client = Client::new(server, "team");
        let set = OwnerChange::Set(owner("a", "1"));
        let confirm = |meta: ObjectMeta| {
            assert_eq!(
                meta.resource_version.as_deref(),
                Some("2"),
                "the current state is confirmed"
            );
            ready(Ok(is_confirmed))
        };
        let changed = change(&client, "tests", &target, &set, confirm).await.unwrap();
        let methods = methods.lock().clone();
        (changed, methods)
    }

    #[tokio::test]
    async fn after_a_conflict_an_object_is_read_and_written_only_if_the_change_is_confirmed() {
        let current = json!({ "name": "web", "uid": "uid-web", "resourceVersion": "2" });
        let (changed, methods) = add_after_conflict(true, current.clone()).await;
        assert!(matches!(changed, Changed::Written(_)), "{changed:?}");
        assert_eq!(methods, ["PATCH", "GET", "PATCH"]);
        let (changed, methods) = add_after_conflict(false, current.clone()).await;
        assert!(matches!(changed, Changed::Unchanged(_)), "{changed:?}");
        assert_eq!(methods, ["PATCH", "GET"]);
        let mut deleting = current;
        deleting["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let (changed, methods) = add_after_conflict(true, deleting).await;
        assert!(matches!(changed, Changed::Unchanged(_)), "{changed:?}");
        assert_eq!(methods, ["PATCH", "GET"]);
    }

    #[test]
    fn an_owner_is_removed_by_its_uid_only() {
        let owners = [owner("a", "1"), owner("a", "2"), owner("b", "3")];
        assert_eq!(
            uids(changed(&owners, &OwnerChange::Remove("1".to_owned()))).unwrap(),
            ["2", "3"]
        );
        assert_eq!(changed(&owners, &OwnerChange::Remove("4".to_owned())), None);
    }
}
