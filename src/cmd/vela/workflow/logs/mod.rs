//! `portolan vela logs`.

mod cursor;
mod pods;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;

use super::context::context_map;
use crate::api::NamespacedName;
use crate::api::oam::{Application, WorkflowStatus};
use crate::cmd::flags::joined::ConnectorFlags;
use crate::cmd::flags::non_empty;
use crate::cmd::flags::parse::positive_duration;
use crate::cmd::vela::joined::Clusters;
use crate::cmd::vela::{ApplicationFlags, DefinitionNamespace, objects};
use crate::cmd::{Error, output};
use crate::controllers::oam::workflow::operations::all_steps;
use crate::controllers::oam::workflow::operations::logs::{LogConfig, LogResource, log_configs};
use crate::text::{printable, truncate};
use cursor::LogCursor;
use pods::{LogContainer, LogRequest, complete_lines, containers, read};

const INTERVAL: Duration = Duration::from_secs(2);
const MAX_LINES: u32 = 100_000;
const MAX_LINE_BYTES: usize = 16 << 10;

/// Show the logs of a workflow step: those of the pods that the step names with util.#Log
///
/// Messages that a step writes to the log of the controller are not shown.
#[derive(Args, Debug)]
pub struct Logs {
    /// Name of the Application
    name: String,
    /// Step or sub-step (default: the only one that has logs)
    #[arg(long, short, value_name = "STEP")]
    step: Option<String>,
    /// Lines to show, from the end of the log of each container
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_LINES)))]
    tail: u32,
    /// Print new lines until the pods have ended
    #[arg(long, short)]
    follow: bool,
    /// Maximum time to follow
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "1h", requires = "follow")]
    timeout: Duration,
    /// Show the pods of this cluster only: a joined one, or local (default: all that the step names)
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    connector: ConnectorFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Logs {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let application = objects::application(&client, &name).await?;
        let map = context_map(&client, &application).await?;
        let configs = log_configs(&map.and_then(|map| map.data).unwrap_or_default());
        let workflow = application.status.as_ref().and_then(|status| status.workflow.as_ref());
        let (step, config) = choose(&name, workflow, configs, self.step.as_deref())?;
        for note in notes(&application, &step, &config) {
            output::print(&output::section("", [note]))?;
        }
        let resources = config.source.unwrap_or_default().resources;
        if resources.is_empty() {
            return Ok(());
        }
        let shared = &self.definitions.system_definition_namespace;
        let clusters = Clusters::new(client, shared, &self.connector, &self.place.cluster);
        if self.follow {
            return self.follow(&clusters, &name, &resources).await;
        }
        let found = containers(&clusters, &name, &resources, self.cluster()).await?;
        let printer = Printer::new(&found.containers);
        output::print(&output::section("", found.notes))?;
        let mut errors = Vec::new();
        for container in &found.containers {
            match read(&clusters, container, &LogRequest::tail(self.tail)).await {
                Ok(text) => printer.print(container, text.lines())?,
                Err(error) => errors.push(format!("{}: {error}", container.title())),
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::Failed(errors.join("; ")))
    }

    fn cluster(&self) -> Option<&str> {
        non_empty(self.cluster.as_deref())
    }

    /// Prints new lines until all pods have ended, or the time is over.
    async fn follow(&self, clusters: &Clusters, name: &NamespacedName, resources: &[LogResource]) -> Result<(), Error> {
        let started = Instant::now();
        let mut cursors: BTreeMap<LogContainer, LogCursor> = BTreeMap::new();
        let mut problems: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let found = containers(clusters, name, resources, self.cluster()).await;
            let (found, problem) = match found {
                Ok(found) => (found, String::new()),
                // The pods may not be there yet, and the API server may be unavailable for a moment.
                Err(error) => (pods::FoundPods::default(), error.into_message()),
            };
            report(&mut problems, name.to_string(), problem)?;
            report(&mut problems, "note".to_owned(), found.notes.join("; "))?;
            let printer = Printer::new(&found.containers);
            for container in &found.containers {
                let cursor = cursors.entry(container.clone()).or_default();
                let request = LogRequest::after(self.tail, cursor.last());
                match read(clusters, container, &request).await {
                    Ok(text) => printer.print(container, cursor.new_lines(complete_lines(&text)).into_iter())?,
                    Err(error) => report(&mut problems, container.title(), error)?,
                }
            }
            if !found.containers.is_empty() && found.have_ended {
                return Ok(());
            }
            if started.elapsed() > self.timeout {
                return Ok(());
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Prints a problem, unless it is the one that was printed last.
fn report(problems: &mut BTreeMap<String, String>, subject: String, problem: String) -> Result<(), Error> {
    if problems.get(&subject).is_some_and(|last| *last == problem) {
        return Ok(());
    }
    if !problem.is_empty() {
        output::print(&output::section("", [format!("{subject}: {problem}")]))?;
    }
    problems.insert(subject, problem);
    Ok(())
}

/// Prints lines, with the container if there are several.
struct Printer {
    has_titles: bool,
}

impl Printer {
    fn new(containers: &[LogContainer]) -> Self {
        Self {
            has_titles: containers.len() > 1,
        }
    }

    fn print<'a>(&self, container: &LogContainer, lines: impl Iterator<Item = &'a str>) -> Result<(), Error> {
        let title = if self.has_titles {
            format!("{}: ", container.title())
        } else {
            String::new()
        };
        let line = |line| format!("{}\n", truncate(&printable(&format!("{title}{line}")), MAX_LINE_BYTES));
        output::print(&lines.map(line).collect::<String>())
    }
}

/// Returns the step and where its logs are.
fn choose(
    name: &NamespacedName,
    workflow: Option<&WorkflowStatus>,
    mut configs: BTreeMap<String, LogConfig>,
    step: Option<&str>,
) -> Result<(String, LogConfig), Error> {
    let Some(workflow) = workflow else {
        return Err(Error::Failed(format!("{name}: the workflow has not started")));
    };
    let steps_with_logs = Vec::from_iter(configs.keys().cloned()).join(", ");
    let Some(step) = step else {
        if configs.len() > 1 {
            return Err(Error::Usage(format!("choose a step with --step: {steps_with_logs}")));
        }
        let none = || Error::Failed(format!("{name}: no step has logs; steps name them with util.#Log"));
        return configs.pop_first().ok_or_else(none);
    };
    match configs.remove(step) {
        Some(config) => Ok((step.to_owned(), config)),
        None if !all_steps(workflow).any(|candidate| candidate.name == step) => {
            Err(Error::Failed(format!("{name}: the workflow has run no step {step}")))
        }
        None if steps_with_logs.is_empty() => Err(Error::Failed(format!(
            "{name}: step {step} has no logs; steps name them with util.#Log"
        ))),
        None => Err(Error::Failed(format!(
            "{name}: step {step} has no logs; these steps have: {steps_with_logs}"
        ))),
    }
}

/// Returns sentences about logs that are elsewhere.
fn notes(application: &Application, step: &str, config: &LogConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if config.data {
        let workflow = application.status.as_ref().and_then(|status| status.workflow.as_ref());
        let mut steps = workflow.into_iter().flat_map(all_steps);
        let id = steps
            .find(|candidate| candidate.name == step)
            .map_or("", |step| step.id.as_str());
        notes.push(format!(
            "step {step} has messages in the log of the controller, which is not shown; look there for stepSessionID {id}"
        ));
    }
    let source = config.source.as_ref();
    if let Some(source) = source.filter(|source| !source.url.is_empty()) {
        notes.push(format!("logs of step {step}: {}", source.url));
    }
    notes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configs(steps: &[&str]) -> BTreeMap<String, LogConfig> {
        let configs = steps.iter().map(|step| ((*step).to_owned(), LogConfig::default()));
        configs.collect()
    }

    fn workflow() -> WorkflowStatus {
        let steps = json!([{ "name": "group", "subSteps": [{ "name": "build" }] }, { "name": "test" }]);
        serde_json::from_value(json!({ "steps": steps })).unwrap()
    }

    fn chosen(steps: &[&str], step: Option<&str>) -> Result<String, Error> {
        let name = NamespacedName::new("shop", "web");
        choose(&name, Some(&workflow()), configs(steps), step).map(|(step, _)| step)
    }

    #[test]
    fn the_only_step_with_logs_is_the_default() {
        assert_eq!(chosen(&["build"], None).unwrap(), "build");
        assert_eq!(chosen(&["build", "test"], Some("test")).unwrap(), "test");
        assert!(matches!(chosen(&["build", "test"], None), Err(Error::Usage(text)) if text.ends_with("build, test")));
    }

    #[test]
    fn a_step_without_logs_is_told_from_one_that_has_not_run() {
        let message = |result: Result<String, Error>| match result {
            Err(Error::Failed(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(message(chosen(&[], None)).contains("no step has logs"));
        assert!(message(chosen(&[], Some("test"))).contains("step test has no logs; steps name them"));
        assert!(message(chosen(&["build"], Some("test"))).contains("these steps have: build"));
        assert!(message(chosen(&["build"], Some("other"))).contains("has run no step other"));
    }

    #[test]
    fn logs_of_the_controller_are_named_with_the_session_of_the_step() {
        let status = json!({ "workflow": { "steps": [{ "name": "test", "id": "abc" }] } });
        let application = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": { "name": "web" },
            "spec": {}, "status": status,
        });
        let application: Application = serde_json::from_value(application).unwrap();
        let config = serde_json::from_value(json!({ "data": true, "source": { "url": "http://logs/a" } })).unwrap();
        let notes = notes(&application, "test", &config);
        assert!(
            notes[0].contains("not shown") && notes[0].ends_with("stepSessionID abc"),
            "{notes:?}"
        );
        assert!(notes[1].ends_with("http://logs/a"), "{notes:?}");
    }
}
