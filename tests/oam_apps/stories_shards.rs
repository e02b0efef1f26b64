//! Replicas that divide the Applications among them.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use portolan::api::oam::labels::SHARD_ID;
use serde_json::{Value, json};

use super::apps::{config, spec, with_policies};
use super::site::Site;
use super::stories_hostile::declare_in_shard;
use super::stories_takeover::is_write;
use super::{APPLICATION, CONFIG_MAP, REVISION};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
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

async fn start_shard(site: &Site, shard: &str) -> (FaultProxy, Portolan) {
    let (proxy, kubeconfig) = site.proxy().await;
    let shard_id = format!("--shard-id={shard}");
    let process = site.start(&kubeconfig, &["--enable-sharding", &shard_id]);
    process.ready(SOON).await;
    (proxy, process)
}

/// A ConfigMap whose tracker stays when another is declared.
fn kept(name: &str, value: &str) -> Value {
    let policy = ("garbage-collect", json!({ "keepLegacyResource": true }));
    with_policies(&[config(name, value)], &[policy])
}

/// Returns the trackers and revisions of an Application.
async fn records(site: &Site, app: &str) -> Vec<Value> {
    let mut records = site.trackers(app).await;
    records.extend(site.list(REVISION, &format!("app.oam.dev/name={app}")).await);
    records
}

fn identities(objects: &[Value]) -> Vec<Value> {
    let mut uids: Vec<Value> = objects.iter().map(|object| object["metadata"]["uid"].clone()).collect();
    uids.sort_by_key(Value::to_string);
    uids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_moves_to_another_shard_keeps_its_objects_and_takes_its_records_along() {
    let site = Site::new().await;
    let (left, _one) = start_shard(&site, "a").await;
    let (entered, _two) = start_shard(&site, "b").await;
    for name in ["first", "second"] {
        declare_in_shard(&site, "a", "shop", kept(name, "one")).await;
        site.until_running("shop").await;
    }
    let (objects, before) = (site.managed_objects().await, records(&site, "shop").await);
    assert_eq!((objects.len(), before.len()), (2, 4), "{before:#?}");
    let is_in = |shard: &'static str| move |record: &Value| record["metadata"]["labels"][SHARD_ID] == shard;
    assert!(before.iter().all(is_in("a")), "{before:#?}");
    assert!(!entered.requests().iter().any(is_write));

    // Another pass goes on where this one ended.
    let is_lost = |request: &ApiRequest| request.method == Method::PATCH && request.path.contains("/resourcetrackers/");
    entered.inject(1, ApiFault::ResponseLost, is_lost);
    let old_requests = left.requests().len();
    let label = json!({ "metadata": { "labels": { SHARD_ID: "b" } } });
    site.edit(APPLICATION, "shop", label).await;
    let after = eventually(SOON, "the records in the new shard", async || {
        let records = records(&site, "shop").await;
        if records.iter().all(is_in("b")) {
            Ok(records)
        } else {
            Err(format!("{records:#?}"))
        }
    })
    .await;
    assert_eq!(identities(&after), identities(&before));
    site.until_running("shop").await;
    let is_record = |request: &ApiRequest| {
        let records = [
            "/resourcetrackers/",
            "/applicationrevisions/",
            "/applications/shop/status",
        ];
        records.iter().any(|record| request.path.contains(record))
    };
    let written: Vec<_> = entered.requests().into_iter().filter(is_write).collect();
    assert!(
        written.iter().any(is_lost) && written.iter().all(is_record),
        "{written:#?}"
    );
    assert_eq!(site.managed_objects().await, objects);

    declare_in_shard(&site, "b", "shop", kept("second", "two")).await;
    site.until(CONFIG_MAP, "second", "the new value", |settings| {
        settings["data"]["key"] == "two"
    })
    .await;
    site.until_running("shop").await;
    assert!(records(&site, "shop").await.iter().all(is_in("b")));
    assert!(site.get(CONFIG_MAP, "first").await.is_some());
    let left = left.requests().into_iter().skip(old_requests);
    let written: Vec<_> = left.filter(is_write).collect();
    assert!(written.is_empty(), "{written:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_stay_without_shards_and_while_the_application_is_not_supported() {
    let site = Site::new().await;
    let template = "import \"vela/helm\"\n\noutput: {}";
    let definition = json!({
        "workload": { "type": "autodetects.core.oam.dev" }, "schematic": { "cue": { "template": template } },
    });
    site.apply(
        "core.oam.dev/v1beta1 ComponentDefinition",
        "chart",
        json!({ "spec": definition }),
    )
    .await;
    let shards = async || {
        let trackers = site.trackers("shop").await;
        let shards = trackers
            .iter()
            .map(|tracker| tracker["metadata"]["labels"][SHARD_ID].clone());
        let mut shards: Vec<Value> = shards.collect();
        shards.sort_by_key(Value::to_string);
        shards
    };
    let mut without_shards = site.portolan(&[]).await;
    for shard in ["a", "b"] {
        declare_in_shard(&site, shard, "shop", kept(shard, "one")).await;
        site.until_running("shop").await;
    }
    assert_eq!(shards().await, ["a", "b"]);
    without_shards.signal("KILL");
    without_shards.exit(SOON).await;

    let unsupported = json!({ "components": [{ "name": "chart", "type": "chart" }] });
    declare_in_shard(&site, "b", "shop", unsupported).await;
    let (_proxy, _portolan) = start_shard(&site, "b").await;
    site.until_said("shop", "an import of vela/helm").await;
    assert_eq!(shards().await, ["a", "b"]);
    declare_in_shard(&site, "b", "shop", kept("b", "two")).await;
    site.until_running("shop").await;
    let shards = shards().await;
    assert!(
        shards.len() > 1 && shards.iter().all(|shard| shard == "b"),
        "{shards:?}"
    );
}
