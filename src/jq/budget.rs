//! What the evaluation that runs on this thread may still cost.
//!
//! The interpreter knows no limits of its own, so every step that it takes and every value that it makes comes past
//! here. Arithmetic on values is reached through operators, which can't be handed anything; so the budget belongs to the
//! thread, set while an evaluation runs on it.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr;
use std::time::Instant;

use super::Limits;

/// How many steps are taken between two looks at the clock.
const STEPS_BETWEEN_LOOKS: u64 = 1024;

/// Bytes of values that count as one step where they are compared, searched or copied.
const BYTES_A_STEP: u64 = 64;

/// Which limit an evaluation has run into. It ends the evaluation by unwinding, since an error could be caught by the
/// rule itself (`try`), and since iterators of the interpreter have no other way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exhausted {
    Steps,
    Time,
    /// Calls within calls.
    Stack,
    /// Lists within lists.
    Depth,
    /// One value.
    Value,
    /// All values together.
    Made,
}

/// What is left, and the limits that don't change.
#[derive(Clone, Copy)]
struct Budget {
    steps: u64,
    made: u64,
    deadline: Option<Instant>,
    /// Where the evaluation began on the stack.
    stack: usize,
    stack_bytes: usize,
    depth: u32,
    value_bytes: u64,
}

thread_local! {
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// Puts the former budget back, however the evaluation ends.
struct Restore(Option<Budget>);

impl Drop for Restore {
    fn drop(&mut self) {
        BUDGET.set(self.0);
    }
}

/// Where the stack stands, near enough: the address of something on it.
fn stack_position() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

/// Runs `work` within `limits`.
pub(super) fn within<T>(limits: &Limits, deadline: Option<Instant>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(BUDGET.replace(Some(Budget {
        steps: limits.steps.min(Limits::MOST_STEPS),
        made: limits.made_bytes,
        deadline,
        stack: stack_position(),
        stack_bytes: limits.stack_bytes,
        depth: limits.depth,
        value_bytes: limits.value_bytes,
    })));
    work()
}

/// What unwound an evaluation, where it was one of the limits.
pub(super) fn exhausted(payload: &(dyn Any + Send)) -> Option<Exhausted> {
    payload.downcast_ref().copied()
}

fn give_up(limit: Exhausted) -> ! {
    // Unlike a panic, it prints nothing.
    resume_unwind(Box::new(limit))
}

/// One step of the interpreter.
pub(super) fn step() {
    spend(1);
}

/// The cost of looking at this many bytes of values.
pub(super) fn look_at(bytes: u64) {
    spend(bytes / BYTES_A_STEP);
}

/// Looks at the clock at once, before a single piece of work that takes far longer than a step.
pub(super) fn check_clock() {
    if BUDGET
        .get()
        .and_then(|budget| budget.deadline)
        .is_some_and(|deadline| Instant::now() >= deadline)
    {
        give_up(Exhausted::Time);
    }
}

fn spend(steps: u64) {
    let Some(mut budget) = BUDGET.get() else { return };
    if budget.stack.abs_diff(stack_position()) > budget.stack_bytes {
        give_up(Exhausted::Stack);
    }
    if budget.steps < steps {
        give_up(Exhausted::Steps);
    }
    let looks = budget.steps / STEPS_BETWEEN_LOOKS;
    budget.steps -= steps;
    if budget.steps / STEPS_BETWEEN_LOOKS != looks && budget.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    {
        give_up(Exhausted::Time);
    }
    BUDGET.set(Some(budget));
}

/// Memory that is about to be taken. What is given back meanwhile is not counted off.
pub(super) fn make(bytes: u64) {
    let Some(mut budget) = BUDGET.get() else { return };
    let Some(left) = budget.made.checked_sub(bytes) else {
        give_up(Exhausted::Made)
    };
    budget.made = left;
    BUDGET.set(Some(budget));
    look_at(bytes);
}

/// A value of this many bytes, what it shares with others counted each time, and of this many levels.
pub(super) fn admit(bytes: u64, depth: u32) {
    let Some(budget) = BUDGET.get() else { return };
    if bytes > budget.value_bytes {
        give_up(Exhausted::Value);
    }
    if depth > budget.depth {
        give_up(Exhausted::Depth);
    }
}
