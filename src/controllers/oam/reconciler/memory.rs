//! Results that passes reuse to save evaluations and requests. A restart computes them again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::NamespacedName;
use crate::api::oam::ApplicationRevisionSpec;
use crate::controllers::oam::render::cache_key::CacheKey;
use crate::controllers::oam::render::component::Rendered;
use crate::controllers::oam::render::health::Health;

/// Size of all rendered objects that are remembered.
const MAX_RENDERED_BYTES: usize = 64 * 1024 * 1024;
/// Time after which the same warning is published again.
const WARNING_INTERVAL: Duration = Duration::from_mins(10);

/// The memories of all Applications.
#[derive(Default)]
pub struct Memories {
    applications: Mutex<HashMap<NamespacedName, Arc<Mutex<Memory>>>>,
    rendered: Mutex<RenderCache>,
}

/// Results of earlier passes over one Application.
#[derive(Default)]
pub struct Memory {
    /// Health by component, with the key of what it was computed from.
    pub health: HashMap<String, (CacheKey, Health)>,
    /// Contents of the current revision, with its resource version.
    pub revision: Option<(String, Arc<ApplicationRevisionSpec>)>,
    /// The generation for which the workflow ran once more, to record objects.
    pub restarted: Option<i64>,
    /// Values of the workflow as stored.
    pub values: Option<super::values::Stored>,
    warnings: HashMap<String, (String, Instant)>,
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

    /// Forgets warnings after a success, so that the next failure is published at once.
    pub fn succeeded_if(&mut self, has_succeeded: bool) {
        if has_succeeded {
            self.warnings.clear();
        }
    }
}

impl Memories {
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
        self.rendered.lock().insert(application, component, key, rendered);
    }
}

/// Rendered components. When they take too much memory, the half that was used longest ago is forgotten.
#[derive(Default)]
struct RenderCache {
    components: HashMap<NamespacedName, HashMap<String, Entry>>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    key: CacheKey,
    rendered: Arc<Rendered>,
    bytes: usize,
    used: u64,
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

    fn insert(&mut self, application: &NamespacedName, component: &str, key: CacheKey, rendered: &Arc<Rendered>) {
        let bytes = size(rendered);
        if bytes > MAX_RENDERED_BYTES / 8 {
            return;
        }
        self.clock += 1;
        let entry = Entry {
            key,
            rendered: Arc::clone(rendered),
            bytes,
            used: self.clock,
        };
        let components = self.components.entry(application.clone()).or_default();
        let old = components.insert(component.to_owned(), entry);
        self.bytes = (self.bytes + bytes).saturating_sub(old.map_or(0, |old| old.bytes));
        if self.bytes > MAX_RENDERED_BYTES {
            self.forget_oldest();
        }
    }

    fn forget(&mut self, application: &NamespacedName) {
        let removed = self.components.remove(application).unwrap_or_default();
        self.bytes = self
            .bytes
            .saturating_sub(removed.values().map(|entry| entry.bytes).sum());
    }

    fn forget_oldest(&mut self) {
        let mut times: Vec<u64> = self
            .components
            .values()
            .flat_map(|components| components.values().map(|entry| entry.used))
            .collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.components.retain(|_, components| {
            components.retain(|_, entry| entry.used > median);
            !components.is_empty()
        });
        let entries = self.components.values().flat_map(HashMap::values);
        self.bytes = entries.map(|entry| entry.bytes).sum();
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
        let memories = Memories::default();
        let app = |index: usize| NamespacedName::new("team", format!("app-{index}"));
        let object = rendered(1 << 20);
        for index in 0..20 {
            memories.remember_rendered(&app(index), "web", [0; 32], &object);
            assert!(memories.rendered(&app(0), "web", &[0; 32]).is_some(), "{index}");
        }
        assert!(memories.rendered.lock().bytes <= MAX_RENDERED_BYTES);
        assert!(memories.rendered(&app(1), "web", &[0; 32]).is_none());
        assert!(memories.rendered(&app(19), "web", &[0; 32]).is_some());
        assert!(memories.rendered(&app(19), "web", &[1; 32]).is_none());
        (0..20).for_each(|index| memories.forget(&app(index)));
        assert_eq!(memories.rendered.lock().bytes, 0);
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
