use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::starter_set::STARTER_SET;
use crate::api::oam::{
    ComponentDefinition, DefinitionKind, DefinitionRevision, Policy, PolicyDefinition, TraitDefinition, Workflow,
    WorkflowStepDefinition, WorkloadDefinition,
};
use crate::cmd::vela::{manifests, objects};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::parse::Lookup;

/// Definitions, Policies and Workflows. Those without a namespace are found in each one.
#[derive(Default)]
pub struct DefinitionSet {
    components: ByName<ComponentDefinition>,
    workloads: ByName<WorkloadDefinition>,
    traits: ByName<TraitDefinition>,
    policies: ByName<PolicyDefinition>,
    steps: ByName<WorkflowStepDefinition>,
    external_policies: ByName<Policy>,
    workflows: ByName<Workflow>,
    revisions: Vec<Arc<DefinitionRevision>>,
}

/// Objects by namespace and name.
struct ByName<D>(HashMap<(String, String), Arc<D>>);

impl<D> Default for ByName<D> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<D: Resource + DeserializeOwned> ByName<D> {
    fn insert(&mut self, object: D) {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        self.0.insert(key, Arc::new(object));
    }

    fn decode(&mut self, document: Value) -> Result<(), Error> {
        self.insert(decode(document)?);
        Ok(())
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<D>> {
        let of = |namespace: &str| self.0.get(&(namespace.to_owned(), name.to_owned())).cloned();
        of(namespace).or_else(|| of(""))
    }
}

impl<D> ByName<D>
where
    D: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    async fn load(&mut self, client: &Client, namespace: &str) -> Result<(), Error> {
        let kind = D::plural(&());
        let definitions = objects::list_decodable::<D>(client, namespace)
            .await
            .map_err(failed_to(format!("list {kind} in namespace {namespace}")))?;
        definitions.into_iter().for_each(|object| self.insert(object));
        Ok(())
    }
}

impl DefinitionSet {
    pub fn starter() -> Result<Self, Error> {
        let mut set = Self::default();
        for (path, text) in STARTER_SET {
            for document in manifests::parse(Path::new(path), text.as_bytes())? {
                set.add(document)?;
            }
        }
        Ok(set)
    }

    pub fn of_directory(directory: &Path) -> Result<Self, Error> {
        let mut set = Self::default();
        for file in manifests::files(directory)? {
            for document in manifests::read(&file)? {
                set.add(document)?;
            }
        }
        Ok(set)
    }

    pub async fn of_cluster(client: &Client, namespaces: [&str; 2]) -> Result<Self, Error> {
        let mut set = Self::default();
        for namespace in BTreeSet::from(namespaces) {
            set.components.load(client, namespace).await?;
            set.workloads.load(client, namespace).await?;
            set.traits.load(client, namespace).await?;
            set.policies.load(client, namespace).await?;
            set.steps.load(client, namespace).await?;
            set.external_policies.load(client, namespace).await?;
            set.workflows.load(client, namespace).await?;
            let revisions = objects::list_decodable::<DefinitionRevision>(client, namespace)
                .await
                .map_err(failed_to(format!("list definitionrevisions in {namespace}")))?;
            set.revisions.extend(revisions.into_iter().map(Arc::new));
        }
        Ok(set)
    }

    /// Adds an object of a file. Returns false if it is of another kind.
    pub fn add(&mut self, mut document: Value) -> Result<bool, Error> {
        // The namespace of an installation does not matter to files.
        if let Some(metadata) = document["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        match manifests::oam_kind(&document) {
            Some("ComponentDefinition") => self.components.decode(document)?,
            Some("WorkloadDefinition") => self.workloads.decode(document)?,
            Some("TraitDefinition") => self.traits.decode(document)?,
            Some("PolicyDefinition") => self.policies.decode(document)?,
            Some("WorkflowStepDefinition") => self.steps.decode(document)?,
            Some("Policy") => self.external_policies.decode(document)?,
            Some("Workflow") => self.workflows.decode(document)?,
            Some("DefinitionRevision") => self.revisions.push(Arc::new(decode(document)?)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn decode<D: DeserializeOwned>(document: Value) -> Result<D, Error> {
    let display = manifests::display(&document);
    serde_json::from_value(document).map_err(|error| Error::Failed(format!("{display}: {error}")))
}

fn is_in(revision: &DefinitionRevision, namespace: &str) -> bool {
    let in_namespace = revision.namespace().unwrap_or_default();
    in_namespace.is_empty() || in_namespace == namespace
}

impl Lookup for DefinitionSet {
    fn component_definition(&self, namespace: &str, name: &str) -> Option<Arc<ComponentDefinition>> {
        self.components.get(namespace, name)
    }

    fn workload_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkloadDefinition>> {
        self.workloads.get(namespace, name)
    }

    fn trait_definition(&self, namespace: &str, name: &str) -> Option<Arc<TraitDefinition>> {
        self.traits.get(namespace, name)
    }

    fn policy_definition(&self, namespace: &str, name: &str) -> Option<Arc<PolicyDefinition>> {
        self.policies.get(namespace, name)
    }

    fn workflow_step_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkflowStepDefinition>> {
        self.steps.get(namespace, name)
    }

    fn definition_revisions(&self, namespace: &str, kind: DefinitionKind, name: &str) -> Vec<String> {
        let is_of = |revision: &&Arc<DefinitionRevision>| {
            let label = revision.labels().get(kind.name_label());
            let is_labeled = label.is_some_and(|label| label == name);
            is_labeled && revision.spec.definition_type == kind.type_name() && is_in(revision, namespace)
        };
        let revisions = self.revisions.iter().filter(is_of);
        revisions.map(|revision| revision.name_any()).collect()
    }

    fn definition_revision(&self, namespace: &str, name: &str) -> Option<Arc<DefinitionRevision>> {
        let mut revisions = self.revisions.iter();
        let revision = revisions.find(|revision| revision.name_any() == name && is_in(revision, namespace));
        revision.cloned()
    }

    fn policy(&self, namespace: &str, name: &str) -> Option<Arc<Policy>> {
        self.external_policies.get(namespace, name)
    }

    fn workflow(&self, namespace: &str, name: &str) -> Option<Arc<Workflow>> {
        self.workflows.get(namespace, name)
    }
}
