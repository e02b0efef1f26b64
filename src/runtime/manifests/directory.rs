//! State of a manifest directory: snapshots in, events out, without I/O or clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::watcher::Event,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::data_directories::{DataDirectories, named_directory};
use super::reader::Snapshot;
use super::{DataUrl, MANIFEST_ANNOTATION, ManifestProblem, document, is_object_name, secrets};
use crate::api::{NamespacedName, REQUESTED_AT};
use crate::text;

/// Namespace of objects without one, as in `kubectl`.
const DEFAULT_NAMESPACE: &str = "default";

/// Maximum length of a parser error, in bytes; parsers quote their input.
const MAX_MESSAGE: usize = 1_024;

type Hash = [u8; 32];

type DirectoryObjects<K> = BTreeMap<NamespacedName, (Hash, DeserializeGuard<K>)>;

#[derive(Debug)]
pub struct SnapshotChanges<K> {
    pub events: Vec<Event<DeserializeGuard<K>>>,
    /// Set if a change must be confirmed by a second snapshot.
    pub needs_confirmation: bool,
}

pub struct ManifestDirectory<K> {
    path: PathBuf,
    /// Canonical path, part of the UID of objects.
    identity: PathBuf,
    data_url: DataUrl,
    data: DataDirectories,
    files: BTreeMap<PathBuf, File>,
    unread: BTreeMap<PathBuf, String>,
    objects: DirectoryObjects<K>,
    problems: BTreeSet<ManifestProblem>,
    complete: bool,
    started: bool,
}

#[derive(Default)]
struct File {
    /// Objects of the last valid content; none if there was never any.
    last_valid: Option<Vec<Value>>,
    problem: Option<String>,
    accepted: Option<FileState>,
    /// A different content, seen once.
    unconfirmed: Option<FileState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileState {
    Content(Hash),
    Unreadable,
    Missing,
}

impl<K> ManifestDirectory<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    pub fn new(path: &Path, identity: &Path, data_url: DataUrl) -> Self {
        Self {
            path: path.to_owned(),
            identity: identity.to_owned(),
            data_url,
            data: DataDirectories::default(),
            files: BTreeMap::new(),
            unread: BTreeMap::new(),
            objects: BTreeMap::new(),
            problems: BTreeSet::new(),
            complete: false,
            started: false,
        }
    }

    pub fn problems(&self) -> &BTreeSet<ManifestProblem> {
        &self.problems
    }

    /// Returns true if every manifest could be read at least once.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the events since the previous snapshot. The first snapshot gives a complete list. So does the first in
    /// which every file was readable: an unreadable file may declare anything, and until then no object is missing.
    pub fn advance(&mut self, mut snapshot: Snapshot) -> SnapshotChanges<K> {
        let is_unread = snapshot.unread.keys().any(|path| !self.data.contain(path));
        let needs_confirmation = self.accept_changes(&snapshot, is_unread);
        self.data = self.data_directories();
        snapshot.unread.retain(|path, _| !self.data.contain(path));
        self.unread = snapshot.unread;
        let (objects, problems) = self.build_objects(&snapshot.requests);
        self.problems = problems;
        let complete = self.unread.is_empty() && self.manifests().all(|(_, file)| file.is_read());
        let relist = !self.started || complete && !self.complete;
        let events = if relist {
            list(&objects)
        } else {
            difference(&self.objects, &objects)
        };
        (self.objects, self.complete, self.started) = (objects, complete, true);
        SnapshotChanges {
            events,
            needs_confirmation,
        }
    }

    /// Accepts changed files; returns true if a change must be confirmed. After the first snapshot, a change counts
    /// when it is seen twice: writers may truncate or move a file before they write it.
    fn accept_changes(&mut self, snapshot: &Snapshot, is_unread: bool) -> bool {
        let mut needs_confirmation = false;
        for path in snapshot.files.keys() {
            self.files.entry(path.clone()).or_default();
        }
        let started = self.started;
        self.files.retain(|path, file| {
            let content = snapshot.files.get(path);
            let seen = match content {
                Some(Ok(content)) => FileState::Content(Sha256::digest(content).into()),
                Some(Err(_)) => FileState::Unreadable,
                // Only a complete snapshot proves that a file is gone.
                None if is_unread => return true,
                None => FileState::Missing,
            };
            if file.accepted == Some(seen) {
                file.unconfirmed = None;
            } else if !started || file.unconfirmed == Some(seen) {
                file.accept(path, seen, content);
            } else {
                file.unconfirmed = Some(seen);
                needs_confirmation = true;
            }
            file.accepted != Some(FileState::Missing) && (file.accepted.is_some() || seen != FileState::Missing)
        });
        needs_confirmation
    }

