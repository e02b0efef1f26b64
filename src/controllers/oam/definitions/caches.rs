use std::sync::Arc;

use futures::FutureExt;
use futures::future::join_all;
use kube::{Client, Resource};

use super::cached::{CachedDefinition, DefinitionBudgets};
use super::event_handler::DefinitionEventHandler;
use super::kinds::{CachedKind, DefinitionChange};
use super::revision_index::RevisionIndex;
use crate::api::oam::{
    ComponentDefinition, DefinitionKind, DefinitionRevision, Policy, PolicyDefinition, TraitDefinition, Workflow,
    WorkflowStepDefinition, WorkloadDefinition,
};
use crate::api::{NamespacedName, Raw};
use crate::controllers::Task;
use crate::runtime::controller::Key;
use crate::runtime::watch::{Cached, Change, ErrorPolicy, Scope, Store, Stored, raw_informer};
use crate::runtime::workqueue::Queue;

pub(super) type DefinitionStore<D> = Store<Cached<CachedDefinition<D>>>;
pub(super) type CacheChange<D> = Change<Cached<CachedDefinition<D>>>;

/// Clones share the caches. A kind that is not installed has no objects.
#[derive(Clone)]
pub struct DefinitionCaches {
    /// The namespace to watch; all namespaces if `None`.
    pub(super) namespace: Option<Arc<str>>,
    scopes: Arc<[Scope]>,
    budgets: DefinitionBudgets,
    pub(super) components: Cache<ComponentDefinition>,
    pub(super) traits: Cache<TraitDefinition>,
    pub(super) policies: Cache<PolicyDefinition>,
    pub(super) steps: Cache<WorkflowStepDefinition>,
    pub(super) revisions: Cache<DefinitionRevision>,
    revision_index: RevisionIndex,
    pub(super) workloads: Cache<WorkloadDefinition>,
    pub(super) external_policies: Cache<Policy>,
    pub(super) external_workflows: Cache<Workflow>,
}

#[derive(Clone)]
pub(super) struct Cache<D: CachedKind> {
    stores: Arc<[DefinitionStore<D>]>,
}

impl DefinitionCaches {
    /// Creates empty caches of all namespaces, or of `namespace` and the definition namespace.
    #[must_use]
    pub fn new(namespace: Option<&str>, budgets: DefinitionBudgets) -> Self {
        let definition_namespace = &*budgets.definition_namespace;
        let scopes: Arc<[Scope]> = match namespace {
            None => [Scope::All].into(),
            Some(namespace) if namespace == definition_namespace => [Scope::Namespace(namespace.to_owned())].into(),
            Some(namespace) => [namespace, definition_namespace]
                .map(|name| Scope::Namespace(name.to_owned()))
                .into(),
        };
        let count = scopes.len();
        Self {
            namespace: namespace.map(Into::into),
            scopes,
            budgets,
            components: Cache::new(count),
            traits: Cache::new(count),
            policies: Cache::new(count),
            steps: Cache::new(count),
            revisions: Cache::new(count),
            revision_index: RevisionIndex::default(),
            workloads: Cache::new(count),
            external_policies: Cache::new(count),
            external_workflows: Cache::new(count),
        }
    }

