//! Results that passes reuse to save evaluations and requests. A restart computes them again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::NamespacedName;
use crate::budget::{Budget, Reservation};
use crate::controllers::oam::render::cache_key::CacheKey;
use crate::controllers::oam::render::component::Rendered;
use crate::controllers::oam::render::health::Health;
use crate::controllers::oam::revisions::Packed;

/// Time after which the same warning is published again.
const WARNING_INTERVAL: Duration = Duration::from_mins(10);

/// Memory of an entry besides its texts.
const ENTRY_BYTES: usize = 256;

/// The memories of all Applications. Each namespace has a share of the budget. What exceeds it is computed or read again
/// in the next pass.
pub struct Memories {
    budget: Budget,
    applications: Mutex<HashMap<NamespacedName, Arc<Mutex<Memory>>>>,
    rendered: Mutex<RenderCache>,
}

/// Results of earlier passes over one Application.
#[derive(Default)]
pub struct Memory {
    /// Health by component, with the key of what it was computed from.
    pub health: HashMap<String, (CacheKey, Health)>,
    /// The current revision.
    pub revision: Option<Arc<Packed>>,
    /// The generation for which the workflow ran once more, to record objects.
    pub restarted: Option<i64>,
    /// Values of the workflow as stored.
    pub values: Option<super::values::Stored>,
    warnings: HashMap<String, (String, Instant)>,
    /// Memory of all that can be forgotten.
    reserved: Option<Reservation>,
}

impl Memory {
    /// Returns true if a warning is new, or was last published a while ago.
    pub fn is_due(&mut self, reason: &str, note: &str) -> bool {
        let now = Instant::now();
        let last = self.warnings.get(reason);
        if last.is_some_and(|(text, time)| text == note && now.duration_since(*time) < WARNING_INTERVAL) {
            return false;
        }
        self.warnings.insert(reason.to_owned(), (note.to_owned(), now));
        true
    }

    /// Returns the memory of what can be forgotten.
    fn bytes(&self) -> u64 {
        let health = self.health.iter().map(|(name, (_, health))| {
            let details = health.details.iter().map(|(label, text)| label.len() + text.len());
            ENTRY_BYTES + name.len() + health.message.len() + details.sum::<usize>()
        });
        let values = self.values.as_ref().map_or(0, super::values::Stored::bytes);
        let revision = self.revision.as_ref().map_or(0, |revision| revision.packed_bytes());
        (health.sum::<usize>() + values) as u64 + revision
    }

    /// Reserves what the Application takes now, or forgets it.
    fn settle(&mut self, budget: &Budget, namespace: &str) {
        let bytes = self.bytes();
        if self
            .reserved
            .as_ref()
            .is_some_and(|reserved| reserved.amount() == bytes)
        {
            return;
        }
        self.reserved = None;
        self.reserved = budget.try_share(namespace, bytes);
        if self.reserved.is_none() {
            self.health = HashMap::new();
            self.revision = None;
            self.values = None;
        }
    }

    /// Forgets warnings after a success, so that the next failure is published at once.
    pub fn succeeded_if(&mut self, has_succeeded: bool) {
        if has_succeeded {
            self.warnings.clear();
        }
    }
}

impl Memories {
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            applications: Mutex::default(),
            rendered: Mutex::default(),
        }
    }

    /// Returns the memory of a remembered revision while it is decoded.
    pub fn decoded_bytes(&self, application: &NamespacedName) -> u64 {
        let memory = self.applications.lock().get(application).cloned();
        let revision = memory.and_then(|memory| memory.lock().revision.clone());
        revision.map_or(0, |revision| revision.unpacked_bytes())
    }

    /// Reserves what a pass has remembered, or forgets it if the namespace has no share left.
    pub fn settle(&self, application: &NamespacedName) {
        let memory = self.applications.lock().get(application).cloned();
        if let Some(memory) = memory {
            memory.lock().settle(&self.budget, &application.namespace);
        }
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

/// Rendered components. When those of a namespace exceed its share, the half that was used longest ago is forgotten.
#[derive(Default)]
struct RenderCache {
    components: HashMap<NamespacedName, HashMap<String, Entry>>,
    clock: u64,
}

struct Entry {
    key: CacheKey,
    rendered: Arc<Rendered>,
    used: u64,
    _memory: Reservation,
}

impl RenderCache {
    fn get(&mut self, application: &NamespacedName, component: &str, key: &CacheKey) -> Option<Arc<Rendered>> {
        self.clock += 1;
        let entry = self.components.get_mut(application)?.get_mut(component)?;
        if entry.key != *key {
            return None;
        }
        entry.used = self.clock;
        Some(Arc::clone(&entry.rendered))
    }

    fn insert(
        &mut self,
        budget: &Budget,
        application: &NamespacedName,
        component: &str,
        key: CacheKey,
        rendered: &Arc<Rendered>,
    ) {
        self.remove(application, component);
        let bytes = (ENTRY_BYTES + size(rendered)) as u64;
        let memory = budget.try_share(&application.namespace, bytes).or_else(|| {
            self.forget_oldest(&application.namespace);
            budget.try_share(&application.namespace, bytes)
        });
        let Some(memory) = memory else { return };
        self.clock += 1;
        let entry = Entry {
            key,
            rendered: Arc::clone(rendered),
            used: self.clock,
            _memory: memory,
        };
        let components = self.components.entry(application.clone()).or_default();
        components.insert(component.to_owned(), entry);
    }

    fn remove(&mut self, application: &NamespacedName, component: &str) {
        if let Some(components) = self.components.get_mut(application) {
            components.remove(component);
        }
    }

    fn forget(&mut self, application: &NamespacedName) {
        self.components.remove(application);
    }

    fn forget_oldest(&mut self, namespace: &str) {
        let of_namespace = self.components.iter().filter(|(name, _)| name.namespace == namespace);
        let entries = of_namespace.flat_map(|(_, components)| components.values());
        let mut times: Vec<u64> = entries.map(|entry| entry.used).collect();
        if times.is_empty() {
            return;
        }
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.components.retain(|name, components| {
            if name.namespace == namespace {
                components.retain(|_, entry| entry.used > median);
            }
            !components.is_empty()
        });
    }
}

/// Estimates the memory of rendered objects: parsed JSON takes several times its text.
fn size(rendered: &Rendered) -> usize {
    let objects = rendered.outputs.iter().map(|output| &output.object);
    let texts = std::iter::once(&rendered.workload).chain(objects);
    texts
        .map(|object| 6 * serde_json::to_string(object).map_or(0, |text| text.len()))
        .sum()
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
        memories.settle(&app);
        assert_eq!(budget.used(), (ENTRY_BYTES + 103) as u64);
        let memory = memories.of(&app);
        memory.lock().restarted = Some(3);
        memory.lock().health.insert("db".to_owned(), health(3 << 10));
        memories.settle(&app);
        assert!(memory.lock().health.is_empty());
        assert_eq!((memory.lock().restarted, budget.used()), (Some(3), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_is_published_when_it_is_new_and_then_every_ten_minutes() {
        let mut memory = Memory::default();
        assert!(memory.is_due("FailedApply", "a"));
        assert!(!memory.is_due("FailedApply", "a"));
        assert!(memory.is_due("FailedApply", "b"));
        tokio::time::advance(WARNING_INTERVAL).await;
        assert!(memory.is_due("FailedApply", "b"));
        memory.succeeded_if(true);
        assert!(memory.is_due("FailedApply", "b"));
    }
}
