//! Finds what the controller does not support, as it does.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::objects;
use super::render::definition_set::DefinitionSet;
use crate::api::NamespacedName;
use crate::api::oam::{Application, ResourceTracker, labels};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::clusters::{JoinedCluster, joined_clusters};
use crate::controllers::oam::parse::{
    Definitions, cluster_selections, parse, unsupported_application, unsupported_clusters, unsupported_definitions,
    unsupported_overrides, unsupported_trackers,
};
use crate::controllers::oam::trackers::{Inventory, Tracker};

/// The message of the condition by which the controller leaves an Application alone.
const UNSUPPORTED: &str = "not supported by this controller: ";

pub struct Support<'a> {
    client: &'a Client,
    definition_namespace: &'a str,
    /// The definitions of each namespace with Applications.
    definitions: BTreeMap<String, DefinitionSet>,
    trackers: BTreeMap<NamespacedName, Vec<Tracker>>,
    /// Listed once an Application may select them.
    joined: Option<Vec<JoinedCluster>>,
}

impl<'a> Support<'a> {
    pub fn new(client: &'a Client, definition_namespace: &'a str) -> Self {
        Self {
            client,
            definition_namespace,
            definitions: BTreeMap::new(),
            trackers: BTreeMap::new(),
            joined: None,
        }
    }

    pub async fn load_all_trackers(&mut self) -> Result<(), Error> {
        let api: Api<ResourceTracker> = Api::all(self.client.clone());
        let trackers = objects::list_all(&api, &ListParams::default())
            .await
            .map_err(failed_to("list ResourceTrackers"))?;
        self.add_trackers(trackers);
        Ok(())
    }

    pub async fn load_trackers_of(&mut self, name: &NamespacedName) -> Result<(), Error> {
        let trackers = objects::trackers(self.client, name).await?;
        self.add_trackers(trackers);
        Ok(())
    }

    fn add_trackers(&mut self, trackers: Vec<ResourceTracker>) {
        for tracker in trackers {
            let label = |name: &str| tracker.labels().get(name).cloned().unwrap_or_default();
            let name = NamespacedName::new(label(labels::APP_NAMESPACE), label(labels::APP_NAME));
            // One that cannot be decoded is an error of its Application, which the controller reports.
            if let Ok(tracker) = Tracker::decode(Arc::new(tracker)) {
                self.trackers.entry(name).or_default().push(tracker);
            }
        }
    }

    /// Returns the definitions for the Applications of a namespace.
    pub async fn definitions(&mut self, namespace: &str) -> Result<&DefinitionSet, Error> {
        match self.definitions.entry(namespace.to_owned()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let namespaces = [namespace, self.definition_namespace];
                Ok(entry.insert(DefinitionSet::of_cluster(self.client, namespaces).await?))
            }
        }
    }

    /// Returns the parts that are not supported. The trackers must be loaded.
    pub async fn check(&mut self, application: &Application) -> Result<Vec<String>, Error> {
        let mut reasons: BTreeSet<String> = BTreeSet::new();
        reasons.extend(unsupported_application(application).iter().map(ToString::to_string));
        let identity = objects::identity(application);
        let trackers = self.trackers.remove(&identity.name).unwrap_or_default();
        if let Ok(inventory) = Inventory::of(&identity, trackers) {
            reasons.extend(unsupported_trackers(&inventory).iter().map(ToString::to_string));
        }
        let parsed = {
            let (namespace, shared) = (&identity.name.namespace, self.definition_namespace);
            let definitions = Definitions::live(self.definitions(namespace).await?, namespace, shared, false);
            // An Application that cannot be parsed is an error, which the controller reports.
            parse(application, &definitions).ok()
        };
        if let Some(parsed) = parsed {
            if self.joined.is_none() && !cluster_selections(&parsed).is_empty() {
                let joined = joined_clusters(self.client, self.definition_namespace).await;
                self.joined = Some(joined.map_err(failed_to("list Secrets of clusters"))?);
            }
            let joined = self.joined.as_deref().unwrap_or_default();
            let clusters = unsupported_clusters(&parsed, joined);
            let definitions = unsupported_definitions(&parsed.components);
            let overrides = unsupported_overrides(&parsed.overrides);
            let found = clusters.iter().chain(&definitions).chain(&overrides);
            reasons.extend(found.map(ToString::to_string));
        }
        if reasons.is_empty() {
            reasons.extend(refusal(application));
        }
        Ok(reasons.into_iter().collect())
    }
}

fn refusal(application: &Application) -> Option<String> {
    let conditions = &application.status.as_ref()?.conditions;
    let mut refusals = conditions
        .iter()
        .filter(|condition| condition.status == "False")
        .filter_map(|condition| condition.message.strip_prefix(UNSUPPORTED));
    refusals.next().map(str::to_owned)
}
