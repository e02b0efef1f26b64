//! Fields that other controllers set: autoscalers are left alone, and fights end.

use std::time::Duration;

use axum::http::Method;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::apps::{config, spec, web, with_policies};
use super::site::Site;
use super::{CONFIG_MAP, DEPLOYMENT};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;

const AUTOSCALER: &str = "autoscaling/v2 HorizontalPodAutoscaler";
const COMPONENT: &str = "app.oam.dev/component";
/// The controller that fights.
const RIVAL: &str = "rival";
/// Restores within a minute, after which an object is fought over.
const MAX_RESTORES: usize = 5;
/// Time from the last of them to the next one.
const CALM: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_an_autoscaler_sets_are_kept() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--application-re-sync-period=1h"]).await;
    let declare = async |image: &str| {
        let mut front = web("front", 2);
        front["properties"]["image"] = image.into();
        site.declare("shop", spec(&[front])).await;
    };
    declare("example.com/web:1").await;
    site.until_running("shop").await;
    let autoscaler = json!({ "spec": {
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "front" },
        "minReplicas": 1, "maxReplicas": 10,
    }});
    site.apply(AUTOSCALER, "front", autoscaler).await;
    let scale = Patch::Merge(json!({ "spec": { "replicas": 5 } }));
    let (deployments, parameters) = (site.api(DEPLOYMENT), PatchParams::default());
    deployments.patch_scale("front", &parameters, &scale).await.unwrap();

    // A change that is undone proves that the replicas were looked at too.
    let drift = json!({ "metadata": { "labels": { COMPONENT: "other" } } });
    site.edit(DEPLOYMENT, "front", drift).await;
    let kept = site
        .until(DEPLOYMENT, "front", "with its label", |object| {
            object["metadata"]["labels"][COMPONENT] == "front"
        })
        .await;
    assert_eq!(kept["spec"]["replicas"], 5);

    declare("example.com/web:2").await;
    let updated = site
        .until(DEPLOYMENT, "front", "updated", |object| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/web:2"
        })
        .await;
    assert_eq!(updated["spec"]["replicas"], 5);
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["services"][0]["message"], "Ready:5/5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_others_set_by_a_policy_do_not_delay_the_repair_of_other_fields() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--application-re-sync-period=1h"]).await;
    let rule = json!({
        "selector": { "resourceTypes": ["Deployment"] },
        "strategy": { "path": ["spec.replicas"] },
    });
    let once = json!({ "enable": true, "rules": [rule] });
    site.declare("shop", with_policies(&[web("front", 1)], &[("apply-once", once)]))
        .await;
    site.until_running("shop").await;
    for replicas in 2..2 + MAX_RESTORES {
        site.edit(DEPLOYMENT, "front", json!({ "spec": { "replicas": replicas } }))
            .await;
        let recorded = format!("\"replicas\":{replicas}");
        site.until(DEPLOYMENT, "front", "with recorded replicas", |object| {
            let applied = object["metadata"]["annotations"]["app.oam.dev/last-applied-configuration"].as_str();
            applied.is_some_and(|applied| applied.contains(&recorded))
        })
        .await;
    }
    let drift = json!({ "metadata": { "labels": { COMPONENT: "other" } } });
    let changed = Instant::now();
    site.edit(DEPLOYMENT, "front", drift).await;
    site.until(DEPLOYMENT, "front", "with its label", |object| {
        object["metadata"]["labels"][COMPONENT] == "front"
    })
    .await;
    assert!(changed.elapsed() < CALM, "{:?}", changed.elapsed());
}

/// A controller that wants another value of a ConfigMap, until it is dropped.
struct Rival(JoinHandle<()>);

impl Rival {
    fn of(api: Api<DynamicObject>, name: &'static str) -> Self {
        let parameters = PatchParams {
            field_manager: Some(RIVAL.to_owned()),
            ..PatchParams::default()
        };
        let change = Patch::Merge(json!({ "data": { "key": "theirs" } }));
        Self(tokio::spawn(async move {
            loop {
                let is_ours = |object: &DynamicObject| object.data["data"]["key"] == "ours";
                if api.get(name).await.is_ok_and(|object| is_ours(&object)) {
                    // Tried again.
                    let _ = api.patch(name, &parameters, &change).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }))
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn restores(proxy: &FaultProxy) -> usize {
    let requests = proxy.requests();
    let is_restore = |method: &Method, path: &str| *method == Method::PATCH && path.ends_with("/configmaps/settings");
    requests
        .iter()
        .filter(|request| is_restore(&request.method, &request.path))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fight_is_ended_and_named_and_won_when_the_other_side_gives_up() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    let components = [config("settings", "ours"), config("other", "ours")];
    site.declare("shop", spec(&components)).await;
    site.until_running("shop").await;
    assert_eq!(restores(&proxy), 0);

    let started = Instant::now();
    let rival = Rival::of(site.api(CONFIG_MAP), "settings");
    let events: Api<Event> = Api::namespaced(site.control_plane.client().await, &site.namespace);
    let warning = format!(
        "ConfigMap {}/settings is changed again and again by {RIVAL}; consider apply-once",
        site.namespace
    );
    let event = eventually(SOON, "an event about the fight", async || {
        let list = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let is_about_fight = |event: &Event| event.note.as_ref() == Some(&warning);
        list.into_iter().find(is_about_fight)
    })
    .await;
    assert_eq!(event.reason.as_deref(), Some("FailedStateKeep"));
    let regarding = event.regarding.unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("Application"));
    assert_eq!(regarding.name.as_deref(), Some("shop"));
    // Conflicts are tried again.
    let fought = restores(&proxy);
    assert!((MAX_RESTORES..2 * MAX_RESTORES).contains(&fought), "{fought}");

    // The object is left alone in passes with other reasons, and does not delay them.
    let is_ours = |object: &Value| object["data"]["key"] == "ours";
    for _ in 1..MAX_RESTORES {
        site.edit(CONFIG_MAP, "other", json!({ "data": { "key": "drift" } }))
            .await;
        site.until(CONFIG_MAP, "other", "restored", is_ours).await;
    }
    // On a busy machine, the next restore may be due by now.
    let periods = started.elapsed().as_secs() / CALM.as_secs();
    let allowed = fought + usize::try_from(periods).unwrap();
    assert!(restores(&proxy) <= allowed, "{} of {allowed}", restores(&proxy));

    drop(rival);
    eventually(2 * CALM + SOON, "the last restore", async || {
        site.get(CONFIG_MAP, "settings").await.filter(is_ours)
    })
    .await;
}
