//! The state of a folder of manifests: snapshots in, events out. No input, no output, no clock.

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

use super::reader::Snapshot;
use super::{MANIFEST_ANNOTATION, Problem, document, is_object_name, secrets};
use crate::api::NamespacedName;
use crate::api::REQUESTED_AT;
use crate::text;

/// The namespace of objects that name none, as with `kubectl`.
const DEFAULT_NAMESPACE: &str = "default";

/// Parsers quote what they could not read: no more than this many bytes of it is kept.
const MAX_MESSAGE: usize = 1_024;

type Hash = [u8; 32];

/// All objects that are declared, with a hash of what is in them.
type Objects<K> = BTreeMap<NamespacedName, (Hash, DeserializeGuard<K>)>;

/// What came of a snapshot.
#[derive(Debug)]
pub struct Step<K> {
    pub events: Vec<Event<DeserializeGuard<K>>>,
    /// Whether something has changed that is believed only when it is seen twice: the folder should be looked at again soon.
    pub look_again: bool,
}

/// The folder as it is believed to be.
pub struct Folder<K> {
    /// Where it is, as its files are called.
    path: PathBuf,
    /// Where it really is: part of the identity of its objects.
    identity: PathBuf,
    files: BTreeMap<PathBuf, File>,
    unread: BTreeMap<PathBuf, String>,
    objects: Objects<K>,
    problems: BTreeSet<Problem>,
    /// Whether the events so far make a complete list of what the folder declares.
    complete: bool,
    started: bool,
}

/// A file, as it is believed to be and as it was seen last.
#[derive(Default)]
struct File {
    /// The objects of the last content that could be parsed; none if there never was one.
    good: Option<Vec<Value>>,
    /// Why the content that is believed is not `good`.
    problem: Option<String>,
    /// The content that is believed.
    believed: Option<Seen>,
    /// Another one that was seen once.
    other: Option<Seen>,
}

/// What is seen of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Content(Hash),
    Unreadable,
    Missing,
}

