//! The rendered indexes: one of each repository, rendered once for all that wait.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufWriter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::ArchiveMode;
use super::render::IndexRenderer;
use super::row::{Row, stored_path};
use super::spool::{IndexSpool, RenderedIndex, SpoolWriter};
use crate::api::NamespacedName;
use crate::budget::Budgets;
use crate::catalog::Catalog;
use crate::catalog::query::ChartsKey;
use crate::serve::live::{Live, Unavailable};

/// Each has an open file.
const MAX_INDEXES: usize = 256;
/// Memory of rendering: a row, and buffers. A large row takes more.
const RENDER_MEMORY: u64 = 8 << 20;
/// A row is held as the database sent it, as text, and decoded.
const COPIES: u64 = 4;
const BUFFER_BYTES: usize = 64 * 1024;
/// Time after which no more rows are read, since the CPU permit is shared.
const MAX_READ: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RenderError {
    #[error("the index takes more than 50 MiB")]
    TooLarge,
    #[error("the temporary files take as much as --spool-limit allows")]
    SpoolFull,
    #[error("failed to write a temporary file")]
    Spool,
    #[error("no memory or CPU is available")]
    Busy,
    /// Rendering starts again with this memory.
    #[error("a row takes {0} bytes of memory")]
    LargeRow(u64),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<io::Error> for RenderError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => {
                tracing::warn!(%error, "failed to write an index to a temporary file, see --spool-dir");
                Self::Spool
            }
        }
    }
}

type Rendering = Shared<BoxFuture<'static, Result<Arc<RenderedIndex>, RenderError>>>;

pub(super) struct Indexes {
    spool: IndexSpool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<NamespacedName, IndexEntry>,
    /// Number of uses so far.
    uses: u64,
}

struct IndexEntry {
    etag: String,
    rendering: Rendering,
    last_use: u64,
}

impl IndexEntry {
    /// Polls the rendering, since the clients of a complete one may all be gone.
    fn result(&self) -> Option<Result<Arc<RenderedIndex>, RenderError>> {
        self.rendering.clone().now_or_never()
    }

    /// Returns false after an error that may have passed.
    fn is_usable(&self) -> bool {
        !matches!(self.result(), Some(Err(error)) if error != RenderError::TooLarge)
    }
}

/// The inputs of an index.
pub(super) struct RenderRequest {
    pub(super) repository: NamespacedName,
    pub(super) key: ChartsKey,
    /// Of the index that the key and the mode give.
    pub(super) etag: String,
    pub(super) mode: ArchiveMode,
    /// False if the repository is known to be no registry.
    pub(super) may_share_names: bool,
}

impl Indexes {
    pub(super) fn new(spool: IndexSpool) -> Self {
        Self {
            spool,
            state: Mutex::default(),
        }
    }

    /// Returns the index, which is rendered at most once at a time, also if the first client goes away.
    pub(super) async fn get(
        self: &Arc<Self>,
        live: &Arc<Live>,
        budgets: &Budgets,
        request: RenderRequest,
    ) -> Result<Arc<RenderedIndex>, RenderError> {
        let rendering = {
            let mut state = self.state.lock();
            state.uses += 1;
            let uses = state.uses;
            match state.entries.get_mut(&request.repository) {
                Some(entry) if entry.etag == request.etag && entry.is_usable() => {
                    entry.last_use = uses;
                    entry.rendering.clone()
                }
                _ => {
                    let (name, etag) = (request.repository.clone(), request.etag.clone());
                    let rendering = self.start(Arc::clone(live), budgets.clone(), request);
                    state.entries.remove(&name);
                    if state.entries.len() >= MAX_INDEXES {
                        state.make_place();
                    }
                    let entry = IndexEntry {
                        etag,
                        rendering: rendering.clone(),
                        last_use: uses,
                    };
                    state.entries.insert(name, entry);
                    rendering
                }
            }
        };
        rendering.await
    }

