//! Applications and the objects that record their state, in memory.

mod application;
mod event_handler;
mod steps;
mod stored;
mod types;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::FutureExt;
use kube::core::{DeserializeGuard, ObjectMeta};
use kube::{Client, ResourceExt};
use parking_lot::RwLock;

pub use application::{CachedApplication, DecodedApplication, StatusOutline};
pub use event_handler::{CacheEventHandler, key};
pub use steps::StepOutline;
pub use stored::{CachedRevision, CachedTracker};

use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ResourceTracker, labels};
use crate::api::{Partial, Raw};
use crate::budget::Budget;
use crate::controllers::Task;
use crate::runtime::watch::{
    Cached, Change, ErrorPolicy, Selection, Store, Stored, cluster_informer, informer, raw_informer,
};

/// Labels and annotations that decide whether an Application gets a pass.
const READ_WITHOUT_PASS: &[&str] = &[
    labels::PAUSE,
    labels::SHARD_ID,
    labels::VERSION_REQUIRED,
    labels::AUTO_UPDATE,
];

/// The caches of the Application controller. Clones share them.
#[derive(Clone)]
pub struct Caches {
    pub applications: Store<Cached<CachedApplication>>,
    pub revisions: Store<Cached<CachedRevision>>,
    trackers: Store<Cached<CachedTracker>>,
    members: Arc<RwLock<Members>>,
    /// Memory of Applications and trackers.
    budget: Budget,
    /// Keeps the steps of Applications too.
    has_steps: bool,
}

#[derive(Default)]
struct Members {
    trackers: HashMap<NamespacedName, BTreeSet<NamespacedName>>,
    revisions: HashMap<NamespacedName, BTreeSet<NamespacedName>>,
}

impl Caches {
    #[must_use]
    pub fn new(budget: Budget, has_steps: bool) -> Self {
        Self {
            applications: Store::default(),
            revisions: Store::default(),
            trackers: Store::default(),
            members: Arc::default(),
            budget,
            has_steps,
        }
    }

    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.applications.is_synced() && self.revisions.is_synced() && self.trackers.is_synced()
    }

    pub async fn wait_until_synced(&self) {
        self.applications.wait_until_synced().await;
        self.revisions.wait_until_synced().await;
        self.trackers.wait_until_synced().await;
    }

    /// The selector applies to Applications only: their revisions and trackers have no labels of the user.
    pub fn sources(&self, client: &Client, selection: &Selection, handler: CacheEventHandler) -> Vec<Task> {
        let handler = Arc::new(handler);
        let on_application = Arc::clone(&handler);
        let (budget, has_steps) = (self.budget.clone(), self.has_steps);
        let applications = raw_informer(
            client.clone(),
            selection.clone(),
            ErrorPolicy::Optional,
            self.applications.clone(),
            move |raw: Raw<Application>| {
                let decoded = DecodedApplication::of(raw);
                let app =
                    decoded.map(|decoded| CachedApplication::new(&decoded, READ_WITHOUT_PASS, has_steps, &budget));
                DeserializeGuard(app.map_err(|invalid| *invalid)).into()
            },
            move |change| on_application.on_application(&change),
        );
        let members = Arc::clone(&self.members);
        let revisions = informer::<Partial<ApplicationRevision>, _>(
            client.clone(),
            selection.scope.clone(),
            ErrorPolicy::Optional,
            self.revisions.clone(),
            move |change| update(&mut members.write().revisions, &change, application_of_revision),
        );
        let (members, budget) = (Arc::clone(&self.members), self.budget.clone());
        let trackers = cluster_informer(
            client.clone(),
            ErrorPolicy::Optional,
            self.trackers.clone(),
            move |raw: Raw<ResourceTracker>| {
                // Its manifests stay text, and its entries are limited.
                DeserializeGuard(raw.decode().0.map(|tracker| CachedTracker::new(tracker, &budget))).into()
            },
            move |change| {
                update(&mut members.write().trackers, &change, application_of_tracker);
                handler.on_tracker(&change);
            },
        );
        vec![applications.boxed(), revisions.boxed(), trackers.boxed()]
    }

    /// Stores an Application as we have written it, before the watch delivers it.
    pub fn assume_application(&self, app: &DecodedApplication) {
        let cached = CachedApplication::new(app, READ_WITHOUT_PASS, self.has_steps, &self.budget);
        self.applications.assume(Cached::Object(Arc::new(cached)));
    }

    #[must_use]
    pub fn trackers_of(&self, application: &NamespacedName) -> Vec<Cached<CachedTracker>> {
        let names = self
            .members
            .read()
            .trackers
            .get(application)
            .cloned()
            .unwrap_or_default();
        names.iter().filter_map(|name| self.trackers.get(name)).collect()
    }

    /// Stores a tracker as we have written it, before the watch delivers it.
    pub fn assume_tracker(&self, tracker: &ResourceTracker, is_created: bool) {
        let cached = Cached::Object(Arc::new(CachedTracker::new(tracker.clone(), &self.budget)));
        let change = if is_created {
            self.trackers.assume_created(cached)
        } else {
            self.trackers.assume(cached)
        };
        if let Some(change) = change {
            update(&mut self.members.write().trackers, &change, application_of_tracker);
        }
    }

    /// Stores a revision as we have written it, before the watch delivers it.
    pub fn assume_revision(&self, revision: &ObjectMeta, is_created: bool) {
        let cached = Cached::Object(Arc::new(CachedRevision::of(revision)));
        let change = if is_created {
            self.revisions.assume_created(cached)
        } else {
            self.revisions.assume(cached)
        };
        if let Some(change) = change {
            update(&mut self.members.write().revisions, &change, application_of_revision);
        }
    }

    #[must_use]
    pub fn revisions_of(&self, application: &NamespacedName) -> Vec<Arc<CachedRevision>> {
        let names = self
            .members
            .read()
            .revisions
            .get(application)
            .cloned()
            .unwrap_or_default();
        let revisions = names.iter().filter_map(|name| self.revisions.get(name));
        revisions.filter_map(|revision| revision.object().cloned()).collect()
    }
}

