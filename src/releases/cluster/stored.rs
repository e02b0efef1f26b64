//! Releases in Helm's Secrets and ConfigMaps: metadata of all, then one object for the newest revision of each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;

use futures::{StreamExt, stream};
use kube::Client;
use kube::api::GetParams;
use kube::core::Request;
use serde::Deserialize;

use super::DEPLOYED;
use super::reader::{Collection, Reader, send};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::releases::Release;
use crate::releases::payload::{PayloadError, decode, decode_secret, name_and_revision};
use crate::runtime::kube_client::ApiError;

/// A release without a deployed revision is listed with the state of its last one.
const UNFINISHED: &str = "owner=helm,status in (failed,pending-install,pending-upgrade,pending-rollback)";
/// Objects that are read at once. Each has up to 1.5 MiB.
const READS: usize = 8;

/// Helm's two drivers. Others keep no objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    Secret,
    ConfigMap,
}

impl Storage {
    const fn collection(self) -> Collection {
        Collection {
            group: "",
            versions: &["v1"],
            plural: match self {
                Self::Secret => "secrets",
                Self::ConfigMap => "configmaps",
            },
        }
    }

    /// Returns the release of an object, or the reason why it has none.
    pub async fn read(
        self,
        client: &Client,
        object: &NamespacedName,
    ) -> Result<Result<Release, PayloadError>, ApiError> {
        let request = Request::new(self.collection().path("v1", Some(&object.namespace)));
        let json = send(client, request.get(&object.name, &GetParams::default())).await?;
        Ok(self.decode(&json, object))
    }

    /// Borrows the value from the response: the object is not decoded otherwise.
    fn decode(self, json: &str, name: &NamespacedName) -> Result<Release, PayloadError> {
        let object: Object<'_> = serde_json::from_str(json).map_err(|_| PayloadError::Missing)?;
        let value = object.data.and_then(|data| data.release).ok_or(PayloadError::Missing)?;
        match self {
            Self::Secret => decode_secret(value, name),
            Self::ConfigMap => decode(value.as_bytes(), name),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Stored {
    metadata: StoredMetadata,
}

#[derive(Deserialize)]
struct StoredMetadata {
    name: String,
    namespace: String,
}

struct Revision {
    storage: Storage,
    object: NamespacedName,
    number: u64,
    is_deployed: bool,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    data: Option<Data<'a>>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    release: Option<&'a str>,
}

pub(super) async fn list(reader: &Reader<'_>, limit: usize) -> Vec<Release> {
    let [of_secrets, of_config_maps] = [Storage::Secret, Storage::ConfigMap].map(Storage::collection);
    let (secrets, unfinished_secrets, config_maps, unfinished_config_maps) = tokio::join!(
        reader.list::<Stored>(&of_secrets, Some(DEPLOYED)),
        reader.list::<Stored>(&of_secrets, Some(UNFINISHED)),
        reader.list::<Stored>(&of_config_maps, Some(DEPLOYED)),
        reader.list::<Stored>(&of_config_maps, Some(UNFINISHED)),
    );
    let mut newest = Newest::default();
    for (storage, objects, is_deployed) in [
        (Storage::Secret, secrets, true),
        (Storage::ConfigMap, config_maps, true),
        (Storage::Secret, unfinished_secrets, false),
        (Storage::ConfigMap, unfinished_config_maps, false),
    ] {
        for Stored { metadata } in objects {
            let object = NamespacedName::new(metadata.namespace, metadata.name);
            if !newest.add(storage, object.clone(), is_deployed) {
                reader.record_unreadable(&describe(storage, &object, &PayloadError::Name));
            }
        }
    }
    let revisions: Vec<Revision> = newest.0.into_values().collect();
    if revisions.len() > limit {
        let message = format!(
            "only {limit} of {} releases are read; choose namespaces",
            revisions.len()
        );
        reader.record_unreadable(&message);
    }
    let namespaces: Vec<String> = revisions
        .iter()
        .map(|revision| revision.object.namespace.clone())
        .collect();
    let mut revisions = interleave(namespaces.iter().map(String::as_str).zip(revisions));
    revisions.truncate(limit);
    let reads = stream::iter(revisions).map(|revision| read(reader, revision));
    let releases: Vec<Option<Release>> = reads.buffered(READS).collect().await;
    releases.into_iter().flatten().collect()
}

/// The newest revision of each release, by namespace and name.
#[derive(Default)]
struct Newest(BTreeMap<(String, String), Revision>);

impl Newest {
    /// Returns false if the name of the object is none of Helm's. A deployed revision counts more than a later one.
    fn add(&mut self, storage: Storage, object: NamespacedName, is_deployed: bool) -> bool {
        let Some((name, number)) = name_and_revision(&object.name) else {
            return false;
        };
        let key = (object.namespace.clone(), name.to_owned());
        let revision = Revision {
            storage,
            object,
            number,
            is_deployed,
        };
        let rank = |revision: &Revision| (revision.is_deployed, revision.number);
        match self.0.entry(key) {
            Entry::Occupied(mut known) if rank(known.get()) < rank(&revision) => {
                known.insert(revision);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(place) => {
                place.insert(revision);
            }
        }
        true
    }
}

async fn read(reader: &Reader<'_>, revision: Revision) -> Option<Release> {
    let Revision { storage, object, .. } = revision;
    let read = async { storage.read(reader.client()?, &object).await };
    let message = match read.await {
        Ok(Ok(release)) => return Some(release),
        Ok(Err(error)) => describe(storage, &object, &error),
        // Uninstalled since it was listed.
        Err(error) if error.is_not_found() => return None,
        Err(error) => describe(storage, &object, &error),
    };
    reader.record_unreadable(&message);
    None
}

fn describe(storage: Storage, object: &NamespacedName, error: &dyn Display) -> String {
    format!("{} {object}: {error}", storage.collection().plural)
}
