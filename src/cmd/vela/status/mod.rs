//! `portolan vela status`.

mod changes;
mod newer;
mod steps;
mod watch;

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use super::joined::suffix;
use super::{ApplicationFlags, DefinitionNamespace, objects};
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationStatus, AppliedResource, labels};
use crate::cmd::flags::parse::positive_duration;
use crate::cmd::flags::{OutputFormat, non_empty};
use crate::cmd::output::cell;
use crate::cmd::{Error, output};
use crate::controllers::oam::trackers::cluster_name;
use crate::text::sanitize;
use newer::newer_definitions;
use watch::print_changes;

/// Show the status of an Application: conditions, services, steps and objects
///
/// Also names definitions that are newer than those that the current revision uses. Components in joined clusters have the
/// cluster behind their name.
#[derive(Args, Debug)]
pub struct VelaStatus {
    /// Name of the Application
    name: String,
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t)]
    output: OutputFormat,
    /// Print changes until the command is interrupted
    #[arg(long, short, conflicts_with = "output")]
    watch: bool,
    /// Maximum time to watch (default: no limit)
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, requires = "watch")]
    timeout: Option<Duration>,
    /// Show the components and objects of this cluster only: a joined one, or local
    #[arg(long, value_name = "NAME", conflicts_with = "watch")]
    cluster: Option<String>,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: ApplicationFlags,
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

impl VelaStatus {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let shared = &self.definitions.system_definition_namespace;
        let newer = newer_definitions(&client, &name, &application, shared).await?;
        let mut view = View::new(application, newer);
        if let Some(cluster) = non_empty(self.cluster.as_deref()) {
            view.keep_cluster(cluster);
        }
        match self.output {
            OutputFormat::Json => output::print_json(&view)?,
            OutputFormat::Table => output::print(&view.text(Timestamp::now()))?,
        }
        if self.watch {
            return print_changes(&client, &name, &view.status, self.timeout).await;
        }
        Ok(())
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

    fn keep_cluster(&mut self, cluster: &str) {
        let is_kept = |place: &str| cluster_name(place) == cluster_name(cluster);
        self.status.services.retain(|service| is_kept(&service.cluster));
        self.status.applied_resources.retain(|object| is_kept(&object.cluster));
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
        text.push_str(&steps::tree(status, now));
        let name = NamespacedName::new(self.namespace.as_str(), self.name.as_str());
        text.push_str(&output::section("\n", steps::hint(&name, status)));
        text.push_str(&applied(&status.applied_resources));
        let newer = self.newer_definitions.iter().map(|newer| format!("  {newer}"));
        text.push_str(&output::section(
            "\ndefinitions that have changed since this revision:\n",
            newer,
        ));
        if !self.newer_definitions.is_empty() {
            text.push_str(&sanitize(&format!(
                "they are used from the next revision on; `portolan vela up {} -n {}` publishes one",
                self.name, self.namespace
            )));
            text.push('\n');
        }
        text
    }
}

/// Formats a table after an empty line, or nothing without rows.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", output::table(header, rows))
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
        let name = cell(&service.name) + &suffix(&service.cluster);
        let of_service = vec![
            name.clone(),
            "-".to_owned(),
            word(service.healthy, false).to_owned(),
            service.message.clone(),
        ];
        let traits = service.traits.iter().map(move |status| {
            let health = word(status.healthy, status.pending).to_owned();
            vec![name.clone(), cell(&status.type_), health, status.message.clone()]
        });
        std::iter::once(of_service).chain(traits)
    });
    table(&["COMPONENT", "TRAIT", "HEALTH", "MESSAGE"], rows.collect())
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
            "web apply-component running - - Wait wait healthy",
            "apps/v1 Deployment shop web -",
            "TraitDefinition scaler in namespace x",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {text}");
        }
        assert!(!text.contains("out of date"), "{text}");
    }

    #[test]
    fn components_in_joined_clusters_are_named_with_them_and_one_cluster_can_be_chosen() {
        let status = json!({
            "services": [
                { "name": "web", "cluster": "local", "healthy": true },
                { "name": "web", "cluster": "prod", "healthy": false, "message": "cluster prod can't be reached" },
            ],
            "appliedResources": [
                { "kind": "Deployment", "name": "web" }, { "kind": "Deployment", "name": "web", "cluster": "prod" },
            ],
        });
        let shown = |cluster: Option<&str>| {
            let mut view = view(status.clone());
            cluster.iter().for_each(|cluster| view.keep_cluster(cluster));
            let text = view.text(Timestamp::UNIX_EPOCH);
            let names = [
                "web - healthy",
                "web in cluster prod - unhealthy",
                "Deployment - web -",
                "Deployment - web prod",
            ];
            let lines = text
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            let lines: Vec<String> = lines.collect();
            names.map(|name| lines.iter().any(|line| line.contains(name)))
        };
        assert_eq!(shown(None), [true; 4]);
        assert_eq!(shown(Some("prod")), [false, true, false, true]);
        assert_eq!(shown(Some("local")), [true, false, true, false]);
    }

    #[test]
    fn an_outdated_status_says_so() {
        let text = view(json!({ "observedGeneration": 1 })).text(Timestamp::UNIX_EPOCH);
        assert!(text.contains("status is out of date"), "{text}");
    }
}
