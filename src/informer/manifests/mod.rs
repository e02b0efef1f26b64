//! Objects of a folder of manifests: Portolan without a cluster.
//!
//! ```text
//!  notifier ─┐
//!            ├─► quiet for a moment? ─► read: a snapshot ─► folder: what is believed ─► events
//!  a clock ──┘                                                └─► problems
//! ```
//!
//! Files are YAML or JSON, of one or many documents each. A file that can't be read or parsed keeps what it declared
//! before, and says so. An object is deleted by removing its document, or its file, from the folder.
//!
//! The rest of an object's metadata is made up here: its UID from the folder and the name, so that it is the same object
//! after a restart; the annotation [`MANIFEST_ANNOTATION`], so that paths can be resolved against its file; and a request
//! for a resync that [`request_resync`] has left.

mod document;
mod folder;
mod notifier;
mod read;
mod secrets;

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
    time::{Instant, sleep, timeout, timeout_at},
};

use folder::{Folder, Step};
use notifier::Notifier;
pub use secrets::{SecretContent, SecretFileError, secret};

use super::ObjectName;

/// Annotation, always set here: the path of the file that declares the object.
pub const MANIFEST_ANNOTATION: &str = "portolan.dev/manifest";

/// Where requests for a resync are left, below the folder.
const REQUESTS: &str = ".portolan/resync";

/// How quiet the folder has to be before it is looked at, and how long after a change it is looked at again.
const QUIET: Duration = Duration::from_millis(200);

/// A folder that is never quiet is looked at all the same after this time.
const MAX_UNREST: Duration = Duration::from_secs(2);

/// How to watch a folder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often the folder is looked at although nobody said that something has changed: a network file system, or a link
    /// that leads out of the folder, does not say.
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
    Ok(folder::uuid(
        &Sha256::digest(folder.canonicalize()?.as_os_str().as_encoded_bytes()).into(),
    ))
}

/// Asks for a resync of an object that the folder declares: leaves the token where the folder's watch sees it, in place of
/// an older one. A new token is a new request.
///
/// # Errors
/// If the name is no object's, or the file can't be written.
pub fn request_resync(folder: &Path, name: &ObjectName, token: &str) -> io::Result<()> {
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
        next: Next::Now,
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

/// When the folder is looked at the next time.
#[derive(Clone, Copy)]
enum Next {
    Now,
    /// Something has changed that has to be seen twice.
    Soon,
    WhenChanged,
}

struct Watch<K> {
    folder: PathBuf,
    /// Nothing until the folder was there for the first time.
    state: Option<Folder<K>>,
    queue: VecDeque<Event<DeserializeGuard<K>>>,
    problems: Problems,
    next: Next,
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
            self.wait().await;
            if let Err(source) = self.look().await {
                self.next = Next::WhenChanged;
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

    async fn wait(&mut self) {
        match self.next {
            Next::Now => {}
            Next::Soon => sleep(QUIET).await,
            Next::WhenChanged => {
                // Without a notifier the clock is all there is, and then it has to go faster.
                let rescan = if self.notifier.is_watching() {
                    self.rescan
                } else {
                    self.rescan.min(5 * QUIET)
                };
                if timeout(rescan, self.woken.recv()).await.is_ok() {
                    let deadline = Instant::now() + MAX_UNREST;
                    while timeout_at(deadline.min(Instant::now() + QUIET), self.woken.recv())
                        .await
                        .is_ok()
                    {}
                }
            }
        }
    }

    async fn look(&mut self) -> io::Result<()> {
        // Watched before it is read: what changes in between is told.
        self.notifier.watch(&self.folder);
        let path = self.folder.clone();
        let mut state = self.state.take();
        let (state, step) = tokio::task::spawn_blocking(move || {
            let step = step(&mut state, &path);
            (state, step)
        })
        .await
        .map_err(io::Error::other)?;
        self.state = state;
        let step = step?;
        if let Some(state) = &self.state {
            self.problems.set(state.problems().clone(), state.is_complete());
        }
        self.queue.extend(step.events);
        self.next = if step.look_again { Next::Soon } else { Next::WhenChanged };
        Ok(())
    }
}

/// Looks at the folder, and takes what is there into its state.
fn step<K>(state: &mut Option<Folder<K>>, path: &Path) -> io::Result<Step<K>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone,
{
    let snapshot = read::read(path)?;
    let state = match state {
        Some(state) => state,
        None => state.insert(Folder::new(&std::path::absolute(path)?, &path.canonicalize()?)),
    };
    Ok(state.advance(snapshot))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
