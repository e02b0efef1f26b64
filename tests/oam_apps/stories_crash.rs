//! The process is killed between any two writes: what exists is recorded, and the next process finishes the work.

use std::collections::{BTreeSet, hash_map::RandomState};
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Method;
use futures::future::join_all;
use serde_json::Value;

use super::apps::{config, spec, web};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, TRACKER};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;

const APPS: usize = 10;
/// Processes killed in each stage.
const ROUNDS: usize = 4;
/// Largest number of writes of one process.
const MAX_WRITES: usize = 40;
/// Time after which a process has nothing to write.
const IDLE: Duration = Duration::from_secs(3);
/// Any of ten Applications may wait for a backoff of the process before.
const DONE: Duration = Duration::from_secs(120);

struct Fixture {
    site: Site,
    proxy: FaultProxy,
    kubeconfig: PathBuf,
}

impl Fixture {
    async fn new() -> Self {
        let site = Site::new().await;
        let (proxy, kubeconfig) = site.proxy().await;
        Self {
            site,
            proxy,
            kubeconfig,
        }
    }

    fn writes(&self) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|request| request.method != Method::GET).count()
    }

    /// Kills several processes, each after a random number of writes, and checks what they have left.
    async fn kill_repeatedly(&self, stage: &str) {
        for round in 0..ROUNDS {
            let random = usize::try_from(RandomState::new().hash_one(round) % 1000).unwrap();
            let limit = 1 + random % MAX_WRITES;
            let before = self.writes();
            let mut portolan = self.site.start(&self.kubeconfig, &[]);
            portolan.ready(SOON).await;
            let written = async {
                while self.writes() - before < limit {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            // A process that has finished the work is killed too.
            let _ = tokio::time::timeout(IDLE, written).await;
            portolan.signal("KILL");
            portolan.exit(SOON).await;
            println!("{stage}, round {round}: killed after {} writes", self.writes() - before);
            self.assert_recorded().await;
        }
    }

    /// Asserts that each labelled object is in a tracker.
    async fn assert_recorded(&self) {
        let objects = self.site.managed_objects().await;
        let trackers = self.site.managed(TRACKER).await;
        let entries = trackers
            .iter()
            .flat_map(|tracker| tracker["spec"]["managedResources"].as_array().into_iter().flatten());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let recorded: BTreeSet<_> = entries
            .map(|entry| (text(&entry["kind"]), text(&entry["name"])))
            .collect();
        for object in objects {
            // Its deletion may have removed the tracker already.
            let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
            let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
            assert!(is_deleted || recorded.contains(&key), "{key:?} is in no tracker");
        }
    }

    async fn declare(&self, value: &str, has_extra: bool) {
        let declared = (0..APPS).map(async |number| {
            let mut components = vec![
                web(&format!("front-{number}"), 1),
                config(&format!("settings-{number}"), value),
            ];
            if has_extra {
                components.push(config(&format!("extra-{number}"), value));
            }
            self.site.declare(&format!("app-{number}"), spec(&components)).await;
        });
        join_all(declared).await;
    }

    async fn until_running(&self, value: &str) {
        eventually(DONE, "all to run", async || {
            for number in 0..APPS {
                let app = self
                    .site
                    .get(APPLICATION, &format!("app-{number}"))
                    .await
                    .unwrap_or_default();
                let status = &app["status"];
                let is_current = status["observedGeneration"] == app["metadata"]["generation"];
                if !is_current || status["status"] != "running" {
                    return Err(format!("app-{number}: {status:#}"));
                }
                let settings = self.site.get(CONFIG_MAP, &format!("settings-{number}")).await;
                let settings = settings.unwrap_or_default();
                if settings["data"]["key"] != value {
                    return Err(format!("settings-{number}: {settings}"));
                }
            }
            Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_no_object_and_leave_none() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;

    fixture.declare("one", true).await;
    fixture.kill_repeatedly("create").await;
    let portolan = site.portolan(&[]).await;
    fixture.until_running("one").await;
    fixture.assert_recorded().await;
    drop(portolan);

    fixture.declare("two", false).await;
    fixture.kill_repeatedly("update").await;
    let portolan = site.portolan(&[]).await;
    fixture.until_running("two").await;
    for number in 0..APPS {
        site.until_gone(CONFIG_MAP, &format!("extra-{number}")).await;
        assert_eq!(
            site.revisions(&format!("app-{number}")).await.len(),
            2,
            "one revision for each spec"
        );
    }
    fixture.assert_recorded().await;
    drop(portolan);

    for number in 0..APPS {
        site.delete(APPLICATION, &format!("app-{number}")).await;
    }
    fixture.kill_repeatedly("delete").await;
    let _portolan = site.portolan(&[]).await;
    for number in 0..APPS {
        site.until_gone(APPLICATION, &format!("app-{number}")).await;
    }
    assert_eq!(site.managed_objects().await, Vec::<Value>::new());
    assert_eq!(site.managed(TRACKER).await, Vec::<Value>::new());
}
