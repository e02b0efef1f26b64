//! Replicas that divide the Applications among them.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use serde_json::Value;

use super::apps::{config, spec};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::SOON;
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::shard_leases::{FLAGS, ShardLeases};

const APPS: usize = 9;
/// Applications that are deleted while shards move.
const DELETED: usize = 3;

struct Replica {
    proxy: FaultProxy,
    process: Portolan,
}

impl Replica {
    async fn start(site: &Site, name: &str) -> Self {
        let (proxy, kubeconfig) = site.proxy().await;
        let mut command = site.command(&kubeconfig, &["--shards=3"]);
        command.args(FLAGS).env("POD_NAME", name);
        let process = Portolan::start(command);
        process.ready(SOON).await;
        process.line_with("lease held by another replica", SOON).await;
        Self { proxy, process }
    }

    /// Returns the Applications to which it has written, also to their status.
    fn written(&self) -> BTreeSet<String> {
        let requests = self.proxy.requests().into_iter();
        let writes = requests.filter(|request| request.method != Method::GET);
        let app = |path: &str| {
            let (_, app) = path.split_once("/applications/")?;
            app.split('/').next().map(str::to_owned)
        };
        writes.filter_map(|request| app(&request.path)).collect()
    }
}

fn name(number: usize) -> String {
    format!("app-{number}")
}

fn first(number: usize) -> Value {
    spec(&[config(&format!("settings-{number}"), "first")])
}

async fn uid(site: &Site, number: usize) -> String {
    let app = site.get(APPLICATION, &name(number)).await.unwrap();
    app["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn declare(site: &Site, numbers: std::ops::Range<usize>, value: &str) {
    for number in numbers.clone() {
        let settings = config(&format!("settings-{number}"), value);
        site.declare(&name(number), spec(&[settings])).await;
    }
    for number in numbers {
        site.until_running(&name(number)).await;
        let settings = site.get(CONFIG_MAP, &format!("settings-{number}")).await.unwrap();
        assert_eq!(settings["data"]["key"], value, "{settings:#}");
    }
}

/// Asserts that no two replicas have written to the same Application, and returns how many have been written to.
fn disjoint(replicas: &BTreeMap<&str, Replica>) -> usize {
    let written: Vec<BTreeSet<String>> = replicas.values().map(Replica::written).collect();
    let all: BTreeSet<&String> = written.iter().flatten().collect();
    let sum: usize = written.iter().map(BTreeSet::len).sum();
    assert_eq!(sum, all.len(), "{written:?}");
    assert!(written.iter().all(|apps| !apps.is_empty()), "{written:?}");
    all.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_application_has_one_owner_and_another_one_when_that_is_lost() {
    let site = Site::new().await;
    let client = site.control_plane.client().await;
    let leases = ShardLeases::new(&client, &site.namespace, "kubevela", 3);
    leases.hold().await;
    let names = ["one", "two", "three"];
    let mut replicas = BTreeMap::new();
    for name in names {
        replicas.insert(name, Replica::start(&site, name).await);
    }
    for number in 0..APPS {
        site.declare(&name(number), first(number)).await;
    }
    let uid = async |number| uid(&site, number).await;
    let create_again = async |number| {
        site.delete(APPLICATION, &name(number)).await;
        site.until_gone(APPLICATION, &name(number)).await;
        site.declare(&name(number), first(number)).await;
    };
    leases.spread(APPS, uid, create_again).await;
    leases.release().await;
    let before = leases.until_held(&names).await;
    declare(&site, 0..APPS, "first").await;
    assert_eq!(disjoint(&replicas), APPS);

    // The primary is the hardest to lose.
    let mut lost = replicas.remove(before[&0].as_str()).unwrap();
    lost.process.signal("KILL");
    lost.process.exit(SOON).await;
    for number in APPS - DELETED..APPS {
        site.delete(APPLICATION, &name(number)).await;
    }
    let left: Vec<&str> = replicas.keys().copied().collect();
    let after = leases.until_held(&left).await;
    assert_eq!(
        (&after[&1], &after[&2]),
        (&before[&1], &before[&2]),
        "other shards stay"
    );
    declare(&site, 0..APPS - DELETED, "second").await;
    for number in APPS - DELETED..APPS {
        site.until_gone(APPLICATION, &name(number)).await;
        assert!(site.get(CONFIG_MAP, &format!("settings-{number}")).await.is_none());
    }
    assert_eq!(disjoint(&replicas), APPS);
    for number in 0..APPS - DELETED {
        let mut revisions = site.revisions(&name(number)).await;
        revisions.sort();
        assert_eq!(revisions, [1, 2].map(|revision| format!("app-{number}-v{revision}")));
    }
}
