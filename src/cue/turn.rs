//! Evaluations of a task that others wait for.
//!
//! ```text
//!  run(source) ─┬─ kept by the attempt before ────────────────► result
//!               ├─ ends within the time of the turn ──────────► result, kept if it took long
//!               └─ does not ─► goes on in the background ─► wake   Error::Deferred
//!                                      │
//!  next attempt ◄── KeptEvaluations ◄──┘
//! ```
//! An attempt ends once its turn is over. The next one repeats what comes before and finds the results, so that each
//! attempt gets further, and nothing that takes long is evaluated twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::Error;
use crate::budget::{Reservation, leave_runtime_if_large, parsed_size};

/// Time of all evaluations of an attempt, with their waits for a process.
pub const TURN: Duration = Duration::from_secs(2);
/// Evaluations that take less are repeated.
const KEPT_FROM: Duration = Duration::from_millis(10);

/// The hash of a source.
type Key = [u8; 32];
type EvaluationResult = Result<Value, Error>;
/// Reserves memory for what is kept; `None` if the namespace has no share left.
pub type Reserve = Arc<dyn Fn(u64, Need) -> Option<Reservation> + Send + Sync>;
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The reason to keep something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The next attempt saves time by it.
    Spare,
    /// The next attempt would get no further without it.
    Progress,
}

/// The evaluations of one attempt.
pub struct Turn {
    reserve: Reserve,
    /// Called when an evaluation that went on in the background has ended.
    wake: Wake,
    state: Mutex<State>,
}

struct State {
    left: Duration,
    /// From the attempt before. What this one does not use is outdated.
    before: KeptEvaluations,
    kept: KeptEvaluations,
}

/// The results and evaluations that an attempt leaves to the next one. Dropping ends them.
#[derive(Default)]
pub struct KeptEvaluations(HashMap<Key, Evaluation>);

enum Evaluation {
    Running(Background),
    Done(EvaluationResult, Option<Reservation>),
}

/// Returns the memory that the value of an evaluation takes.
fn kept_bytes(memory: Option<&Reservation>) -> usize {
    memory.map_or(0, |memory| usize::try_from(memory.amount()).unwrap_or(usize::MAX))
}

/// An evaluation that goes on in the background.
struct Background {
    /// The part of it that is kept once it has ended.
    ended: Arc<Mutex<Option<Option<Evaluation>>>>,
    task: AbortHandle,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KeptEvaluations {
    /// Returns true if an evaluation will wake the task.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut evaluations = self.0.values();
        evaluations.any(|evaluation| matches!(evaluation, Evaluation::Running(_)))
    }
}

impl Turn {
    #[must_use]
    pub fn new(before: KeptEvaluations, reserve: Reserve, wake: Wake) -> Self {
        Self {
            reserve,
            wake,
            state: Mutex::new(State {
                left: TURN,
                before,
                kept: KeptEvaluations::default(),
            }),
        }
    }

    /// Returns what the next attempt continues with.
    #[must_use]
    pub fn end(&self) -> KeptEvaluations {
        std::mem::take(&mut self.state.lock().kept)
    }

    /// Returns the result of a source, with `evaluate` if no attempt has it yet.
    ///
    /// # Errors
    ///
    /// [`Error::Deferred`] if the turn is over; the error of the evaluation.
    pub async fn run(
        &self,
        source: &str,
        evaluate: impl FnOnce() -> BoxFuture<'static, EvaluationResult>,
    ) -> EvaluationResult {
        let key: Key = Sha256::digest(source.as_bytes()).into();
        match self.take(&key) {
            Some(Evaluation::Done(outcome, memory)) => {
                leave_runtime_if_large(kept_bytes(memory.as_ref())).await;
                self.keep(key, Evaluation::Done(outcome.clone(), memory));
                outcome
            }
            Some(running) => {
                self.keep(key, running);
                Err(Error::Deferred)
            }
            None => self.evaluate(key, source.len(), evaluate()).await,
        }
    }

