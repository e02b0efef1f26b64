use std::collections::{BTreeMap, BTreeSet};
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
    revisions: ByName<DefinitionRevision>,
}

/// Objects by namespace and name.
struct ByName<D>(BTreeMap<(String, String), Arc<D>>);

impl<D> Default for ByName<D> {
    fn default() -> Self {
        Self(BTreeMap::new())
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
            set.load(client, namespace).await?;
        }
        Ok(set)
    }

    /// Adds the objects of a namespace.
    pub async fn load(&mut self, client: &Client, namespace: &str) -> Result<(), Error> {
        self.components.load(client, namespace).await?;
        self.workloads.load(client, namespace).await?;
        self.traits.load(client, namespace).await?;
        self.policies.load(client, namespace).await?;
        self.steps.load(client, namespace).await?;
        self.external_policies.load(client, namespace).await?;
        self.workflows.load(client, namespace).await?;
        self.revisions.load(client, namespace).await
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
            Some("DefinitionRevision") => self.revisions.decode(document)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn decode<D: DeserializeOwned>(document: Value) -> Result<D, Error> {
    let display = manifests::display(&document);
    serde_json::from_value(document).map_err(|error| Error::Failed(format!("{display}: {error}")))
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
        let is_in = |of: &str| of.is_empty() || of == namespace;
        let is_of = |revision: &DefinitionRevision| {
            let label = revision.labels().get(kind.name_label());
            label.is_some_and(|label| label == name) && revision.spec.definition_type == kind.type_name()
        };
        let revisions = self.revisions.0.iter();
        let revisions = revisions.filter(|((of, _), revision)| is_in(of) && is_of(revision));
        revisions.map(|((_, name), _)| name.clone()).collect()
    }

    fn definition_revision(&self, namespace: &str, name: &str) -> Option<Arc<DefinitionRevision>> {
        self.revisions.get(namespace, name)
    }

    fn policy(&self, namespace: &str, name: &str) -> Option<Arc<Policy>> {
        self.external_policies.get(namespace, name)
    }

    fn workflow(&self, namespace: &str, name: &str) -> Option<Arc<Workflow>> {
        self.workflows.get(namespace, name)
    }
}
