//! The objects of Applications in a real API server: watched, read and written.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan::api::NamespacedName;
use portolan::controllers::oam::objects::{CachedObject, ClusterObjects, ObjectError, ObjectId};
use portolan::runtime::watch::GroupKind;
use serde_json::{Value, json};

use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::FaultProxy;

/// Time without any request.
const WINDOW: Duration = Duration::from_secs(3);

/// A namespace with the objects of the Application `shop`.
struct World {
    control_plane: &'static ControlPlane,
    namespace: String,
    objects: ClusterObjects,
    application: NamespacedName,
    changed: Arc<Mutex<BTreeSet<NamespacedName>>>,
}

impl World {
    async fn new() -> Self {
        Self::with(async |control_plane, _| control_plane.client().await).await
    }

    /// Uses a client for the namespace.
    async fn with(client: impl AsyncFnOnce(&'static ControlPlane, &str) -> Client) -> Self {
        let control_plane = control_plane().await;
        let namespace = control_plane.namespace().await;
        let changed: Arc<Mutex<BTreeSet<NamespacedName>>> = Arc::default();
        let notified = Arc::clone(&changed);
        let client = client(control_plane, &namespace).await;
        let objects = ClusterObjects::new(client, Duration::from_secs(60), move |name| {
            notified.lock().unwrap().insert(name);
        });
        tokio::spawn(objects.clone().run());
        Self {
            control_plane,
            application: NamespacedName::new(namespace.clone(), "shop"),
            namespace,
            objects,
            changed,
        }
    }

    async fn watch(&self, kinds: &[(&str, &str)]) {
        let kinds = kinds.iter().map(|(group, kind)| GroupKind::new(*group, *kind));
        let kinds: BTreeSet<_> = kinds.collect();
        self.objects.subscribe(&self.application, kinds.clone());
        self.objects.wait_until_settled(&kinds).await;
        self.changed.lock().unwrap().clear();
    }

    /// Waits until the Application is notified.
    async fn until_changed(&self, what: &str) {
        eventually(SOON, what, async || {
            self.changed.lock().unwrap().remove(&self.application).then_some(())
        })
        .await;
    }

    fn labels(&self) -> Value {
        json!({ "app.oam.dev/name": "shop", "app.oam.dev/namespace": self.namespace })
    }

    fn config_map(&self, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": self.namespace, "name": name, "labels": self.labels() },
            "data": { "key": "1" },
        })
    }

    async fn until_cached(&self, id: &ObjectId, what: &str, fits: impl Fn(&CachedObject) -> bool) -> CachedObject {
        eventually(SOON, what, async || {
            let cached = self.objects.cached(id);
            if fits(&cached) {
                Ok(cached)
            } else {
                Err(format!("{cached:?}"))
            }
        })
        .await
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        let here = ["--namespace", &self.namespace];
        self.control_plane.kubectl(&[&here, arguments].concat()).await
    }
}

