//! Watches the releases of Helm: metadata of their objects, and one read of each new version. Those of Flux and Argo CD are
//! listed again when one of them has changed.
//!
//! ```text
//!  watches of metadata ─► Objects: a fair choice ─► GET, decode ─┬─► Found
//!  watches of fingerprints ─► list ──────────────────────────────┘
//! ```
//! At rest there are no requests but those of the watches.

mod declared;
mod objects;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use declared::watch_declared;
use objects::{ObjectKey, Objects, Version, is_small};

use super::cluster::{self, DEPLOYED, Declared, Limits, MAX_RELEASES, Storage};
use super::{PayloadError, Release};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::{MetadataEvent, Scope, Selection, watch_metadata};
use crate::text::sanitize;

/// Between lists of objects that may not be watched.
const POLL: Duration = Duration::from_secs(60);
/// An upgrade changes two objects.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// Reads at once. One holds an object of up to 1.5 MiB.
const READS: usize = 4;
/// Failed reads after which the others wait for the next attempt too: the API server may be away, or refuse all.
const MAX_FAILURES: usize = 20;
/// Before objects whose read failed are read again.
const RETRY: Duration = Duration::from_secs(30);

/// The releases that are known.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub releases: Vec<Arc<Release>>,
    /// Objects that are not read: there are too many, or they are new.
    pub left_out: usize,
    pub unreadable_count: usize,
    /// The first of them.
    pub unreadable: Vec<Unreadable>,
    /// Each list is complete or has failed.
    pub is_complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Empty for a list that failed.
    pub namespace: String,
    /// Names the object and the cause.
    pub message: String,
}

impl Unreadable {
    fn of_list(error: &str) -> Self {
        Self {
            namespace: String::new(),
            message: sanitize(error),
        }
    }

    fn of_object(name: &NamespacedName, error: &str) -> Self {
        Self {
            namespace: name.namespace.clone(),
            message: sanitize(&format!("{name}: {error}")),
        }
    }
}

/// Reports the releases of a namespace, or of all, to `found`, again after each change. Never returns. Needs `list`, `watch` and
/// `get` on Secrets and ConfigMaps.
pub async fn watch_releases(client: Client, namespace: Option<String>, found: watch::Sender<Found>) {
    let watched = Arc::new(Watched::default());
    let selection = || Selection {
        scope: namespace.clone().map_or(Scope::All, Scope::Namespace),
        labels: Some(DEPLOYED.to_owned()),
    };
    let on_event = |storage| {
        let watched = Arc::clone(&watched);
        move |event| watched.on_event(storage, event)
    };
    let declaring = Arc::clone(&watched);
    let on_declared = move || {
        declaring.has_declared.store(true, Ordering::SeqCst);
        declaring.changed.notify_one();
    };
    futures::join!(
        watch_metadata::<Secret>(client.clone(), selection(), POLL, on_event(Storage::Secret)),
        watch_metadata::<ConfigMap>(client.clone(), selection(), POLL, on_event(Storage::ConfigMap)),
        watch_declared(client.clone(), namespace.clone(), on_declared),
        watched.read(&client, namespace.as_deref(), &found),
    );
}

/// Sleeps nine times as long as the work took, at most a minute: a tenant who changes objects all the time causes little work.
pub async fn idle_after(started: Instant) {
    sleep((9 * started.elapsed()).min(Duration::from_secs(60))).await;
}

type Content = Result<Result<Release, PayloadError>, ApiError>;

#[derive(Default)]
struct Watched {
    objects: Mutex<Objects>,
    changed: Notify,
    /// Objects of Flux or Argo CD have changed.
    has_declared: AtomicBool,
}

impl Watched {
    fn on_event(&self, storage: Storage, event: MetadataEvent) {
        let mut objects = self.objects.lock();
        match event {
            MetadataEvent::Applied(meta) => objects.apply(key(storage, &meta), version(&meta)),
            MetadataEvent::Deleted(meta) => objects.remove(&key(storage, &meta)),
            MetadataEvent::Listed => objects.set_list(storage, None),
            MetadataEvent::NotServed => {}
            MetadataEvent::Failed(error) => objects.set_list(storage, Some(error)),
        }
        drop(objects);
        self.changed.notify_one();
    }

    async fn read(&self, client: &Client, namespace: Option<&str>, found: &watch::Sender<Found>) {
        let scope = cluster::Scope {
            namespaces: namespace.map(str::to_owned).into_iter().collect(),
        };
        let mut declared = Declared::default();
        let mut has_failed = false;
        loop {
            let changed = self.changed.notified();
            if has_failed {
                let _ = timeout(RETRY, changed).await;
            } else {
                changed.await;
            }
            sleep(DEBOUNCE).await;
            if !self.objects.lock().is_listed() {
                continue;
            }
            has_failed = self.read_due(client).await;
            let listed_at = self.has_declared.swap(false, Ordering::SeqCst).then(Instant::now);
            if listed_at.is_some() {
                match Declared::list(client, &scope, Limits::default()).await {
                    Ok(listed) => declared = listed,
                    Err(error) => {
                        tracing::debug!(%error, "failed to list the releases of Flux and Argo CD, keeping the known ones");
                        self.has_declared.store(true, Ordering::SeqCst);
                        has_failed = true;
                    }
                }
            }
            found.send_replace(self.found(&declared));
            if let Some(started) = listed_at {
                idle_after(started).await;
            }
        }
    }

    /// Adds the releases of Flux and Argo CD to those of Helm, as many of each namespace as fit.
    fn found(&self, declared: &Declared) -> Found {
        let (mut releases, mut found) = self.objects.lock().found();
        declared.add_to(&mut releases);
        found
            .unreadable
            .extend(declared.unreadable.iter().map(|error| Unreadable::of_list(error)));
        let count = releases.len();
        releases.retain(is_small);
        found.unreadable_count += count - releases.len();
        let count = releases.len();
        let mut kept = interleave(releases.iter().map(|release| (release.namespace.as_str(), release)));
        kept.truncate(MAX_RELEASES);
        found.left_out += count - kept.len();
        found.releases = kept.into_iter().cloned().map(Arc::new).collect();
        found
    }

    /// Returns true if a read failed.
    async fn read_due(&self, client: &Client) -> bool {
        let due = self.objects.lock().due();
        let due = due.into_iter().map(|(key, version)| read(client, key, version).boxed());
        let due: Vec<BoxFuture<'_, _>> = due.collect();
        let mut reads = stream::iter(due).buffer_unordered(READS);
        let mut failures = 0;
        while failures < MAX_FAILURES
            && let Some((key, version, content)) = reads.next().await
        {
            let mut objects = self.objects.lock();
            match content {
                Ok(content) => objects.store(&key, version, content.map_err(|error| error.to_string())),
                // The watch reports the end.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    failures += 1;
                    objects.store_failure(&key, error.to_string());
                }
            }
        }
        failures > 0
    }
}

fn key(storage: Storage, meta: &ObjectMeta) -> ObjectKey {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (NamespacedName::new(text(&meta.namespace), text(&meta.name)), storage)
}

fn version(meta: &ObjectMeta) -> Version {
    Version {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
    }
}

async fn read(client: &Client, key: ObjectKey, version: Version) -> (ObjectKey, Version, Content) {
    let (object, storage) = &key;
    let content = storage.read(client, object).await;
    (key, version, content)
}
