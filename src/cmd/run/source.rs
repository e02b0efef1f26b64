//! Where the declarations come from: a cluster or a folder.

use std::path::PathBuf;

use kube::Client;

use super::Run;
use crate::cmd::{Failure, cluster};
use crate::runtime::kube_client::metrics::RequestMetrics;

/// Where declarations come from.
pub(super) enum Source {
    /// The API server of a cluster.
    Cluster(Client),
    /// A folder of manifests.
    Folder(PathBuf),
}

impl Source {
    /// The one that the flags name; the requests to a cluster are counted.
    pub(super) async fn of(run: &Run, requests: &RequestMetrics) -> Result<Self, Failure> {
        match &run.manifests {
            Some(folder) => Ok(Self::Folder(folder.clone())),
            None => Ok(Self::Cluster(cluster::client(&run.cluster, requests).await?)),
        }
    }
}
