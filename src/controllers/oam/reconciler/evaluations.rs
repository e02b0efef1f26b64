//! Evaluations of a pass, which gives its worker back rather than wait for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Reconciler;
use super::env::Env;
use crate::api::NamespacedName;
use crate::budget::{leave_runtime_if_large, parsed_size};
use crate::controllers::oam::render::evaluate::{Evaluate, NamespaceEvaluator};
use crate::controllers::oam::steps::types::MAX_VALUE_BYTES;
use crate::controllers::oam::steps::{Answer, Call};
use crate::cue::turn::Turn;
use crate::cue::{self, CueSource, TextErrors};

/// Delay of a pass if the end of its evaluation does not wake it earlier.
const WAKE_LIMIT: Duration = Duration::from_secs(60);
/// Delay of a pass that lacked the memory to keep its evaluation, or whose components wait for a call.
const MEMORY_RETRY: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct PassEvaluator<'a> {
    pub(super) pool: &'a cue::Evaluator,
    pub(super) namespace: &'a str,
    pub(super) turn: Arc<Turn>,
}

impl Evaluate for PassEvaluator<'_> {
    type Error = cue::Error;

    async fn evaluate(&self, source: CueSource) -> Result<Value, cue::Error> {
        // The text is hashed and copied here. The turn and the pool leave the runtime, too, before they copy much.
        leave_runtime_if_large(source.text().len()).await;
        let evaluation = || {
            let (pool, namespace, source) = (self.pool.clone(), self.namespace.to_owned(), source.clone());
            async move { pool.evaluate(&namespace, source).await }.boxed()
        };
        self.turn.run(source.text(), evaluation).await
    }

    fn is_stopped(error: &cue::Error) -> bool {
        NamespaceEvaluator::is_stopped(error)
    }

    fn text_errors(error: &cue::Error) -> Option<TextErrors> {
        NamespaceEvaluator::text_errors(error)
    }
}

impl Reconciler {
    pub(super) fn turn(&self, application: &NamespacedName) -> Turn {
        let before = std::mem::take(&mut self.memories.of(application).lock().evaluations);
        let (wake, name) = (Arc::clone(&self.wake), application.clone());
        let reserve = self.memories.reserve(&application.namespace);
        Turn::new(before, reserve, Arc::new(move || wake(&name)))
    }
}

impl Env<'_> {
    /// Keeps what the pass has evaluated and what steps have called for the next pass. Returns its delay.
    pub(super) fn keep_evaluations(&self) -> Duration {
        let kept = self.turn.end();
        let delay = if kept.is_running() { WAKE_LIMIT } else { MEMORY_RETRY };
        let mut memory = self.memory.lock();
        memory.evaluations = kept;
        memory.answers = std::mem::take(&mut *self.answers.lock());
        delay
    }

    /// Keeps the answers to calls of components and traits, however the pass has ended.
    pub(super) fn keep_render_answers(&self) {
        let mut answers = std::mem::take(&mut *self.render_answers.lock());
        answers.end_pass();
        self.memory.lock().render_answers = answers;
    }
}

/// Answers to calls with effects, by id of a step that has not ended: only a restart makes the calls again.
#[derive(Default)]
pub struct EffectAnswers(HashMap<String, HashMap<[u8; 32], Value>>);

impl EffectAnswers {
    pub(super) fn get(&self, step_id: &str, call: &Call) -> Option<Value> {
        self.0.get(step_id)?.get(&key(call)).cloned()
    }

    pub(super) fn record(&mut self, step_id: &str, call: &Call, answer: &Answer) {
        if let Answer::Returned(value) = answer
            && has_effects(call)
        {
            let answers = self.0.entry(step_id.to_owned()).or_default();
            answers.insert(key(call), value.clone());
        }
    }

    pub(super) fn forget(&mut self, step_id: &str) {
        self.0.remove(step_id);
    }

    pub(super) fn bytes(&self) -> u64 {
        let values = self.0.values().flat_map(HashMap::values);
        values.map(parsed_size).sum()
    }
}

/// Calls of all components and traits in one pass, and the size of their answers as JSON.
const MAX_RENDER_CALLS: usize = 1_000;
const MAX_RENDER_BYTES: usize = 4 * 1024 * 1024;

/// Answers to calls of components and traits, from the start of a workflow to the next one. A pass renders a component
/// several times, and calls once.
#[derive(Default)]
pub struct RenderAnswers {
    answers: HashMap<[u8; 32], KnownAnswer>,
    /// Size of all answers.
    bytes: usize,
    /// A call of this pass has waited for requests of others: the next ones don't.
    pub(super) has_waited: bool,
    /// The answers that the rendering in progress has used.
    rendering: Vec<[u8; 32]>,
}

