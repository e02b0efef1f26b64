//! `portolan vela suspend`, `resume`, `terminate` and `restart`.

use clap::Args;
use kube::{Api, Client};

use super::context::forget_values;
use crate::api::oam::{Application, ApplicationRevision, ApplicationSpec, Workflow, WorkflowStep};
use crate::api::{NamespacedName, is_object_name};
use crate::cmd::vela::change::{change_status, refused};
use crate::cmd::vela::{ApplicationFlags, objects};
use crate::cmd::{Error, failed_to, output};
use crate::controllers::oam::parse::{component_step, workflow_steps};
use crate::controllers::oam::revisions::expand;
use crate::controllers::oam::workflow::operations::{self, OperationEffect};
use crate::runtime::kube_client::call;

/// Suspend the workflow of an Application
///
/// Objects that are deployed stay. `portolan vela resume` continues the workflow.
#[derive(Args, Debug)]
pub struct Suspend {
    /// Name of the Application
    name: String,
    /// Suspend this running step or sub-step, and with it the workflow (default: all running steps)
    #[arg(long, short, value_name = "STEP")]
    step: Option<String>,
    #[command(flatten)]
    place: ApplicationFlags,
}

/// Resume the suspended workflow of an Application
#[derive(Args, Debug)]
pub struct Resume {
    /// Name of the Application
    name: String,
    /// Resume only this suspended step or sub-step (default: all)
    #[arg(long, short, value_name = "STEP")]
    step: Option<String>,
    #[command(flatten)]
    place: ApplicationFlags,
}

/// Terminate the workflow of an Application; steps that have not ended fail
///
/// Objects that are deployed stay. `portolan vela restart` runs the workflow again.
#[derive(Args, Debug)]
pub struct Terminate {
    /// Name of the Application
    name: String,
    #[command(flatten)]
    place: ApplicationFlags,
}

/// Run the workflow of an Application again, from the beginning or from a failed step
#[derive(Args, Debug)]
pub struct Restart {
    /// Name of the Application
    name: String,
    /// Run only this failed step or sub-step and those after it again; in the mode DAG, those that depend on it
    #[arg(long, short, value_name = "STEP")]
    step: Option<String>,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Suspend {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let step = self.step.as_deref();
        let effect = change_status(&client, &name, |status| operations::suspend(status, step)).await?;
        print(&name, effect, "suspended", "already suspended")
    }
}

impl Resume {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let step = self.step.as_deref();
        let effect = change_status(&client, &name, |status| operations::resume(status, step)).await?;
        print(&name, effect, "resumed", "not suspended")
    }
}

impl Terminate {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let effect = change_status(&client, &name, operations::terminate).await?;
        print(&name, effect, "terminated", "already terminated")
    }
}

impl Restart {
    pub(in crate::cmd::vela) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        let Some(step) = &self.step else {
            let effect = change_status(&client, &name, operations::restart).await?;
            return print(&name, effect, "restarted", "restarted");
        };
        let application = objects::application(&client, &name).await?;
        let steps = steps(&client, &name, &application).await?;
        let mut status = application.status.clone().unwrap_or_default();
        let removed = operations::restart_from(&mut status, &steps, step).map_err(|error| refused(&name, &error))?;
        // Before the status, which makes the controller run the steps: their values must not be there any more.
        forget_values(&client, &application, &removed).await?;
        let restart = |status: &mut _| operations::restart_from(status, &steps, step);
        let removed = change_status(&client, &name, restart).await?;
        let names = Vec::from_iter(removed.names).join(", ");
        output::print(&output::section(
            "",
            [format!("{name}: these steps run again: {names}")],
        ))
    }
}

fn print(name: &NamespacedName, effect: OperationEffect, changed: &str, unchanged: &str) -> Result<(), Error> {
    let state = match effect {
        OperationEffect::Changed => changed,
        OperationEffect::Unchanged => unchanged,
    };
    output::print(&format!("{name}: workflow {state}\n"))
}

/// Returns the steps of the current run: those that the latest revision records.
async fn steps(client: &Client, name: &NamespacedName, application: &Application) -> Result<Vec<WorkflowStep>, Error> {
    let (spec, external) = match recorded(client, name, application).await? {
        Some(recorded) => recorded,
        None => {
            let external = referenced(client, name, &application.spec).await?;
            (application.spec.clone(), external)
        }
    };
    let steps = workflow_steps(&spec, external.as_ref());
    // A component that is missing has no inputs and outputs.
    let complete = |step: WorkflowStep| component_step(&step, &spec.components).unwrap_or(step);
    Ok(steps.into_iter().map(complete).collect())
}

async fn recorded(
    client: &Client,
    name: &NamespacedName,
    application: &Application,
) -> Result<Option<(ApplicationSpec, Option<Workflow>)>, Error> {
    let latest = application
        .status
        .as_ref()
        .and_then(|status| status.latest_revision.as_ref());
    let Some(latest) = latest.filter(|latest| is_object_name(&latest.name)) else {
        return Ok(None);
    };
    let failed = format!("read revision {}", latest.name);
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    let revision = call(revisions.get_opt(&latest.name))
        .await
        .map_err(failed_to(&failed))?;
    let Some(revision) = revision else {
        return Ok(None);
    };
    let contents = expand(&revision.spec).map_err(failed_to(&failed))?;
    let contents = contents.into_owned();
    Ok(Some((contents.application.spec, contents.workflow)))
}

async fn referenced(client: &Client, name: &NamespacedName, spec: &ApplicationSpec) -> Result<Option<Workflow>, Error> {
    let reference = spec.workflow.as_ref().map(|workflow| workflow.reference.as_str());
    let Some(reference) = reference.filter(|reference| is_object_name(reference)) else {
        return Ok(None);
    };
    let workflows: Api<Workflow> = Api::namespaced(client.clone(), &name.namespace);
    call(workflows.get_opt(reference))
        .await
        .map_err(failed_to(format!("read Workflow {reference}")))
}