    /// Takes what is kept of a source.
    fn take(&self, key: &Key) -> Option<Evaluation> {
        let mut state = self.state.lock();
        let known = state.kept.0.remove(key).or_else(|| state.before.0.remove(key))?;
        let Evaluation::Running(background) = known else {
            return Some(known);
        };
        let ended = background.ended.lock().take();
        ended.unwrap_or(Some(Evaluation::Running(background)))
    }

    async fn evaluate(
        &self,
        key: Key,
        source_bytes: usize,
        mut evaluation: BoxFuture<'static, EvaluationResult>,
    ) -> EvaluationResult {
        let left = self.state.lock().left;
        let start = Instant::now();
        let outcome = timeout(left, &mut evaluation).await;
        let elapsed = start.elapsed();
        self.state.lock().left = left.saturating_sub(elapsed);
        let Ok(outcome) = outcome else {
            self.go_on(key, source_bytes, evaluation);
            return Err(Error::Deferred);
        };
        if elapsed >= KEPT_FROM
            && let Some(done) = done(outcome.clone(), &self.reserve, Need::Spare)
        {
            self.keep(key, done);
        }
        outcome
    }

    fn keep(&self, key: Key, evaluation: Evaluation) {
        self.state.lock().kept.0.insert(key, evaluation);
    }

    /// Lets an evaluation go on without the attempt, unless the namespace has no memory left for it.
    fn go_on(&self, key: Key, source_bytes: usize, evaluation: BoxFuture<'static, EvaluationResult>) {
        // The text, and the request with it.
        let Some(memory) = (self.reserve)(2 * source_bytes as u64, Need::Progress) else {
            return;
        };
        let ended = Arc::new(Mutex::new(None));
        let (wake, reserve, result) = (Arc::clone(&self.wake), Arc::clone(&self.reserve), Arc::clone(&ended));
        let task = tokio::spawn(async move {
            let outcome = evaluation.await;
            drop(memory);
            // Its size is counted, which takes long for a large one.
            let kept = spawn_blocking(move || done(outcome, &reserve, Need::Progress)).await;
            // Without room for the result, the template is evaluated again.
            *result.lock() = Some(kept.unwrap_or_default());
            wake();
        });
        let task = task.abort_handle();
        self.keep(key, Evaluation::Running(Background { ended, task }));
    }
}

/// Returns a result to keep; `None` if there is no memory for it, or if another attempt may have another one.
fn done(outcome: EvaluationResult, reserve: &Reserve, need: Need) -> Option<Evaluation> {
    match &outcome {
        Ok(value) => {
            let memory = reserve(parsed_size(value), need)?;
            Some(Evaluation::Done(outcome, Some(memory)))
        }
        Err(_) => is_final(&outcome).then_some(Evaluation::Done(outcome, None)),
    }
}