struct KnownAnswer {
    /// As JSON, which takes a fraction of the memory of a value; or the message of a failure.
    answer: Result<Box<str>, String>,
    /// Used in this pass.
    is_used: bool,
    /// Holds for later passes, too.
    is_kept: bool,
}

impl RenderAnswers {
    pub(super) fn begin_rendering(&mut self) {
        self.rendering.clear();
    }

    /// The next pass calls again: a template may fail because of an answer.
    pub(super) fn fail_rendering(&mut self) {
        for key in self.rendering.drain(..) {
            if let Some(known) = self.answers.get_mut(&key) {
                known.is_kept = false;
            }
        }
    }

    /// Returns the answer of an earlier call, or the failure of one too many.
    pub(super) fn get(&mut self, call: &Call) -> Option<Answer> {
        let key = key(call);
        if let Some(known) = self.answers.get_mut(&key) {
            known.is_used = true;
            self.rendering.push(key);
            return match &known.answer {
                Ok(text) => serde_json::from_str(text).ok().map(Answer::Returned),
                Err(message) => Some(Answer::failed(message.as_str())),
            };
        }
        if self.answers.len() >= MAX_RENDER_CALLS {
            self.drop_unused();
        }
        let is_full = self.answers.len() >= MAX_RENDER_CALLS;
        is_full.then(|| {
            Answer::failed(format!(
                "all components together make more than {MAX_RENDER_CALLS} calls"
            ))
        })
    }

    /// Returns the answer, or a failure in place of one that is too large.
    pub(super) fn record(&mut self, call: &Call, answer: Answer) -> Answer {
        let known = match &answer {
            Answer::Returned(value) => {
                let text = value.to_string();
                self.make_room(text.len()).map(|()| text.into_boxed_str())
            }
            Answer::Failed { message, .. } => Err(message.clone()),
            // What waits is called again.
            _ => {
                self.has_waited = true;
                return answer;
            }
        };
        let answer = match &known {
            Ok(_) => answer,
            Err(message) => Answer::failed(message.as_str()),
        };
        self.bytes += known.as_ref().map_or(0, |text| text.len());
        let known = KnownAnswer {
            is_kept: known.is_ok(),
            answer: known,
            is_used: true,
        };
        let key = key(call);
        self.answers.insert(key, known);
        self.rendering.push(key);
        answer
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), String> {
        if bytes > MAX_VALUE_BYTES {
            return Err(format!("the answer has more than {} KiB", MAX_VALUE_BYTES >> 10));
        }
        if self.bytes + bytes > MAX_RENDER_BYTES {
            self.drop_unused();
        }
        if self.bytes + bytes > MAX_RENDER_BYTES {
            let limit = MAX_RENDER_BYTES >> 20;
            return Err(format!("answers for all components: more than {limit} MiB"));
        }
        Ok(())
    }

    /// Drops answers that this pass has not used. The limits are those of one pass.
    fn drop_unused(&mut self) {
        self.retain(|known| known.is_used);
    }

    /// Keeps what holds for the next pass, which calls again what has failed.
    fn end_pass(&mut self) {
        self.retain(|known| known.is_kept);
        self.answers.values_mut().for_each(|known| known.is_used = false);
        self.has_waited = false;
    }