    /// Adds definitions to reconcile to `queue`; it is `None` if this process has no reconcilers of definitions.
    /// `on_change` is called if contents of an object change, except by the first list. It must not block.
    pub fn sources(
        &self,
        client: &Client,
        queue: Option<Queue<Key>>,
        on_change: impl Fn(DefinitionChange) + Send + Sync + 'static,
    ) -> Vec<Task> {
        let handler = DefinitionEventHandler {
            queue,
            namespace: self.namespace.clone(),
        };
        let informers = Informers {
            client,
            scopes: &self.scopes,
            budgets: &self.budgets,
            on_change: Arc::new(on_change),
        };
        let definitions = [
            informers.run(&self.components, handler.definition_listener(DefinitionKind::Component)),
            informers.run(&self.traits, handler.definition_listener(DefinitionKind::Trait)),
            informers.run(&self.policies, handler.definition_listener(DefinitionKind::Policy)),
            informers.run(&self.steps, handler.definition_listener(DefinitionKind::WorkflowStep)),
        ];
        let index = self.revision_index.clone();
        let revisions = informers.run(&self.revisions, move |change| {
            index.on_change(change);
            handler.on_revision(change);
        });
        let others = [
            revisions,
            informers.run(&self.workloads, |_| ()),
            informers.run(&self.external_policies, |_| ()),
            informers.run(&self.external_workflows, |_| ()),
        ];
        definitions.into_iter().chain(others).flatten().collect()
    }

    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.components.is_synced()
            && self.traits.is_synced()
            && self.policies.is_synced()
            && self.steps.is_synced()
            && self.revisions.is_synced()
            && self.workloads.is_synced()
            && self.external_policies.is_synced()
            && self.external_workflows.is_synced()
    }

    pub(super) fn revision_names(&self, namespace: &str, kind: DefinitionKind, definition: &str) -> Vec<String> {
        self.revision_index.names(namespace, kind, definition)
    }

    pub(super) fn convert<D: CachedKind>(&self, object: Raw<D>) -> Cached<CachedDefinition<D>> {
        CachedDefinition::convert(object, &self.budgets)
    }

    /// Stores the result of our own write of an object that is in a cache.
    pub(super) fn assume<D: CachedKind>(&self, cache: &Cache<D>, object: Raw<D>) {
        let object = self.convert(object);
        for store in cache.stores.iter() {
            if store.get(&object.key()).is_some() {
                store.assume(object.clone());
            }
        }
    }

    pub async fn wait_until_synced(&self) {
        tokio::join!(
            self.components.wait_until_synced(),
            self.traits.wait_until_synced(),
            self.policies.wait_until_synced(),
            self.steps.wait_until_synced(),
            self.revisions.wait_until_synced(),
            self.workloads.wait_until_synced(),
            self.external_policies.wait_until_synced(),
            self.external_workflows.wait_until_synced(),
        );
    }
}

impl<D: CachedKind> Cache<D> {
    fn new(count: usize) -> Self {
        Self {
            stores: (0..count).map(|_| Store::default()).collect(),
        }
    }

    /// Returns an object, unless it could not be decoded.
    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Arc<CachedDefinition<D>>> {
        let name = NamespacedName::new(namespace, name);
        let cached = self.stores.iter().find_map(|store| store.get(&name))?;
        cached.object().cloned()
    }

    /// Returns true if the object exists, also if it could not be decoded.
    pub(super) fn contains(&self, namespace: &str, name: &str) -> bool {
        let name = NamespacedName::new(namespace, name);
        self.stores.iter().any(|store| store.get(&name).is_some())
    }

    pub(super) fn names(&self) -> Vec<NamespacedName> {
        self.stores.iter().flat_map(Store::names).collect()
    }

    pub(super) fn is_synced(&self) -> bool {
        self.stores.iter().all(Store::is_synced_or_not_served)
    }

    pub(super) async fn wait_until_synced(&self) {
        join_all(self.stores.iter().map(Store::wait_until_synced_or_not_served)).await;
    }
}

struct Informers<'a> {
    client: &'a Client,
    scopes: &'a [Scope],
    budgets: &'a DefinitionBudgets,
    on_change: Arc<dyn Fn(DefinitionChange) + Send + Sync>,
}

impl Informers<'_> {
    /// Returns a task for each scope. `listener` is called first, with each change.
    fn run<D: CachedKind>(
        &self,
        cache: &Cache<D>,
        listener: impl Fn(&CacheChange<D>) + Clone + Send + Sync + 'static,
    ) -> Vec<Task> {
        let scopes = self.scopes.iter().zip(cache.stores.iter());
        let tasks = scopes.map(|(scope, store)| {
            let (listener, on_change, progress) = (listener.clone(), Arc::clone(&self.on_change), store.clone());
            let notify = move |change| {
                listener(&change);
                if progress.is_synced_or_not_served() {
                    changed_contents(&change).into_iter().for_each(&*on_change);
                }
            };
            let (client, store, budgets) = (self.client.clone(), store.clone(), self.budgets.clone());
            let convert = move |raw| CachedDefinition::convert(raw, &budgets);
            raw_informer::<D, _>(client, scope.clone(), ErrorPolicy::Optional, store, convert, notify).boxed()
        });
        tasks.collect()
    }
}

fn changed_contents<D: CachedKind>(change: &CacheChange<D>) -> Option<DefinitionChange> {
    let (old, new) = match change {
        Change::Applied { old, new, .. } => (old.as_ref().and_then(Cached::object), new.object()),
        Change::Deleted(old) | Change::MissingFromList(old) => (old.object(), None),
        Change::Synced { .. } => return None,
    };
    if let (Some(old), Some(new)) = (old, new)
        && old.has_same_contents(new)
    {
        return None;
    }
    let object = new.or(old)?;
    let (kind, name) = object.used_as()?.clone();
    Some(DefinitionChange {
        kind,
        namespace: object.meta().namespace.clone().unwrap_or_default(),
        name,
    })
}
