use std::time::{Duration, Instant};

use clap::Args;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tokio::time::sleep;

use super::forget_cluster::forget_cluster;
use super::{ApplicationFlags, objects};
use crate::api::NamespacedName;
use crate::api::oam::Application;
use crate::cmd::flags::parse::positive_duration;
use crate::cmd::{Error, output};
use crate::runtime::kube_client::call;
use crate::text::sanitize;

const INTERVAL: Duration = Duration::from_millis(500);

/// Delete an Application with its objects, or forget its objects in a cluster that is gone
#[derive(Args, Debug)]
pub struct VelaDelete {
    /// Name of the Application
    name: String,
    /// Wait until the Application is gone
    #[arg(long, conflicts_with = "forget_cluster")]
    wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "10m")]
    timeout: Duration,
    /// Do not delete the Application, but drop the records of its objects in this cluster; the objects stay
    #[arg(long, value_name = "CLUSTER")]
    forget_cluster: Option<String>,
    /// Drop the records; without it they are only shown
    #[arg(long, requires = "forget_cluster")]
    yes: bool,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl VelaDelete {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let (client, name) = self.place.connect_to(&self.name).await?;
        if let Some(cluster) = &self.forget_cluster {
            return forget_cluster(&client, &name, cluster, self.yes).await;
        }
        let application = objects::application(&client, &name).await?;
        let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
        let uid = application.uid();
        let parameters = DeleteParams {
            // Never a namesake made since.
            preconditions: Some(Preconditions {
                uid: uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match call(applications.delete(&name.name, &parameters)).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(objects::application_error(&name, "delete", error)),
        }
        if !self.wait {
            return output::print(&format!("{name}: deletion requested\n"));
        }
        until_gone(&client, &name, uid.as_deref(), self.timeout).await
    }
}

async fn until_gone(client: &Client, name: &NamespacedName, uid: Option<&str>, timeout: Duration) -> Result<(), Error> {
    let applications: Api<Application> = Api::namespaced(client.clone(), &name.namespace);
    let started = Instant::now();
    let mut last = String::new();
    loop {
        let state = match call(applications.get_opt(&name.name)).await {
            Ok(Some(application)) if application.uid().as_deref() == uid => state(&application),
            Ok(_) => return output::print(&format!("{name}: deleted\n")),
            Err(error) if error.is_retryable() => error.to_string(),
            Err(error) => return Err(objects::application_error(name, "read", error)),
        };
        if state != last {
            output::print(&(sanitize(&format!("{name}: {state}")) + "\n"))?;
            last = state;
        }
        if started.elapsed() > timeout {
            return Err(Error::Failed(format!(
                "{name} is not gone after {}s: {last}; check that the controller is running",
                timeout.as_secs()
            )));
        }
        sleep(INTERVAL).await;
    }
}

/// Returns the cause for which a deletion waits.
fn state(application: &Application) -> String {
    let conditions = application.status.as_ref().map(|status| status.conditions.as_slice());
    let failed = conditions
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.status == "False");
    match failed {
        Some(condition) => condition.message.clone(),
        None => "waiting for the controller".to_owned(),
    }
}
