//! Components placed by topology, override and replication.

use std::sync::Arc;

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::apps::{config, objects};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, DEFINITION, DEPLOYMENT};
use crate::support::eventually::SOON;
use crate::support::fault_proxy::{ApiFault, AtOnce};
use crate::support::project;

/// A policy by name, type and properties.
type Policy<'a> = (&'a str, &'a str, Value);

fn placed(components: &[Value], policies: &[Policy<'_>], steps: &[Value]) -> Value {
    let policies = policies.iter();
    let policies: Vec<_> = policies
        .map(|(name, type_, properties)| json!({ "name": name, "type": type_, "properties": properties }))
        .collect();
    let mut spec = json!({ "components": components, "policies": policies });
    if !steps.is_empty() {
        spec["workflow"] = json!({ "steps": steps });
    }
    spec
}

fn deploy(name: &str, policies: &[&str]) -> Value {
    json!({ "name": name, "type": "deploy", "properties": { "policies": policies } })
}

fn replicated(name: &str) -> Value {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": "shared" },
    });
    objects(name, &[object])
}

/// A component whose object has the name of its replica.
fn of_replica(name: &str) -> Value {
    json!({ "name": name, "type": "config-of-replica", "properties": { "value": "same" } })
}

fn definition_of_replica() -> Value {
    let template = r#"
        output: {
            apiVersion: "v1"
            kind:       "ConfigMap"
            metadata: name: "\(context.name)-\(context.replicaKey)"
            data: value: parameter.value
        }
        parameter: value: string
    "#;
    json!({ "spec": {
        "workload": { "definition": { "apiVersion": "v1", "kind": "ConfigMap" } },
        "schematic": { "cue": { "template": template } },
    } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topology_decides_about_the_namespace_and_a_change_moves_the_objects() {
    let (site, other, third) = (Site::new().await, Site::new().await, Site::new().await);
    let _portolan = site.portolan(&[]).await;
    let to = |namespace: &str| {
        let topology = json!({ "clusters": ["local"], "namespace": namespace });
        placed(&[config("settings", "one")], &[("there", "topology", topology)], &[])
    };
    site.declare("shop", to(&other.namespace)).await;
    let app = site.until_running("shop").await;
    let object = other.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(object["metadata"]["labels"]["app.oam.dev/namespace"], site.namespace);
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    let service = &app["status"]["services"][0];
    assert_eq!(service["namespace"], other.namespace);
    assert_eq!(service["cluster"], "local");
    assert_eq!(app["status"]["workflow"]["steps"][0]["name"], "deploy-there");

    site.declare("shop", to(&third.namespace)).await;
    site.until_running("shop").await;
    third.until(CONFIG_MAP, "settings", "there", |_| true).await;
    other.until_gone(CONFIG_MAP, "settings").await;

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(third.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_in_another_namespace_is_restored() {
    let (site, other) = (Site::new().await, Site::new().await);
    let _portolan = site.portolan(&[]).await;
    let topology = json!({ "namespace": other.namespace });
    let spec = placed(&[config("settings", "one")], &[("there", "topology", topology)], &[]);
    site.declare("shop", spec).await;
    site.until_running("shop").await;
    let edited = json!({ "data": { "key": "edited" } });
    other.edit(CONFIG_MAP, "settings", edited).await;
    other
        .until(CONFIG_MAP, "settings", "restored", |object| {
            object["data"]["key"] == "one"
        })
        .await;
    other.delete(CONFIG_MAP, "settings").await;
    other.until(CONFIG_MAP, "settings", "created again", |_| true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_changes_the_components_of_its_step_only() {
    let (site, staging) = (Site::new().await, Site::new().await);
    let _portolan = site.portolan(&[]).await;
    let image = |image: &str| json!({ "image": image, "ports": [{ "port": 80 }] });
    let component = json!({
        "name": "web", "type": "webservice", "properties": image("example.com/web:1"),
        "traits": [{ "type": "scaler", "properties": { "replicas": 1 } }],
    });
    let change = json!({
        "name": "web", "properties": { "image": "example.com/web:2" },
        "traits": [{ "type": "scaler", "disable": true }, { "type": "labels", "properties": { "stage": "test" } }],
    });
    let policies = [
        ("staging", "topology", json!({ "namespace": staging.namespace })),
        ("production", "topology", json!({ "clusters": ["local"] })),
        ("newer", "override", json!({ "components": [change] })),
    ];
    let steps = [
        deploy("test", &["staging", "newer"]),
        deploy("release", &["production"]),
    ];
    site.declare("shop", placed(&[component], &policies, &steps)).await;
    let app = site.until_running("shop").await;
    let image_of = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    let tested = staging.get(DEPLOYMENT, "web").await.unwrap();
    assert_eq!(image_of(&tested), "example.com/web:2");
    assert_eq!(tested["spec"]["template"]["metadata"]["labels"]["stage"], "test");
    let released = site.get(DEPLOYMENT, "web").await.unwrap();
    assert_eq!(image_of(&released), "example.com/web:1");
    assert_eq!(released["spec"]["template"]["metadata"]["labels"]["stage"], Value::Null);
    let services = app["status"]["services"].as_array().unwrap();
    assert_eq!(services.len(), 2, "{services:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_objects_of_their_own_and_go_with_their_key() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.apply(super::DEFINITION, "config-of-replica", definition_of_replica())
        .await;
    let keyed = |keys: &[&str]| {
        let replication = json!({ "keys": keys, "selector": ["settings"] });
        let steps = [deploy("all", &["by-key"])];
        placed(
            &[of_replica("settings")],
            &[("by-key", "replication", replication)],
            &steps,
        )
    };
    site.declare("shop", keyed(&["eu", "us"])).await;
    let app = site.until_running("shop").await;
    for name in ["settings-eu", "settings-us"] {
        let object = site.get(CONFIG_MAP, name).await.unwrap();
        let key = &object["metadata"]["labels"]["app.oam.dev/replicaKey"];
        assert_eq!(format!("settings-{}", key.as_str().unwrap()), name);
    }
    assert_eq!(
        app["status"]["services"].as_array().unwrap().len(),
        1,
        "replicas are one service"
    );

    site.declare("shop", keyed(&["us", "asia"])).await;
    site.until_running("shop").await;
    site.until(CONFIG_MAP, "settings-asia", "there", |_| true).await;
    site.until_gone(CONFIG_MAP, "settings-eu").await;
    assert!(site.get(CONFIG_MAP, "settings-us").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_of_a_deploy_step_follow_their_dependencies_and_values() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let mut first = config("first", "of-the-first");
    first["outputs"] = json!([{ "name": "key", "valueFrom": "output.data.key" }]);
    let mut second = config("second", "replaced");
    second["inputs"] = json!([{ "from": "key", "parameterKey": "objects[0].data.key" }]);
    let mut third = config("third", "three");
    third["dependsOn"] = json!(["second"]);
    let policies = [("here", "topology", json!({ "clusters": ["local"] }))];
    site.declare("shop", placed(&[third, second, first], &policies, &[]))
        .await;
    site.until_running("shop").await;
    let second = site.get(CONFIG_MAP, "second").await.unwrap();
    assert_eq!(second["data"]["key"], "of-the-first");
    let third = site.get(CONFIG_MAP, "third").await.unwrap();
    let created = |object: &Value| {
        object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(created(&third) > created(&second), "after its dependency");

    site.edit(CONFIG_MAP, "second", json!({ "data": { "key": "edited" } }))
        .await;
    site.until(CONFIG_MAP, "second", "restored with its value", |object| {
        object["data"]["key"] == "of-the-first"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_names_what_is_wrong_with_its_policies() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    let spec = |policies: &[Policy<'_>], names: &[&str]| placed(&[replicated("a")], policies, &[deploy("all", names)]);
    let cases = [
        (
            spec(&[("o", "override", json!({ "components": 7 }))], &["o"]),
            "failed to parse override policy o",
        ),
        (
            spec(
                &[("r", "replication", json!({ "keys": ["x"], "selector": ["b"] }))],
                &["r"],
            ),
            "no component selected to replicate",
        ),
    ];
    for (number, (spec, words)) in cases.into_iter().enumerate() {
        let name = format!("shop-{number}");
        site.declare(&name, spec).await;
        site.until_said(&name, words).await;
        site.until(APPLICATION, &name, "failed", |app| {
            app["status"]["status"] == "workflowFailed"
        })
        .await;
    }
    assert_eq!(site.get(CONFIG_MAP, "a").await, None);
    site.declare("missing", spec(&[], &["nobody"])).await;
    site.until_said("missing", "external policy nobody not found").await;
    let remote = json!({ "clusters": ["prod"] });
    site.declare("remote", placed(&[replicated("a")], &[("t", "topology", remote)], &[]))
        .await;
    site.until_said("remote", "failed to get cluster prod: no such cluster")
        .await;
}

#[rstest]
#[case::one(1, 1..=1)]
#[case::two(2, 1..=2)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_applies_as_many_components_at_the_same_time_as_it_says(
    #[case] parallelism: usize,
    #[case] expected: std::ops::RangeInclusive<usize>,
) {
    let (site, other) = (Site::new().await, Site::new().await);
    let (proxy, kubeconfig) = site.proxy().await;
    let writes = Arc::new(AtOnce::default());
    let objects = format!("/namespaces/{}/configmaps", other.namespace);
    proxy.inject(usize::MAX, ApiFault::Counted(Arc::clone(&writes)), move |request| {
        request.method == Method::POST && request.path.ends_with(&objects) && !request.query.contains_key("dryRun")
    });
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    let components: Vec<Value> = (0..12)
        .map(|index| config(&format!("settings-{index}"), "one"))
        .collect();
    let there = ("there", "topology", json!({ "namespace": other.namespace }));
    // Otherwise the next pass creates again what its cache does not have yet.
    let once = ("once", "apply-once", json!({ "enable": true }));
    let mut step = deploy("release", &["there"]);
    step["properties"]["parallelism"] = parallelism.into();
    site.declare("shop", placed(&components, &[there, once], &[step])).await;
    site.until_running("shop").await;
    assert!(expected.contains(&writes.most()), "{} at the same time", writes.most());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_select_the_local_cluster_and_joined_ones_of_which_a_refused_one_is_named() {
    let site = Site::new().await;
    // Secrets of clusters are in the namespace of the definitions. Tests that select all clusters use another one.
    let definitions = ["--system-definition-namespace", &site.namespace];
    let _portolan = site.portolan(&definitions).await;
    let file = project("definitions/workflowsteps/deploy.yaml");
    let deploy: Value = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let step_definition = "core.oam.dev/v1beta1 WorkflowStepDefinition";
    site.apply(step_definition, "deploy", json!({ "spec": deploy["spec"] }))
        .await;
    let template = "output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: key: \"x\"}";
    let definition = json!({ "spec": {
        "workload": { "definition": { "apiVersion": "v1", "kind": "ConfigMap" } },
        "schematic": { "cue": { "template": template } },
    } });
    site.apply(DEFINITION, "settings", definition).await;
    // A Secret without a credential.
    let labels = json!({ "cluster.core.oam.dev/cluster-credential-type": "X509Certificate", "region": "eu" });
    site.apply("v1 Secret", "prod-eu", json!({ "metadata": { "labels": labels } }))
        .await;
    let select = |component: &str, labels: Value| {
        let component = json!({ "name": component, "type": "settings" });
        placed(
            &[component],
            &[("places", "topology", json!({ "clusterLabelSelector": labels }))],
            &[],
        )
    };
    site.declare("everywhere", select("one", json!({}))).await;
    site.until_said("everywhere", "cluster prod-eu is refused").await;
    site.until(CONFIG_MAP, "one", "in the local cluster", |_| true).await;
    let here = json!({ "cluster.core.oam.dev/control-plane": "true" });
    site.declare("here", select("two", here)).await;
    site.until_running("here").await;
    site.declare("nowhere", select("lost", json!({ "region": "asia" })))
        .await;
    site.until_said("nowhere", "failed to find any cluster matches given labels")
        .await;

    site.delete("v1 Secret", "prod-eu").await;
    let there = json!({ "clusters": ["prod-eu"] });
    let component = json!({ "name": "far", "type": "settings" });
    site.declare("gone", placed(&[component], &[("places", "topology", there)], &[]))
        .await;
    site.until_said("gone", "failed to get cluster prod-eu: no such cluster")
        .await;
    site.declare("later", select("three", json!({}))).await;
    let app = site.until_running("later").await;
    let services = app["status"]["services"].as_array().unwrap();
    assert_eq!(services.len(), 1, "{services:#?}");
    assert_eq!(services[0]["cluster"], "local");
}