    fn retain(&mut self, is_kept: impl Fn(&KnownAnswer) -> bool) {
        self.answers.retain(|_, known| is_kept(known));
        let texts = self.answers.values().filter_map(|known| known.answer.as_ref().ok());
        self.bytes = texts.map(|text| text.len()).sum();
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// Returns true if a call changes something each time. To apply an object again changes nothing.
fn has_effects(call: &Call) -> bool {
    match call.provider.as_str() {
        "http" | "config" | "metrics" => true,
        "kube" => matches!(call.function.as_str(), "patch" | "delete"),
        _ => false,
    }
}

fn key(call: &Call) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [&call.path, &call.provider, &call.function] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(call.params.to_string());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_with_effects_are_not_made_again_by_the_next_pass_until_their_step_has_ended() {
        let call = |provider: &str, function: &str, path: &str| Call {
            path: path.to_owned(),
            provider: provider.to_owned(),
            function: function.to_owned(),
            params: json!({ "url": "https://example.com" }),
        };
        let mut answers = EffectAnswers::default();
        let (sent, read) = (call("http", "do", "send"), call("kube", "read", "load"));
        let answer = Answer::Returned(json!({ "statusCode": 200 }));
        for one in [&sent, &read] {
            answers.record("step", one, &answer);
        }
        assert_eq!(answers.get("step", &sent), Some(json!({ "statusCode": 200 })));
        assert_eq!(answers.get("step", &read), None);
        assert_eq!(answers.get("other", &sent), None);
        assert_eq!(answers.get("step", &call("http", "do", "again")), None);
        let failed = call("http", "do", "failed");
        answers.record("step", &failed, &Answer::failed("no"));
        assert_eq!(answers.get("step", &failed), None);
        assert_eq!(answers.bytes(), parsed_size(&json!({ "statusCode": 200 })));
        answers.forget("step");
        assert_eq!(answers.get("step", &sent), None);
    }

    fn read(name: usize) -> Call {
        Call {
            path: "read".to_owned(),
            provider: "kube".to_owned(),
            function: "get".to_owned(),
            params: json!({ "name": name }),
        }
    }

    #[test]
    fn a_pass_calls_once_for_all_times_that_it_renders() {
        let mut answers = RenderAnswers::default();
        assert_eq!(answers.get(&read(1)), None);
        let found = Answer::Returned(json!({ "data": 1 }));
        assert_eq!(answers.record(&read(1), found.clone()), found);
        answers.record(&read(2), Answer::failed("no"));
        answers.record(&read(3), Answer::Waiting("later".to_owned()));
        assert_eq!(answers.get(&read(1)), Some(found));
        assert_eq!(answers.get(&read(2)), Some(Answer::failed("no")));
        assert_eq!(answers.get(&read(3)), None);
        assert_eq!(answers.bytes(), r#"{"data":1}"#.len() as u64);
    }

    #[test]
    fn the_next_pass_has_the_answers_and_calls_again_what_has_failed_or_waits() {
        let mut answers = RenderAnswers::default();
        let found = Answer::Returned(json!("a"));
        answers.record(&read(1), found.clone());
        answers.record(&read(2), Answer::failed("no"));
        answers.record(&read(3), Answer::Waiting("later".to_owned()));
        assert!(answers.has_waited);
        answers.end_pass();
        assert!(!answers.has_waited);
        assert_eq!(answers.get(&read(1)), Some(found));
        assert_eq!(answers.get(&read(2)), None);
    }

    #[test]
    fn a_rendering_that_fails_calls_again_in_the_next_pass_only() {
        let mut answers = RenderAnswers::default();
        let found = Answer::Returned(json!("a"));
        for component in [1, 2] {
            answers.begin_rendering();
            answers.record(&read(component), found.clone());
        }
        answers.fail_rendering();
        assert_eq!(answers.get(&read(2)), Some(found.clone()));
        answers.end_pass();
        assert_eq!(answers.get(&read(1)), Some(found));
        assert_eq!(answers.get(&read(2)), None);
    }

    #[test]
    fn answers_of_earlier_passes_make_room_for_those_of_this_one() {
        let mut answers = RenderAnswers::default();
        for index in 0..MAX_RENDER_CALLS {
            answers.record(&read(index), Answer::Returned(json!(index)));
        }
        answers.end_pass();
        assert_eq!(answers.get(&read(0)), Some(Answer::Returned(json!(0))));
        assert_eq!(answers.get(&read(MAX_RENDER_CALLS)), None);
        assert_eq!(answers.get(&read(0)), Some(Answer::Returned(json!(0))));
        assert_eq!(answers.get(&read(1)), None);
        assert_eq!(answers.bytes(), 1);
    }

    #[test]
    fn a_pass_has_limits_for_the_calls_of_all_components() {
        let is_failed = |answer: &Answer| matches!(answer, Answer::Failed { .. });
        let mut answers = RenderAnswers::default();
        for index in 0..MAX_RENDER_CALLS {
            assert_eq!(answers.get(&read(index)), None);
            answers.record(&read(index), Answer::Returned(json!(index)));
        }
        assert_eq!(answers.get(&read(0)), Some(Answer::Returned(json!(0))));
        assert!(
            answers
                .get(&read(MAX_RENDER_CALLS))
                .is_some_and(|answer| is_failed(&answer))
        );
        let mut answers = RenderAnswers::default();
        let large = |bytes: usize| Answer::Returned(json!("x".repeat(bytes - 2)));
        for index in 0..MAX_RENDER_BYTES / MAX_VALUE_BYTES {
            assert!(!is_failed(&answers.record(&read(index), large(MAX_VALUE_BYTES))));
        }
        assert!(is_failed(&answers.record(&read(10), large(MAX_VALUE_BYTES))));
        assert!(answers.get(&read(10)).is_some_and(|answer| is_failed(&answer)));
        let mut answers = RenderAnswers::default();
        assert!(is_failed(&answers.record(&read(1), large(MAX_VALUE_BYTES + 1))));
        assert_eq!(answers.bytes(), 0);
    }
}