    fn build_objects(
        &self,
        requests: &BTreeMap<NamespacedName, String>,
    ) -> (DirectoryObjects<K>, BTreeSet<ManifestProblem>) {
        let mut objects = BTreeMap::new();
        let mut from: BTreeMap<NamespacedName, &Path> = BTreeMap::new();
        let mut problems = BTreeSet::new();
        problems.extend(
            self.unread
                .iter()
                .map(|(path, message)| ManifestProblem::new(path, message)),
        );
        for (path, file) in self.manifests() {
            problems.extend(file.problem.as_ref().map(|message| ManifestProblem::new(path, message)));
            for object in file.last_valid.iter().flatten() {
                let name = match self.name(object) {
                    Ok(Some(name)) => name,
                    Ok(None) => continue,
                    Err(message) => {
                        problems.insert(ManifestProblem::new(path, &message));
                        continue;
                    }
                };
                if let Some(first) = from.get(&name) {
                    let message = format!(
                        "{} {name} is already declared in {}, ignoring this one",
                        K::kind(&()),
                        first.display()
                    );
                    problems.insert(ManifestProblem::new(path, &message));
                    continue;
                }
                let (hash, object) = self.build(object, &name, path, requests.get(&name));
                if let DeserializeGuard(Err(invalid)) = &object {
                    let message = format!("failed to decode {} {name}: {}", K::kind(&()), invalid.error);
                    problems.insert(ManifestProblem::new(path, &message));
                }
                from.insert(name.clone(), path);
                objects.insert(name, (hash, object));
            }
        }
        (objects, problems)
    }

    fn manifests(&self) -> impl Iterator<Item = (&PathBuf, &File)> {
        self.files.iter().filter(|(path, _)| !self.data.contain(path))
    }

    fn data_directories(&self) -> DataDirectories {
        let roots = [self.path.as_path(), self.identity.as_path()];
        let mut named = Vec::new();
        for (path, file) in &self.files {
            let objects = file.last_valid.iter().flatten();
            let declared = objects.filter(|object| matches!(self.name(object), Ok(Some(_))));
            let directories = declared.filter_map(|object| named_directory((self.data_url)(object)?, path, roots));
            named.extend(directories.map(|directory| (path.as_path(), directory)));
        }
        DataDirectories::new(&named)
    }

