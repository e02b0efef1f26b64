//! Clusters behind cluster-gateway, and ManagedClusters.

use super::site::{Mode, Site, get_pod, secret, typed};
use super::*;
use crate::controllers::oam::clusters::credential::{CLUSTER_PROXY, ENDPOINT_TYPE};

#[tokio::test(start_paused = true)]
async fn a_cluster_of_type_cluster_proxy_is_reached_through_the_own_api_server() {
    let mut site = Site::listed();
    site.set(Mode::WithoutImpersonation);
    let mut secret = typed("prod", "Dynamic");
    let labels = secret.metadata.labels.get_or_insert_default();
    labels.insert(ENDPOINT_TYPE.to_owned(), CLUSTER_PROXY.to_owned());
    site.store(secret);
    let connection = site.up("prod").await;
    get_pod(&connection).await.unwrap();
    // The own API server takes the identity.
    assert_eq!(connection.can_impersonate, IdentityKinds::ALL);
    site.set(Mode::Refusing);
    get_pod(&connection).await.unwrap_err();
    assert!(matches!(site.error("prod"), ClusterError::Unreachable { .. }));
    site.set(Mode::Up);
    site.up("prod").await;
}

#[tokio::test(start_paused = true)]
async fn a_managed_cluster_is_a_cluster_unless_a_secret_has_its_name() {
    let mut site = Site::listed();
    site.manage("prod", MetadataEvent::Applied);
    assert_eq!(site.changes(), ["prod"]);
    let region = |site: &Site| site.clusters.list().unwrap()[0].labels["region"].clone();
    assert_eq!(region(&site), "us");
    let managed = site.up("prod").await;
    get_pod(&managed).await.unwrap();
    site.changes();

    site.store(secret("prod", "hunter2", "1"));
    assert_eq!(
        (region(&site), site.changes()),
        ("eu".to_owned(), vec!["prod".to_owned()])
    );
    assert_ne!(site.up("prod").await.number, managed.number);
    site.changes();
    site.manage("prod", MetadataEvent::Applied);
    assert!(region(&site) == "eu" && site.changes().is_empty());

    site.remove("prod");
    assert_eq!(
        (region(&site), site.changes()),
        ("us".to_owned(), vec!["prod".to_owned()])
    );
    site.up("prod").await;
    site.manage("prod", MetadataEvent::Deleted);
    assert!(site.clusters.list().unwrap().is_empty());
    let missing = ClusterError::NotJoined {
        cluster: "prod".to_owned(),
    };
    assert_eq!(site.error("prod"), missing);
}

#[tokio::test(start_paused = true)]
async fn clusters_are_not_known_before_managed_clusters_are() {
    let mut site = Site::new();
    let managed = ClusterSource::ManagedCluster;
    site.clusters.0.apply(ClusterSource::Secret, MetadataEvent::Listed);
    site.store(secret("prod", "hunter2", "1"));
    assert_eq!(
        site.clusters.list().unwrap_err(),
        "the ManagedClusters are not listed yet"
    );
    site.up("prod").await;
    let failed = MetadataEvent::Failed("forbidden".to_owned());
    site.clusters.0.apply(managed, failed);
    let problem = "failed to look for ManagedClusters: forbidden";
    assert_eq!(site.clusters.list().unwrap_err(), problem);
    assert_eq!(site.error("test"), ClusterError::Unknown(problem.to_owned()));
    site.clusters.0.apply(managed, MetadataEvent::Listed);
    site.manage("test", MetadataEvent::Applied);
    assert_eq!(site.clusters.list().unwrap().len(), 2);
    site.clusters.0.apply(managed, MetadataEvent::NotServed);
    assert_eq!(site.clusters.list().unwrap().len(), 1);
}
