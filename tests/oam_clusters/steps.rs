//! Steps that read, write and list in other clusters.

use serde_json::json;

use super::fleet::{Fleet, assert_kept, has, placed};
use crate::oam_apps::apps::config;
use crate::oam_apps::workflows::{input, outcome, output, step, with, with_steps};
use crate::oam_apps::{APPLICATION, CONFIG_MAP};

const LIST: &str = r#"
    import (
        "strings"
        "vela/builtin"
        "vela/multicluster"
    )
    found: multicluster.#ListClusters & {$params: {}}
    say: builtin.#Message & {$params: message: strings.Join(found.$returns.outputs.clusters, " ")}
    parameter: {}
"#;
/// Changes a ConfigMap of `east`, and deletes another one.
const CHANGE: &str = r#"
    import "vela/kube"
    change: kube.#Patch & {$params: {
        cluster: "east"
        value: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "settings", namespace: context.namespace}}
        patch: data: patched: "yes"
    }}
    remove: kube.#Delete & {$params: {
        cluster: "east"
        value: {apiVersion: "v1", kind: "ConfigMap", metadata: {name: "removed", namespace: context.namespace}}
    }}
    parameter: {}
"#;
const COUNT: &str = r#"
    import (
        "vela/builtin"
        "vela/kube"
    )
    found: kube.#List & {$params: {
        cluster: parameter.cluster
        resource: {apiVersion: "v1", kind: "ConfigMap"}
        filter: {namespace: context.namespace, matchingLabels: tier: "web"}
    }}
    say: builtin.#Message & {$params: message: "\(len(found.$returns.values.items)) found"}
    parameter: cluster: string
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_read_and_apply_objects_in_the_cluster_that_they_name() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let namespace = &site.namespace;
    for (cluster, value) in [(site, "near"), (east, "far")] {
        cluster
            .apply(CONFIG_MAP, "source", json!({ "data": { "key": value } }))
            .await;
    }
    let _portolan = fleet.portolan(&[]).await;
    let source =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "source", "namespace": namespace, "cluster": "east" });
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "applied", "namespace": namespace },
        "data": { "key": "one" },
    });
    let steps = [
        with(
            step("read", "read-object", source),
            output("value", "output.$returns.value.data.key"),
        ),
        with(
            step("copy", "export2config", json!({ "configName": "copy", "data": {} })),
            input("value", "data.key"),
        ),
        step("apply", "apply-object", json!({ "value": applied, "cluster": "east" })),
        step(
            "deploy",
            "apply-component",
            json!({ "component": "settings", "cluster": "east" }),
        ),
    ];
    site.declare("shop", with_steps(&[config("settings", "one")], &steps))
        .await;
    site.until_running("shop").await;
    assert!(has("far")(&site.get(CONFIG_MAP, "copy").await.unwrap()));
    for name in ["applied", "settings"] {
        assert_eq!(site.get(CONFIG_MAP, name).await, None);
        assert_kept(east, name, "one").await;
    }
    assert_eq!(fleet.records("shop", "east").await.len(), 2);

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    for name in ["applied", "settings"] {
        assert_eq!(east.get(CONFIG_MAP, name).await, None);
    }
    assert!(east.get(CONFIG_MAP, "source").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_list_clusters_and_their_objects() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _west = fleet.with_west().await;
    for (name, template) in [("clusters", LIST), ("count", COUNT)] {
        site.define_step(name, template).await;
    }
    let labelled = json!({ "metadata": { "labels": { "tier": "web" } } });
    for name in ["one", "two"] {
        east.apply(CONFIG_MAP, name, labelled.clone()).await;
    }
    let _portolan = fleet.portolan(&[]).await;
    let steps = [
        step("clusters", "clusters", json!({})),
        step("near", "count", json!({ "cluster": "" })),
        step("far", "count", json!({ "cluster": "east" })),
    ];
    site.declare("shop", with_steps(&[], &steps)).await;
    let app = site.until_running("shop").await;
    let found: Vec<_> = steps
        .iter()
        .map(|step| outcome(&app, step["name"].as_str().unwrap())[2])
        .collect();
    assert_eq!(found, ["local east west", "0 found", "2 found"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_change_and_delete_objects_of_their_application_in_another_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    site.define_step("change", CHANGE).await;
    let near = json!({ "data": { "key": "near" } });
    for name in ["settings", "removed"] {
        site.apply(CONFIG_MAP, name, near.clone()).await;
    }
    let _portolan = fleet.portolan(&[]).await;
    let deploy = |name: &str| step(name, "apply-component", json!({ "component": name, "cluster": "east" }));
    let steps = [
        deploy("settings"),
        deploy("removed"),
        step("change", "change", json!({})),
    ];
    let components = [config("settings", "one"), config("removed", "one")];
    site.declare("shop", with_steps(&components, &steps)).await;
    site.until(APPLICATION, "shop", "workflow to end", |app| {
        app["status"]["workflow"]["status"] == "succeeded"
    })
    .await;
    let patched = east.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(patched["data"], json!({ "key": "one", "patched": "yes" }));
    assert_eq!(east.get(CONFIG_MAP, "removed").await, None);
    for name in ["settings", "removed"] {
        assert_eq!(site.get(CONFIG_MAP, name).await.unwrap()["data"], near["data"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_cluster_are_copied_and_data_and_a_service_are_exported_to_each() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let source = json!({ "data": { "key": "far" } });
    east.apply(CONFIG_MAP, "source", source).await;
    let _portolan = fleet.portolan(&[]).await;
    let reference = json!({ "resource": "configmap", "name": "source", "cluster": "east" });
    let copies = json!({ "name": "copies", "type": "ref-objects", "properties": { "objects": [reference] } });
    site.declare("copier", placed(&[copies], &["local"])).await;
    site.until_running("copier").await;
    assert!(has("far")(&site.get(CONFIG_MAP, "source").await.unwrap()));

    let export = json!({ "name": "exported", "topology": "topology", "data": { "key": "one" } });
    let mut spec = placed(&[], &["local", "east"]);
    let service = json!({ "topology": "topology", "ip": "192.0.2.7", "port": 80, "targetPort": 8080 });
    let steps = [
        step("data", "export-data", export),
        step("service", "export-service", service),
    ];
    spec["workflow"] = json!({ "steps": steps });
    site.declare("exporter", spec).await;
    site.until_running("exporter").await;
    for cluster in [site, east] {
        assert!(has("one")(&cluster.get(CONFIG_MAP, "exported").await.unwrap()));
        let service = cluster.get("v1 Service", "exporter").await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);
        let endpoints = cluster.get("v1 Endpoints", "exporter").await.unwrap();
        assert_eq!(endpoints["subsets"][0]["addresses"][0]["ip"], "192.0.2.7");
    }
}
