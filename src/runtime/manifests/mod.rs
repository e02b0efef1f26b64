//! Objects of a folder of manifests: Portolan without a cluster.
//!
//! ```text
//!  notifier ───────────────────┐
//!                              ├─► read: a snapshot ─► folder: what is believed ─► events
//!  a clock ─► other metadata? ─┘                         └─► problems
//! ```
//!
//! Files are YAML or JSON, of one or many documents each. A file that can't be read or parsed keeps what it declared
//! before, and says so. An object is deleted by removing its document, or its file, from the folder.
//!
//! The rest of an object's metadata is made up here: its UID from the folder and the name, so that it is the same object
//! after a restart; the annotation [`MANIFEST_ANNOTATION`], so that paths can be resolved against its file; and a request
//! for a resync that [`request_resync`] has left.

mod directory;
mod document;
mod notifier;
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
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use directory::{Folder, Step};
use notifier::Notifier;
pub use secrets::{SecretContent, SecretFileError, secret};

/// Annotation, always set here: the path of the file that declares the object.
pub const MANIFEST_ANNOTATION: &str = "portolan.dev/manifest";

/// Where requests for a resync are left, below the folder.
const REQUESTS: &str = ".portolan/resync";

/// The pause between a notification and the look at the folder, so that a burst of changes is one look; and the pause before a
/// change is looked at a second time.
const SETTLE: Duration = Duration::from_millis(200);

/// The longest pause between two looks where changes are not notified.
const POLL: Duration = Duration::from_secs(1);

/// How to watch a folder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often the metadata of the files is compared without a notification: a network file system, or a link that leads out of
    /// the folder, sends none.
    pub rescan: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rescan: Duration::from_secs(30),
        }
    }
}

/// The folder can't be looked at. What it declared before is kept, and it is looked at again and again.
#[derive(Debug, thiserror::Error)]
#[error("the folder {} can't be read: {source}; what it declared before is kept until it can be", folder.display())]
pub struct Error {
    folder: PathBuf,
    source: io::Error,
}

/// Something that is wrong in the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The file, below the folder; empty for the folder itself.
    pub path: PathBuf,
    /// What is wrong, and what became of it.
    pub message: String,
}

