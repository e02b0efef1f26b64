use std::time::{Duration, Instant};

use kube::{Api, Client};
use tokio::time::sleep;

use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationStatus, Condition};
use crate::cmd::{Error, output};
use crate::runtime::kube_client::call;
use crate::text::sanitize;

const INTERVAL: Duration = Duration::from_millis(500);
const RUNNING: &str = "running";
/// The reason of Ready while objects of older versions are deleted.
const DELETING: &str = "Deleting";
/// Phases that only a change of the Application ends.
const FAILED: [&str; 2] = ["workflowFailed", "workflowTerminated"];

#[derive(Clone, Debug)]
pub struct Expected {
    pub name: NamespacedName,
    pub generation: i64,
    pub publish_version: Option<String>,
    /// Conditions before the change. A failure among them is not one of the change.
    pub conditions_before: Vec<Condition>,
}

#[derive(Debug, PartialEq)]
enum Progress {
    Done,
    Pending(String),
    Failed(String),
}

/// Waits until the Application runs in the expected version, and prints its phases.
pub async fn until_running(client: &Client, expected: &Expected, timeout: Duration) -> Result<(), Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &expected.name.namespace);
    let name = &expected.name;
    let started = Instant::now();
    let mut last = String::new();
    loop {
        let progress = match call(applications.get(&name.name)).await {
            Ok(application) => expected.progress(&application.status.unwrap_or_default()),
            Err(error) if error.is_not_found() => Progress::Failed("deleted".to_owned()),
            // The API server may be unavailable for a moment.
            Err(error) if error.is_retryable() => Progress::Pending(error.to_string()),
            Err(error) => Progress::Failed(error.to_string()),
        };
        match progress {
            Progress::Done => return output::print(&format!("{name}: {RUNNING}\n")),
            Progress::Failed(message) => return Err(Error::Failed(format!("{name}: {message}"))),
            Progress::Pending(state) if state != last => {
                output::print(&(sanitize(&format!("{name}: {state}")) + "\n"))?;
                last = state;
            }
            Progress::Pending(_) => {}
        }
        if started.elapsed() > timeout {
            return Err(Error::Failed(format!(
                "{name} is not running after {}s: {last}; see `portolan vela status {}`",
                timeout.as_secs(),
                name.name
            )));
        }
        sleep(INTERVAL).await;
    }
}

impl Expected {
    fn progress(&self, status: &ApplicationStatus) -> Progress {
        let is_failed = |condition: &&Condition| condition.status == "False" && condition.reason != DELETING;
        let failed = status.conditions.iter().find(is_failed);
        if status.observed_generation.is_none_or(|seen| seen < self.generation) {
            return Progress::Pending("waiting for the controller".to_owned());
        }
        if let Some(failed) = failed
            && !self.conditions_before.contains(failed)
        {
            return Progress::Failed(format!("condition {} is False: {}", failed.type_, failed.message));
        }
        let workflow = status.workflow.clone().unwrap_or_default();
        let runs_version = self
            .publish_version
            .as_ref()
            .is_none_or(|version| *version == workflow.app_revision);
        if !runs_version {
            return Progress::Pending("waiting for the controller".to_owned());
        }
        match status.phase.as_str() {
            RUNNING => Progress::Done,
            phase if FAILED.contains(&phase) => {
                let step = workflow.steps.iter().find(|step| step.phase == "failed");
                let step = step.map(|step| format!("step {}: {}", step.name, step.message));
                Progress::Failed(format!("{phase}: {}", step.unwrap_or(workflow.message)))
            }
            phase => {
                let waiting = status.services.iter().find(|service| !service.healthy);
                let waiting = waiting.map(|service| format!(": {} is not healthy: {}", service.name, service.message));
                Progress::Pending(format!("{phase}{}", waiting.unwrap_or_default()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn expected() -> Expected {
        Expected {
            name: NamespacedName::new("shop", "web"),
            generation: 2,
            publish_version: None,
            conditions_before: Vec::new(),
        }
    }

    fn status(status: Value) -> ApplicationStatus {
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn the_status_of_an_older_generation_says_nothing() {
        let old = status(json!({ "observedGeneration": 1, "status": "running" }));
        assert!(matches!(expected().progress(&old), Progress::Pending(_)));
        let new = status(json!({ "observedGeneration": 2, "status": "running" }));
        assert_eq!(expected().progress(&new), Progress::Done);
    }

    #[test]
    fn a_published_version_is_done_when_its_workflow_has_run() {
        let expected = Expected {
            publish_version: Some("two".to_owned()),
            ..expected()
        };
        let of = |version| {
            let workflow = json!({ "appRevision": version });
            status(json!({ "observedGeneration": 2, "status": "running", "workflow": workflow }))
        };
        assert!(matches!(expected.progress(&of("one")), Progress::Pending(_)));
        assert_eq!(expected.progress(&of("two")), Progress::Done);
    }

    #[test]
    fn a_new_failed_condition_ends_the_wait_and_an_old_one_does_not() {
        let failed = status(json!({ "observedGeneration": 2, "status": "rendering", "conditions": [
            { "type": "Parsed", "status": "False", "reason": "ReconcileError", "message": "no such type" }
        ] }));
        let message = "condition Parsed is False: no such type".to_owned();
        assert_eq!(expected().progress(&failed), Progress::Failed(message));
        let known = Expected {
            conditions_before: failed.conditions.clone(),
            ..expected()
        };
        assert_eq!(known.progress(&failed), Progress::Pending("rendering".to_owned()));
    }

    #[test]
    fn objects_that_are_still_being_deleted_are_no_failure() {
        let deleting = json!({ "type": "Ready", "status": "False", "reason": "Deleting", "message": "Waiting for x" });
        let status = status(json!({ "observedGeneration": 2, "status": "running", "conditions": [deleting] }));
        assert_eq!(expected().progress(&status), Progress::Done);
    }

    #[test]
    fn a_failed_workflow_names_its_step() {
        let steps = json!([{ "id": "a", "name": "web", "phase": "failed", "message": "no rights" }]);
        let failed = status(json!({
            "observedGeneration": 2, "status": "workflowFailed", "workflow": { "steps": steps }
        }));
        let message = "workflowFailed: step web: no rights".to_owned();
        assert_eq!(expected().progress(&failed), Progress::Failed(message));
    }
}
