//! Applications of KubeVela whose objects take much time to merge delay neither probes nor other tenants.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::BESIDE;
use crate::oam_apps::apps::{config, objects, spec};
use crate::oam_apps::site::Site;
use crate::oam_apps::stories_hostile::{declare_in_shard, shard};
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::{SOON, eventually};
use crate::support::process::ScratchDir;

/// The most finalizers that the API server takes in an Application, and fewer.
const FINALIZERS: [usize; 2] = [55_000, 25_000];
/// Keys of the largest ConfigMap, of which each takes 100 bytes beside its record in `managedFields`.
const KEYS: usize = 8_000;
/// Repetitions of a value.
const LENGTH: usize = 20;

pub fn with_finalizers(name: &str, count: usize) -> Value {
    let finalizers: Vec<_> = (0..count).map(|number| format!("a.io/{number}")).collect();
    let metadata = json!({ "name": name, "finalizers": finalizers });
    objects(
        name,
        &[json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })],
    )
}

fn with_keys(name: &str, value: &str) -> Value {
    let data: Map<String, Value> = (0..KEYS)
        .map(|number| (format!("key-{number:020}"), value.repeat(LENGTH).into()))
        .collect();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data });
    objects(name, &[object])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_and_many_finalizers_delay_no_other_namespace() {
    let (hostile, honest) = (Site::new().await, Site::new().await);
    let (directory, shard_id) = (ScratchDir::new("finalizers"), &hostile.namespace);
    let portolan = shard(&hostile, &directory, Duration::from_secs(60)).await;
    for count in FINALIZERS {
        let name = format!("app-{count}");
        declare_in_shard(&hostile, shard_id, &name, spec(&[with_finalizers(&name, count)])).await;
    }
    declare_in_shard(&hostile, shard_id, "large", spec(&[with_keys("large", "one")])).await;
    hostile.until_running("large").await;
    // All of it is merged, compared and written once more.
    declare_in_shard(&hostile, shard_id, "large", spec(&[with_keys("large", "two")])).await;

    let declared = Instant::now();
    declare_in_shard(&honest, shard_id, "shop", spec(&[config("settings", "one")])).await;
    honest.until_running("shop").await;
    let elapsed = declared.elapsed();
    assert!(elapsed < BESIDE, "{elapsed:?}");

    for count in FINALIZERS {
        let name = format!("app-{count}");
        let message = format!("ConfigMap {name} has {count} finalizers, more than 100");
        hostile.until_said(&name, &message).await;
        assert_eq!(hostile.get(CONFIG_MAP, &name).await, None);
    }
    eventually(SOON, "all keys to be changed", async || {
        let object = hostile.get(CONFIG_MAP, "large").await?;
        let data = object["data"].as_object()?;
        let value = json!("two".repeat(LENGTH));
        data.values().all(|other| *other == value).then_some(())
    })
    .await;
    for name in ["large", "app-55000", "app-25000"] {
        hostile.delete(APPLICATION, name).await;
    }
    let (polls, long) = portolan.polls().await;
    assert!(polls > 0.0);
    println!("an honest Application was running after {elapsed:?}; {long} of {polls} polls took more than 10 ms");
}
