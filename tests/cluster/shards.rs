//! Several replicas that divide the repositories among them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::json;

use super::rows::Postgres;
use super::{NEVER, SOON, World, index};
use crate::support::portolan::{Portolan, command, run};
use crate::support::shard_leases::{FLAGS, MOVED, ShardLeases};

const REPOSITORIES: usize = 9;

fn start(world: &World, postgres: &Postgres, name: &str, flags: &[&str]) -> Portolan {
    let mut command = world.command(&world.kubeconfig, postgres.url(), flags);
    command.args(FLAGS).args(["--namespace", &world.namespace, NEVER]);
    command.env("POD_NAME", name);
    Portolan::start(command)
}

fn leases(world: &World) -> Api<Lease> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

/// Returns the replica that holds each of these shards, without those that are free.
fn leases_of(world: &World, shards: usize) -> ShardLeases {
    ShardLeases::new(&world.client, &world.namespace, "portolan", shards)
}

fn name(number: usize) -> String {
    format!("r{number}")
}

/// Serves this version of all repositories.
fn serve(world: &World, version: &str) {
    for number in 0..REPOSITORIES {
        world.serve(&name(number), index(&[("web", &[version])]));
    }
}

fn fetches(world: &World) -> Vec<usize> {
    let path = |number| format!("/{}/index.yaml", name(number));
    (0..REPOSITORIES)
        .map(|number| world.server.requests(&path(number)).len())
        .collect()
}

