//! Two replicas that divide three shards among them.

use std::collections::BTreeSet;

use serde_json::json;

use super::{compare, leave_expired_lease};
use crate::cluster::{SOON, World, index};
use crate::packaging::release::{container_for, install_in, restricted_namespace};
use crate::support::control_plane::control_plane;
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::postgres::database;
use crate::support::shard_leases::ShardLeases;

const REPOSITORIES: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_need_exactly_the_granted_rights() {
    let (world, namespace) = (World::new().await, restricted_namespace().await);
    let settings = format!(
        "--set=watchNamespace={},replicas=2,shards=3,database.existingSecret=postgres",
        world.namespace
    );
    install_in(&namespace, &[&settings]).await;
    leave_expired_lease(&namespace).await;
    // The Lease of the third shard is left to be created.
    let leases = ShardLeases::new(&world.client, &namespace, "portolan", 2);
    leases.hold().await;
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let database = database().await;
    let names = ["one", "two"];
    let mut replicas = Vec::new();
    for name in names {
        let mut command = container_for(&namespace, &proxy.url(), &database.url).await;
        command.env("POD_NAME", name);
        let replica = Portolan::start(command);
        replica.ready(SOON).await;
        replica.line_with("lease held by another replica", SOON).await;
        replicas.push(replica);
    }
    leases.release().await;
    let all = ShardLeases::new(&world.client, &namespace, "portolan", 3);
    let holders = all.until_held(&names).await;
    assert_eq!(holders.values().collect::<BTreeSet<_>>().len(), 2, "{holders:?}");

    let login = json!({ "authorizationHeader": "Bearer token" });
    world.write_secret(&world.namespace, "login", login).await;
    let key = json!({ "secretKeyRef": { "name": "login", "key": "authorizationHeader" } });
    let declare = async |number| {
        let name = format!("r{number}");
        let url = world.serve(&name, index(&[("beacon", &["1.0.0"])]));
        let spec = json!({ "type": "helm", "url": url, "auth": { "header": key } });
        world.declare_with(&name, json!({ "spec": spec })).await;
    };
    for number in 0..REPOSITORIES {
        declare(number).await;
    }
    let create_again = async |number| {
        let name = format!("r{number}");
        world.delete(&name).await;
        world.gone(&name).await;
        declare(number).await;
    };
    let uid = async |number| world.uid(&format!("r{number}")).await;
    all.spread(REPOSITORIES, uid, create_again).await;
    for number in 0..REPOSITORIES {
        world.until_ready(&format!("r{number}")).await;
    }
    for replica in &replicas {
        let syncs = replica.metrics().await.sum("portolan_syncs_total", &[]);
        assert!(syncs.is_some_and(|syncs| syncs > 0.0), "{syncs:?}");
    }
    world.delete("r0").await;
    world.gone("r0").await;
    compare(&namespace, &proxy, |_| false).await;
}
