use jiff::Timestamp;
use kube::{api::ObjectMeta, core::DeserializeGuard};
use serde::Serialize;

use crate::api::{Application, ApplicationCondition, ApplicationStatus, ComponentStatus, Guarded};
use crate::text::truncate;

const MAX_COMPONENTS: usize = 5;
/// The maximum length of `KIND/NAME` in Kubernetes, in bytes.
pub const MAX_NAME: usize = 63 + 1 + 253;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationView {
    pub namespace: String,
    pub name: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub version: String,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    /// True if the status describes the current spec.
    pub up_to_date: bool,
    /// Null if unknown or not up to date.
    pub ready: Option<bool>,
    /// Reason and message of the condition Ready.
    pub reason: String,
    pub message: String,
    /// Message of the condition Error.
    pub error: Option<String>,
    pub ready_components: Option<u64>,
    pub total_components: Option<u64>,
    pub conditions: Vec<ApplicationCondition>,
    pub components: Vec<ComponentStatus>,
}

impl ApplicationView {
    pub fn new(Guarded(DeserializeGuard(application)): Guarded<Application>) -> Self {
        match application {
            Ok(application) => {
                let descriptor = application.spec.descriptor.unwrap_or_default();
                Self {
                    type_: descriptor.type_.unwrap_or_default(),
                    version: descriptor.version.unwrap_or_default(),
                    ..Self::with_status(application.metadata, application.status.unwrap_or_default())
                }
            }
            Err(invalid) => Self {
                error: Some(format!("failed to decode the object: {}", invalid.error)),
                ..Self::with_status(invalid.metadata, ApplicationStatus::default())
            },
        }
    }

    fn with_status(meta: ObjectMeta, status: ApplicationStatus) -> Self {
        let condition = |type_: &str| {
            let mut conditions = status.conditions.iter();
            conditions.find(|condition| condition.type_ == type_)
        };
        let (ready, error) = (condition("Ready"), condition("Error"));
        let error = error.filter(|error| error.status == "True");
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let up_to_date = status.observed_generation.is_some() && status.observed_generation == meta.generation;
        let counts = status.components_ready.as_deref().and_then(parse_counts);
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            up_to_date,
            ready: ready.filter(|_| up_to_date).and_then(|ready| match &*ready.status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            }),
            reason: text(ready.and_then(|ready| ready.reason.as_ref())),
            message: text(ready.and_then(|ready| ready.message.as_ref())),
            error: error.map(|error| text(error.message.as_ref())),
            ready_components: counts.map(|(ready, _)| ready),
            total_components: counts.map(|(_, total)| total),
            conditions: status.conditions,
            components: status.components,
            ..Self::default()
        }
    }

    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub fn counts(&self) -> Option<(u64, u64)> {
        self.ready_components.zip(self.total_components)
    }

    pub fn status(&self) -> String {
        let ready = match self.ready {
            Some(true) => "Ready",
            Some(false) => "NotReady",
            None => "Unknown",
        };
        let error = if self.error.is_some() { ",Error" } else { "" };
        let deleting = if self.deleting { ",Deleting" } else { "" };
        format!("{ready}{error}{deleting}")
    }

    /// Names the first components that are not ready, and counts the others, including those omitted from the status.
    pub fn not_ready(&self) -> String {
        let is_not_ready = |component: &&ComponentStatus| component.status.as_deref() != Some("Ready");
        let listed: Vec<_> = self.components.iter().filter(is_not_ready).collect();
        let counted = self.counts().map_or(0, |(ready, total)| total.saturating_sub(ready));
        let count = listed.len().max(usize::try_from(counted).unwrap_or(usize::MAX));
        let names: Vec<_> = listed
            .iter()
            .take(MAX_COMPONENTS)
            .map(|component| component_name(component))
            .collect();
        match (count - names.len(), names.is_empty()) {
            (0, true) => "-".to_owned(),
            (0, false) => names.join(", "),
            (more, true) => format!("{more} components"),
            (more, false) => format!("{} and {more} more", names.join(", ")),
        }
    }

    pub fn is_outdated(&self) -> bool {
        !self.up_to_date && !self.deleting
    }
}

fn parse_counts(text: &str) -> Option<(u64, u64)> {
    let (ready, total) = text.split_once('/')?;
    Some((ready.parse().ok()?, total.parse().ok()?))
}

fn component_name(component: &ComponentStatus) -> String {
    let (kind, name) = (component.kind.as_deref(), component.name.as_deref());
    let name = format!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
    truncate(&name, MAX_NAME)
}
