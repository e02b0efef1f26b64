//! `portolan vela diff`.

mod clusters;
mod collected;
mod deployed;
mod lines;
mod outcome;
mod print;
mod target;

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::joined::Clusters;
use super::manifests::{self, ManifestObject};
use super::render::EvaluatorFlags;
use super::{ApplicationFlags, DefinitionNamespace};
use crate::cmd::Error;
use crate::cmd::flags::joined::ConnectorFlags;
use crate::cmd::flags::non_empty;
use crate::cue::Evaluator;
use clusters::ComparedClusters;
pub use deployed::{Deployed, DeployedRevision, read_latest};
pub use print::print;
pub use target::DiffTarget;

/// Show what deploying the Applications of a file would do in their clusters
///
/// Decides about each object as the controller does with its default flags, by policies, owners and recorded manifests. The
/// labels with the revision are compared as if there were no new one. Values of Secrets are not shown. Components that call
/// functions, or are for a joined cluster that can't be reached, are not rendered; nothing is shown as removed then.
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
    connector: ConnectorFlags,
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
            .map(|document| ManifestObject::new(document, &namespace, None))
            .collect();
        let applications = applications?;
        if applications.is_empty() {
            return Err(Error::Failed(format!(
                "{} contains no Application of core.oam.dev",
                self.file.display()
            )));
        }
        let shared = non_empty(Some(&self.definitions.system_definition_namespace)).unwrap_or_default();
        let clusters = Clusters::new(client, shared, &self.connector, &self.place.cluster);
        let comparison = ObjectComparison::new(clusters, &self.evaluator);
        for manifest in &applications {
            let target = DiffTarget::read(comparison.clusters(), manifest, shared).await?;
            comparison.print(&target, true).await?;
        }
        Ok(())
    }
}

/// Compares what is rendered with the objects of clusters.
pub struct ObjectComparison {
    evaluator: Evaluator,
    clusters: ComparedClusters,
}

impl ObjectComparison {
    pub fn new(clusters: Clusters, evaluator: &EvaluatorFlags) -> Self {
        Self {
            evaluator: evaluator.evaluator(),
            clusters: ComparedClusters::new(clusters),
        }
    }

    pub fn clusters(&self) -> &Clusters {
        &self.clusters.reached
    }

    /// Prints what deploying an Application would do. Returns the number of objects that are not listed because they do
    /// not change.
    pub async fn print(&self, target: &DiffTarget, lists_unchanged: bool) -> Result<usize, Error> {
        target.print(&self.clusters, &self.evaluator, lists_unchanged).await
    }
}
