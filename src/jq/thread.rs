//! A thread with room for what recurses: the interpreter, its parser, and dropping what they have made.

use std::cell::Cell;
use std::future::Future;
use std::thread::Builder;

use tokio::sync::oneshot;

use super::FilterError;

/// The stack of a thread that rules run on. It is only reserved: what is not used takes no memory.
const STACK_BYTES: usize = 256 * 1024 * 1024;

const NAME: &str = "filter";

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

fn builder() -> Builder {
    Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES)
}

/// Runs `work`, which is not async and may take long, on a thread of its own with a large stack, and waits for its result.
///
/// The thread is started at once. Who stops waiting does not stop it: it ends when `work` does, and that is bound by the
/// time of the [`Limits`](super::Limits) where `work` is a filter.
///
/// # Errors
/// [`FilterError::Thread`] when no thread can be started, [`FilterError::Panicked`] when `work` panics.
pub fn on_large_stack<T, W>(work: W) -> impl Future<Output = Result<T, FilterError>> + Send + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let started = builder().spawn(move || {
        IS_LARGE.set(true);
        // Nobody may be waiting any more.
        let _ = sender.send(work());
    });
    async move {
        started.map_err(FilterError::Thread)?;
        receiver
            .await
            // Nothing came of it, and it has ended.
            .map_err(|_| FilterError::Panicked)
    }
}

/// Runs `work` here if this thread's stack is large, else on one that is.
pub(super) fn ensure_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, FilterError> {
    if IS_LARGE.get() {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let started = builder().spawn_scoped(scope, || {
            IS_LARGE.set(true);
            work()
        });
        let joined = started.map_err(FilterError::Thread)?.join();
        joined.map_err(|_| FilterError::Panicked)
    })
}
