use clap::Args;
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::list::cell;
use super::{DefinitionNamespace, Place, objects};
use crate::api::NamespacedName;
use crate::api::oam::{
    Application, ApplicationRevision, ApplicationRevisionSpec, ApplicationStatus, AppliedResource, Definition, labels,
};
use crate::cmd::flags::OutputFormat;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::revisions::expand;
use crate::runtime::kube_client::call;
use crate::text::sanitize;

/// Show the status of an Application: conditions, services, steps and objects
///
/// Also names definitions that are newer than those that the current revision uses.
#[derive(Args, Debug)]
pub struct Status {
    /// Name of the Application
    name: String,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    publish_version: Option<String>,
    created: Option<Timestamp>,
    deleting: bool,
    /// True if the status describes the current spec.
    up_to_date: bool,
    status: ApplicationStatus,
    /// Definitions that have changed since the current revision recorded them.
    newer_definitions: Vec<String>,
}

impl Status {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let shared = &self.definitions.system_definition_namespace;
        let newer = newer_definitions(&client, &name, &application, shared).await?;
        let view = View::new(application, newer);
        match self.output {
            OutputFormat::Json => output::print_json(&view),
            OutputFormat::Table => output::print(&view.text(Timestamp::now())),
        }
    }
}

/// Compares the definitions that the current revision records with those of the cluster.
async fn newer_definitions(
    client: &Client,
    name: &NamespacedName,
    application: &Application,
    shared: &str,
) -> Result<Vec<String>, Error> {
    let latest = application
        .status
        .as_ref()
        .and_then(|status| status.latest_revision.as_ref());
    let Some(latest) = latest.filter(|latest| !latest.name.is_empty()) else {
        return Ok(Vec::new());
    };
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    let revision = call(revisions.get_opt(&latest.name)).await;
    let revision = revision.map_err(failed_to(format!("read revision {}", latest.name)))?;
    let Some(revision) = revision else {
        return Ok(Vec::new());
    };
    let contents = expand(&revision.spec).map_err(failed_to(format!("read revision {}", latest.name)))?;
    let comparison = Comparison {
        client,
        namespaces: [&name.namespace, shared],
        pinned: pinned_types(&contents),
    };
    let mut newer = Vec::new();
    for definition in contents.component_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.trait_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.policy_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.workflow_step_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    Ok(newer)
}

/// Returns the names of definitions of which the Application names a version.
fn pinned_types(contents: &ApplicationRevisionSpec) -> Vec<String> {
    let components = contents.application.spec.components.iter();
    let types = components.flat_map(|component| {
        let traits = component.traits.iter().map(|one| &one.type_);
        traits.chain([&component.type_])
    });
    types
        .filter_map(|type_| Some(type_.split_once('@')?.0.to_owned()))
        .collect()
}

struct Comparison<'a> {
    client: &'a Client,
    namespaces: [&'a str; 2],
    pinned: Vec<String>,
}

impl Comparison<'_> {
    /// Returns a sentence about a definition that has changed in the cluster.
    async fn newer<D>(&self, recorded: &D) -> Result<Option<String>, Error>
    where
        D: Definition + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let name = recorded.name_any();
        if self.pinned.contains(&name) {
            return Ok(None);
        }
        for namespace in self.namespaces {
            let definitions: Api<D> = Api::namespaced(self.client.clone(), namespace);
            let live = call(definitions.get_opt(&name)).await;
            let live = live.map_err(failed_to(format!("read {} {name}", D::KIND)))?;
            if let Some(live) = live {
                let is_newer = live.spec() != recorded.spec();
                return Ok(is_newer.then(|| format!("{} {name} in namespace {namespace}", D::KIND)));
            }
        }
        Ok(None)
    }
}

impl View {
    fn new(application: Application, newer_definitions: Vec<String>) -> Self {
        let status = application.status.clone().unwrap_or_default();
        let version = application.annotations().get(labels::PUBLISH_VERSION).cloned();
        let meta = application.metadata;
        Self {
            up_to_date: status.observed_generation.is_some() && status.observed_generation == meta.generation,
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            publish_version: version,
            created: meta.creation_timestamp.map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            status,
            newer_definitions,
        }
    }

    fn text(&self, now: Timestamp) -> String {
        let status = &self.status;
        let revision = status
            .latest_revision
            .as_ref()
            .map_or("", |latest| latest.name.as_str());
        let phase = if self.deleting {
            "deleting"
        } else {
            status.phase.as_str()
        };
        let header = [
            format!("{}/{}", self.namespace, self.name),
            format!("phase:    {}", cell(phase)),
            format!("revision: {}", cell(revision)),
            format!(
                "version:  {}",
                cell(self.publish_version.as_deref().unwrap_or_default())
            ),
            format!("age:      {}", output::age(self.created, now)),
        ];
        let mut text = output::section("", header);
        if !self.up_to_date {
            text.push_str(
                "status is out of date; check that the controller is running, watches this namespace, and is enabled \
                 with --controllers=oam\n",
            );
        }
        text.push_str(&conditions(status, now));
        text.push_str(&services(status));
        text.push_str(&steps(status, now));
        text.push_str(&applied(&status.applied_resources));
        let newer = self.newer_definitions.iter().map(|newer| format!("  {newer}"));
        text.push_str(&output::section(
            "\ndefinitions that have changed since this revision:\n",
            newer,
        ));
        if !self.newer_definitions.is_empty() {
            text.push_str(&sanitize(&format!(
                "they are used from the next revision on; `portolan app up {} -n {}` publishes one",
                self.name, self.namespace
            )));
            text.push('\n');
        }
        text
    }
}