fn update<K: kube::Resource + Clone>(
    members: &mut HashMap<NamespacedName, BTreeSet<NamespacedName>>,
    change: &Change<Cached<K>>,
    application_of: fn(&ObjectMeta) -> Option<NamespacedName>,
) {
    let (old, new) = match change {
        Change::Applied { old, new, .. } => (old.as_ref(), Some(new)),
        Change::Deleted(old) | Change::MissingFromList(old) => (Some(old), None),
        Change::Synced { .. } => (None, None),
    };
    let entry = |object: &Cached<K>| Some((application_of(object.meta())?, object.key()));
    let (old, new) = (old.and_then(entry), new.and_then(entry));
    if old == new {
        return;
    }
    if let Some((application, name)) = old
        && let Some(names) = members.get_mut(&application)
    {
        names.remove(&name);
        if names.is_empty() {
            members.remove(&application);
        }
    }
    if let Some((application, name)) = new {
        members.entry(application).or_default().insert(name);
    }
}

fn application_of_tracker(meta: &ObjectMeta) -> Option<NamespacedName> {
    let labels = meta.labels.as_ref()?;
    let name = labels.get(labels::APP_NAME)?;
    Some(NamespacedName::new(labels.get(labels::APP_NAMESPACE)?, name))
}

fn application_of_revision(meta: &ObjectMeta) -> Option<NamespacedName> {
    let name = meta.labels.as_ref()?.get(labels::APP_NAME)?;
    Some(NamespacedName::new(meta.namespace.clone()?, name))
}

/// Returns true if another client has written an object: the store holds our own writes.
fn is_changed<K: ResourceExt>(old: Option<&K>, new: &K) -> bool {
    old.is_some_and(|old| old.resource_version() != new.resource_version())
}