const CONFIG_MAPS: &[(&str, &str)] = &[("", "ConfigMap")];

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_known_as_soon_as_written_and_its_changes_and_deletion_are_reported() {
    let world = World::new().await;
    world.watch(CONFIG_MAPS).await;
    let (object, objects) = (world.config_map("settings"), &world.objects);
    let id = ObjectId::of(&object);
    assert_eq!(objects.cached(&id), CachedObject::Absent);
    let created = objects.create(&ObjectId::of(&object), &object, false).await.unwrap();
    let CachedObject::Found(cached) = objects.cached(&id) else {
        panic!("the created object is not in the cache")
    };
    let mut expected = created.clone();
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(cached, expected);
    world.until_changed("the creation").await;

    let patched = objects
        .patch(&id, &json!({ "data": { "key": "2" } }), false)
        .await
        .unwrap();
    assert_eq!(patched["data"]["key"], "2");
    let replaced = objects.get(&id).await.unwrap().unwrap();
    assert_eq!(
        replaced["metadata"]["resourceVersion"],
        patched["metadata"]["resourceVersion"]
    );
    let mut replacement = replaced;
    replacement["data"]["key"] = json!("3");
    objects
        .replace(&ObjectId::of(&replacement), &replacement, false)
        .await
        .unwrap();
    let outdated = objects
        .replace(&ObjectId::of(&replacement), &replacement, false)
        .await
        .unwrap_err();
    assert!(matches!(outdated, ObjectError::Api(error) if error.is_conflict()));

    world.changed.lock().unwrap().clear();
    world
        .kubectl(&[
            "patch",
            "configmap",
            "settings",
            "--type=merge",
            "-p",
            r#"{"data":{"key":"4"}}"#,
        ])
        .await;
    world.until_changed("a change by another writer").await;
    let is_current =
        |cached: &CachedObject| matches!(cached, CachedObject::Found(object) if object["data"]["key"] == "4");
    world.until_cached(&id, "the change", is_current).await;

    objects.delete(&id, uid(&created)).await.unwrap();
    world.until_changed("the deletion").await;
    let is_absent = |cached: &CachedObject| *cached == CachedObject::Absent;
    world.until_cached(&id, "the deletion", is_absent).await;
    assert_eq!(objects.get(&id).await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_read_in_the_version_that_is_asked_for() {
    let world = World::new().await;
    let kind = &[("autoscaling", "HorizontalPodAutoscaler")];
    world.watch(kind).await;
    let object = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": { "namespace": world.namespace, "name": "web", "labels": world.labels() },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "maxReplicas": 3, "targetCPUUtilizationPercentage": 50 },
    });
    let old = ObjectId::of(&object);
    world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap();
    assert_eq!(world.objects.cached(&old), CachedObject::Unknown);
    let read = world.objects.get(&old).await.unwrap().unwrap();
    assert_eq!(read["spec"]["targetCPUUtilizationPercentage"], 50);
    let current = ObjectId {
        cluster: "local".to_owned(),
        api_version: "autoscaling/v2".to_owned(),
        ..old.clone()
    };
    let is_found = |cached: &CachedObject| matches!(cached, CachedObject::Found(_));
    let CachedObject::Found(cached) = world.until_cached(&current, "the object", is_found).await else {
        unreachable!()
    };
    assert_eq!(cached["apiVersion"], "autoscaling/v2");
    assert!(cached["spec"]["metrics"].is_array(), "{cached}");
    let unserved = ObjectId {
        cluster: "local".to_owned(),
        api_version: "autoscaling/v9".to_owned(),
        ..old
    };
    let error = world.objects.get(&unserved).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no matches for kind \"HorizontalPodAutoscaler\" in version \"autoscaling/v9\""
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_not_installed_is_named_and_its_subscribers_hear_of_its_installation() {
    let world = World::new().await;
    let group = format!("{}.example.com", world.namespace);
    world.watch(&[(&group, "Widget")]).await;
    let widget = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": { "namespace": world.namespace, "name": "one", "labels": world.labels() },
    });
    let id = ObjectId::of(&widget);
    let error = world
        .objects
        .create(&ObjectId::of(&widget), &widget, false)
        .await
        .unwrap_err();
    let expected = format!("no matches for kind \"Widget\" in version \"{group}/v1\"");
    assert_eq!(error.to_string(), expected);
    assert_eq!(
        world.objects.is_namespaced(&id).await.unwrap_err().to_string(),
        expected
    );

    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    world
        .control_plane
        .install_crd(&serde_json::from_value(crd).unwrap())
        .await;
    world.until_changed("the installation").await;
    eventually(SOON, "the object to be created", async || {
        world.objects.create(&ObjectId::of(&widget), &widget, false).await
    })
    .await;
    let is_found = |cached: &CachedObject| matches!(cached, CachedObject::Found(_));
    world.until_cached(&id, "the object", is_found).await;
    world
        .kubectl(&["delete", "customresourcedefinition", &format!("widgets.{group}")])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_scoped_objects_are_watched_too() {
    let world = World::new().await;
    let name = format!("{}:reader", world.namespace);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name, "labels": world.labels() }, "rules": [],
    });
    let id = ObjectId::of(&role);
    assert_eq!(world.objects.is_namespaced(&id).await, Ok(false));
    world.watch(&[("rbac.authorization.k8s.io", "ClusterRole")]).await;
    let created = world.objects.create(&ObjectId::of(&role), &role, false).await.unwrap();
    assert!(matches!(world.objects.cached(&id), CachedObject::Found(_)));
    world.changed.lock().unwrap().clear();
    world.kubectl(&["annotate", "clusterrole", &name, "a=b"]).await;
    world.until_changed("a change by another writer").await;
    let delete = world.objects.delete(&id, uid(&created));
    delete.await.unwrap();
    let is_absent = |cached: &CachedObject| *cached == CachedObject::Absent;
    world.until_cached(&id, "the deletion", is_absent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_changes_neither_the_cluster_nor_the_cache() {
    let world = World::new().await;
    world.watch(CONFIG_MAPS).await;
    let object = world.config_map("settings");
    let id = ObjectId::of(&object);
    world
        .objects
        .create(&ObjectId::of(&object), &object, true)
        .await
        .unwrap();
    assert_eq!(world.objects.cached(&id), CachedObject::Absent);
    assert_eq!(world.objects.get(&id).await, Ok(None));
    let created = world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap();
    let patch = json!({ "data": { "key": "2" } });
    let patched = world.objects.patch(&id, &patch, true).await.unwrap();
    assert_eq!(patched["data"]["key"], "2");
    let mut replacement = created;
    replacement["data"]["key"] = json!("3");
    assert_eq!(
        world
            .objects
            .replace(&ObjectId::of(&replacement), &replacement, true)
            .await
            .unwrap()["data"]["key"],
        "3"
    );
    assert_eq!(world.objects.get(&id).await.unwrap().unwrap()["data"]["key"], "1");
    let stored = world
        .kubectl(&["get", "configmap", "settings", "-o", "jsonpath={.data.key}"])
        .await;
    assert_eq!(stored, "1");
    // An invalid object is refused like in a real write.
    let mut invalid = world.config_map("invalid");
    invalid["data"]["not a key!"] = json!("1");
    assert!(
        world
            .objects
            .create(&ObjectId::of(&invalid), &invalid, true)
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namesake_of_a_deleted_object_stays() {
    let world = World::new().await;
    let object = world.config_map("settings");
    let id = ObjectId::of(&object);
    let first = world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap();
    let delete = async || world.objects.delete(&id, uid(&first)).await;
    delete().await.unwrap();
    delete().await.unwrap();
    let second = world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap();
    assert_ne!(uid(&first), uid(&second));
    delete().await.unwrap();
    let stored = world.objects.get(&id).await.unwrap().unwrap();
    assert_eq!(uid(&stored), uid(&second));
    let again = world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap_err();
    assert!(matches!(again, ObjectError::Api(error) if error.is_conflict()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_changes_nothing_is_requested() {
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let world = World::with(async |control_plane, _| client(control_plane, &proxy, ADMIN_TOKEN).await).await;
    world.watch(CONFIG_MAPS).await;
    let object = world.config_map("settings");
    let id = ObjectId::of(&object);
    world
        .objects
        .create(&ObjectId::of(&object), &object, false)
        .await
        .unwrap();
    let requests = || {
        // Discovery runs again when another test defines a kind in the cluster.
        let is_counted = |path: &str| path != "/api" && path != "/apis" && !path.contains("customresourcedefinitions");
        let requests = proxy.requests().into_iter();
        // A watch may be established again.
        let polls = requests.filter(|request| is_counted(&request.path) && !request.query.contains_key("watch"));
        polls.map(|request| request.path).collect::<Vec<_>>()
    };
    let before = requests();
    let selectors: BTreeSet<_> = proxy
        .requests()
        .into_iter()
        .filter(|request| request.is_of("configmaps"))
        .map(|request| (request.path, request.query.get("labelSelector").cloned()))
        .collect();
    let everywhere = ("/api/v1/configmaps".to_owned(), Some("app.oam.dev/name".to_owned()));
    assert_eq!(selectors, BTreeSet::from([everywhere]));
    tokio::time::sleep(WINDOW).await;
    for _ in 0..100 {
        assert!(world.objects.get(&id).await.unwrap().is_some());
        assert_eq!(world.objects.is_namespaced(&id).await, Ok(true));
    }
    assert_eq!(requests(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_cluster_wide_permissions_the_namespace_of_the_application_is_watched() {
    let world = World::with(async |control_plane, namespace| {
        let token = control_plane.token_for(namespace, "limited").await;
        let account = format!("--serviceaccount={namespace}:limited");
        for arguments in [
            ["role", "--verb=*", "--resource=configmaps"],
            ["rolebinding", "--role=limited", &account],
        ] {
            let here = ["create", arguments[0], "limited", "--namespace", namespace];
            control_plane.kubectl(&[&here, &arguments[1..]].concat()).await;
        }
        control_plane.client_with(&token).await
    })
    .await;
    world.watch(CONFIG_MAPS).await;
    let object = world.config_map("settings");
    let id = ObjectId::of(&object);
    // The API server knows a new role after a while.
    eventually(SOON, "the object to be created", async || {
        world.objects.create(&ObjectId::of(&object), &object, false).await
    })
    .await;
    let is_found = |cached: &CachedObject| matches!(cached, CachedObject::Found(_));
    world.until_cached(&id, "the object", is_found).await;
    let elsewhere = ObjectId {
        namespace: "default".to_owned(),
        ..id
    };
    assert_eq!(world.objects.cached(&elsewhere), CachedObject::Unknown);
}

async fn client(control_plane: &ControlPlane, proxy: &FaultProxy, token: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig_for(&proxy.url(), token)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}
