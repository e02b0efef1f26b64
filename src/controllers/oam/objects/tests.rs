//! Requests to an API server, and the Applications that a change concerns.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use axum::http;
use futures::FutureExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::subscribers::Subscribers;
use super::*;
use crate::budget::Budget;
use crate::runtime::watch::KindEvent;

/// An API server with ConfigMaps and Namespaces. It answers all other requests with one response.
struct Fixture {
    objects: ClusterObjects,
    requests: Arc<Mutex<Vec<String>>>,
    response: Arc<Mutex<(u16, Value)>>,
}

impl Fixture {
    fn new() -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let response = Arc::new(Mutex::new((200, json!({}))));
        let (received, answer) = (Arc::clone(&requests), Arc::clone(&response));
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let (code, body) = match request.uri().path() {
                "/api" => (200, discovery()),
                "/apis" => (200, json!({ "items": [] })),
                path if path.ends_with("/customresourcedefinitions") => return pending().left_future(),
                _ => {
                    let request = format!("{} {}", request.method(), request.uri());
                    received.lock().push(request.trim_end_matches('?').to_owned());
                    answer.lock().clone()
                }
            };
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            ready(Ok::<_, Infallible>(response)).right_future()
        });
        let objects = ClusterObjects::new(Client::new(server, "default"), Duration::from_secs(60), |_| {});
        tokio::spawn(objects.clone().run());
        Self {
            objects,
            requests,
            response,
        }
    }

    fn respond(&self, code: u16, message: &str, details: Option<Value>) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
            "details": details,
        });
        *self.response.lock() = (code, status);
    }
}

fn discovery() -> Value {
    let resource = |resource: &str, kind: &str, scope: &str| {
        json!({
            "resource": resource, "scope": scope, "verbs": ["list", "watch"],
            "responseKind": { "group": "", "version": "v1", "kind": kind },
        })
    };
    let resources = [
        resource("configmaps", "ConfigMap", "Namespaced"),
        resource("namespaces", "Namespace", "Cluster"),
    ];
    json!({ "items": [{ "versions": [{ "version": "v1", "resources": resources }] }] })
}

fn id(kind: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        cluster: LOCAL.to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[tokio::test]
async fn requests_name_the_field_manager_and_dry_runs() {
    let Fixture { objects, requests, .. } = Fixture::new();
    let map = id("ConfigMap", "shop", "a b");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "shop", "name": "a b", "resourceVersion": "1" },
    });
    let namespace = id("Namespace", "", "shop");
    assert_eq!(objects.is_namespaced(&map).await, Ok(true));
    assert_eq!(objects.is_namespaced(&namespace).await, Ok(false));
    objects.get(&map).await.unwrap();
    objects.create(&ObjectId::of(&object), &object, true).await.unwrap();
    objects.patch(&map, &json!({}), false).await.unwrap();
    objects.replace(&ObjectId::of(&object), &object, true).await.unwrap();
    objects.delete(&namespace, "u").await.unwrap();
    let path = "/api/v1/namespaces/shop/configmaps";
    let expected = [
        format!("GET {path}/a%20b"),
        format!("POST {path}?&dryRun=All&fieldManager=portolan"),
        format!("PATCH {path}/a%20b?&fieldManager=portolan"),
        format!("PUT {path}/a%20b?&dryRun=All&fieldManager=portolan"),
        "DELETE /api/v1/namespaces/shop".to_owned(),
    ];
    assert_eq!(*requests.lock(), expected);
}

#[tokio::test]
async fn a_name_that_would_change_the_path_is_refused() {
    let Fixture { objects, requests, .. } = Fixture::new();
    for name in ["", ".", "..", "a/b", "%2e%2e", ".\t."] {
        for id in [id("ConfigMap", "shop", name), id("Namespace", "", name)] {
            let error = objects.delete(&id, "u").await.unwrap_err();
            assert!(error.to_string().contains("invalid name"), "{name:?}: {error}");
        }
    }
    for namespace in ["", "..", "a/b", "a?b"] {
        let error = objects.get(&id("ConfigMap", namespace, "a")).await.unwrap_err();
        assert!(
            error.to_string().contains("invalid namespace"),
            "{namespace:?}: {error}"
        );
    }
    let version = ObjectId {
        cluster: "local".to_owned(),
        api_version: "/v1/../v1".to_owned(),
        ..id("ConfigMap", "shop", "a")
    };
    assert!(matches!(
        objects.get(&version).await,
        Err(ObjectError::NotInstalled { .. })
    ));
    assert!(requests.lock().is_empty());
}

