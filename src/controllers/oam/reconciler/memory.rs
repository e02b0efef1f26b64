//! Results that passes reuse to save evaluations and requests. A restart computes them again.

mod render_cache;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::evaluations::{EffectAnswers, RenderAnswers};
use crate::api::NamespacedName;
use crate::budget::{Budget, Reservation};
use crate::controllers::oam::render::cache_key::CacheKey;
use crate::controllers::oam::render::component::Rendered;
use crate::controllers::oam::render::health::Health;
use crate::controllers::oam::revisions::Packed;
use crate::cue::turn::{KeptEvaluations, Need, Reserve};
use render_cache::RenderCache;

const WARNING_INTERVAL: Duration = Duration::from_mins(10);

/// Warnings of one reason that are published within [`WARNING_INTERVAL`]. The status shows what exceeds it.
const MAX_WARNINGS: usize = 10;

/// Memory of an entry besides its texts.
pub(super) const ENTRY_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedBytes {
    /// For the latest revision.
    pub latest: u64,
    /// For other revisions, as far as the last pass lacked it.
    pub missing: u64,
}

impl DecodedBytes {
    pub const fn all(self) -> u64 {
        self.latest.saturating_add(self.missing)
    }
}

/// Each namespace has a share of the budget. What exceeds it is computed or read again in the next pass.
pub struct Memories {
    budget: Budget,
    applications: Mutex<HashMap<NamespacedName, Arc<Mutex<Memory>>>>,
    rendered: Arc<Mutex<RenderCache>>,
}

/// Results of earlier passes over one Application.
#[derive(Default)]
pub struct Memory {
    /// Health by component, with the key of what it was computed from.
    pub health: HashMap<String, (CacheKey, Health)>,
    pub revision: Option<Arc<Packed>>,
    /// The generation for which the workflow ran once more, to record objects.
    pub restarted: Option<i64>,
    pub values: Option<super::values::StoredValues>,
    /// True if `values` were forgotten: counters that are kept in memory at other times are then stored.
    pub stores_counters: bool,
    /// True if the outcome of the last write of the status is unknown: the cache may not have the status that the next pass
    /// continues.
    pub is_status_unknown: bool,
    /// Memory that the last pass lacked for revisions.
    pub missing_bytes: u64,
    pub evaluations: KeptEvaluations,
    pub answers: EffectAnswers,
    pub render_answers: RenderAnswers,
    /// The number of workflows that have begun. Each calls the functions of components and traits again; their renderings
    /// hold until the next one.
    pub call_round: u64,
    /// By reason, with the times at which they were published.
    warnings: HashMap<String, Vec<(String, Instant)>>,
    notices: HashMap<&'static str, String>,
    reserved: Option<Reservation>,
}

impl Memory {
    pub fn admit_warning(&mut self, reason: &str, note: &str) -> bool {
        let now = Instant::now();
        let warnings = self.warnings.entry(reason.to_owned()).or_default();
        warnings.retain(|(_, time)| now.duration_since(*time) < WARNING_INTERVAL);
        if warnings.len() >= MAX_WARNINGS || warnings.iter().any(|(text, _)| text == note) {
            return false;
        }
        warnings.push((note.to_owned(), now));
        true
    }

    /// Unlike warnings, a notice is not forgotten after a success: it is about a spec that is deployed all the same.
    pub fn admit_notice(&mut self, reason: &'static str, note: &str) -> bool {
        let is_known = self.notices.get(reason).is_some_and(|notice| notice == note);
        if !is_known {
            self.notices.insert(reason, note.to_owned());
        }
        !is_known && !note.is_empty()
    }

    fn bytes(&self) -> u64 {
        let health = self.health.iter().map(|(name, (_, health))| {
            let details = health.details.iter().map(|(label, text)| label.len() + text.len());
            ENTRY_BYTES + name.len() + health.message.len() + details.sum::<usize>()
        });
        let values = self.values.as_ref().map_or(0, super::values::StoredValues::bytes);
        let revision = self.revision.as_ref().map_or(0, |revision| revision.packed_bytes());
        health.sum::<usize>() as u64 + values + revision + self.answers.bytes() + self.render_answers.bytes()
    }

    fn forget(&mut self) {
        self.health = HashMap::new();
        self.revision = None;
        self.values = None;
        self.answers = EffectAnswers::default();
        self.render_answers = RenderAnswers::default();
        self.stores_counters = true;
    }

    /// Forgets warnings after a success, so that the next failure is published at once.
    pub fn forget_warnings(&mut self) {
        self.warnings.clear();
    }
}

