mod identity;

use clap::Args;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};

use crate::api::oam::GROUP;
use crate::budget::ResourceMetrics;
use crate::cmd::flags::cluster::ClusterFlags;
use crate::cmd::flags::non_empty;
use crate::cmd::{Error, output};
use crate::controllers::oam::start::prerequisites::missing_crds;
use crate::controllers::oam::start::webhooks::find_unserved;
use crate::cue::{self, Evaluator};
use crate::runtime::kube_client::{ApiError, call};
use crate::text::sanitize;

/// Rights without which the controller oam cannot work: verb, group, resource.
const RIGHTS: [(&str, &str, &str); 11] = [
    ("watch", GROUP, "applications"),
    ("patch", GROUP, "applications"),
    ("patch", GROUP, "applications/status"),
    ("create", GROUP, "applicationrevisions"),
    ("delete", GROUP, "applicationrevisions"),
    ("create", GROUP, "resourcetrackers"),
    ("delete", GROUP, "resourcetrackers"),
    ("watch", GROUP, "componentdefinitions"),
    ("create", GROUP, "definitionrevisions"),
    ("create", "apps", "deployments"),
    ("create", "events.k8s.io", "events"),
];

/// Check a cluster and this installation for problems of the controller oam
///
/// Prints one line for each check, and exits with 1 if there is a problem. Rights are those of the current user: run it in
/// the pod of Portolan to check its service account.
#[derive(Args, Debug)]
pub struct Doctor {
    #[command(flatten)]
    pub cluster: ClusterFlags,
    /// Path to the CUE evaluator (default: portolan-cue beside the executable or in PATH)
    #[arg(long, value_name = "FILE")]
    pub cue_evaluator: Option<String>,
}

/// The result of a check.
type Checked = Result<Finding, String>;

/// A check that found no problem.
enum Finding {
    Fine(String),
    /// Open to tenants, by choice or because the controller works as KubeVela's.
    Warning(String),
}

fn fine(text: impl Into<String>) -> Checked {
    Ok(Finding::Fine(text.into()))
}

impl Doctor {
    pub(in crate::cmd) async fn execute(self) -> Result<(), Error> {
        let evaluator = check_evaluator(self.cue_evaluator.as_deref()).await;
        let mut problems = print(&[evaluator])?;
        let client = self.cluster.client().await?;
        let version = check_api_server(&client).await;
        let is_reachable = version.is_ok();
        problems += print(&[version])?;
        if is_reachable {
            problems += print(&[check_crds(&client).await])?;
            problems += print(&check_webhooks(&client).await)?;
            problems += print(&check_rights(&client).await)?;
            problems += print(&identity::check(&client).await)?;
        }
        match problems {
            0 => Ok(()),
            1 => Err(Error::Failed("1 problem found".to_owned())),
            count => Err(Error::Failed(format!("{count} problems found"))),
        }
    }
}

/// Prints a line for each check. Returns the number of problems.
fn print(checks: &[Checked]) -> Result<usize, Error> {
    for check in checks {
        let line = match check {
            Ok(Finding::Fine(text)) => format!("ok       {}", sanitize(text)),
            Ok(Finding::Warning(text)) => format!("warning  {}", sanitize(text)),
            Err(text) => format!("problem  {}", sanitize(text)),
        };
        output::print(&(line + "\n"))?;
    }
    Ok(checks.iter().filter(|check| check.is_err()).count())
}

async fn check_evaluator(program: Option<&str>) -> Checked {
    let options = cue::Options {
        program: non_empty(program).map(Into::into),
        ..cue::Options::default()
    };
    let evaluator = Evaluator::new(options, ResourceMetrics::unregistered());
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

async fn check_crds(client: &Client) -> Checked {
    match missing_crds(client).await {
        Ok(missing) if missing.is_empty() => fine(format!("custom resource definitions of {GROUP} are installed")),
        Ok(missing) => Err(format!(
            "custom resource definitions are missing: {}; `portolan install-crds` installs them",
            missing.join(", ")
        )),
        Err(error) => Err(format!("failed to look for custom resource definitions: {error}")),
    }
}

async fn check_webhooks(client: &Client) -> Vec<Checked> {
    match find_unserved(client).await {
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

async fn check_rights(client: &Client) -> Vec<Checked> {
    let mut problems = Vec::new();
    for (verb, group, resource) in RIGHTS {
        let name = format!("{resource}.{group}");
        match may(client, verb, group, resource).await {
            Ok(true) => {}
            Ok(false) => problems.push(Err(format!("no right to {verb} {name} in all namespaces"))),
            Err(error) => problems.push(Err(format!("failed to check the right to {verb} {name}: {error}"))),
        }
    }
    if problems.is_empty() {
        problems.push(fine("rights are sufficient"));
    }
    problems
}

async fn may(client: &Client, verb: &str, group: &str, resource: &str) -> Result<bool, ApiError> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviewed = call(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}
