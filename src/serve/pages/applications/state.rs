//! The state of an Application, as its controller has it in the status.

use jiff::Timestamp;

use super::Kind;
use super::objects::{Health, Meta};
use crate::api::oam::Condition;
use crate::serve::pages::shown::Badge;
use crate::text::sanitize;

/// Age in seconds up to which a controller may still be about to see an Application.
const YOUNG: i64 = 600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) badge: Badge,
    /// Empty for one that is well.
    pub(super) cause: String,
    pub(super) is_progressing: bool,
}

/// Class and label of a badge, and whether the Application progresses.
type Shown = (&'static str, &'static str, bool);

impl State {
    pub(super) fn new(kind: Kind, metadata: &Meta, health: &Health, now: Timestamp) -> Self {
        let age = metadata
            .creation_timestamp
            .map(|created| now.as_second() - created.as_second());
        let unseen = ("unknown", "Not reconciled yet", age.is_some_and(|age| age < YOUNG));
        let (class, label, is_progressing) = if metadata.deletion_timestamp.is_some() {
            ("unknown", "Being deleted", true)
        } else {
            match kind {
                Kind::Vela => of_phase(health, unseen),
                Kind::App => of_conditions(health, unseen),
            }
        };
        Self {
            badge: Badge { class, label },
            cause: if class == "ok" { String::new() } else { cause(health) },
            is_progressing,
        }
    }
}

fn of_phase(health: &Health, unseen: Shown) -> Shown {
    match health.phase.as_str() {
        "running" if health.services.iter().all(|service| service.healthy) => ("ok", "Running", false),
        "running" | "unhealthy" => ("bad", "Unhealthy", true),
        "workflowFailed" => ("bad", "Workflow failed", false),
        "workflowTerminated" => ("bad", "Workflow terminated", false),
        "workflowSuspending" => ("unknown", "Workflow suspended", false),
        "runningWorkflow" => ("unknown", "Workflow running", true),
        "starting" | "rendering" | "policyGenerating" | "generatingPolicy" => {
            if health.conditions.iter().any(is_false) {
                ("bad", "Not deployed", true)
            } else {
                ("unknown", "Starting", true)
            }
        }
        "deleting" => ("unknown", "Being deleted", true),
        "" => unseen,
        _ => ("unknown", "Unknown", false),
    }
}

fn of_conditions(health: &Health, unseen: Shown) -> Shown {
    let ready = health.conditions.iter().find(|condition| condition.type_ == "Ready");
    match ready.map(|ready| ready.status.as_str()) {
        Some("True") => ("ok", "Ready", false),
        Some("False") => ("bad", "Not ready", true),
        Some(_) => ("unknown", "Unknown", false),
        None => unseen,
    }
}

fn is_false(condition: &Condition) -> bool {
    condition.status == "False"
}

/// Returns the first message of a component that is not healthy, or else of a condition.
fn cause(health: &Health) -> String {
    let services = health.services.iter();
    let mut services = services.filter(|service| !service.healthy && !service.message.is_empty());
    if let Some(service) = services.next() {
        return sanitize(&format!("{}: {}", service.name, service.message));
    }
    let conditions = health.conditions.iter();
    let mut conditions = conditions.filter(|condition| is_false(condition) && !condition.message.is_empty());
    conditions.next().map_or_else(String::new, |condition| {
        sanitize(&format!("{}: {}", condition.type_, condition.message))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(kind: Kind, status: Value, metadata: Value) -> State {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (health, metadata) = (serde_json::from_value(status), serde_json::from_value(metadata));
        State::new(kind, &metadata.unwrap(), &health.unwrap(), now)
    }

    fn shown(kind: Kind, status: Value) -> (&'static str, &'static str, bool) {
        let state = state(kind, status, json!({ "creationTimestamp": "2020-01-01T00:00:00Z" }));
        (state.badge.class, state.badge.label, state.is_progressing)
    }

    #[test]
    fn a_phase_of_kubevela_becomes_a_state() {
        let web = |healthy: bool| json!([{ "name": "web", "healthy": healthy }]);
        for (status, expected) in [
            (
                json!({ "status": "running", "services": web(true) }),
                ("ok", "Running", false),
            ),
            (
                json!({ "status": "running", "services": web(false) }),
                ("bad", "Unhealthy", true),
            ),
            (
                json!({ "status": "runningWorkflow" }),
                ("unknown", "Workflow running", true),
            ),
            (json!({ "status": "workflowFailed" }), ("bad", "Workflow failed", false)),
            (
                json!({ "status": "workflowSuspending" }),
                ("unknown", "Workflow suspended", false),
            ),
            (json!({ "status": "<b>" }), ("unknown", "Unknown", false)),
            (json!({}), ("unknown", "Not reconciled yet", false)),
            (
                json!({ "status": "rendering", "conditions": [{ "type": "Render", "status": "False" }] }),
                ("bad", "Not deployed", true),
            ),
        ] {
            assert_eq!(shown(Kind::Vela, status), expected);
        }
    }

    #[test]
    fn the_condition_ready_becomes_a_state() {
        let ready = |status: &str| json!({ "conditions": [{ "type": "Ready", "status": status }] });
        assert_eq!(shown(Kind::App, ready("True")), ("ok", "Ready", false));
        assert_eq!(shown(Kind::App, ready("False")), ("bad", "Not ready", true));
        assert_eq!(shown(Kind::App, ready("Unknown")), ("unknown", "Unknown", false));
        assert_eq!(shown(Kind::App, json!({})), ("unknown", "Not reconciled yet", false));
    }

    #[test]
    fn one_that_is_deleted_or_was_just_created_progresses() {
        let young = json!({ "creationTimestamp": "2027-01-15T08:00:00Z" });
        assert!(state(Kind::Vela, json!({}), young).is_progressing);
        let deleted = json!({ "deletionTimestamp": "10000-01-01T00:00:00Z" });
        let deleted = state(Kind::App, json!({}), deleted);
        assert_eq!((deleted.badge.label, deleted.is_progressing), ("Being deleted", true));
    }

    #[test]
    fn the_cause_is_that_of_a_component_or_of_a_condition() {
        let conditions = json!([{ "type": "Render", "status": "False", "message": "no such type" }]);
        let services = json!([
            { "name": "db", "healthy": true, "message": "Ready:1/1" },
            { "name": "web", "healthy": false, "message": "Ready:0/1\u{202e}" },
        ]);
        let cause = |status: Value| state(Kind::Vela, status, json!({})).cause;
        assert_eq!(
            cause(json!({ "status": "unhealthy", "services": services })),
            "web: Ready:0/1"
        );
        assert_eq!(
            cause(json!({ "status": "rendering", "conditions": conditions })),
            "Render: no such type"
        );
        assert_eq!(cause(json!({ "status": "running", "conditions": conditions })), "");
    }
}
