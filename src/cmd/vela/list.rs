use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;

use super::render::definition_set::DefinitionSet;
use super::{ApplicationFlags, DefinitionNamespace, objects};
use crate::api::oam::{Application, ResourceTracker, labels};
use crate::api::{Guarded, NamespacedName};
use crate::cmd::flags::OutputFormat;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::clusters::{JoinedCluster, joined_clusters};
use crate::controllers::oam::parse::{
    Definitions, cluster_selections, parse, unsupported_application, unsupported_clusters, unsupported_definitions,
    unsupported_trackers,
};
use crate::controllers::oam::trackers::{Inventory, Tracker};
use crate::text::truncate;

/// The maximum length of user-defined text in a cell, in bytes.
const MAX_CELL: usize = 100;
/// The message of the condition by which the controller leaves an Application alone.
const UNSUPPORTED: &str = "not supported by this controller: ";

/// List Applications
#[derive(Args, Debug)]
pub struct List {
    /// All namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only Applications that the controller leaves alone, with the reasons; also before it runs
    #[arg(long)]
    unsupported: bool,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: ApplicationFlags,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    phase: String,
    healthy_services: usize,
    services: usize,
    revision: String,
    publish_version: String,
    created: Option<Timestamp>,
    /// The first condition that is false.
    problem: Option<String>,
    unsupported: Vec<String>,
}

impl List {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, namespace) = self.place.connect().await?;
        let api: Api<Guarded<Application>> = if self.all_namespaces {
            Api::all(client.clone())
        } else {
            Api::namespaced(client.clone(), &namespace)
        };
        let applications = objects::list_all(&api, &ListParams::default())
            .await
            .map_err(|error| match error.code {
                Some(404) => objects::not_installed(),
                Some(403) if self.all_namespaces => Error::Failed(format!(
                    "failed to list Applications: {error}; omit -A and use -n NAMESPACE"
                )),
                _ => failed_to("list Applications")(error),
            })?;
        let mut views: Vec<View> = Vec::new();
        let mut support = Support::new(&client, &self.definitions.system_definition_namespace);
        if self.unsupported {
            support.load_trackers().await?;
        }
        for Guarded(object) in applications {
            match object.0 {
                Ok(application) => {
                    let mut view = View::new(&application);
                    if self.unsupported {
                        view.unsupported = support.check(&application).await?;
                    }
                    views.push(view);
                }
                Err(invalid) => views.push(View {
                    namespace: invalid.metadata.namespace.unwrap_or_default(),
                    name: invalid.metadata.name.unwrap_or_default(),
                    unsupported: vec!["an object that cannot be decoded".to_owned()],
                    problem: Some(format!("failed to decode the object: {}", invalid.error)),
                    ..View::default()
                }),
            }
        }
        if self.unsupported {
            views.retain(|view| !view.unsupported.is_empty());
        }
        let within = if self.all_namespaces {
            String::new()
        } else {
            format!(" in namespace {namespace}; -A lists all namespaces")
        };
        let what = if self.unsupported {
            "unsupported Applications"
        } else {
            "Applications"
        };
        match self.output {
            OutputFormat::Json => output::print_json(&views),
            OutputFormat::Table if views.is_empty() => output::print(&format!("no {what}{within}\n")),
            OutputFormat::Table if self.unsupported => output::print(&unsupported_text(&views)),
            OutputFormat::Table => output::print(&text(&views, Timestamp::now())),
        }
    }
}

impl View {
    fn new(application: &Application) -> Self {
        let status = application.status.clone().unwrap_or_default();
        let failed = status.conditions.iter().find(|condition| condition.status == "False");
        let latest = status.latest_revision.unwrap_or_default();
        let version = application.annotations().get(labels::PUBLISH_VERSION);
        Self {
            namespace: application.namespace().unwrap_or_default(),
            name: application.name_any(),
            phase: status.phase,
            healthy_services: status.services.iter().filter(|service| service.healthy).count(),
            services: status.services.len(),
            revision: latest.name,
            publish_version: version.cloned().unwrap_or_default(),
            created: application.metadata.creation_timestamp.as_ref().map(|time| time.0),
            problem: failed.map(|failed| format!("{}: {}", failed.type_, failed.message)),
            unsupported: Vec::new(),
        }
    }
}