impl Problem {
    fn new(path: &Path, message: &str) -> Self {
        Self {
            path: path.to_owned(),
            message: crate::text::printable(message),
        }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

/// What is wrong in a folder right now, for those who show it. A handle: clones tell of the same folder.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<RwLock<(BTreeSet<Problem>, bool)>>);

impl Problems {
    /// All problems, by path.
    #[must_use]
    pub fn list(&self) -> Vec<Problem> {
        self.0.read().0.iter().cloned().collect()
    }

    /// Whether all that the folder declares is known. While it is not, as with a file that could never be parsed, nothing
    /// may be removed for not being declared. Once it is, a complete list is told again.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.read().1
    }

    /// Takes over what is wrong now, and logs what is new and what is over.
    fn set(&self, problems: BTreeSet<Problem>, complete: bool) {
        let mut current = self.0.write();
        for problem in problems.difference(&current.0) {
            tracing::warn!(file = %problem.path.display(), "{}", problem.message);
        }
        let over = current
            .0
            .iter()
            .filter(|old| !problems.iter().any(|problem| problem.path == old.path));
        for path in over.map(|problem| &problem.path).collect::<BTreeSet<_>>() {
            tracing::info!(file = %path.display(), "manifest is valid again");
        }
        *current = (problems, complete);
    }
}

/// An id of the folder, the same whatever path leads to it: the origin of the objects that it declares.
///
/// # Errors
/// If the folder is not there.
pub fn folder_id(folder: &Path) -> io::Result<String> {
    Ok(directory::uuid(
        &Sha256::digest(folder.canonicalize()?.as_os_str().as_encoded_bytes()).into(),
    ))
}

/// Asks for a resync of an object that the folder declares: leaves the token where the folder's watch sees it, in place of
/// an older one. A new token is a new request.
///
/// # Errors
/// If the name is no object's, or the file can't be written.
pub fn request_resync(folder: &Path, name: &NamespacedName, token: &str) -> io::Result<()> {
    if !is_object_name(&name.namespace) || !is_object_name(&name.name) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{name}` is no name of an object"),
        ));
    }
    let directory = folder.join(REQUESTS).join(&name.namespace);
    fs::create_dir_all(&directory)?;
    // Written beside its place under a name that is no object's, and moved there: it is seen whole or not at all.
    let mut file = request_file().prefix("..").tempfile_in(&directory)?;
    io::Write::write_all(&mut file, token.trim().as_bytes())?;
    file.persist(directory.join(&name.name))?;
    Ok(())
}

/// A temporary file that others may read: who asks need not be who runs the watch.
fn request_file() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder
}

/// Whether a text can be the name of an object or a namespace: as Kubernetes has it, and so never a path.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && bytes.iter().copied().all(inner)
        && bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
}

/// The events of all objects of a kind in the folder, and what is wrong there. The events never end.
///
/// The first are a complete list, as soon as the folder can be listed at all; while it can't, errors are given, and what it
/// declared before is kept.
pub fn events<K>(
    folder: PathBuf,
    settings: &Settings,
) -> (
    impl Stream<Item = Result<Event<DeserializeGuard<K>>, Error>> + Send + use<K>,
    Problems,
)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    let problems = Problems::default();
    let (notifier, woken) = Notifier::new();
    let watch = Watch {
        folder,
        state: None,
        queue: VecDeque::new(),
        problems: problems.clone(),
        pause: Duration::ZERO,
        fingerprint: None,
        notifier,
        woken,
        rescan: settings.rescan,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await;
        Some((event, watch))
    });
    (events, problems)
}

struct Watch<K> {
    folder: PathBuf,
    /// Nothing until the folder was there for the first time.
    state: Option<Folder<K>>,
    queue: VecDeque<Event<DeserializeGuard<K>>>,
    problems: Problems,
    /// Time until the next look, if no change is notified before.
    pause: Duration,
    /// Of the files as they were read, once all were and no change has to be seen a second time.
    fingerprint: Option<u64>,
    notifier: Notifier,
    woken: mpsc::Receiver<()>,
    rescan: Duration,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Send + 'static,
{
    async fn next(&mut self) -> Result<Event<DeserializeGuard<K>>, Error> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(event);
            }
            if timeout(self.pause, self.woken.recv()).await.is_ok() {
                sleep(SETTLE).await;
                let _ = self.woken.try_recv();
                self.fingerprint = None;
            }
            if let Err(source) = self.look().await {
                self.fingerprint = None;
                let error = Error {
                    folder: self.folder.clone(),
                    source,
                };
                let complete = self.problems.is_complete();
                self.problems.set(
                    BTreeSet::from([Problem::new(Path::new(""), &error.to_string())]),
                    complete,
                );
                return Err(error);
            }
        }
    }

    /// The pause between two looks at a folder at rest.
    fn interval(&self) -> Duration {
        if self.notifier.is_watching() {
            self.rescan
        } else {
            self.rescan.min(POLL)
        }
    }

    async fn look(&mut self) -> io::Result<()> {
        // Watched before it is read: what changes in between is told.
        self.notifier.watch(&self.folder);
        self.pause = self.interval();
        let (path, last) = (self.folder.clone(), self.fingerprint);
        let mut state = self.state.take();
        let (state, step) = tokio::task::spawn_blocking(move || {
            let step = step(&mut state, &path, last);
            (state, step)
        })
        .await
        .map_err(io::Error::other)?;
        self.state = state;
        let Some((fingerprint, step)) = step? else {
            return Ok(());
        };
        if let Some(state) = &self.state {
            self.problems.set(state.problems().clone(), state.is_complete());
        }
        self.queue.extend(step.events);
        self.fingerprint = fingerprint.filter(|_| !step.look_again);
        if step.look_again {
            self.pause = SETTLE;
        }
        Ok(())
    }
}

/// Reads the folder into its state, unless its fingerprint is the last one. Returns the fingerprint, if all files could be read.
fn step<K>(state: &mut Option<Folder<K>>, path: &Path, last: Option<u64>) -> io::Result<Option<(Option<u64>, Step<K>)>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let fingerprint = reader::fingerprint(path)?;
    if last == Some(fingerprint) {
        return Ok(None);
    }
    let snapshot = reader::read(path)?;
    let is_complete = snapshot.unread.is_empty() && snapshot.files.values().all(Result::is_ok);
    // Times have a resolution: a write just after the first look may leave no trace in them.
    let is_first = state.is_none();
    let state = match state {
        Some(state) => state,
        None => state.insert(Folder::new(&std::path::absolute(path)?, &path.canonicalize()?)),
    };
    let mut step = state.advance(snapshot);
    step.look_again |= is_first;
    Ok(Some((is_complete.then_some(fingerprint), step)))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
