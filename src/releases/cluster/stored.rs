//! Releases in Helm's Secrets and ConfigMaps: metadata of all, then one object for the newest revision of each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;

use futures::{StreamExt, stream};
use serde::Deserialize;

use super::DEPLOYED;
use super::reader::{Collection, Reader};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::releases::Release;
use crate::releases::payload::{PayloadError, decode, decode_secret, name_and_revision};

static SECRETS: Collection = Collection {
    group: "",
    versions: &["v1"],
    plural: "secrets",
};
static CONFIG_MAPS: Collection = Collection {
    group: "",
    versions: &["v1"],
    plural: "configmaps",
};
/// A release without a deployed revision is listed with the state of its last one.
const UNFINISHED: &str = "owner=helm,status in (failed,pending-install,pending-upgrade,pending-rollback)";
/// Objects that are read at once. Each has up to 1.5 MiB.
const READS: usize = 8;

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
    collection: &'static Collection,
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
    let (secrets, unfinished_secrets, config_maps, unfinished_config_maps) = tokio::join!(
        reader.list::<Stored>(&SECRETS, Some(DEPLOYED)),
        reader.list::<Stored>(&SECRETS, Some(UNFINISHED)),
        reader.list::<Stored>(&CONFIG_MAPS, Some(DEPLOYED)),
        reader.list::<Stored>(&CONFIG_MAPS, Some(UNFINISHED)),
    );
    let mut newest = Newest::default();
    for (collection, objects, is_deployed) in [
        (&SECRETS, secrets, true),
        (&CONFIG_MAPS, config_maps, true),
        (&SECRETS, unfinished_secrets, false),
        (&CONFIG_MAPS, unfinished_config_maps, false),
    ] {
        for Stored { metadata } in objects {
            let object = NamespacedName::new(metadata.namespace, metadata.name);
            if !newest.add(collection, object.clone(), is_deployed) {
                reader.record_unreadable(&describe(collection, &object, &PayloadError::Name));
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
    fn add(&mut self, collection: &'static Collection, object: NamespacedName, is_deployed: bool) -> bool {
        let Some((name, number)) = name_and_revision(&object.name) else {
            return false;
        };
        let key = (object.namespace.clone(), name.to_owned());
        let revision = Revision {
            collection,
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
    let Revision { collection, object, .. } = &revision;
    let release = match reader.get(collection, &object.namespace, &object.name).await {
        Ok(json) => decode_object(&json, &revision).map_err(|error| describe(collection, object, &error)),
        // Uninstalled since it was listed.
        Err(error) if error.is_not_found() => return None,
        Err(error) => Err(describe(collection, object, &error)),
    };
    release.map_err(|message| reader.record_unreadable(&message)).ok()
}

/// Borrows the value from the response: the object is not decoded otherwise.
fn decode_object(json: &str, revision: &Revision) -> Result<Release, PayloadError> {
    let object: Object<'_> = serde_json::from_str(json).map_err(|_| PayloadError::Missing)?;
    let value = object.data.and_then(|data| data.release).ok_or(PayloadError::Missing)?;
    if revision.collection.plural == SECRETS.plural {
        decode_secret(value, &revision.object)
    } else {
        decode(value.as_bytes(), &revision.object)
    }
}

fn describe(collection: &Collection, object: &NamespacedName, error: &dyn Display) -> String {
    format!("{} {object}: {error}", collection.plural)
}
