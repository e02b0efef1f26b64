//! Drops the records of objects in a cluster that can't be reached any more.

use kube::Client;

use super::records::{drop_records, publish};
use crate::api::NamespacedName;
use crate::cmd::{Error, output};
use crate::controllers::oam::trackers::LOCAL;

/// Shows the records of a cluster's objects, and drops them if this is confirmed.
pub async fn forget_cluster(
    client: &Client,
    name: &NamespacedName,
    cluster: &str,
    is_confirmed: bool,
) -> Result<(), Error> {
    if cluster.is_empty() || cluster == LOCAL {
        return Err(Error::Usage(
            "invalid value for --forget-cluster: objects of the local cluster are deleted, not forgotten".to_owned(),
        ));
    }
    let forgotten = drop_records(client, name, is_confirmed, |entry| entry.cluster == cluster).await?;
    let count = forgotten.len();
    if count == 0 {
        return output::print(&format!("{name} has no objects in cluster {cluster}\n"));
    }
    if !is_confirmed {
        return output::print(&format!(
            "{count} records of objects would be dropped, and the objects stay; add --yes to drop them\n"
        ));
    }
    let note = format!("records of objects in cluster {cluster} dropped");
    publish(client, name, ("ClusterForgotten", "ForgetCluster"), &note, &forgotten).await?;
    output::print(&format!("{count} records of objects dropped\n"))
}
