//! The remaining budget of the evaluation on this thread.
//!
//! The interpreter has no limits of its own, so every step and every new value is charged here. The budget is
//! thread-local because jaq calls operators without a context.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr;
use std::time::Instant;

use super::Limits;

const STEPS_PER_CLOCK_CHECK: u64 = 1024;

/// Bytes compared, searched or copied that count as one step.
const BYTES_PER_STEP: u64 = 64;

/// The exceeded limit. It unwinds the stack, because a rule could catch an error (`try`) and the interpreter's
/// iterators cannot be canceled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exhausted {
    Steps,
    Time,
    Stack,
    Depth,
    Value,
    Allocated,
}

#[derive(Clone, Copy)]
struct Budget {
    steps: u64,
    allocatable: u64,
    deadline: Option<Instant>,
    stack: usize,
    stack_bytes: usize,
    depth: u32,
    value_bytes: u64,
}

impl Budget {
    fn check_clock(&self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            abort(Exhausted::Time);
        }
    }
}

thread_local! {
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

struct Restore(Option<Budget>);

impl Drop for Restore {
    fn drop(&mut self) {
        BUDGET.set(self.0);
    }
}

/// Approximates the stack pointer by the address of a local variable.
fn stack_position() -> usize {
    let here = 0_u8;
    ptr::from_ref(&here).addr()
}

pub(super) fn run_within<T>(limits: &Limits, deadline: Option<Instant>, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(BUDGET.replace(Some(Budget {
        steps: limits.steps.min(Limits::MAX_STEPS),
        allocatable: limits.allocated_bytes,
        deadline,
        stack: stack_position(),
        stack_bytes: limits.stack_bytes,
        depth: limits.depth,
        value_bytes: limits.value_bytes,
    })));
    work()
}

pub(super) fn exhausted(payload: &(dyn Any + Send)) -> Option<Exhausted> {
    payload.downcast_ref().copied()
}

fn abort(limit: Exhausted) -> ! {
    // Unlike a panic, this prints no message.
    resume_unwind(Box::new(limit))
}

pub(super) fn step() {
    spend(1);
}

/// Charges reading this many bytes of values.
pub(super) fn charge_read(bytes: u64) {
    spend(bytes / BYTES_PER_STEP);
}

/// Checks the deadline immediately, before an operation that takes far longer than a step.
pub(super) fn check_clock() {
    if let Some(budget) = BUDGET.get() {
        budget.check_clock();
    }
}

fn spend(steps: u64) {
    let Some(mut budget) = BUDGET.get() else { return };
    if budget.stack.abs_diff(stack_position()) > budget.stack_bytes {
        abort(Exhausted::Stack);
    }
    if budget.steps < steps {
        abort(Exhausted::Steps);
    }
    let clock_checks = budget.steps / STEPS_PER_CLOCK_CHECK;
    budget.steps -= steps;
    if budget.steps / STEPS_PER_CLOCK_CHECK != clock_checks {
        budget.check_clock();
    }
    BUDGET.set(Some(budget));
}

/// Charges memory before it is allocated. Freed memory is not credited.
pub(super) fn allocate(bytes: u64) {
    let Some(mut budget) = BUDGET.get() else { return };
    let Some(left) = budget.allocatable.checked_sub(bytes) else {
        abort(Exhausted::Allocated)
    };
    budget.allocatable = left;
    BUDGET.set(Some(budget));
    charge_read(bytes);
}

/// Checks the size of a value, counting shared parts every time, and its depth.
pub(super) fn check_value(bytes: u64, depth: u32) {
    let Some(budget) = BUDGET.get() else { return };
    if bytes > budget.value_bytes {
        abort(Exhausted::Value);
    }
    if depth > budget.depth {
        abort(Exhausted::Depth);
    }
}
