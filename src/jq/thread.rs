use std::cell::Cell;
use std::future::Future;
use std::thread::Builder;

use tokio::sync::oneshot;

use super::FilterError;

/// Reserved only: unused stack takes no memory.
const STACK_BYTES: usize = 256 * 1024 * 1024;

const NAME: &str = "filter";

thread_local! {
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
}

fn builder() -> Builder {
    Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES)
}

/// Runs blocking `work` on a new thread with a large stack.
///
/// The thread starts immediately and is not canceled when the future is dropped. A filter ends by the time of its
/// [`Limits`](super::Limits).
pub fn on_large_stack<T, W>(work: W) -> impl Future<Output = Result<T, FilterError>> + Send + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let started = builder().spawn(move || {
        IS_LARGE.set(true);
        // The receiver may be gone.
        let _ = sender.send(work());
    });
    async move {
        started.map_err(FilterError::Thread)?;
        receiver.await.map_err(|_| FilterError::Panicked)
    }
}

/// Runs `work` on this thread if its stack is large, or else on a new one.
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
