use serde::Deserialize;

use super::receiver::{Receiver, ReceiverKind};

/// The events of distribution and Harbor, also in Harbor's format of CloudEvents.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Notification {
    events: Vec<RegistryEvent>,
    r#type: String,
}

#[derive(Deserialize)]
struct RegistryEvent {
    action: String,
}

impl Receiver {
    /// Returns false if a registry reports nothing but pulls. Those of a sync would request the next one.
    pub(super) fn is_change(&self, body: &[u8]) -> bool {
        if self.kind != ReceiverKind::Authorization {
            return true;
        }
        let Notification { events, r#type } = serde_json::from_slice(body).unwrap_or_default();
        let is_pull = matches!(r#type.as_str(), "PULL_ARTIFACT" | "harbor.artifact.pulled")
            || (!events.is_empty() && events.iter().all(|event| event.action == "pull"));
        !is_pull
    }
}
