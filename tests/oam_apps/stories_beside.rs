//! Portolan beside vela-core, for which another process stands: each Application has one controller at any time.

use serde_json::json;

use super::CONFIG_MAP;
use super::apps::{config, spec};
use super::site::Site;
use super::stories_takeover::is_write;
use crate::support::cue::executable;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;

const VERSION: &str = "--compat-version=portolan";

struct Controller {
    proxy: FaultProxy,
    _process: Portolan,
}

impl Controller {
    async fn start(site: &Site, flags: &[&str]) -> Self {
        let (proxy, kubeconfig) = site.proxy().await;
        let process = site.start(&kubeconfig, flags);
        process.ready(SOON).await;
        Self {
            proxy,
            _process: process,
        }
    }

    /// Returns the number of its writes to a ConfigMap.
    fn writes(&self, name: &str) -> usize {
        let path = format!("/configmaps/{name}");
        let requests = self.proxy.requests().into_iter();
        requests
            .filter(|request| is_write(request) && request.path.ends_with(&path))
            .count()
    }
}

/// Changes a ConfigMap, and waits until a controller undoes it.
async fn drift(site: &Site, name: &str) {
    site.edit(CONFIG_MAP, name, json!({ "data": { "key": "drifted" } }))
        .await;
    site.until(CONFIG_MAP, name, "the declared data", |live| {
        live["data"]["key"] == "one"
    })
    .await;
}

/// Asserts that drift of a ConfigMap is undone by one controller alone.
async fn assert_keeper(site: &Site, name: &str, keeper: &Controller, other: &Controller) {
    // A controller may see the annotation late, and write once more.
    eventually(SOON, "the other controller to leave the object alone", async || {
        let before = other.writes(name);
        drift(site, name).await;
        drift(site, name).await;
        (other.writes(name) == before).then_some(())
    })
    .await;
    let before = (keeper.writes(name), other.writes(name));
    drift(site, name).await;
    let after = (keeper.writes(name), other.writes(name));
    assert!(
        after.0 > before.0 && after.1 == before.1,
        "{name}: {before:?} {after:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_is_taken_over_has_another_controller_until_it_is_given_back() {
    let site = Site::new().await;
    let vela_core = Controller::start(&site, &[]).await;
    for (app, object) in [("shop", "settings"), ("blog", "posts")] {
        site.declare(app, spec(&[config(object, "one")])).await;
        site.until_running(app).await;
    }
    let flags = [
        VERSION,
        "--ignore-app-without-controller-version",
        "--ignore-definition-without-controller-version",
    ];
    let beside = Controller::start(&site, &flags).await;
    assert_keeper(&site, "settings", &vela_core, &beside).await;

    let evaluator = executable();
    let preview = ["takeover", "shop", VERSION, "--dry-run", "--cue-evaluator"];
    let preview = site.app(&[&preview[..], &[evaluator.to_str().unwrap()]].concat()).await;
    assert!(preview.ends_with("\nunchanged 1 objects\n"), "{preview}");
    assert_eq!(preview.lines().count(), 2, "{preview}");
    site.app(&["takeover", "shop", VERSION]).await;
    assert_keeper(&site, "settings", &beside, &vela_core).await;
    assert_keeper(&site, "posts", &vela_core, &beside).await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);

    site.app(&["takeover", "shop", VERSION, "--give-back"]).await;
    assert_keeper(&site, "settings", &vela_core, &beside).await;
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);
}
