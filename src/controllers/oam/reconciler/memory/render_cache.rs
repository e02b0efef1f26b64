use std::collections::HashMap;
use std::sync::Arc;

use super::ENTRY_BYTES;
use crate::api::NamespacedName;
use crate::budget::{Budget, Reservation};
use crate::controllers::oam::render::cache_key::CacheKey;
use crate::controllers::oam::render::component::Rendered;

/// Rendered components. When a namespace exceeds its share, the half of them that was used longest ago is forgotten.
#[derive(Default)]
pub(super) struct RenderCache {
    /// By namespace, then by Application, then by component.
    namespaces: HashMap<String, HashMap<String, HashMap<String, Entry>>>,
    clock: u64,
}

struct Entry {
    key: CacheKey,
    rendered: Arc<Rendered>,
    used: u64,
    _memory: Reservation,
}

impl RenderCache {
    pub(super) fn get(
        &mut self,
        application: &NamespacedName,
        component: &str,
        key: &CacheKey,
    ) -> Option<Arc<Rendered>> {
        self.clock += 1;
        let applications = self.namespaces.get_mut(&application.namespace)?;
        let entry = applications.get_mut(&application.name)?.get_mut(component)?;
        if entry.key != *key {
            return None;
        }
        entry.used = self.clock;
        Some(Arc::clone(&entry.rendered))
    }

    pub(super) fn insert(
        &mut self,
        budget: &Budget,
        application: &NamespacedName,
        component: &str,
        key: CacheKey,
        rendered: &Arc<Rendered>,
    ) {
        self.remove(application, component);
        let bytes = (ENTRY_BYTES + size(rendered)) as u64;
        let Some(memory) = self.reserve(budget, &application.namespace, bytes) else {
            return;
        };
        self.clock += 1;
        let entry = Entry {
            key,
            rendered: Arc::clone(rendered),
            used: self.clock,
            _memory: memory,
        };
        let applications = self.namespaces.entry(application.namespace.clone()).or_default();
        let components = applications.entry(application.name.clone()).or_default();
        components.insert(component.to_owned(), entry);
    }

    fn remove(&mut self, application: &NamespacedName, component: &str) {
        let applications = self.namespaces.get_mut(&application.namespace);
        if let Some(components) = applications.and_then(|applications| applications.get_mut(&application.name)) {
            components.remove(component);
        }
    }

    pub(super) fn forget(&mut self, application: &NamespacedName) {
        if let Some(applications) = self.namespaces.get_mut(&application.namespace) {
            applications.remove(&application.name);
            if applications.is_empty() {
                self.namespaces.remove(&application.namespace);
            }
        }
    }

    pub(super) fn retain(&mut self, application: &NamespacedName, is_kept: impl Fn(&str) -> bool) {
        let applications = self.namespaces.get_mut(&application.namespace);
        if let Some(components) = applications.and_then(|applications| applications.get_mut(&application.name)) {
            components.retain(|name, _| is_kept(name));
        }
    }

    /// Reserves memory. If there is none, forgets old components of the namespace, and then of the namespace that holds
    /// most, if that is more.
    pub(super) fn reserve(&mut self, budget: &Budget, namespace: &str, bytes: u64) -> Option<Reservation> {
        if let Some(reserved) = budget.try_share(namespace, bytes) {
            return Some(reserved);
        }
        self.forget_oldest(namespace);
        if let Some(reserved) = budget.try_share(namespace, bytes) {
            return Some(reserved);
        }
        let larger = budget.larger_holder(namespace, bytes)?;
        self.forget_oldest(&larger);
        budget.try_share(namespace, bytes)
    }

    fn forget_oldest(&mut self, namespace: &str) {
        let Some(applications) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let entries = applications.values().flat_map(HashMap::values);
        let mut times: Vec<u64> = entries.map(|entry| entry.used).collect();
        if times.is_empty() {
            return;
        }
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        applications.retain(|_, components| {
            components.retain(|_, entry| entry.used > median);
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
