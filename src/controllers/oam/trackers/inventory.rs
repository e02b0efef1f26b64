use std::sync::Arc;

use kube::ResourceExt;

use super::encoding::{TrackerDecodeError, decode};
use super::entry::ResourceKey;
use super::names;
use crate::api::NamespacedName;
use crate::api::oam::{ManagedResource, ResourceTracker, labels};

/// The parts of an application that decide which of its trackers is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppIdentity {
    pub name: NamespacedName,
    pub uid: String,
    pub generation: i64,
    pub publish_version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerType {
    /// Objects that live as long as the application.
    Root,
    /// Objects of one generation or published version.
    Versioned,
    /// Component revisions, which old versions of KubeVela wrote.
    ComponentRevision,
}

impl TrackerType {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Versioned => "versioned",
            Self::ComponentRevision => "component-revision",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Tracker {
    pub object: Arc<ResourceTracker>,
    pub entries: Vec<ManagedResource>,
}

impl Tracker {
    /// If it fails, objects of the application must not be collected.
    pub fn decode(object: Arc<ResourceTracker>) -> Result<Self, InventoryError> {
        let entries = decode(&object.spec).map_err(|cause| InventoryError::Undecodable {
            tracker: object.name_any(),
            cause,
        })?;
        Ok(Self { object, entries })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn generation(&self) -> i64 {
        self.object.spec.application_generation
    }

    #[must_use]
    pub fn publish_version(&self) -> Option<&str> {
        publish_version(self.object.annotations().get(labels::PUBLISH_VERSION))
    }

    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }
}

/// Returns the published version of an annotation. An empty text means none.
fn publish_version(annotation: Option<&String>) -> Option<&str> {
    annotation.map(String::as_str).filter(|version| !version.is_empty())
}

#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("resourcetracker {tracker} can't be decoded: {cause}")]
    Undecodable { tracker: String, cause: TrackerDecodeError },
    #[error("resourcetracker {tracker} can't be decoded: {cause}")]
    Invalid { tracker: String, cause: String },
    #[error(
        "resourcetracker {tracker} exists but controlled by another application (uid: {uid}); \
         take it over with `portolan vela adopt`, or check it and delete it manually"
    )]
    OtherApplication { tracker: String, uid: String },
    #[error("current publish version {version}(gen-{current}) is in-use and outdated, found newer gen-{newest}")]
    Outdated { version: String, current: i64, newest: i64 },
}

/// All trackers of an application.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub root: Option<Tracker>,
    pub current: Option<Tracker>,
    /// Trackers of other generations and versions, and trackers that are being deleted, oldest first.
    pub history: Vec<Tracker>,
    pub component_revision: Option<Tracker>,
}

impl Inventory {
    /// Ignores trackers of unknown types. Fails if a tracker belongs to another application of the same name, or is
    /// newer than the published version.
    pub fn of(app: &AppIdentity, trackers: Vec<Tracker>) -> Result<Self, InventoryError> {
        let mut inventory = Self::default();
        let wanted = wanted_name(app);
        for tracker in trackers {
            let uid = tracker.object.labels().get(labels::APP_UID);
            if let Some(uid) = uid.filter(|uid| !uid.is_empty() && **uid != app.uid) {
                return Err(InventoryError::OtherApplication {
                    tracker: tracker.name().to_owned(),
                    uid: uid.clone(),
                });
            }
            let history = &mut inventory.history;
            match tracker.object.spec.type_.as_str() {
                "root" => place(&mut inventory.root, history, tracker, &names::root(&app.name)),
                "versioned" if is_current(app, &tracker, &wanted) => {
                    place(&mut inventory.current, history, tracker, &wanted);
                }
                "versioned" => history.push(tracker),
                "component-revision" => {
                    let name = names::component_revision(&app.name);
                    place(&mut inventory.component_revision, history, tracker, &name);
                }
                _ => {}
            }
        }
        let history = &mut inventory.history;
        history.sort_by(|left, right| (left.generation(), left.name()).cmp(&(right.generation(), right.name())));
        match (&inventory.current, inventory.history.last()) {
            (Some(current), Some(newest)) if current.generation() < newest.generation() => {
                Err(InventoryError::Outdated {
                    version: app.publish_version.clone().unwrap_or_default(),
                    current: current.generation(),
                    newest: newest.generation(),
                })
            }
            _ => Ok(inventory),
        }
    }

    /// Returns the tracker that must be gone before the current version's tracker, which has its name, can be created.
    #[must_use]
    pub fn blocking(&self, app: &AppIdentity) -> Option<&Tracker> {
        let wanted = wanted_name(app);
        let mut deleting = self.history.iter().filter(|tracker| tracker.is_deleting());
        deleting.find(|tracker| self.current.is_none() && tracker.name() == wanted)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Returns true if a tracker records the object, in any version of its group.
    #[must_use]
    pub fn records(&self, key: &ResourceKey) -> bool {
        let mut entries = self.in_order().flat_map(|tracker| &tracker.entries);
        entries.any(|entry| entry.name == key.name && ResourceKey::of(entry) == *key)
    }

    pub fn all(&self) -> impl Iterator<Item = &Tracker> {
        self.in_order().chain(&self.component_revision)
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Tracker> {
        (self.history.iter_mut())
            .chain(&mut self.current)
            .chain(&mut self.root)
            .chain(&mut self.component_revision)
    }

    /// Iterates over the trackers of objects, oldest first. The last record of an object owns it.
    pub fn in_order(&self) -> impl DoubleEndedIterator<Item = &Tracker> {
        self.history.iter().chain(&self.current).chain(&self.root)
    }
}

fn wanted_name(app: &AppIdentity) -> String {
    names::versioned(&app.name, app.generation, app.publish_version.as_deref())
}

/// Returns true for a tracker of the published version, or of the generation if there is none. Also for a tracker with
/// the name of the wanted tracker (`v3` is a version or a generation): both can't exist.
fn is_current(app: &AppIdentity, tracker: &Tracker, wanted: &str) -> bool {
    let is_of_version = match app.publish_version.as_deref() {
        Some(version) => tracker.publish_version() == Some(version),
        None => tracker.publish_version().is_none() && tracker.generation() == app.generation,
    };
    // A tracker that is being deleted takes its objects with it.
    !tracker.is_deleting() && (is_of_version || tracker.name() == wanted)
}

/// Puts the better of two trackers into a place, and the other into the history.
fn place(place: &mut Option<Tracker>, history: &mut Vec<Tracker>, tracker: Tracker, expected_name: &str) {
    let Some(former) = place.take() else {
        *place = Some(tracker);
        return;
    };
    let rank = |tracker: &Tracker| {
        let has_name = tracker.name() == expected_name;
        (
            !tracker.is_deleting(),
            tracker.generation(),
            has_name,
            tracker.name().to_owned(),
        )
    };
    let (better, other) = if rank(&tracker) > rank(&former) {
        (tracker, former)
    } else {
        (former, tracker)
    };
    *place = Some(better);
    history.push(other);
}