impl<K> Folder<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    /// A folder of which nothing is known: the path that is shown, and the one without links that makes its identity.
    pub fn new(path: &Path, identity: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: identity.to_owned(),
            files: BTreeMap::new(),
            unread: BTreeMap::new(),
            objects: BTreeMap::new(),
            problems: BTreeSet::new(),
            complete: false,
            started: false,
        }
    }

    /// What is wrong in the folder.
    pub fn problems(&self) -> &BTreeSet<Problem> {
        &self.problems
    }

    /// Whether all that the folder declares is known: every file could be read, now or at some time before.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The folder was looked at: gives the events that lead from what was to what is.
    ///
    /// The first snapshot gives a complete list. So does one that makes known the last of what was not: a file which could
    /// never be read may declare anything, and until then nobody can say of an object that it is not declared.
    pub fn advance(&mut self, snapshot: Snapshot) -> Step<K> {
        let look_again = self.take(&snapshot);
        self.unread = snapshot.unread;
        let (objects, problems) = self.declared(&snapshot.requests);
        self.problems = problems;
        let complete = self.unread.is_empty() && self.files.values().all(File::is_known);
        let relist = !self.started || complete && !self.complete;
        let events = if relist {
            list(&objects)
        } else {
            difference(&self.objects, &objects)
        };
        (self.objects, self.complete, self.started) = (objects, complete, true);
        Step { events, look_again }
    }

    /// Takes over what has changed in files. Except at first, a change counts once it is seen twice: one who writes a file
    /// may have emptied it before, or moved it away to put the new one in its place.
    fn take(&mut self, snapshot: &Snapshot) -> bool {
        let mut look_again = false;
        for path in snapshot.files.keys() {
            self.files.entry(path.clone()).or_default();
        }
        let started = self.started;
        self.files.retain(|path, file| {
            let content = snapshot.files.get(path);
            let seen = match content {
                Some(Ok(content)) => Seen::Content(Sha256::digest(content).into()),
                Some(Err(_)) => Seen::Unreadable,
                // It can only be gone from a folder that was read completely.
                None if !snapshot.unread.is_empty() => return true,
                None => Seen::Missing,
            };
            if file.believed == Some(seen) {
                file.other = None;
            } else if !started || file.other == Some(seen) {
                file.believe(path, seen, content);
            } else {
                file.other = Some(seen);
                look_again = true;
            }
            file.believed != Some(Seen::Missing) && (file.believed.is_some() || seen != Seen::Missing)
        });
        look_again
    }

    /// All objects that the files declare, and all that is wrong with them.
    fn declared(&self, requests: &BTreeMap<NamespacedName, String>) -> (Objects<K>, BTreeSet<Problem>) {
        let mut objects = BTreeMap::new();
        let mut from: BTreeMap<NamespacedName, &Path> = BTreeMap::new();
        let mut problems = BTreeSet::new();
        for (path, why) in &self.unread {
            problems.insert(Problem::new(path, why));
        }
        for (path, file) in &self.files {
            problems.extend(file.problem.as_ref().map(|why| Problem::new(path, why)));
            for object in file.good.iter().flatten() {
                let name = match self.name(object) {
                    Ok(Some(name)) => name,
                    Ok(None) => continue,
                    Err(why) => {
                        problems.insert(Problem::new(path, &why));
                        continue;
                    }
                };
                if let Some(first) = from.get(&name) {
                    let why = format!(
                        "{} {name} is declared in {} already: this one is ignored",
                        K::kind(&()),
                        first.display()
                    );
                    problems.insert(Problem::new(path, &why));
                    continue;
                }
                let (hash, object) = self.build(object, &name, path, requests.get(&name));
                if let DeserializeGuard(Err(invalid)) = &object {
                    let why = format!("{} {name} can't be decoded: {}", K::kind(&()), invalid.error);
                    problems.insert(Problem::new(path, &why));
                }
                from.insert(name.clone(), path);
                objects.insert(name, (hash, object));
            }
        }
        (objects, problems)
    }

    /// The name of an object of our kind; nothing for other kinds, an error for one without a usable name.
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
            return Err(format!("the apiVersion of {kind} must be `{}`", K::api_version(&())));
        }
        let namespace = namespace_of(object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if !is_object_name(name) || !is_object_name(namespace) {
            return Err(format!(
                "{kind} `{}/{}` has no valid name: lower case letters, digits, `-` and `.` make a name and a namespace",
                text::truncate(&text::printable(namespace), 64),
                text::truncate(&text::printable(name), 64),
            ));
        }
        Ok(Some(NamespacedName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }))
    }

    /// The object as a cluster would give it. Of what its metadata say only the labels and annotations are its author's;
    /// the rest is what a cluster gives, and may stand in the file because it was printed by one.
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

    /// The same for the same name in the same folder, and for nothing else.
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
    /// Whether it is known what the file declares. One that has just appeared and is not believed yet is as one that is
    /// not there yet.
    fn is_known(&self) -> bool {
        self.believed.is_none() || self.good.is_some()
    }

    fn believe(&mut self, path: &Path, seen: Seen, content: Option<&Result<Vec<u8>, String>>) {
        (self.believed, self.other) = (Some(seen), None);
        let objects = match content {
            // Nobody keeps an empty file, but many empty one before they write it.
            Some(Ok(content)) if content.is_empty() => {
                Err("it is empty: remove the file if nothing is to be declared in it".to_owned())
            }
            Some(Ok(content)) => document::parse(path, content),
            Some(Err(why)) => Err(why.clone()),
            None => return,
        };
        match objects {
            Ok(documents) => {
                let objects = documents.into_iter().flat_map(document::objects);
                // Secrets are read when they are needed, and not kept.
                self.good = Some(objects.filter(|object| object["kind"] != secrets::KIND).collect());
                self.problem = None;
            }
            Err(why) => {
                let kept = if self.good.is_some() {
                    "what it declared before is kept"
                } else {
                    "nothing is known of what it declares"
                };
                self.problem = Some(format!("{why}; {kept}"));
            }
        }
    }
}

/// The namespace that an object names; empty if it is no text.
pub fn namespace_of(object: &Value) -> &str {
    match &object["metadata"]["namespace"] {
        Value::Null => DEFAULT_NAMESPACE,
        namespace => namespace.as_str().unwrap_or_default(),
    }
}

fn list<K: Clone>(objects: &Objects<K>) -> Vec<Event<DeserializeGuard<K>>> {
    let objects = objects.values().map(|(_, object)| Event::InitApply(object.clone()));
    [Event::Init]
        .into_iter()
        .chain(objects)
        .chain([Event::InitDone])
        .collect()
}

fn difference<K: Clone>(old: &Objects<K>, new: &Objects<K>) -> Vec<Event<DeserializeGuard<K>>> {
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
    let gone = gone.map(|(_, (_, object))| Event::Delete(object.clone()));
    let changed = new
        .iter()
        .filter(|(name, (hash, _))| old.get(*name).is_none_or(|(before, _)| before != hash));
    let changed = changed.map(|(_, (_, object))| Event::Apply(object.clone()));
    gone.chain(changed).collect()
}

/// A hash in the form of a UUID, with the version that stands for hashes of one's own choice.
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