#[tokio::test]
async fn a_missing_object_differs_from_a_missing_kind_or_version() {
    let fixture = Fixture::new();
    let map = id("ConfigMap", "shop", "a");
    let missing = |version: &str, kind: &str| {
        Err(ObjectError::NotInstalled {
            kind: kind.to_owned(),
            version: version.to_owned(),
        })
    };
    fixture.respond(
        404,
        "configmaps \"a\" not found",
        Some(json!({ "name": "a", "kind": "configmaps" })),
    );
    assert_eq!(fixture.objects.get(&map).await, Ok(None));
    fixture.respond(404, "the server could not find the requested resource", Some(json!({})));
    assert_eq!(fixture.objects.get(&map).await, missing("v1", "ConfigMap"));
    *fixture.response.lock() = (404, json!("404 page not found"));
    assert_eq!(fixture.objects.get(&map).await, missing("v1", "ConfigMap"));
    let unknown = id("Widget", "shop", "a");
    let error = fixture.objects.get(&unknown).await.unwrap_err();
    assert_eq!(error.to_string(), "no matches for kind \"Widget\" in version \"v1\"");
}

#[tokio::test]
async fn a_deletion_of_an_object_that_is_gone_or_recreated_is_no_error() {
    let fixture = Fixture::new();
    let map = id("ConfigMap", "shop", "a");
    let delete = async |uid| fixture.objects.delete(&map, uid).await;
    fixture.respond(404, "configmaps \"a\" not found", Some(json!({ "name": "a" })));
    assert_eq!(delete("u").await, Ok(()));
    for message in [
        "Precondition failed: UID in precondition: u, UID in object meta: v",
        "the UID in the precondition (u) does not match the UID in record (v)",
    ] {
        fixture.respond(409, message, None);
        assert_eq!(delete("u").await, Ok(()));
    }
    fixture.respond(409, "another conflict", None);
    assert!(delete("u").await.is_err());
    fixture.respond(404, "configmaps \"a\" not found", Some(json!({ "name": "a" })));
    assert!(delete("").await.is_err(), "without a UID, nothing is deleted");
}

/// Returns the Applications that a change concerns.
fn concerned(old: Option<Value>, new: Option<Value>) -> Vec<String> {
    let names: Arc<Mutex<Vec<String>>> = Arc::default();
    let changed = Arc::clone(&names);
    let subscribers = Arc::<Subscribers>::default();
    subscribers.set(
        &NamespacedName::new("team", "subscriber"),
        BTreeSet::from([GroupKind::new("", "ConfigMap")]),
    );
    subscribers.set(
        &NamespacedName::new("team", "other"),
        BTreeSet::from([GroupKind::new("", "Secret")]),
    );
    let listener = watches::listener(subscribers, Arc::default(), move |name| {
        changed.lock().push(name.to_string())
    });
    let cache = ClusterObjects::cache(Budget::new("test", 1 << 20), None);
    let object = |object: Value| Arc::new(cache.object(object.as_object().unwrap().clone()).unwrap());
    let event = match (old, new) {
        (None, None) => KindEvent::Kind,
        (old, new) => KindEvent::Object {
            old: old.map(object),
            new: new.map(object),
        },
    };
    listener(&GroupKind::new("", "ConfigMap"), event);
    names.lock().clone()
}

fn owned(application: &str, shared_by: &str) -> Value {
    json!({ "metadata": {
        "name": "a", "namespace": "shop",
        "labels": { "app.oam.dev/name": application, "app.oam.dev/namespace": "shop" },
        "annotations": { "app.oam.dev/shared-by": shared_by },
    }})
}

#[test]
fn a_change_concerns_the_owners_before_and_after_it_and_those_who_share_the_object() {
    assert_eq!(
        concerned(Some(owned("a", "")), Some(owned("b", ""))),
        ["shop/a", "shop/b"]
    );
    assert_eq!(
        concerned(None, Some(owned("a", "shop/a, bank/b,odd"))),
        ["bank/b", "shop/a"]
    );
    assert_eq!(concerned(Some(owned("a", "bank/b")), None), ["bank/b", "shop/a"]);
    let unlabeled = json!({ "metadata": { "name": "a", "labels": { "app.oam.dev/name": "a" } } });
    assert!(concerned(None, Some(unlabeled)).is_empty());
}

#[test]
fn a_change_of_a_whole_kind_concerns_its_subscribers() {
    assert_eq!(concerned(None, None), ["team/subscriber"]);
}