impl Memories {
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            applications: Mutex::default(),
            rendered: Arc::default(),
        }
    }

    pub fn decoded_bytes(&self, application: &NamespacedName) -> DecodedBytes {
        let memory = self.applications.lock().get(application).cloned();
        let (revision, missing) = memory.map_or((None, 0), |memory| {
            let memory = memory.lock();
            (memory.revision.clone(), memory.missing_bytes)
        });
        DecodedBytes {
            latest: revision.map_or(0, |revision| revision.unpacked_bytes()),
            missing,
        }
    }

    /// Without a share left, forgets the oldest renderings of the namespace, then what the pass has remembered.
    pub fn reserve_results(&self, application: &NamespacedName) {
        let memory = self.applications.lock().get(application).cloned();
        let Some(memory) = memory else { return };
        let mut memory = memory.lock();
        let bytes = memory.bytes();
        if memory.reserved.as_ref().map(Reservation::amount) == Some(bytes) {
            return;
        }
        memory.reserved = None;
        let mut rendered = self.rendered.lock();
        memory.reserved = rendered.reserve(&self.budget, &application.namespace, bytes);
        if memory.reserved.is_none() {
            memory.forget();
        }
    }

    /// Returns a function that reserves memory for evaluations, if need be in place of renderings of the namespace.
    pub fn reserve(&self, namespace: &str) -> Reserve {
        let (budget, rendered) = (self.budget.clone(), Arc::clone(&self.rendered));
        let namespace = namespace.to_owned();
        Arc::new(move |bytes, need| match need {
            Need::Spare => budget.try_share(&namespace, bytes),
            Need::Progress => rendered.lock().reserve(&budget, &namespace, bytes),
        })
    }

    /// Forgets components that an Application no longer has. Names may be followed by `/` and a part.
    pub fn retain_components(&self, application: &NamespacedName, is_kept: impl Fn(&str) -> bool) {
        let is_kept = |name: &str| is_kept(name.split_once('/').map_or(name, |(component, _)| component));
        self.of(application).lock().health.retain(|name, _| is_kept(name));
        self.rendered.lock().retain(application, is_kept);
    }

    pub fn of(&self, application: &NamespacedName) -> Arc<Mutex<Memory>> {
        Arc::clone(self.applications.lock().entry(application.clone()).or_default())
    }

    pub fn forget(&self, application: &NamespacedName) {
        self.applications.lock().remove(application);
        self.rendered.lock().forget(application);
    }

    pub fn rendered(&self, application: &NamespacedName, component: &str, key: &CacheKey) -> Option<Arc<Rendered>> {
        self.rendered.lock().get(application, component, key)
    }

    pub fn remember_rendered(
        &self,
        application: &NamespacedName,
        component: &str,
        key: CacheKey,
        rendered: &Arc<Rendered>,
    ) {
        self.rendered
            .lock()
            .insert(&self.budget, application, component, key, rendered);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(size: usize) -> Arc<Rendered> {
        Arc::new(Rendered {
            workload: json!({ "text": "x".repeat(size) })
                .as_object()
                .cloned()
                .unwrap_or_default(),
            outputs: Vec::new(),
        })
    }

    #[test]
    fn rendered_components_are_bounded_and_the_ones_used_last_are_kept() {
        let budget = Budget::new("test", 64 << 20);
        let memories = Memories::new(budget.clone());
        let app = |index: usize| NamespacedName::new("team", format!("app-{index}"));
        let object = rendered(1 << 20);
        for index in 0..20 {
            memories.remember_rendered(&app(index), "web", [0; 32], &object);
            assert!(memories.rendered(&app(0), "web", &[0; 32]).is_some(), "{index}");
        }
        assert!(budget.used() <= budget.limit() / 2);
        assert!(memories.rendered(&app(1), "web", &[0; 32]).is_none());
        assert!(memories.rendered(&app(19), "web", &[0; 32]).is_some());
        assert!(memories.rendered(&app(19), "web", &[1; 32]).is_none());
        (0..20).for_each(|index| memories.forget(&app(index)));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_namespace_with_large_results_forgets_its_own_and_not_those_of_others() {
        let memories = Memories::new(Budget::new("test", 64 << 20));
        let honest = NamespacedName::new("honest", "shop");
        memories.remember_rendered(&honest, "web", [0; 32], &rendered(1 << 10));
        for index in 0..100 {
            let app = NamespacedName::new("greedy", format!("app-{index}"));
            memories.remember_rendered(&app, "web", [0; 32], &rendered(1 << 20));
        }
        assert!(memories.rendered(&honest, "web", &[0; 32]).is_some());
        let newcomer = NamespacedName::new("newcomer", "shop");
        memories.remember_rendered(&newcomer, "web", [0; 32], &rendered(1 << 20));
        assert!(memories.rendered(&newcomer, "web", &[0; 32]).is_some());
    }

    #[test]
    fn what_a_pass_remembers_is_reserved_and_forgotten_beyond_the_share() {
        let budget = Budget::new("test", 4 << 10);
        let memories = Memories::new(budget.clone());
        let app = NamespacedName::new("team", "shop");
        let health = |length: usize| {
            let health = Health {
                message: "x".repeat(length),
                ..Health::default()
            };
            ([0; 32], health)
        };
        memories.of(&app).lock().health.insert("web".to_owned(), health(100));
        memories.reserve_results(&app);
        assert_eq!(budget.used(), (ENTRY_BYTES + 103) as u64);
        let memory = memories.of(&app);
        memory.lock().restarted = Some(3);
        memory.lock().health.insert("db".to_owned(), health(3 << 10));
        memories.reserve_results(&app);
        assert!(memory.lock().health.is_empty() && memory.lock().stores_counters);
        assert_eq!((memory.lock().restarted, budget.used()), (Some(3), 0));
    }

    #[test]
    fn a_namespace_that_comes_late_takes_from_the_one_that_holds_most() {
        let memories = Memories::new(Budget::new("test", 64 << 20));
        let fill = |namespace: &str| {
            for index in 0..20 {
                let app = NamespacedName::new(namespace, format!("app-{index}"));
                memories.remember_rendered(&app, "web", [0; 32], &rendered(1 << 20));
            }
        };
        for namespace in ["a", "b", "c", "d"] {
            fill(namespace);
        }
        let late = NamespacedName::new("late", "shop");
        memories.remember_rendered(&late, "web", [0; 32], &rendered(1 << 20));
        assert!(memories.rendered(&late, "web", &[0; 32]).is_some());
    }

    #[test]
    fn renderings_are_forgotten_before_what_a_pass_has_remembered() {
        let memories = Memories::new(Budget::new("test", 4 << 20));
        let app = NamespacedName::new("team", "shop");
        for index in 0..20 {
            memories.remember_rendered(&app, &format!("web-{index}"), [0; 32], &rendered(64 << 10));
        }
        let used = memories.budget.used();
        let health = Health {
            message: "x".repeat(300 << 10),
            ..Health::default()
        };
        memories
            .of(&app)
            .lock()
            .health
            .insert("web-19".to_owned(), ([0; 32], health));
        memories.reserve_results(&app);
        assert_eq!(memories.of(&app).lock().health.len(), 1);
        assert!(memories.budget.used() < used);
    }

    #[test]
    fn results_of_components_that_are_gone_are_forgotten() {
        let budget = Budget::new("test", 1 << 20);
        let memories = Memories::new(budget.clone());
        let app = NamespacedName::new("team", "shop");
        for name in ["web", "web/post-dispatch", "db"] {
            memories.remember_rendered(&app, name, [0; 32], &rendered(10));
            memories
                .of(&app)
                .lock()
                .health
                .insert(name.to_owned(), ([0; 32], Health::default()));
        }
        memories.retain_components(&app, |name| name == "web");
        assert_eq!(memories.of(&app).lock().health.len(), 2);
        assert!(memories.rendered(&app, "db", &[0; 32]).is_none());
        assert!(memories.rendered(&app, "web/post-dispatch", &[0; 32]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_published_when_it_is_new_and_then_every_ten_minutes() {
        let mut memory = Memory::default();
        assert!(memory.admit_warning("FailedApply", "a"));
        assert!(!memory.admit_warning("FailedApply", "a"));
        assert!(memory.admit_warning("FailedApply", "b"));
        tokio::time::advance(WARNING_INTERVAL).await;
        assert!(memory.admit_warning("FailedApply", "b"));
        memory.forget_warnings();
        assert!(memory.admit_warning("FailedApply", "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_of_one_reason_are_published_once_each_up_to_a_limit() {
        let mut memory = Memory::default();
        let mut due = || {
            let steps = (0..2 * MAX_WARNINGS).map(|step| format!("logs of step {step}"));
            steps
                .filter(|note| memory.admit_warning("FailedWorkflow", note))
                .count()
        };
        assert_eq!((due(), due()), (MAX_WARNINGS, 0));
        tokio::time::advance(WARNING_INTERVAL).await;
        assert_eq!((due(), due()), (MAX_WARNINGS, 0));
        assert!(memory.admit_warning("FailedApply", "a"));
    }

    #[test]
    fn a_notice_is_news_when_it_changes() {
        let mut memory = Memory::default();
        assert!(!memory.admit_notice("PolicySkipped", ""));
        assert!(memory.admit_notice("PolicySkipped", "a"));
        memory.forget_warnings();
        assert!(!memory.admit_notice("PolicySkipped", "a"));
        assert!(memory.admit_notice("PolicySkipped", "a, b"));
        assert!(!memory.admit_notice("PolicySkipped", ""));
        assert!(memory.admit_notice("PolicySkipped", "a, b"));
    }
}