    /// Renders on a thread beside the runtime, with a CPU permit.
    fn start(self: &Arc<Self>, live: Arc<Live>, budgets: Budgets, request: RenderRequest) -> Rendering {
        let (indexes, runtime) = (Arc::clone(self), Handle::current());
        let render = async move {
            let catalog = live.catalog().await.map_err(|error| {
                tracing::debug!(%error, "failed to open the catalog");
                Unavailable
            })?;
            let namespace = request.repository.namespace.clone();
            let request = Arc::new(request);
            let mut memory = RENDER_MEMORY;
            loop {
                let (indexes, runtime) = (Arc::clone(&indexes), runtime.clone());
                let (catalog, request) = (catalog.clone(), Arc::clone(&request));
                let work = move || runtime.block_on(indexes.render(&catalog, &request, memory));
                let rendered = budgets.run(&namespace, memory, work).await;
                let (rendered, _memory) = rendered.map_err(|error| {
                    tracing::warn!(%error, "failed to render an index");
                    RenderError::Busy
                })?;
                match rendered {
                    Err(RenderError::LargeRow(needed)) => memory = needed,
                    rendered => return rendered.map(Arc::new),
                }
            }
        };
        let task = tokio::spawn(render);
        // A panic has been logged.
        task.map(|joined| joined.unwrap_or(Err(RenderError::Busy)))
            .boxed()
            .shared()
    }

    async fn render(
        &self,
        catalog: &Catalog,
        request: &RenderRequest,
        memory: u64,
    ) -> Result<RenderedIndex, RenderError> {
        let name = &request.repository;
        let shared_names = if request.may_share_names {
            shared_names(catalog, name, memory).await?
        } else {
            HashSet::new()
        };
        let make_room = |namespace: &str, of_others| self.state.lock().make_room(namespace, of_others);
        let writer = SpoolWriter::new(&self.spool, &name.namespace, &make_room)?;
        let writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
        let mut renderer = IndexRenderer::begin(writer, request.mode, shared_names)?;
        let render = |chart_id: &str, info: &str| renderer.chart(chart_id, info).map_err(RenderError::from);
        visit_rows(catalog, name, memory, render).await?;
        let writer = renderer.end(request.key.last_update())?;
        let writer = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(writer.finish()?)
    }
}

impl State {
    /// Drops the index that was not used for longest: of the namespace that needs room, or else `of_others`. Returns false if
    /// there is none.
    fn make_room(&mut self, namespace: &str, of_others: bool) -> bool {
        self.drop_oldest(|name| name.namespace == namespace) || (of_others && self.drop_oldest(|_| true))
    }

    /// Drops an index of the namespace that has most of them, so that others keep theirs.
    fn make_place(&mut self) -> bool {
        let mut counts = HashMap::<&str, usize>::new();
        for name in self.entries.keys() {
            *counts.entry(&name.namespace).or_default() += 1;
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count);
        let largest = largest.map(|(namespace, _)| namespace.to_owned());
        largest.is_some_and(|largest| self.drop_oldest(|name| name.namespace == largest)) || self.drop_oldest(|_| true)
    }

    fn drop_oldest(&mut self, may_drop: impl Fn(&NamespacedName) -> bool) -> bool {
        let entries = self.entries.iter();
        let complete = entries.filter(|(name, entry)| may_drop(name) && entry.result().is_some());
        let oldest = complete.min_by_key(|(_, entry)| entry.last_use);
        let Some(name) = oldest.map(|(name, _)| name.clone()) else {
            return false;
        };
        self.entries.remove(&name).is_some()
    }
}

/// Passes the rows of a repository to `visit` until it fails. Read in pages, since Postgres sends all rows of a statement
/// even if none is needed any more.
async fn visit_rows(
    catalog: &Catalog,
    name: &NamespacedName,
    memory: u64,
    mut visit: impl FnMut(&str, &str) -> Result<(), RenderError> + Send,
) -> Result<(), RenderError> {
    let started = Instant::now();
    let (mut after, mut visited) = (String::new(), Ok(()));
    loop {
        let row = |chart_id: &str, info: &str| {
            if visited.is_ok() {
                visited = check_memory(info, memory).and_then(|()| visit(chart_id, info));
            }
        };
        let page = catalog.visit_page_of_charts(name, &after, row).await;
        let next = page.map_err(|error| {
            tracing::debug!(%error, "failed to read the charts of a repository");
            Unavailable
        })?;
        visited?;
        let Some(last) = next else { return Ok(()) };
        if started.elapsed() > MAX_READ {
            tracing::warn!(repository = %name, "failed to render an index: reading its rows takes too long");
            return Err(RenderError::Busy);
        }
        after = last;
    }
}