/// Returns true for errors of the text, which another evaluation would have too.
fn is_final(outcome: &EvaluationResult) -> bool {
    matches!(
        outcome,
        Err(Error::Failed { .. } | Error::Timeout(_) | Error::Memory(_))
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use serde_json::json;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::budget::{Budget, Budgets, SMALL_JSON, has_left_runtime};

    /// Attempts of one task, each evaluation of which takes the number of milliseconds that it has as text.
    struct Task {
        budget: Budget,
        kept: KeptEvaluations,
        woken: Arc<AtomicUsize>,
        evaluated: Arc<Mutex<Vec<String>>>,
    }

    impl Task {
        fn new() -> Self {
            Self {
                budget: Budget::new("test", 1 << 20),
                kept: KeptEvaluations::default(),
                woken: Arc::default(),
                evaluated: Arc::default(),
            }
        }

        async fn evaluate(&self, turn: &Turn, source: &'static str) -> EvaluationResult {
            let evaluated = Arc::clone(&self.evaluated);
            let evaluation = move || {
                async move {
                    sleep(Duration::from_millis(source.parse().unwrap())).await;
                    evaluated.lock().push(source.to_owned());
                    Ok(json!(source))
                }
                .boxed()
            };
            turn.run(source, evaluation).await
        }

        /// Evaluates sources one after the other. Returns the results of those before the end of the turn.
        async fn attempt(&mut self, sources: &[&'static str]) -> Result<usize, usize> {
            let (budget, woken) = (self.budget.clone(), Arc::clone(&self.woken));
            let turn = Turn::new(
                std::mem::take(&mut self.kept),
                Arc::new(move |bytes, _| budget.try_share("team", bytes)),
                Arc::new(move || {
                    woken.fetch_add(1, Ordering::Relaxed);
                }),
            );
            let mut count = 0;
            for source in sources {
                match self.evaluate(&turn, source).await {
                    Ok(value) => assert_eq!(value, json!(source)),
                    Err(error) => {
                        assert_eq!(error, Error::Deferred);
                        self.kept = turn.end();
                        return Err(count);
                    }
                }
                count += 1;
            }
            Ok(count)
        }

        async fn until_woken(&self, times: usize) {
            while self.woken.load(Ordering::Relaxed) < times {
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_ends_with_its_turn_and_the_next_goes_on_without_evaluating_anything_twice() {
        let mut task = Task::new();
        let sources = ["1500", "1501", "9000", "20"];
        let start = Instant::now();
        assert_eq!(task.attempt(&sources).await, Err(1));
        assert_eq!(start.elapsed().as_secs_f64().round(), TURN.as_secs_f64());
        task.until_woken(1).await;
        assert_eq!(task.attempt(&sources).await, Err(2));
        task.until_woken(2).await;
        assert_eq!(task.attempt(&sources).await, Ok(4));
        assert_eq!(*task.evaluated.lock(), sources);
        assert_eq!(task.budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_result_of_the_attempt_before_is_copied_off_the_runtime() {
        let value = json!("x".repeat(SMALL_JSON));
        let attempt = async |before: KeptEvaluations| {
            let budget = Budget::new("test", 1 << 20);
            let turn = Turn::new(
                before,
                Arc::new(move |bytes, _| budget.try_share("team", bytes)),
                Arc::new(|| {}),
            );
            let result = value.clone();
            let evaluation = move || {
                async move {
                    sleep(KEPT_FROM).await;
                    Ok(result)
                }
                .boxed()
            };
            let read = async { (turn.run("source", evaluation).await, has_left_runtime()) };
            let (outcome, is_off) = Budgets::default().offloadable("team", read).await;
            assert_eq!(outcome, Ok(value.clone()));
            (turn.end(), is_off)
        };
        let (kept, _) = attempt(KeptEvaluations::default()).await;
        assert!(attempt(kept).await.1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_before_the_end_of_an_evaluation_does_not_wait_for_it() {
        let mut task = Task::new();
        assert_eq!(task.attempt(&["9000"]).await, Err(0));
        let start = Instant::now();
        assert_eq!(task.attempt(&["9000"]).await, Err(0));
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(task.kept.is_running());
        task.until_woken(1).await;
        assert_eq!(task.attempt(&["9000"]).await, Ok(1));
        assert_eq!(*task.evaluated.lock(), ["9000"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_evaluation_that_the_next_attempt_does_not_need_is_ended() {
        let mut task = Task::new();
        assert_eq!(task.attempt(&["9000"]).await, Err(0));
        assert_eq!(task.attempt(&["20"]).await, Ok(1));
        advance(Duration::from_secs(10)).await;
        assert_eq!(*task.evaluated.lock(), ["20"]);
        assert_eq!(task.woken.load(Ordering::Relaxed), 0);
        assert_eq!(task.budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_memory_for_it_an_evaluation_ends_with_the_attempt() {
        let mut task = Task::new();
        task.budget = Budget::new("test", 4);
        assert_eq!(task.attempt(&["9000"]).await, Err(0));
        assert!(!task.kept.is_running());
        advance(Duration::from_secs(10)).await;
        assert!(task.evaluated.lock().is_empty());
    }
}
