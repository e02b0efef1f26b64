//! Definitions as a pass resolves them. Between two attempts, it loads what the cache does not hold decoded.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;

use super::cached::{CachedDefinition, LoadError};
use super::caches::{Cache, DefinitionCaches};
use super::kinds::CachedKind;
use crate::api::NamespacedName;
use crate::api::oam::{
    ComponentDefinition, DefinitionKind, DefinitionRevision, Policy, PolicyDefinition, TraitDefinition, Workflow,
    WorkflowStepDefinition, WorkloadDefinition,
};
use crate::budget::{Budgets, Reservation};
use crate::controllers::oam::parse::Lookup;

type Key = (TypeId, NamespacedName);
type LoadedObject = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
pub struct Loaded(Mutex<State>);

#[derive(Default)]
struct State {
    /// `None` for an object that is gone.
    objects: HashMap<Key, Option<LoadedObject>>,
    bytes: u64,
    memory: Vec<Reservation>,
}

impl Loaded {
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// `memory` is held as long as the definition.
    pub async fn load(
        &self,
        missing: &dyn Missing,
        memory: Option<Reservation>,
        client: &Client,
        budgets: &Budgets,
    ) -> Result<(), LoadError> {
        let (key, object) = missing.load(client, budgets).await?;
        let mut state = self.0.lock();
        state.objects.insert(key, object);
        state.bytes += missing.decoded_bytes();
        state.memory.extend(memory);
        Ok(())
    }
}

pub trait Missing: Send + Sync {
    fn decoded_bytes(&self) -> u64;

    fn load<'a>(
        &'a self,
        client: &'a Client,
        budgets: &'a Budgets,
    ) -> BoxFuture<'a, Result<(Key, Option<LoadedObject>), LoadError>>;
}

struct LoadedDefinition<D> {
    name: NamespacedName,
    cached: Arc<CachedDefinition<D>>,
}

impl<D: CachedKind> Missing for LoadedDefinition<D> {
    fn decoded_bytes(&self) -> u64 {
        self.cached.decoded_bytes()
    }

    fn load<'a>(
        &'a self,
        client: &'a Client,
        budgets: &'a Budgets,
    ) -> BoxFuture<'a, Result<(Key, Option<LoadedObject>), LoadError>> {
        async move {
            let object = self.cached.load(client, budgets).await?;
            let key = (TypeId::of::<D>(), self.name.clone());
            Ok((key, object.map(|object| object as LoadedObject)))
        }
        .boxed()
    }
}

/// The definitions that are in the cache or loaded. Others seem not to exist, and are recorded as missing.
pub struct LoadedLookup<'a> {
    caches: &'a DefinitionCaches,
    loaded: &'a Loaded,
    missing: Mutex<HashMap<Key, Box<dyn Missing>>>,
}

impl DefinitionCaches {
    #[must_use]
    pub fn lookup<'a>(&'a self, loaded: &'a Loaded) -> LoadedLookup<'a> {
        LoadedLookup {
            caches: self,
            loaded,
            missing: Mutex::default(),
        }
    }
}

impl LoadedLookup<'_> {
    /// Returns what has to be loaded before the result counts.
    #[must_use]
    pub fn into_missing(self) -> Vec<Box<dyn Missing>> {
        self.missing.into_inner().into_values().collect()
    }

    fn get<D: CachedKind>(&self, cache: &Cache<D>, namespace: &str, name: &str) -> Option<Arc<D>> {
        let cached = cache.find(namespace, name)?;
        if let Some(decoded) = cached.decoded() {
            return Some(Arc::clone(decoded));
        }
        let name = NamespacedName::new(namespace, name);
        let key = (TypeId::of::<D>(), name.clone());
        if let Some(loaded) = self.loaded.0.lock().objects.get(&key) {
            return Arc::clone(loaded.as_ref()?).downcast().ok();
        }
        self.missing
            .lock()
            .insert(key, Box::new(LoadedDefinition { name, cached }));
        None
    }
}

impl Lookup for LoadedLookup<'_> {
    fn component_definition(&self, namespace: &str, name: &str) -> Option<Arc<ComponentDefinition>> {
        self.get(&self.caches.components, namespace, name)
    }

    fn workload_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkloadDefinition>> {
        self.get(&self.caches.workloads, namespace, name)
    }

    fn trait_definition(&self, namespace: &str, name: &str) -> Option<Arc<TraitDefinition>> {
        self.get(&self.caches.traits, namespace, name)
    }

    fn policy_definition(&self, namespace: &str, name: &str) -> Option<Arc<PolicyDefinition>> {
        self.get(&self.caches.policies, namespace, name)
    }

    fn workflow_step_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkflowStepDefinition>> {
        self.get(&self.caches.steps, namespace, name)
    }

    fn definition_revisions(&self, namespace: &str, kind: DefinitionKind, name: &str) -> Vec<String> {
        self.caches.revision_names(namespace, kind, name)
    }

    fn definition_revision(&self, namespace: &str, name: &str) -> Option<Arc<DefinitionRevision>> {
        self.get(&self.caches.revisions, namespace, name)
    }

    fn policy(&self, namespace: &str, name: &str) -> Option<Arc<Policy>> {
        self.get(&self.caches.external_policies, namespace, name)
    }

    fn workflow(&self, namespace: &str, name: &str) -> Option<Arc<Workflow>> {
        self.get(&self.caches.external_workflows, namespace, name)
    }
}