/// Formats a table after an empty line, or nothing without rows.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", output::table(header, rows)),
    }
}

fn conditions(status: &ApplicationStatus, now: Timestamp) -> String {
    let rows = status.conditions.iter().map(|condition| {
        let since = condition.last_transition_time.as_ref().map(|time| time.0);
        vec![
            cell(&condition.type_),
            cell(&condition.status),
            output::distance(since, now),
            cell(&condition.reason),
            condition.message.clone(),
        ]
    });
    table(&["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"], rows.collect())
}

fn services(status: &ApplicationStatus) -> String {
    let word = |is_healthy: bool, is_pending: bool| match (is_healthy, is_pending) {
        (_, true) => "pending",
        (true, false) => "healthy",
        (false, false) => "unhealthy",
    };
    let rows = status.services.iter().flat_map(|service| {
        let of_service = vec![
            cell(&service.name),
            "-".to_owned(),
            word(service.healthy, false).to_owned(),
            service.message.clone(),
        ];
        let traits = service.traits.iter().map(|one| {
            let health = word(one.healthy, one.pending).to_owned();
            vec![cell(&service.name), cell(&one.type_), health, one.message.clone()]
        });
        std::iter::once(of_service).chain(traits)
    });
    table(&["COMPONENT", "TRAIT", "HEALTH", "MESSAGE"], rows.collect())
}

fn steps(status: &ApplicationStatus, now: Timestamp) -> String {
    let workflow = status.workflow.clone().unwrap_or_default();
    let rows = workflow.steps.iter().flat_map(|step| {
        std::iter::once((step, String::new())).chain(step.sub_steps.iter().map(|sub| (sub, format!("{}/", step.name))))
    });
    let rows = rows.map(|(step, prefix)| {
        let last = step.last_execute_time.as_ref().map(|time| time.0);
        vec![
            cell(&format!("{prefix}{}", step.name)),
            cell(&step.type_),
            cell(&step.phase),
            output::distance(last, now),
            cell(&step.reason),
            step.message.clone(),
        ]
    });
    table(
        &["STEP", "TYPE", "PHASE", "LAST RUN", "REASON", "MESSAGE"],
        rows.collect(),
    )
}

fn applied(resources: &[AppliedResource]) -> String {
    let rows = resources.iter().map(|resource| {
        vec![
            cell(&resource.api_version),
            cell(&resource.kind),
            cell(&resource.namespace),
            cell(&resource.name),
            cell(&resource.cluster),
        ]
    });
    table(&["API VERSION", "KIND", "NAMESPACE", "NAME", "CLUSTER"], rows.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(status: serde_json::Value) -> View {
        let application = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
            "metadata": { "namespace": "shop", "name": "web", "generation": 2 },
            "spec": { "components": [] }, "status": status,
        });
        View::new(
            serde_json::from_value(application).unwrap(),
            vec!["TraitDefinition scaler in namespace x".to_owned()],
        )
    }

    #[test]
    fn a_status_shows_conditions_services_steps_and_objects() {
        let text = view(json!({
            "observedGeneration": 2, "status": "unhealthy",
            "conditions": [{ "type": "Ready", "status": "False", "reason": "ReconcileError", "message": "no\u{1b}[2J way" }],
            "services": [{ "name": "web", "healthy": false, "message": "Ready:0/1",
                "traits": [{ "type": "scaler", "healthy": true }] }],
            "workflow": { "steps": [{ "id": "a", "name": "web", "type": "apply-component", "phase": "running",
                "reason": "Wait", "message": "wait healthy" }] },
            "appliedResources": [{ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web" }],
        }))
        .text(Timestamp::UNIX_EPOCH);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for expected in [
            "phase: unhealthy",
            "Ready False - ReconcileError no [2J way",
            "web - unhealthy Ready:0/1",
            "web scaler healthy",
            "web apply-component running - Wait wait healthy",
            "apps/v1 Deployment shop web -",
            "TraitDefinition scaler in namespace x",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {text}");
        }
        assert!(!text.contains("out of date"), "{text}");
    }

    #[test]
    fn an_outdated_status_says_so() {
        let text = view(json!({ "observedGeneration": 1 })).text(Timestamp::UNIX_EPOCH);
        assert!(text.contains("status is out of date"), "{text}");
    }
}