fn check_memory(info: &str, memory: u64) -> Result<(), RenderError> {
    let needed = COPIES * info.len() as u64;
    if needed > memory {
        return Err(RenderError::LargeRow(needed));
    }
    Ok(())
}

/// Returns the names that several charts of a repository have: in a registry, an ID has the path instead.
async fn shared_names(catalog: &Catalog, name: &NamespacedName, memory: u64) -> Result<HashSet<String>, RenderError> {
    let (mut names, mut shared) = (HashSet::new(), HashSet::new());
    let visit = |chart_id: &str, info: &str| {
        if let Some(row) = Row::decode(info) {
            let name = row.name(stored_path(chart_id));
            if let Some(name) = names.replace(name) {
                shared.insert(name);
            }
        }
        Ok(())
    };
    visit_rows(catalog, name, memory, visit).await?;
    Ok(shared)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn entry(last_use: u64, result: Result<Arc<RenderedIndex>, RenderError>) -> IndexEntry {
        let rendering = ready(result).boxed().shared();
        let _ = rendering.clone().now_or_never();
        IndexEntry {
            etag: String::new(),
            rendering,
            last_use,
        }
    }

    #[test]
    fn an_error_that_may_pass_is_not_kept() {
        assert!(entry(1, Err(RenderError::TooLarge)).is_usable());
        assert!(!entry(1, Err(RenderError::SpoolFull)).is_usable());
        let without_clients = IndexEntry {
            rendering: ready(Err(RenderError::Busy)).boxed().shared(),
            ..entry(1, Err(RenderError::Busy))
        };
        assert!(!without_clients.is_usable());
        let unfinished = IndexEntry {
            rendering: std::future::pending().boxed().shared(),
            ..entry(1, Err(RenderError::Busy))
        };
        assert!(unfinished.is_usable());
    }

    #[test]
    fn a_large_row_takes_more_memory() {
        let row = "x".repeat(2 << 20);
        assert_eq!(check_memory(&row, RENDER_MEMORY), Ok(()));
        let larger = format!("{row}x");
        let Err(RenderError::LargeRow(needed)) = check_memory(&larger, RENDER_MEMORY) else {
            panic!("the row fits");
        };
        assert_eq!(check_memory(&larger, needed), Ok(()));
    }

    #[test]
    fn the_index_that_was_not_used_for_longest_is_dropped_first() {
        let mut state = State::default();
        for (name, last_use) in [("a", 3), ("b", 1), ("c", 2)] {
            let name = NamespacedName::new("team-a", name);
            state.entries.insert(name, entry(last_use, Err(RenderError::TooLarge)));
        }
        let oldest = NamespacedName::new("team-b", "a");
        state
            .entries
            .insert(oldest.clone(), entry(0, Err(RenderError::TooLarge)));
        // A namespace takes the room of others last.
        assert!(state.make_room("team-a", true) && state.entries.contains_key(&oldest));
        assert!(!state.entries.contains_key(&NamespacedName::new("team-a", "b")));
        assert!(!state.make_room("team-c", false));
        assert!(state.make_room("team-c", true) && !state.entries.contains_key(&oldest));
        assert_eq!(state.entries.len(), 2);
    }

    #[test]
    fn a_namespace_with_many_indexes_takes_no_place_of_others() {
        let mut state = State::default();
        for (namespace, name, last_use) in [("team-b", "a", 0), ("team-a", "a", 1), ("team-a", "b", 2)] {
            let name = NamespacedName::new(namespace, name);
            state.entries.insert(name, entry(last_use, Err(RenderError::TooLarge)));
        }
        assert!(state.make_place());
        assert!(state.entries.contains_key(&NamespacedName::new("team-b", "a")));
        assert!(!state.entries.contains_key(&NamespacedName::new("team-a", "a")));
    }
}
