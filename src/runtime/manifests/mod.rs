//! Informer source for a directory of manifests, without a cluster.
//!
//! ```text
//!  metadata of files, polled ─► reader: snapshot ─► directory: accepted state ─► events
//!                                                              └─► problems
//! ```
//!
//! Files are YAML or JSON with one or more documents. A file that cannot be read or parsed keeps its previous objects
//! and is reported as a problem. Deleting a document or a file deletes its objects.
//!
//! The index of a chart repository is no manifest, and a directory that a `file:` URL of an object names holds data.
//!
//! Metadata is generated: the UID from directory and name, so that it is stable across restarts, the annotation
//! [`MANIFEST_ANNOTATION`] to resolve relative paths, and a resync request left by [`request_resync`].

mod chart_index;
mod data_directories;
mod directory;
pub mod document;
mod reader;
mod secrets;

use crate::api::NamespacedName;
use std::{
    collections::{BTreeSet, VecDeque},
    fmt::{self, Display},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, stream};
use kube::{Resource, core::DeserializeGuard, runtime::watcher::Event};
use parking_lot::RwLock;
use prometheus_client::metrics::gauge::Gauge;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use directory::{ManifestDirectory, SnapshotChanges};
pub use secrets::{SecretContent, SecretFileError, secret};

/// Generated annotation with the path of the file that declares the object.
pub const MANIFEST_ANNOTATION: &str = "portolan.dev/manifest";

const REQUESTS: &str = ".portolan/resync";

/// Interval at which file metadata is compared. Notifications would miss network file systems and links to other
/// directories. A look costs 1.5 ms of CPU, most of it to wake up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The pause is at least this many times as long as a look at the directory, which may be large or slow.
const PAUSE_FACTOR: u32 = 20;

/// Longest pause, and the time until files are read again if some could not be read: their metadata may stay the same.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Delay until a change is confirmed.
const CONFIRMATION_DELAY: Duration = Duration::from_millis(200);

/// The directory cannot be read. Its previous objects are kept, and it is retried.
#[derive(Debug, thiserror::Error)]
#[error("failed to read directory {}: {source}; keeping previous objects", directory.display())]
pub struct DirectoryError {
    directory: PathBuf,
    source: io::Error,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestProblem {
    /// Relative to the directory; empty for the directory itself.
    pub path: PathBuf,
    pub message: String,
}

impl ManifestProblem {
    fn new(path: &Path, message: &str) -> Self {
        Self {
            path: path.to_owned(),
            message: crate::text::printable(message),
        }
    }
}

impl Display for ManifestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

/// Returns the URL of the data of an object of any kind, as declared.
pub type DataUrl = fn(&Value) -> Option<&str>;

#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<RwLock<ProblemState>>);

#[derive(Debug, Default)]
struct ProblemState {
    problems: BTreeSet<ManifestProblem>,
    is_complete: bool,
    gauge: Gauge<i64>,
}

impl Problems {
    #[must_use]
    pub fn list(&self) -> Vec<ManifestProblem> {
        self.0.read().problems.iter().cloned().collect()
    }

    pub fn report_to(&self, gauge: Gauge<i64>) {
        self.0.write().gauge = gauge;
    }

    /// Until then, no object may be removed for being undeclared; a complete list follows.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.read().is_complete
    }

    fn set(&self, problems: BTreeSet<ManifestProblem>, complete: bool) {
        let mut current = self.0.write();
        for problem in problems.difference(&current.problems) {
            tracing::warn!(file = %problem.path.display(), "{}", problem.message);
        }
        let over = current
            .problems
            .iter()
            .filter(|old| !problems.iter().any(|problem| problem.path == old.path));
        for path in over.map(|problem| &problem.path).collect::<BTreeSet<_>>() {
            tracing::info!(file = %path.display(), "manifest is valid again");
        }
        current.gauge.set(i64::try_from(problems.len()).unwrap_or(i64::MAX));
        (current.problems, current.is_complete) = (problems, complete);
    }
}

/// Returns an ID of the directory, independent of the path used. Identifies the source of its objects.
pub fn directory_id(directory: &Path) -> io::Result<String> {
    Ok(directory::uuid(
        &Sha256::digest(directory.canonicalize()?.as_os_str().as_encoded_bytes()).into(),
    ))
}

