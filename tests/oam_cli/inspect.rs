use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, api::ApiResource};
use portolan::api::oam::TraitDefinition;
use portolan::controllers::oam::trackers::encode;
use serde_json::{Value, json};

use super::takeover::unshared_control_plane;
use super::{Site, application, assert_line, execute, words, worker};
use crate::support::control_plane::ADMIN_TOKEN;
use crate::support::fault_proxy::FaultProxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_are_listed_with_phase_health_and_problems() {
    let site = Site::new().await;
    site.create_application("blog", worker("nginx:1")).await;
    site.create_application("shop", worker("nginx:1")).await;
    site.set_status(
        "shop",
        json!({
            "observedGeneration": 1, "status": "unhealthy",
            "services": [{ "name": "web", "healthy": false }, { "name": "db", "healthy": true }],
            "latestRevision": { "name": "shop-v3", "revision": 3 },
            "conditions": [{ "type": "Ready", "status": "False", "message": "no\u{1b}[2J way" }],
        }),
    )
    .await;
    let table = site.vela(&["list"]).await.ok();
    let rows: Vec<_> = table.lines().map(words).collect();
    assert_eq!(rows[0][..3], ["NAMESPACE", "NAME", "PHASE"]);
    assert_eq!(rows[1][..6], [&site.namespace, "blog", "-", "0/0", "-", "-"]);
    assert_eq!(
        rows[2][..6],
        [&site.namespace, "shop", "unhealthy", "1/2", "shop-v3", "-"]
    );
    assert!(
        table.ends_with(&format!("{}/shop: Ready: no [2J way\n", site.namespace)),
        "{table}"
    );
    let json: Value = serde_json::from_str(&site.vela(&["list", "-o", "json"]).await.ok()).unwrap();
    assert_eq!(json[1]["healthyServices"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_that_are_not_supported_are_listed_before_any_controller_runs() {
    let site = Site::new().await;
    site.create_application("plain", worker("nginx:1")).await;
    let mut debug = worker("nginx:1");
    debug["policies"] = json!([{ "name": "look", "type": "debug" }]);
    site.create_application("debug", debug).await;
    let imports = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition", "metadata": { "name": "chart" },
        "spec": { "workload": { "type": "x" }, "schematic": { "cue": { "template": "import \"vela/helm\"\noutput: {}" } } },
    });
    let resource = ApiResource::erase::<portolan::api::oam::ComponentDefinition>(&());
    let definitions: Api<DynamicObject> = Api::namespaced_with(site.client.clone(), &site.namespace, &resource);
    let imports = serde_json::from_value(imports).unwrap();
    definitions.create(&PostParams::default(), &imports).await.unwrap();
    site.create_application("chart", json!({ "components": [{ "name": "redis", "type": "chart" }] }))
        .await;
    let remote = serde_json::from_value(json!({
        "cluster": "edge", "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": site.namespace,
    }));
    let uid = site
        .create_application("remote", worker("nginx:1"))
        .await
        .uid()
        .unwrap();
    site.create_tracker("remote", &uid, 1, encode(vec![remote.unwrap()], None).unwrap())
        .await;

    let table = site.vela(&["list", "--unsupported"]).await.ok();
    let namespace = &site.namespace;
    for supported in ["plain", "debug", "remote"] {
        assert!(!table.contains(supported), "{supported}: {table}");
    }
    assert_line(
        &table,
        &format!("{namespace} chart component redis with an import of vela/helm"),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_namespaces_share_are_read_once() {
    let control_plane = unshared_control_plane().await;
    let sites = [Site::of(control_plane).await, Site::of(control_plane).await];
    for site in &sites {
        site.define_worker().await;
        for name in ["blog", "shop"] {
            site.create_application(name, worker("nginx:1")).await;
        }
    }
    let shared = control_plane.namespace().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let kubeconfig = kubeconfig.to_str().unwrap();
    let place = ["--system-definition-namespace", &shared, "--kubeconfig", kubeconfig];
    execute(&[&["vela", "list", "--unsupported", "-A"][..], &place].concat())
        .await
        .ok();
    for plural in ["componentdefinitions", "definitionrevisions"] {
        let mut lists: BTreeMap<String, usize> = BTreeMap::new();
        for request in proxy.requests().into_iter().filter(|request| request.is_of(plural)) {
            *lists.entry(request.path).or_default() += 1;
        }
        for namespace in [&sites[0].namespace, &sites[1].namespace, &shared] {
            let path = format!("/apis/core.oam.dev/v1beta1/namespaces/{namespace}/{plural}");
            assert_eq!(lists.get(&path), Some(&1), "{path} of {lists:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_shows_versions_and_results() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    site.set_status(
        "shop",
        json!({ "latestRevision": { "name": "shop-v10", "revision": 10 } }),
    )
    .await;
    let recorded = json!({ "application": application("shop", worker("nginx:1")) });
    site.create_revision("shop-v10", "shop", Some("ten"), recorded.clone())
        .await;
    site.create_revision("shop-v9", "shop", None, recorded.clone()).await;
    site.create_revision("other-v1", "other", None, recorded).await;
    let revisions: Api<portolan::api::oam::ApplicationRevision> = Api::namespaced(site.client.clone(), &site.namespace);
    let status = Patch::Merge(json!({ "status": { "succeeded": true } }));
    revisions
        .patch_status("shop-v9", &PatchParams::default(), &status)
        .await
        .unwrap();

    let table = site.vela(&["history", "shop"]).await.ok();
    let rows: Vec<_> = table.lines().map(words).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[1][..5], ["shop-v9", "9", "-", "true", "-"]);
    assert_eq!(rows[2][..5], ["shop-v10", "10", "ten", "-", "yes"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_names_definitions_that_are_newer_than_the_revision() {
    let site = Site::new().await;
    site.run(&["vela", "definitions", "apply", "-n", &site.namespace])
        .await
        .ok();
    let traits: Api<TraitDefinition> = Api::namespaced(site.client.clone(), &site.namespace);
    let (scaler, labels) = (traits.get("scaler").await.unwrap(), traits.get("labels").await.unwrap());
    let recorded = json!({
        "application": application("shop", worker("nginx:1")),
        "traitDefinitions": { "scaler": scaler, "labels": labels },
    });
    site.create_application("shop", worker("nginx:1")).await;
    site.create_revision("shop-v1", "shop", None, recorded).await;
    site.set_status(
        "shop",
        json!({
            "observedGeneration": 1, "status": "running", "latestRevision": { "name": "shop-v1", "revision": 1 },
            "services": [{ "name": "web", "healthy": true, "message": "Ready:1/1" }],
            "workflow": { "mode": "DAG-DAG", "suspend": false, "terminated": false, "finished": true,
                "steps": [{ "id": "a", "name": "web", "type": "apply-component", "phase": "succeeded" }] },
            "appliedResources": [{ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "x", "name": "web" }],
        }),
    )
    .await;
    let text = site.vela(&["status", "shop"]).await.ok();
    assert!(!text.contains("definitions that have changed"), "{text}");
    assert_line(&text, "phase: running");
    assert_line(&text, "web - healthy Ready:1/1");
    assert_line(&text, "web apply-component succeeded - - -");
    assert_line(&text, "apps/v1 Deployment x web -");

    let change = Patch::Merge(json!({ "spec": { "podDisruptive": true } }));
    traits.patch("scaler", &PatchParams::default(), &change).await.unwrap();
    let text = site.vela(&["status", "shop"]).await.ok();
    assert_line(
        &text,
        &format!("TraitDefinition scaler in namespace {}", site.namespace),
    );
    assert!(!text.contains("TraitDefinition labels"), "{text}");
    let error = site.vela(&["status", "nobody"]).await.failed(1);
    assert!(error.contains("/nobody not found"), "{error}");
}