#[tokio::test]
async fn a_user_sends_its_own_requests_and_reads_from_the_cache_what_it_may() {
    let shared = Fixture::new();
    let kind = GroupKind::new("", "ConfigMap");
    let application = NamespacedName::new("shop", "app");
    let of = |namespace: &str| {
        let labels = json!({ "app.oam.dev/name": "app", "app.oam.dev/namespace": "shop" });
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": namespace, "name": "a", "resourceVersion": "7", "uid": "u", "labels": labels } })
    };
    let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "7" },
        "items": [of("shop"), of("other")] });
    *shared.response.lock() = (200, list);
    shared.objects.subscribe(&application, BTreeSet::from([kind.clone()]));
    shared.objects.wait_until_settled(&BTreeSet::from([kind.clone()])).await;
    let (allowed, other) = (id("ConfigMap", "shop", "a"), id("ConfigMap", "other", "a"));
    let is_found = |cached: CachedObject| matches!(cached, CachedObject::Found(_));
    assert!(is_found(shared.objects.cached(&allowed)) && is_found(shared.objects.cached(&other)));

    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = Arc::clone(&requests);
    let server = tower::service_fn(move |request: http::Request<Body>| {
        received
            .lock()
            .push(format!("{} {}", request.method(), request.uri().path()));
        let object = json!({ "metadata": { "name": "own", "resourceVersion": "9" } });
        ready(Ok::<_, Infallible>(http::Response::new(Body::from(
            object.to_string().into_bytes(),
        ))))
    });
    let readable = BTreeSet::from([(kind, "shop".to_owned())]);
    let user = shared.objects.as_user(Client::new(server, "default"), readable);
    assert!(is_found(user.cached(&allowed)));
    assert_eq!(user.cached(&other), CachedObject::Unknown);
    assert_eq!(user.newer(&other, json!({})), json!({}));
    let before = shared.requests.lock().len();
    assert!(user.get(&allowed).await.unwrap().is_some());
    assert_eq!(user.get(&other).await.unwrap().unwrap()["metadata"]["name"], "own");
    user.delete(&allowed, "u").await.unwrap();
    let expected = [
        "GET /api/v1/namespaces/other/configmaps/a",
        "DELETE /api/v1/namespaces/shop/configmaps/a",
    ];
    assert_eq!(*requests.lock(), expected);
    assert_eq!(shared.requests.lock().len(), before, "none by the controller");
    assert!(is_found(user.as_controller().cached(&other)));
}

#[test]
fn an_id_is_of_the_entry_with_the_same_version_kind_namespace_and_name() {
    let map = id("ConfigMap", "shop", "a");
    let entry = |change: fn(&mut ObjectId)| {
        let mut id = map.clone();
        change(&mut id);
        let (cluster, component) = ("local", "web");
        let entry = json!({ "apiVersion": id.api_version, "kind": id.kind, "namespace": id.namespace, "name": id.name,
            "cluster": cluster, "component": component });
        serde_json::from_value(entry).unwrap()
    };
    assert!(map.is_of(&entry(|_| ())));
    for change in [
        (|id| id.api_version = "v2".to_owned()) as fn(&mut ObjectId),
        |id| id.kind = "Secret".to_owned(),
        |id| id.namespace = "other".to_owned(),
        |id| id.name = "b".to_owned(),
    ] {
        assert!(!map.is_of(&entry(change)));
    }
}

/// Returns objects that a server lists in pages; one page for each item of `sizes`, with an object of this size. Also returns
/// the number of requests. After the last page, there are `more` or none.
async fn listed(sizes: &[usize], more: bool) -> (Result<Vec<Value>, String>, usize) {
    let shared = Fixture::new();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = Arc::clone(&requests);
    let sizes = sizes.to_vec();
    let server = tower::service_fn(move |request: http::Request<Body>| {
        let page = received.lock().len();
        received.lock().push(request.uri().query().unwrap().to_owned());
        let size = sizes.get(page).copied().unwrap_or_default();
        let items: Vec<_> = (0..50)
            .map(|index| json!({ "metadata": { "name": format!("{page}-{index}") }, "data": { "a": "x".repeat(size / 50) } }))
            .collect();
        let next = if more || page + 1 < sizes.len() {
            page.to_string()
        } else {
            String::new()
        };
        let list = json!({ "items": items, "metadata": { "continue": next } });
        ready(Ok::<_, Infallible>(http::Response::new(Body::from(
            list.to_string().into_bytes(),
        ))))
    });
    let user = shared.objects.as_user(Client::new(server, "default"), BTreeSet::new());
    let objects = user.list(&id("ConfigMap", "shop", ""), "a=b").await;
    let requests = requests.lock();
    assert!(
        requests
            .iter()
            .all(|query| query.contains("limit=50") && query.contains("labelSelector=a%3Db"))
    );
    for (page, query) in requests.iter().enumerate().skip(1) {
        assert!(query.contains(&format!("continue={}", page - 1)), "{query}");
    }
    (objects.map_err(|error| error.to_string()), requests.len())
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (objects, requests) = listed(&[100, 100, 100], false).await;
    let objects = objects.unwrap();
    assert_eq!((objects.len(), requests), (150, 3));
    let last = &objects[149];
    assert_eq!(
        (&last["apiVersion"], &last["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(last["metadata"]["name"], "2-49");
}

#[tokio::test]
async fn a_list_of_too_many_or_too_large_objects_is_not_read_to_its_end() {
    let (objects, requests) = listed(&[], true).await;
    assert_eq!(
        objects.unwrap_err(),
        "there are more than 1000 objects of kind ConfigMap; select fewer"
    );
    assert_eq!(requests, 20);
    let (objects, requests) = listed(&[1 << 20; 10], true).await;
    assert_eq!(
        objects.unwrap_err(),
        "there are more than 4 MiB of objects of kind ConfigMap; select fewer"
    );
    assert_eq!(requests, 4);
}