    fn name(&self, object: &Value) -> Result<Option<NamespacedName>, String> {
        let kind = K::kind(&());
        let (group, version) = match object["apiVersion"].as_str().unwrap_or_default() {
            core if !core.contains('/') => ("", core),
            other => other.split_once('/').unwrap_or_default(),
        };
        if object["kind"].as_str() != Some(&kind) || group != K::group(&()) {
            tracing::debug!(file = %self.path.display(), kind = %object["kind"], "ignoring object of another kind");
            return Ok(None);
        }
        if version != K::version(&()) {
            return Err(format!("apiVersion of {kind} must be `{}`", K::api_version(&())));
        }
        let namespace = namespace_of(object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if !is_object_name(name) || !is_object_name(namespace) {
            return Err(format!(
                "invalid name of {kind} `{}/{}`: names and namespaces consist of lower-case letters, digits, `-` and `.`",
                text::truncate(&text::printable(namespace), 64),
                text::truncate(&text::printable(name), 64),
            ));
        }
        Ok(Some(NamespacedName::new(namespace, name)))
    }

    /// Takes only labels and annotations from the metadata; other fields may be output of a cluster.
    fn build(
        &self,
        object: &Value,
        name: &NamespacedName,
        path: &Path,
        request: Option<&String>,
    ) -> (Hash, DeserializeGuard<K>) {
        let mut annotations = document::text_map(&object["metadata"]["annotations"]);
        annotations.insert(
            MANIFEST_ANNOTATION.to_owned(),
            self.path.join(path).to_string_lossy().into_owned(),
        );
        if let Some(token) = request {
            annotations.insert(REQUESTED_AT.to_owned(), token.clone());
        }
        let labels = document::text_map(&object["metadata"]["labels"]);
        let mut metadata = ObjectMeta {
            name: Some(name.name.clone()),
            namespace: Some(name.namespace.clone()),
            uid: Some(self.uid(name)),
            annotations: Some(annotations),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            ..ObjectMeta::default()
        };
        let hash: Hash =
            Sha256::digest(json!([&metadata.annotations, &metadata.labels, &object["spec"]]).to_string()).into();
        metadata.resource_version = Some(text::hex(&hash[..8]));
        let decoded = serde_json::from_value(json!({
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": &metadata,
            "spec": object["spec"],
        }));
        let invalid = |error: serde_json::Error| InvalidObject {
            error: text::truncate(&text::printable(&error.to_string()), MAX_MESSAGE),
            metadata,
        };
        (hash, DeserializeGuard(decoded.map_err(invalid)))
    }

    fn uid(&self, name: &NamespacedName) -> String {
        let mut hash = Sha256::new();
        for part in [self.identity.to_string_lossy().as_ref(), &name.namespace, &name.name] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        uuid(&hash.finalize().into())
    }
}

impl File {
    /// Returns true if the content is known. A new file that is not yet accepted counts as absent.
    fn is_read(&self) -> bool {
        self.accepted.is_none() || self.last_valid.is_some()
    }

    fn accept(&mut self, path: &Path, seen: FileState, content: Option<&Result<Vec<u8>, String>>) {
        (self.accepted, self.unconfirmed) = (Some(seen), None);
        let objects = match content {
            // Empty files are rarely intended, but writers often truncate first.
            Some(Ok(content)) if content.is_empty() => {
                Err("file is empty; delete it if it should declare nothing".to_owned())
            }
            Some(Ok(content)) => document::parse(path, content),
            Some(Err(message)) => Err(message.clone()),
            None => return,
        };
        match objects {
            Ok(documents) => {
                let objects = documents.into_iter().flat_map(document::objects);
                // Secrets are read on demand and not kept in memory.
                self.last_valid = Some(objects.filter(|object| object["kind"] != secrets::KIND).collect());
                self.problem = None;
            }
            Err(message) => {
                let consequence = if self.last_valid.is_some() {
                    "keeping previous objects"
                } else {
                    "its objects are unknown"
                };
                self.problem = Some(format!("{message}; {consequence}"));
            }
        }
    }
}

pub fn namespace_of(object: &Value) -> &str {
    match &object["metadata"]["namespace"] {
        Value::Null => DEFAULT_NAMESPACE,
        namespace => namespace.as_str().unwrap_or_default(),
    }
}

fn list<K: Clone>(objects: &DirectoryObjects<K>) -> Vec<Event<DeserializeGuard<K>>> {
    let objects = objects.values().map(|(_, object)| Event::InitApply(object.clone()));
    [Event::Init]
        .into_iter()
        .chain(objects)
        .chain([Event::InitDone])
        .collect()
}

fn difference<K: Clone>(old: &DirectoryObjects<K>, new: &DirectoryObjects<K>) -> Vec<Event<DeserializeGuard<K>>> {
    let removed = old.iter().filter(|(name, _)| !new.contains_key(*name));
    let removed = removed.map(|(_, (_, object))| Event::Delete(object.clone()));
    let changed = new
        .iter()
        .filter(|(name, (hash, _))| old.get(*name).is_none_or(|(before, _)| before != hash));
    let changed = changed.map(|(_, (_, object))| Event::Apply(object.clone()));
    removed.chain(changed).collect()
}

/// Formats a hash as a UUID of version 8, for custom hashes.
pub fn uuid(hash: &Hash) -> String {
    let hex = text::hex(&hash[..16]);
    format!(
        "{}-{}-8{}-a{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