fn text(views: &[View], now: Timestamp) -> String {
    const HEADER: [&str; 7] = ["NAMESPACE", "NAME", "PHASE", "HEALTHY", "REVISION", "VERSION", "AGE"];
    let row = |view: &View| {
        vec![
            view.namespace.clone(),
            view.name.clone(),
            cell(&view.phase),
            format!("{}/{}", view.healthy_services, view.services),
            cell(&view.revision),
            cell(&view.publish_version),
            output::age(view.created, now),
        ]
    };
    let problems = views.iter().filter_map(|view| {
        let problem = view.problem.as_ref()?;
        Some(format!("{}/{}: {problem}", view.namespace, view.name))
    });
    output::table(&HEADER, views.iter().map(row)) + &output::section("\n", problems)
}

fn unsupported_text(views: &[View]) -> String {
    const HEADER: [&str; 3] = ["NAMESPACE", "NAME", "NOT SUPPORTED"];
    let row = |view: &View| vec![view.namespace.clone(), view.name.clone(), view.unsupported.join(", ")];
    output::table(&HEADER, views.iter().map(row))
}

/// Returns `-` instead of an empty cell, which would shift the columns for `awk`.
pub fn cell(text: &str) -> String {
    match text.trim() {
        "" => "-".to_owned(),
        text => truncate(text, MAX_CELL),
    }
}

/// Finds what the controller does not support, as it does.
struct Support<'a> {
    client: &'a Client,
    definition_namespace: &'a str,
    /// The definitions of each namespace with Applications.
    definitions: BTreeMap<String, DefinitionSet>,
    trackers: BTreeMap<NamespacedName, Vec<Tracker>>,
    /// Listed once an Application may select them.
    joined: Option<Vec<JoinedCluster>>,
}

impl<'a> Support<'a> {
    fn new(client: &'a Client, definition_namespace: &'a str) -> Self {
        Self {
            client,
            definition_namespace,
            definitions: BTreeMap::new(),
            trackers: BTreeMap::new(),
            joined: None,
        }
    }

    async fn load_trackers(&mut self) -> Result<(), Error> {
        let api: Api<ResourceTracker> = Api::all(self.client.clone());
        let trackers = objects::list_all(&api, &ListParams::default())
            .await
            .map_err(failed_to("list ResourceTrackers"))?;
        for tracker in trackers {
            let label = |name: &str| tracker.labels().get(name).cloned().unwrap_or_default();
            let name = NamespacedName::new(label(labels::APP_NAMESPACE), label(labels::APP_NAME));
            // One that cannot be decoded is an error of its Application, which the controller reports.
            if let Ok(tracker) = Tracker::decode(Arc::new(tracker)) {
                self.trackers.entry(name).or_default().push(tracker);
            }
        }
        Ok(())
    }

    async fn check(&mut self, application: &Application) -> Result<Vec<String>, Error> {
        let mut reasons: BTreeSet<String> = BTreeSet::new();
        reasons.extend(unsupported_application(application).iter().map(ToString::to_string));
        let identity = objects::identity(application);
        let trackers = self.trackers.remove(&identity.name).unwrap_or_default();
        if let Ok(inventory) = Inventory::of(&identity, trackers) {
            reasons.extend(unsupported_trackers(&inventory).iter().map(ToString::to_string));
        }
        let namespace = &identity.name.namespace;
        if !self.definitions.contains_key(namespace) {
            let namespaces = [namespace.as_str(), self.definition_namespace];
            let set = DefinitionSet::of_cluster(self.client, namespaces).await?;
            self.definitions.insert(namespace.clone(), set);
        }
        let parsed = self.definitions.get(namespace).and_then(|set| {
            let definitions = Definitions::live(set, namespace, self.definition_namespace, false);
            // An Application that cannot be parsed is an error, which the controller reports.
            parse(application, &definitions).ok()
        });
        if let Some(parsed) = parsed {
            if self.joined.is_none() && !cluster_selections(&parsed).is_empty() {
                let joined = joined_clusters(self.client, self.definition_namespace).await;
                self.joined = Some(joined.map_err(failed_to("list Secrets of clusters"))?);
            }
            let joined = self.joined.as_deref().unwrap_or_default();
            let clusters = unsupported_clusters(&parsed, joined);
            let definitions = unsupported_definitions(&parsed.components);
            reasons.extend(clusters.iter().chain(&definitions).map(ToString::to_string));
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