async fn until_version(world: &World, postgres: &Postgres, version: &str) {
    let mut expected: Vec<String> = (0..REPOSITORIES)
        .map(|number| format!("{}/web {version}", name(number)))
        .collect();
    expected.sort();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    postgres.rows.until_charts_within(MOVED, &expected).await;
    for number in 0..REPOSITORIES {
        world.until_ready(&name(number)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_shards_and_take_over_only_those_of_a_lost_one() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let shards = leases_of(&world, 3);
    shards.hold().await;
    serve(&world, "1.0.0");
    let declare = async |number| {
        let url = world.server.url(&format!("/{}", name(number)));
        world.declare(&name(number), &url).await;
    };
    for number in 0..REPOSITORIES {
        declare(number).await;
    }
    let create_again = async |number| {
        world.delete(&name(number)).await;
        world.gone(&name(number)).await;
        declare(number).await;
    };
    let uid = async |number| world.uid(&name(number)).await;
    shards.spread(REPOSITORIES, uid, create_again).await;
    let names = ["one", "two", "three"];
    let mut replicas: BTreeMap<&str, Portolan> = names
        .into_iter()
        .map(|name| (name, start(&world, &postgres, name, &["--shards=3"])))
        .collect();
    for replica in replicas.values() {
        replica.ready(SOON).await;
        let line = replica.line_with("lease held by another replica", SOON).await;
        assert!(line.contains("foreign"), "{line}");
    }
    assert_eq!(fetches(&world), [0; REPOSITORIES]);

    shards.release().await;
    let before = shards.until_held(&names).await;
    let owners: BTreeSet<&String> = before.values().collect();
    assert_eq!(owners.len(), 3, "each replica owns a shard: {before:?}");
    until_version(&world, &postgres, "1.0.0").await;
    assert_eq!(
        fetches(&world),
        [1; REPOSITORIES],
        "each repository is synced by its owner only"
    );
    for replica in replicas.values() {
        let metrics = replica.metrics().await;
        assert_eq!(metrics.sum("leader_election_master_status", &[]), Some(1.0));
        let syncs = metrics.sum("portolan_syncs_total", &[]).unwrap_or_default();
        assert!(syncs > 0.0 && syncs < REPOSITORIES as f64, "{syncs}");
    }

    // The primary is the hardest to lose.
    let mut lost = replicas.remove(before[&0].as_str()).unwrap();
    lost.signal("KILL");
    lost.exit(SOON).await;
    let left: Vec<&str> = replicas.keys().copied().collect();
    serve(&world, "2.0.0");
    let after = shards.until_held(&left).await;
    assert_eq!(
        (&after[&1], &after[&2]),
        (&before[&1], &before[&2]),
        "other shards stay"
    );
    for number in 0..REPOSITORIES {
        world.resync(&name(number), "two").await;
    }
    until_version(&world, &postgres, "2.0.0").await;
    assert_eq!(fetches(&world), [2; REPOSITORIES]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_while_shards_move_are_not_lost() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let mut first = start(&world, &postgres, "first", &["--shards=2"]);
    first.ready(SOON).await;
    leases_of(&world, 2).until_held(&["first"]).await;
    serve(&world, "1.0.0");
    for number in 0..REPOSITORIES {
        world
            .declare(&name(number), &world.server.url(&format!("/{}", name(number))))
            .await;
    }
    until_version(&world, &postgres, "1.0.0").await;
    let second = start(&world, &postgres, "second", &["--shards=2"]);
    second.ready(SOON).await;
    first.signal("KILL");
    first.exit(SOON).await;
    for number in 0..REPOSITORIES {
        world.delete(&name(number)).await;
    }
    leases_of(&world, 2).until_held(&["second"]).await;
    for number in 0..REPOSITORIES {
        world.gone(&name(number)).await;
    }
    postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_another_number_of_shards_wait() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let mut two = start(&world, &postgres, "two", &["--shards=2"]);
    leases_of(&world, 2).until_held(&["two"]).await;
    let three = start(&world, &postgres, "three", &["--shards=3"]);
    let one = start(&world, &postgres, "one", &[]);
    for waiting in [&three, &one] {
        let line = waiting.line_with("with --shards=2", SOON).await;
        assert!(
            line.contains("waiting to contend for leases") && line.contains("two_"),
            "{line}"
        );
        waiting.ready(SOON).await;
        assert_eq!(
            waiting.metrics().await.sum("leader_election_master_status", &[]),
            Some(0.0)
        );
    }
    drop(one);
    two.signal("TERM");
    assert!(two.exit(SOON).await.success());
    leases_of(&world, 3).until_held(&["three"]).await;
    let lease = leases(&world).get("portolan-0").await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["portolan.dev/shards"], "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_selected_repositories_are_synced_and_the_charts_of_others_stay() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let selector = ["--watch-label-selector", "team in (a), stage==prod"];
    let portolan = start(&world, &postgres, "one", &selector);
    portolan.ready(SOON).await;
    portolan.line_with("deleted while no replica ran are kept", SOON).await;
    for (name, team) in [("other", "b"), ("stable", "a")] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        let labels = json!({ "team": team, "stage": "prod" });
        let object = json!({ "metadata": { "labels": labels }, "spec": { "type": "helm", "url": url } });
        world.declare_with(name, object).await;
    }
    world.until_ready("stable").await;
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
    assert_eq!(world.server.requests("/other/index.yaml").len(), 0);

    // An object that leaves the selection looks like a deleted one.
    world
        .edit("stable", json!({ "metadata": { "labels": { "team": "b" } } }))
        .await;
    world
        .edit("other", json!({ "metadata": { "labels": { "team": "a" } } }))
        .await;
    world.until_ready("other").await;
    postgres
        .rows
        .until_charts(&["other/web 1.0.0", "stable/web 1.0.0"])
        .await;
    let lease = leases(&world).get("portolan").await.unwrap();
    assert_eq!(
        lease.metadata.annotations.unwrap()["portolan.dev/watch-label-selector"],
        "stage=prod,team in (a)"
    );
}

#[tokio::test]
async fn shards_with_sqlite_are_refused_with_the_reason() {
    let refused = command([
        "run",
        "--enable-leader-election",
        "--shards=2",
        "--database-url=sqlite:///nowhere/portolan.db",
        "--apiserver=https://127.0.0.1:1",
    ]);
    let output = run(refused).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("one writer") && error.contains("--database-url"),
        "{error}"
    );
}