/// Stores a token in place of an earlier one. Each new token is a new request.
pub fn request_resync(directory: &Path, name: &NamespacedName, token: &str) -> io::Result<()> {
    if !is_object_name(&name.namespace) || !is_object_name(&name.name) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{name}` is not a valid object name"),
        ));
    }
    let namespace_directory = directory.join(REQUESTS).join(&name.namespace);
    fs::create_dir_all(&namespace_directory)?;
    // Written under a hidden name and renamed, so that readers never see partial content.
    let mut file = request_file().prefix("..").tempfile_in(&namespace_directory)?;
    io::Write::write_all(&mut file, token.trim().as_bytes())?;
    file.persist(namespace_directory.join(&name.name))?;
    Ok(())
}

/// The watcher may run as another user.
fn request_file() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder
}

/// Returns true if the text is a valid Kubernetes object name, and therefore not a path.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    let is_outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inner = |byte: &u8| is_outer(byte) || matches!(byte, b'-' | b'.');
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && bytes.iter().all(is_inner)
        && bytes.first().is_some_and(is_outer)
        && bytes.last().is_some_and(is_outer)
}

/// Starts with a complete list as soon as the directory is readable; returns errors before. Keeps `problems` up to
/// date. Never ends.
pub fn events<K>(
    directory: PathBuf,
    data_url: DataUrl,
    problems: Problems,
) -> impl Stream<Item = Result<Event<DeserializeGuard<K>>, DirectoryError>> + Send + use<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    stream::unfold(
        DirectoryWatch::new(directory, data_url, problems),
        |mut watch| async move {
            let event = watch.next().await;
            Some((event, watch))
        },
    )
}

/// Reads a directory once; returns its problems with objects of a kind.
pub fn problems<K>(directory: &Path, data_url: DataUrl) -> io::Result<Vec<ManifestProblem>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let mut state = None::<ManifestDirectory<K>>;
    scan(&mut state, directory, None, data_url)?;
    Ok(state.iter().flat_map(ManifestDirectory::problems).cloned().collect())
}

/// Reads a directory once; returns the object of this name. `None` if no readable file declares it, or if it is not valid.
pub fn object<K>(directory: &Path, data_url: DataUrl, name: &NamespacedName) -> io::Result<Option<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let scanned = scan(&mut None::<ManifestDirectory<K>>, directory, None, data_url)?;
    let events = scanned.into_iter().flat_map(|applied| applied.changes.events);
    let mut objects = events.filter_map(|event| match event {
        Event::InitApply(DeserializeGuard(object)) => object.ok(),
        _ => None,
    });
    let has_name = |object: &K| {
        let meta = object.meta();
        meta.namespace.as_ref() == Some(&name.namespace) && meta.name.as_ref() == Some(&name.name)
    };
    Ok(objects.find(has_name))
}

struct DirectoryWatch<K> {
    directory: PathBuf,
    data_url: DataUrl,
    state: Option<ManifestDirectory<K>>,
    queue: VecDeque<Event<DeserializeGuard<K>>>,
    problems: Problems,
    pause: Duration,
    /// Hash of the file metadata, if no change needs confirmation.
    fingerprint: Option<u64>,
    /// Set if a file could not be read.
    retry_at: Option<Instant>,
}

/// A snapshot that was applied.
struct AppliedSnapshot<K> {
    fingerprint: u64,
    /// Every file could be read.
    is_complete: bool,
    changes: SnapshotChanges<K>,
}

impl<K> DirectoryWatch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    fn new(directory: PathBuf, data_url: DataUrl, problems: Problems) -> Self {
        Self {
            directory,
            data_url,
            state: None,
            queue: VecDeque::new(),
            problems,
            pause: Duration::ZERO,
            fingerprint: None,
            retry_at: None,
        }
    }

    async fn next(&mut self) -> Result<Event<DeserializeGuard<K>>, DirectoryError> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            sleep(self.pause).await;
            if let Err(source) = self.refresh().await {
                self.fingerprint = None;
                let error = DirectoryError {
                    directory: self.directory.clone(),
                    source,
                };
                let problem = ManifestProblem::new(Path::new(""), &error.to_string());
                self.problems
                    .set(BTreeSet::from([problem]), self.problems.is_complete());
                return Err(error);
            }
        }
    }

    async fn refresh(&mut self) -> io::Result<()> {
        self.pause = POLL_INTERVAL;
        let start = Instant::now();
        if self.retry_at.is_some_and(|retry_at| retry_at <= Instant::now()) {
            self.fingerprint = None;
        }
        let (path, last, data_url) = (self.directory.clone(), self.fingerprint, self.data_url);
        let mut state = self.state.take();
        let (state, scan) = tokio::task::spawn_blocking(move || {
            let scan = scan(&mut state, &path, last, data_url);
            (state, scan)
        })
        .await
        .map_err(io::Error::other)?;
        self.state = state;
        self.pause = (PAUSE_FACTOR * start.elapsed()).clamp(POLL_INTERVAL, RETRY_INTERVAL);
        let Some(scan) = scan? else {
            return Ok(());
        };
        if let Some(state) = &self.state {
            self.problems.set(state.problems().clone(), state.is_complete());
        }
        self.queue.extend(scan.changes.events);
        self.fingerprint = (!scan.changes.needs_confirmation).then_some(scan.fingerprint);
        self.retry_at = (!scan.is_complete).then(|| Instant::now() + RETRY_INTERVAL);
        if scan.changes.needs_confirmation {
            self.pause = CONFIRMATION_DELAY;
        }
        Ok(())
    }
}

/// Applies a snapshot unless the fingerprint is unchanged.
fn scan<K>(
    state: &mut Option<ManifestDirectory<K>>,
    path: &Path,
    last: Option<u64>,
    data_url: DataUrl,
) -> io::Result<Option<AppliedSnapshot<K>>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let fingerprint = reader::fingerprint(path)?;
    if last == Some(fingerprint) {
        return Ok(None);
    }
    let snapshot = reader::read(path)?;
    let is_complete = snapshot.unread.is_empty() && snapshot.files.values().all(Result::is_ok);
    // Timestamps have a limited resolution, so a write right after the first snapshot may not change them.
    let is_first = state.is_none();
    let state = match state {
        Some(state) => state,
        None => state.insert(ManifestDirectory::new(
            &std::path::absolute(path)?,
            &path.canonicalize()?,
            data_url,
        )),
    };
    let mut changes = state.advance(snapshot);
    changes.needs_confirmation |= is_first;
    Ok(Some(AppliedSnapshot {
        fingerprint,
        is_complete,
        changes,
    }))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
