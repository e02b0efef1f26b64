//! The objects that the watches report, and which of them are read: as many of each namespace as fit.

use std::collections::{BTreeMap, HashMap};

use super::{Found, Unreadable};
use crate::api::NamespacedName;
use crate::releases::Release;

/// Releases that are read. Each takes up to [`MAX_RELEASE_BYTES`].
pub(super) const MAX_RELEASES: usize = 10_000;
pub(super) const MAX_RELEASE_BYTES: usize = 4096;
/// Objects that can't be read, of which the name is kept.
const MAX_UNREADABLE: usize = 50;

/// Helm's two drivers. Others keep no objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Storage {
    Secret,
    ConfigMap,
}

pub(super) type ObjectKey = (NamespacedName, Storage);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) uid: String,
    pub(super) resource_version: String,
}

struct Entry {
    version: Version,
    /// The version of the content.
    read: Option<Version>,
    /// `None` until the object is read.
    content: Option<Result<Release, String>>,
}

/// The progress of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListState {
    Complete,
    Failed(String),
}

#[derive(Default)]
pub(super) struct Objects {
    entries: BTreeMap<ObjectKey, Entry>,
    lists: BTreeMap<Storage, ListState>,
}

impl Objects {
    pub(super) fn apply(&mut self, key: ObjectKey, version: Version) {
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            version: Version::default(),
            read: None,
            content: None,
        });
        entry.version = version;
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.entries.remove(key);
    }

    pub(super) fn set_list(&mut self, storage: Storage, state: ListState) {
        self.lists.insert(storage, state);
    }

    /// Returns true once each list is complete or has failed.
    pub(super) fn is_listed(&self) -> bool {
        [Storage::Secret, Storage::ConfigMap]
            .iter()
            .all(|storage| self.lists.contains_key(storage))
    }

    /// Returns the objects to read, of the namespaces in turn. Forgets the content of those that no longer fit.
    pub(super) fn due(&mut self) -> Vec<(ObjectKey, Version)> {
        let entries = self.entries.iter_mut();
        let entries = entries.map(|(key, entry)| (key.0.namespace.as_str(), (key, entry)));
        let mut ranked = in_turn(entries);
        for (_, entry) in ranked.drain(ranked.len().min(MAX_RELEASES)..) {
            (entry.read, entry.content) = (None, None);
        }
        let due = ranked.into_iter();
        due.filter(|(_, entry)| entry.read.as_ref() != Some(&entry.version))
            .map(|(key, entry)| (key.clone(), entry.version.clone()))
            .collect()
    }

    /// Keeps the content of an object that may have changed or ended meanwhile.
    pub(super) fn store(&mut self, key: &ObjectKey, version: Version, content: Result<Release, String>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.read = Some(version);
            entry.content = Some(content.and_then(limited));
        }
    }

    /// Keeps the last content of an object whose read failed, and which stays due.
    pub(super) fn store_failure(&mut self, key: &ObjectKey, error: String) {
        if let Some(entry) = self.entries.get_mut(key)
            && !matches!(entry.content, Some(Ok(_)))
        {
            entry.content = Some(Err(error));
        }
    }

    pub(super) fn found(&self) -> Found {
        let mut found = Found {
            is_complete: self.is_listed(),
            ..Found::default()
        };
        for state in self.lists.values() {
            if let ListState::Failed(error) = state {
                found.unreadable.push(Unreadable::of_list(error));
            }
        }
        let mut releases = BTreeMap::<_, &Release>::new();
        for ((name, _), entry) in &self.entries {
            match &entry.content {
                None => found.left_out += 1,
                Some(Err(error)) => {
                    found.unreadable_count += 1;
                    if found.unreadable.len() < MAX_UNREADABLE {
                        found.unreadable.push(Unreadable::of_object(name, error));
                    }
                }
                // During an upgrade, two revisions are deployed for a moment.
                Some(Ok(release)) => {
                    let newest = releases.entry((&name.namespace, &release.name)).or_insert(release);
                    if newest.revision < release.revision {
                        *newest = release;
                    }
                }
            }
        }
        found.releases = releases.into_values().cloned().collect();
        found
    }
}

/// Returns items in the order of their rank within their namespace: the first of each, the second of each, and so on.
pub(in crate::releases) fn in_turn<'a, T>(items: impl IntoIterator<Item = (&'a str, T)>) -> Vec<T> {
    let mut ranks = HashMap::<&str, usize>::new();
    let ranked = items.into_iter().map(|(namespace, item)| {
        let rank = ranks.entry(namespace).or_default();
        *rank += 1;
        (*rank, item)
    });
    let mut ranked: Vec<(usize, T)> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, item)| item).collect()
}

/// Charts may embed their icon in its URL, and list any number of sources.
fn limited(mut release: Release) -> Result<Release, String> {
    release.chart.icon = release.chart.icon.filter(|icon| icon.len() <= MAX_RELEASE_BYTES / 4);
    let chart = &release.chart;
    let texts = [&chart.name, &chart.version, &release.name, &release.namespace];
    let optional = [&chart.url, &chart.home, &chart.icon, &chart.digest];
    let bytes: usize = texts.into_iter().chain(&chart.sources).map(String::len).sum();
    let bytes = bytes + optional.into_iter().flatten().map(String::len).sum::<usize>();
    if bytes > MAX_RELEASE_BYTES {
        return Err(format!(
            "its chart's metadata takes more than {MAX_RELEASE_BYTES} bytes"
        ));
    }
    Ok(release)
}
