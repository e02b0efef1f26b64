//! The remaining steps of the evaluation, thread-local because jaq calls operators without a context. An exceeded limit
//! unwinds: a rule could catch an error (`try`), and the interpreter's iterators cannot be canceled.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    Steps,
    Size,
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Runs `work`, and returns the exceeded limit or the payload of another panic.
pub(super) fn run_within<T>(steps: u64, work: impl FnOnce() -> T) -> Result<T, Option<Exceeded>> {
    let before = LEFT.replace(steps);
    let result = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(before);
    result.map_err(|payload: Box<dyn Any + Send>| payload.downcast_ref().copied())
}

pub(super) fn step() {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        None => abort(Exceeded::Steps),
    }
}

/// Ends the evaluation: it creates a value that no memory holds.
pub(super) fn too_large() -> ! {
    abort(Exceeded::Size)
}

fn abort(exceeded: Exceeded) -> ! {
    // Unlike a panic, this prints no message.
    resume_unwind(Box::new(exceeded))
}
