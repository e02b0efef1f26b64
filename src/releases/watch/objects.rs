//! The objects that the watches report, and which of them are read: as many of each namespace as fit.

use std::collections::BTreeMap;

use super::{Found, Unreadable};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::releases::Release;
use crate::releases::cluster::{MAX_RELEASES, MAX_UNREADABLE, Storage};

/// Bytes of the texts of one release.
const MAX_RELEASE_BYTES: usize = 4096;

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

#[derive(Default)]
pub(super) struct Objects {
    entries: BTreeMap<ObjectKey, Entry>,
    /// The error of each list; absent until it is complete or has failed.
    lists: BTreeMap<Storage, Option<String>>,
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

    pub(super) fn set_list(&mut self, storage: Storage, error: Option<String>) {
        self.lists.insert(storage, error);
    }

    /// Returns true once each list is complete or has failed.
    pub(super) fn is_listed(&self) -> bool {
        self.lists.len() == 2
    }

    /// Returns the objects to read, of the namespaces in turn. Forgets the content of those that no longer fit.
    pub(super) fn due(&mut self) -> Vec<(ObjectKey, Version)> {
        let entries = self.entries.iter_mut();
        let entries = entries.map(|(key, entry)| (key.0.namespace.as_str(), (key, entry)));
        let mut ranked = interleave(entries);
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

    /// Returns the releases, by namespace and name, and the numbers of the others.
    pub(super) fn found(&self) -> (Vec<Release>, Found) {
        let mut found = Found {
            is_complete: self.is_listed(),
            ..Found::default()
        };
        let errors = self.lists.values().flatten();
        found.unreadable.extend(errors.map(|error| Unreadable::of_list(error)));
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
        (releases.into_values().cloned().collect(), found)
    }
}

fn limited(release: Release) -> Result<Release, String> {
    if is_small(&release) {
        Ok(release)
    } else {
        Err(format!(
            "the texts of its chart take more than {MAX_RELEASE_BYTES} bytes"
        ))
    }
}

/// Charts may have several long sources, and objects of Flux and Argo CD long URLs.
pub(super) fn is_small(release: &Release) -> bool {
    let chart = &release.chart;
    let texts = [&chart.name, &chart.version, &release.name, &release.namespace];
    let optional = [&chart.url, &chart.home, &chart.icon, &chart.digest];
    let bytes: usize = texts.into_iter().chain(&chart.sources).map(String::len).sum();
    let optional: usize = optional.into_iter().flatten().map(String::len).sum();
    bytes + optional <= MAX_RELEASE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::releases::{InstalledChart, ReleaseKind, ReleaseState};

    fn key(namespace: &str, name: &str) -> ObjectKey {
        (NamespacedName::new(namespace, name), Storage::Secret)
    }

    fn version(version: &str) -> Version {
        Version {
            uid: "1".to_owned(),
            resource_version: version.to_owned(),
        }
    }

    fn release(namespace: &str, name: &str, revision: u64) -> Release {
        Release {
            kind: ReleaseKind::Helm,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            state: ReleaseState::Deployed,
            revision: Some(revision),
            chart: InstalledChart::default(),
        }
    }

    fn listed() -> Objects {
        let mut objects = Objects::default();
        objects.set_list(Storage::Secret, None);
        assert!(!objects.is_listed());
        objects.set_list(Storage::ConfigMap, None);
        objects
    }

    #[test]
    fn an_object_is_read_once_for_each_version() {
        let mut objects = listed();
        objects.apply(key("sea", "a"), version("1"));
        assert_eq!(objects.due(), [(key("sea", "a"), version("1"))]);
        objects.store(&key("sea", "a"), version("1"), Ok(release("sea", "web", 1)));
        assert!(objects.due().is_empty());
        // As after an interrupted watch.
        objects.apply(key("sea", "a"), version("1"));
        assert!(objects.due().is_empty());
        objects.apply(key("sea", "a"), version("2"));
        assert_eq!(objects.due(), [(key("sea", "a"), version("2"))]);
        objects.store_failure(&key("sea", "a"), "away".to_owned());
        assert_eq!(objects.due().len(), 1, "a failed read is repeated");
        assert_eq!(objects.found().0.len(), 1, "and the last content is kept");
        objects.remove(&key("sea", "a"));
        objects.store(&key("sea", "a"), version("2"), Ok(release("sea", "web", 2)));
        assert!(objects.found().0.is_empty(), "it ended during the read");
    }

    #[test]
    fn a_namespace_with_too_many_releases_takes_no_place_of_others() {
        let mut objects = listed();
        let name = |number: usize| format!("release-{number:05}");
        for number in 0..MAX_RELEASES + 100 {
            objects.apply(key("hoard", &name(number)), version("1"));
        }
        for namespace in ["a", "z"] {
            objects.apply(key(namespace, "web"), version("1"));
        }
        let due = objects.due();
        assert_eq!(due.len(), MAX_RELEASES);
        let first: Vec<&str> = due
            .iter()
            .take(3)
            .map(|((name, _), _)| name.namespace.as_str())
            .collect();
        assert_eq!(first, ["a", "hoard", "z"]);
        for (key, version) in due {
            let content = release(&key.0.namespace, &key.0.name, 1);
            objects.store(&key, version, Ok(content));
        }
        assert!(objects.due().is_empty());
        assert_eq!(objects.found().1.left_out, 102);
        // Others get the places of releases that end.
        for number in 0..50 {
            objects.remove(&key("hoard", &name(number)));
        }
        assert_eq!(objects.due().len(), 50);
    }

    #[test]
    fn of_two_deployed_revisions_the_newer_one_counts() {
        let mut objects = listed();
        for revision in [9, 10, 8] {
            let key = key("sea", &format!("sh.helm.release.v1.web.v{revision}"));
            objects.apply(key.clone(), version("1"));
            objects.store(&key, version("1"), Ok(release("sea", "web", revision)));
        }
        let (releases, _) = objects.found();
        let revisions: Vec<_> = releases.iter().map(|release| release.revision).collect();
        assert_eq!(revisions, [Some(10)]);
    }

    #[test]
    fn unreadable_objects_are_counted_and_the_first_are_named() {
        let mut objects = listed();
        objects.set_list(Storage::ConfigMap, Some("forbidden".to_owned()));
        for number in 0..2 * MAX_UNREADABLE {
            let key = key("sea", &format!("web-{number}"));
            objects.apply(key.clone(), version("1"));
            objects.store(&key, version("1"), Err("no gzip\u{7}".to_owned()));
        }
        let (releases, found) = objects.found();
        assert_eq!(
            (found.unreadable_count, found.unreadable.len()),
            (2 * MAX_UNREADABLE, MAX_UNREADABLE)
        );
        assert_eq!(found.unreadable[0].namespace, "");
        assert_eq!(found.unreadable[1].message, "sea/web-0: no gzip ");
        assert!(found.is_complete && releases.is_empty());
    }

    #[test]
    fn large_metadata_is_refused() {
        let mut large = release("sea", "web", 1);
        assert!(limited(large.clone()).is_ok());
        large.chart.sources = vec!["x".repeat(100); 100];
        assert!(limited(large).is_err());
    }
}
