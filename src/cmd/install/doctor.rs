mod clusters;
mod definitions;
mod identity;
mod requirements;

use clap::{Args, ValueEnum};
use kube::Client;

use crate::api::oam::GROUP;
use crate::budget::ResourceMetrics;
use crate::cmd::Error;
use crate::cmd::flags::cluster::ClusterFlags;
use crate::cmd::flags::database::DatabaseFlags;
use crate::cmd::flags::joined::ConnectorFlags;
use crate::cmd::flags::non_empty;
use crate::cmd::output::checks::{Checked, fine, print};
use crate::cmd::run::ControllerName;
use crate::cmd::vela::DefinitionNamespace;
use crate::controllers::oam::start::webhooks::find_unserved;
use crate::cue::{self, Evaluator};
use crate::runtime::kube_client::call;
use requirements::Requirements;

/// Check a cluster, its definitions, the database and this installation for problems of the controllers
///
/// Prints one line for each check, and exits with 1 if there is a problem. Rights are those of the current user: run it in
/// the pod of Portolan, which has the flags in its environment, to check its service account. The database is checked if one of
/// its flags is set.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Controllers to check (default: all; those of AppRepositories and of app.k8s.io need not be installed then)
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub controllers: Vec<ControllerName>,
    /// Namespace that Portolan watches (default: all namespaces)
    #[arg(long, value_name = "NAMESPACE")]
    pub watch_namespace: Option<String>,
    /// Path to the CUE evaluator (default: portolan-cue beside the executable or in PATH)
    #[arg(long, value_name = "FILE")]
    pub cue_evaluator: Option<String>,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    connector: ConnectorFlags,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub database: Option<DatabaseFlags>,
}

impl Doctor {
    pub(in crate::cmd) async fn execute(self) -> Result<(), Error> {
        let has_oam = self.controllers().contains(&ControllerName::Oam);
        let mut problems = 0;
        let evaluator = self.evaluator();
        let mut has_evaluator = false;
        if has_oam {
            let checked = check_evaluator(&evaluator).await;
            has_evaluator = checked.is_ok();
            problems += print(&[checked])?;
        }
        if let Some(database) = &self.database {
            problems += print(&[check_database(database).await])?;
        }
        let client = self.cluster.client().await?;
        let version = check_api_server(&client).await;
        let is_reachable = version.is_ok();
        problems += print(&[version])?;
        if is_reachable {
            let namespace = non_empty(self.watch_namespace.as_deref());
            for controller in self.controllers() {
                let is_enabled = !self.controllers.is_empty();
                let requirements = Requirements::new(*controller, is_enabled, namespace);
                problems += print(&requirements.check(&client).await)?;
            }
        }
        if is_reachable && has_oam {
            problems += print(&check_webhooks(&client).await)?;
            problems += print(&identity::check(&client).await)?;
            problems += print(&self.check_clusters(&client).await)?;
        }
        if is_reachable && has_evaluator {
            problems += print(&definitions::check(&client, &evaluator).await)?;
        }
        match problems {
            0 => Ok(()),
            1 => Err(Error::Failed("1 problem found".to_owned())),
            count => Err(Error::Failed(format!("{count} problems found"))),
        }
    }

    async fn check_clusters(&self, client: &Client) -> Vec<Checked> {
        let namespace = &self.definitions.system_definition_namespace;
        match self.connector.connector(&self.cluster).await {
            Ok(connector) => clusters::check(client, namespace, &connector).await,
            Err(error) => vec![Err(error.into_message())],
        }
    }

    fn evaluator(&self) -> Evaluator {
        let options = cue::EvaluatorOptions {
            program: non_empty(self.cue_evaluator.as_deref()).map(Into::into),
            ..cue::EvaluatorOptions::default()
        };
        Evaluator::new(options, ResourceMetrics::unregistered())
    }

    fn controllers(&self) -> &[ControllerName] {
        if self.controllers.is_empty() {
            return ControllerName::value_variants();
        }
        &self.controllers
    }
}

async fn check_evaluator(evaluator: &Evaluator) -> Checked {
    match evaluator.check().await {
        Ok(()) => fine("CUE evaluator answers"),
        Err(error) => Err(error.to_string()),
    }
}

async fn check_api_server(client: &Client) -> Checked {
    match call(client.apiserver_version()).await {
        Ok(version) => fine(format!("API server answers, version {}", version.git_version)),
        Err(error) => Err(format!("failed to reach the API server: {error}")),
    }
}

async fn check_database(flags: &DatabaseFlags) -> Checked {
    let versions = flags
        .read(async |catalog| Ok(catalog.schema_versions().await?))
        .await
        .map_err(Error::into_message)?;
    match (versions.recorded, versions.supported) {
        (0, _) => fine("database answers, without tables: `portolan run` creates them"),
        (recorded, supported) if recorded < supported => fine(format!(
            "database answers, schema version {recorded}: `portolan run` upgrades it to {supported}"
        )),
        (recorded, _) => fine(format!("database answers, schema version {recorded}")),
    }
}

async fn check_webhooks(client: &Client) -> Vec<Checked> {
    match find_unserved(client, None).await {
        Ok(unserved) if unserved.is_empty() => vec![fine(format!("no webhook of {GROUP} without endpoints"))],
        Ok(unserved) => {
            let problems = unserved.iter().map(|webhook| {
                let message = webhook.message();
                Err(format!("webhook {}: {message}", webhook.name()))
            });
            problems.collect()
        }
        Err(error) => vec![Err(format!("failed to check the webhooks of {GROUP}: {error}"))],
    }
}
