//! `portolan vela diff`.

mod deployed;
mod lines;
mod outcome;
mod print;
mod target;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinSet;

use super::manifests::{self, Manifest};
use super::render::{EvaluatorFlags, Renderer, cluster_version};
use super::{ApplicationFlags, DefinitionNamespace};
use crate::cmd::flags::non_empty;
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::objects::{Autoscalers, Objects};
use crate::cue::Evaluator;
use crate::runtime::kube_client::call;
pub use deployed::{Deployed, Revision, read_latest};
use outcome::Cluster;
pub use print::print;
pub use target::Target;

/// The period of watches, of which there are none here.
const NO_RESYNC: Duration = Duration::from_secs(3600);

/// Show what deploying the Applications of a file would do in the cluster
///
/// Decides about each object as the controller does with its default flags, by policies, owners and recorded manifests. The
/// labels with the revision are compared as if there were no new one. Values of Secrets are not shown. Components that call
/// functions are not rendered; nothing is shown as removed then.
#[derive(Args, Debug)]
pub struct Diff {
    /// File with Applications; `-` for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    evaluator: EvaluatorFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    place: ApplicationFlags,
}

impl Diff {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let documents = manifests::read(&self.file)?;
        let (client, namespace) = self.place.connect().await?;
        let is_application = |document: &Value| manifests::oam_kind(document) == Some("Application");
        let applications = documents.into_iter().filter(is_application);
        let applications: Result<Vec<_>, _> = applications
            .map(|document| Manifest::new(document, &namespace, None))
            .collect();
        let applications = applications?;
        if applications.is_empty() {
            return Err(Error::Failed(format!(
                "{} contains no Application of core.oam.dev",
                self.file.display()
            )));
        }
        let shared = non_empty(Some(&self.definitions.system_definition_namespace)).unwrap_or_default();
        let comparison = Comparison::new(&client, &self.evaluator).await?;
        for manifest in &applications {
            let target = Target::read(&client, manifest, shared).await?;
            comparison.print(&target, true).await?;
        }
        Ok(())
    }
}

/// Compares what is rendered with the objects of a cluster.
pub struct Comparison {
    evaluator: Evaluator,
    version: Value,
    cluster: Cluster,
    /// Discovers kinds. Dropping the set ends the task.
    _discovery: JoinSet<()>,
}

impl Comparison {
    pub async fn new(client: &Client, evaluator: &EvaluatorFlags) -> Result<Self, Error> {
        let cluster = Cluster {
            objects: Objects::new(client.clone(), NO_RESYNC, |_| {}),
            client: client.clone(),
            autoscalers: Autoscalers::default(),
        };
        let mut discovery = JoinSet::new();
        discovery.spawn(cluster.objects.clone().run());
        Ok(Self {
            evaluator: evaluator.evaluator(),
            version: live_version(client).await?,
            cluster,
            _discovery: discovery,
        })
    }

    /// Prints what deploying an Application would do. Returns the number of objects that are not listed because they do
    /// not change.
    pub async fn print(&self, target: &Target, lists_unchanged: bool) -> Result<usize, Error> {
        let revision = target.revision.clone();
        let renderer = Renderer::new(
            &self.evaluator,
            &self.version,
            &target.application,
            revision,
            &target.parsed,
        );
        target.print(&self.cluster, &renderer, lists_unchanged).await
    }
}

async fn live_version(client: &Client) -> Result<Value, Error> {
    let version = call(client.apiserver_version())
        .await
        .map_err(failed_to("read the version of the cluster"))?;
    let digits: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let minor = digits.parse().unwrap_or_default();
    Ok(cluster_version(&version.major, minor, &version.git_version))
}
