//! Finds what the controller does not support, as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::diff::{self, Deployed, DeployedRevision};
use super::objects;
use super::render::definition_set::DefinitionSet;
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ResourceTracker, labels};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::parse::{
    Definitions, Parsed, parse, unsupported_application, unsupported_definitions, unsupported_overrides,
    unsupported_trackers,
};
use crate::controllers::oam::trackers::{Inventory, Tracker};

/// The message of the condition by which the controller leaves an Application alone.
const UNSUPPORTED: &str = "not supported by this controller: ";

/// The reasons why the controller would not deploy an Application.
pub struct Obstacles {
    pub unsupported: Vec<String>,
    /// Failures that the controller reports once it works on the Application.
    errors: Vec<String>,
}

impl Obstacles {
    pub fn into_result(self) -> Result<(), Error> {
        let unsupported = (!self.unsupported.is_empty()).then(|| self.unsupported.join(", "));
        let unsupported = unsupported.map(|parts| format!("not supported: {parts}"));
        let reasons: Vec<String> = unsupported.into_iter().chain(self.errors).collect();
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Error::Failed(reasons.join("; ")))
    }
}

pub struct Support<'a> {
    client: &'a Client,
    definition_namespace: &'a str,
    /// The definitions of the loaded namespaces.
    definitions: DefinitionSet,
    loaded: BTreeSet<String>,
    trackers: BTreeMap<NamespacedName, Vec<ResourceTracker>>,
}

impl<'a> Support<'a> {
    pub fn new(client: &'a Client, definition_namespace: &'a str) -> Self {
        Self {
            client,
            definition_namespace,
            definitions: DefinitionSet::default(),
            loaded: BTreeSet::new(),
            trackers: BTreeMap::new(),
        }
    }

    /// Loads the trackers of the Applications of a namespace, or of all.
    pub async fn load_trackers(&mut self, namespace: Option<&str>) -> Result<(), Error> {
        let api: Api<ResourceTracker> = Api::all(self.client.clone());
        let mut parameters = ListParams::default();
        if let Some(namespace) = namespace {
            parameters = parameters.labels(&format!("{}={namespace}", labels::APP_NAMESPACE));
        }
        let trackers = objects::list_all(&api, &parameters)
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
            self.trackers.entry(name).or_default().push(tracker);
        }
    }

    /// Returns the definitions for the Applications of a namespace.
    pub async fn definitions(&mut self, namespace: &str) -> Result<&DefinitionSet, Error> {
        for namespace in [namespace, self.definition_namespace] {
            if !self.loaded.contains(namespace) {
                self.definitions.load(self.client, namespace).await?;
                self.loaded.insert(namespace.to_owned());
            }
        }
        Ok(&self.definitions)
    }

    /// The trackers must be loaded.
    pub async fn check(&mut self, application: &Application) -> Result<Obstacles, Error> {
        let mut reasons: BTreeSet<String> = BTreeSet::new();
        reasons.extend(unsupported_application(application).iter().map(ToString::to_string));
        let mut errors = Vec::new();
        let identity = objects::identity(application);
        let mut trackers = Vec::new();
        for tracker in self.trackers.remove(&identity.name).unwrap_or_default() {
            match Tracker::decode(Arc::new(tracker)) {
                Ok(tracker) => trackers.push(tracker),
                Err(error) => errors.push(unreadable(&error)),
            }
        }
        match Inventory::of(&identity, trackers) {
            Ok(inventory) => reasons.extend(unsupported_trackers(&inventory).iter().map(ToString::to_string)),
            Err(error) => errors.push(unreadable(&error)),
        }
        let latest = diff::read_latest(self.client, application).await?;
        let (namespace, shared) = (application.namespace().unwrap_or_default(), self.definition_namespace);
        let definitions = self.definitions(&namespace).await?;
        let definitions = Definitions::live_for(application, definitions, &namespace, shared);
        match parse_deployed(application, definitions, latest) {
            Ok(parsed) => reasons.extend(unsupported_parts(&parsed)),
            Err(error) => errors.push(format!("cannot be parsed: {}", error.into_message())),
        }
        if reasons.is_empty() {
            reasons.extend(refusal(application));
        }
        Ok(Obstacles {
            unsupported: reasons.into_iter().collect(),
            errors,
        })
    }
}

/// Parses what the controller would deploy.
fn parse_deployed(
    application: &Application,
    definitions: Definitions<'_>,
    latest: Option<ApplicationRevision>,
) -> Result<Parsed, Error> {
    let recorded = latest.map(DeployedRevision::new).transpose()?;
    let deployed = Deployed::new(
        application.clone(),
        definitions,
        recorded.as_ref(),
        |application, definitions| parse(application, definitions).map_err(Error::from),
    )?;
    Ok(deployed.parsed)
}

fn unsupported_parts(parsed: &Parsed) -> Vec<String> {
    let definitions = unsupported_definitions(&parsed.components);
    let overrides = unsupported_overrides(&parsed.overrides);
    let found = definitions.iter().chain(&overrides);
    found.map(ToString::to_string).collect()
}

fn unreadable(error: &impl Display) -> String {
    format!("its resourcetrackers cannot be read: {error}")
}

fn refusal(application: &Application) -> Option<String> {
    let conditions = &application.status.as_ref()?.conditions;
    let mut refusals = conditions
        .iter()
        .filter(|condition| condition.status == "False")
        .filter_map(|condition| condition.message.strip_prefix(UNSUPPORTED));
    refusals.next().map(str::to_owned)
}
