//! Owner references of any object, changed by a patch that tests what it changes.
//!
//! Server-side apply merges owner references by UID, so it can't take the place of one whose UID is stale, nor take off what
//! another program has put there. A JSON patch can, and it fails if the object has changed since it was read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use serde_json::value::RawValue;

use super::kube_client::{ApiError, call};
use super::watch::projection::Decoded;
use super::watch::{Project, Reads, Resource};

/// How often an object that changes under our hands is read again.
const TRIES: usize = 5;

/// What is to be done to an object's owners.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This one is to be among them. One of the same name, kind and version gives way to it.
    Set(OwnerReference),
    /// The one of this UID is to go.
    Remove(String),
}

/// The result of [`change`].
#[derive(Clone, Debug)]
pub enum Changed {
    /// The object was written; its metadata since.
    Written(ObjectMeta),
    /// The object needs no write; its metadata as they were read.
    Unchanged(ObjectMeta),
    /// The object is gone, or was replaced by another one.
    Gone,
}

/// Why owners could not be changed, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The API server refuses: another try does not help before somebody changes something.
    Refused(String),
    /// It does not answer, has too much to do, or the object changes all the time.
    Passing(String),
}

impl From<ApiError> for ChangeError {
    fn from(error: ApiError) -> Self {
        if error.is_retryable() {
            Self::Passing(error.message)
        } else {
            Self::Refused(error.message)
        }
    }
}

/// The object whose owners are to be changed.
#[derive(Clone, Debug)]
pub struct Target {
    /// How its kind is asked for.
    pub resource: Resource,
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID: an object that was made anew under its name is left alone.
    pub uid: String,
    /// Its version as it is known.
    pub version: String,
    /// Its owners in that version.
    pub owners: Vec<OwnerReference>,
}

/// The owners that `change` calls for; nothing, if they are so already.
#[must_use]
pub fn changed(owners: &[OwnerReference], change: &Change) -> Option<Vec<OwnerReference>> {
    match change {
        Change::Set(wanted) => {
            let is_alike = |owner: &OwnerReference| {
                owner.api_version == wanted.api_version && owner.kind == wanted.kind && owner.name == wanted.name
            };
            let others = || owners.iter().filter(|owner| !is_alike(owner));
            let alike: Vec<_> = owners.iter().filter(|owner| is_alike(owner)).collect();
            // Who has made it a controller, or lets its deletion go on, may have a reason; only the UID has to be right.
            if let [owner] = alike[..]
                && owner.uid == wanted.uid
            {
                return None;
            }
            Some(others().chain([wanted]).cloned().collect())
        }
        Change::Remove(uid) => {
            let rest: Vec<_> = owners.iter().filter(|owner| owner.uid != *uid).cloned().collect();
            (rest.len() < owners.len()).then_some(rest)
        }
    }
}

/// Nothing but the metadata.
#[derive(Clone, Debug)]
struct Nothing;

impl Project for Nothing {
    const READS: Reads = Reads::Metadata;

    fn keep(_: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Self {
        Self
    }
}

/// Changes the owners of an object. If it is not in the known version any more it is read first, so that nothing is lost of what
/// others have written meanwhile; an object that is gone, is another by now, or is as wanted is left alone.
///
/// # Errors
/// [`ChangeError`].
pub async fn change(client: &Client, manager: &str, target: &Target, change: &Change) -> Result<Changed, ChangeError> {
    let api: Api<Decoded<Nothing>> = match &target.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &target.resource.api),
        None => Api::all_with(client.clone(), &target.resource.api),
    };
    let parameters = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    // Most objects are as they are known.
    if let Some(owners) = changed(&target.owners, change) {
        let patch = patch(Some(&target.version), &owners)?;
        match call(api.patch(&target.name, &parameters, &patch)).await {
            Ok(written) => return Ok(Changed::Written(written.meta)),
            Err(error) => match error.code {
                Some(404) => return Ok(Changed::Gone),
                // So it answers a test that fails, and other things: it is found out below.
                Some(409 | 422) => {}
                _ => return Err(error.into()),
            },
        }
    }
    let mut last_version = None;
    for _ in 0..TRIES {
        let Some(object) = call(api.get_opt(&target.name)).await? else {
            return Ok(Changed::Gone);
        };
        let meta = &object.meta;
        if meta.uid.as_deref() != Some(target.uid.as_str()) {
            return Ok(Changed::Gone);
        }
        // What is being deleted needs no owner any more.
        if matches!(change, Change::Set(_)) && meta.deletion_timestamp.is_some() {
            return Ok(Changed::Unchanged(object.meta));
        }
        let Some(owners) = changed(object.owner_references(), change) else {
            return Ok(Changed::Unchanged(object.meta));
        };
        let patch = patch(meta.resource_version.as_deref(), &owners)?;
        match call(api.patch(&target.name, &parameters, &patch)).await {
            Ok(written) => return Ok(Changed::Written(written.meta)),
            Err(error) => match error.code {
                Some(404) => return Ok(Changed::Gone),
                Some(409) => {}
                // So it also answers a test that fails; if the object is as it was, it means the owners.
                Some(422) if last_version != meta.resource_version => {}
                _ => return Err(error.into()),
            },
        }
        last_version = object.meta.resource_version;
    }
    Err(ChangeError::Passing("it changes all the time".to_owned()))
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
    fn an_owner_is_added_once() {
        let set = Change::Set(owner("a", "1"));
        assert_eq!(uids(changed(&[], &set)).unwrap(), ["1"]);
        assert_eq!(uids(changed(&[owner("b", "2")], &set)).unwrap(), ["2", "1"]);
        assert_eq!(changed(&[owner("b", "2"), owner("a", "1")], &set), None);
    }

    #[test]
    fn a_stale_owner_of_the_same_name_gives_way_as_a_whole() {
        let stale = OwnerReference {
            controller: Some(true),
            ..owner("a", "old")
        };
        let set = Change::Set(owner("a", "1"));
        assert_eq!(changed(std::slice::from_ref(&stale), &set), Some(vec![owner("a", "1")]));
        assert_eq!(changed(&[stale, owner("a", "1")], &set), Some(vec![owner("a", "1")]));
    }

    #[test]
    fn an_owner_is_taken_off_by_its_uid_alone() {
        let owners = [owner("a", "1"), owner("a", "2"), owner("b", "3")];
        assert_eq!(
            uids(changed(&owners, &Change::Remove("1".to_owned()))).unwrap(),
            ["2", "3"]
        );
        assert_eq!(changed(&owners, &Change::Remove("4".to_owned())), None);
    }
}
