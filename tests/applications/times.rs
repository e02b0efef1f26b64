//! Timestamps in `managedFields` that Go accepts and jiff does not; any client may write them.

use axum::http::Request;
use axum::http::request::Builder;
use serde_json::{Value, json};

use super::{SOON, Site, assert_no_panic, shop};
use crate::support::eventually::eventually;

/// Raw access to objects with such timestamps.
struct Raw<'a>(&'a Site<'a>);

impl Raw<'_> {
    fn path(&self, api: &str, plural: &str) -> String {
        format!("{api}/namespaces/{}/{plural}", self.0.namespace)
    }

    /// Creates an object with a managed field of the last day of the year 9999.
    async fn create(&self, api: &str, plural: &str, mut object: Value) {
        let version = api.trim_start_matches("/apis/").trim_start_matches("/api/");
        object["apiVersion"] = version.into();
        let path = self.path(api, plural);
        let request = Request::post(&path).header("content-type", "application/json");
        self.send(request, &object).await;
        let managed = json!([{
            "manager": "odd", "operation": "Update", "apiVersion": version,
            "time": "9999-12-31T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:labels": { ".": {}, "f:app": {} } } }
        }]);
        let name = object["metadata"]["name"].as_str().unwrap();
        let request = Request::patch(format!("{path}/{name}")).header("content-type", "application/merge-patch+json");
        let answer = self
            .send(request, &json!({ "metadata": { "managedFields": managed } }))
            .await;
        assert!(answer.contains("9999-12-31T00:00:00Z"), "{answer}");
    }

    async fn send(&self, request: Builder, body: &Value) -> String {
        let request = request.body(body.to_string().into_bytes()).unwrap();
        self.0.client.request_text(request).await.unwrap()
    }

    async fn until(&self, api: &str, object: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, &format!("{object}: {what}"), async || {
            let request = Request::get(self.path(api, object)).body(Vec::new()).unwrap();
            let text = self.0.client.request_text(request).await.unwrap();
            let object: Value = serde_json::from_str(&text).unwrap();
            if is_so(&object) { Ok(object) } else { Err(text) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_range_times_break_neither_lists_nor_writes() {
    const APPLICATIONS: &str = "/apis/app.k8s.io/v1beta1";
    const REPOSITORIES: &str = "/apis/kubeapps.com/v1alpha1";
    let site = Site::new().await;
    let raw = Raw(&site);
    let labels = json!({ "app": "shop" });
    let named = |kind: &str, name: &str| json!({ "kind": kind, "metadata": { "name": name, "labels": labels } });
    raw.create("/api/v1", "configmaps", named("ConfigMap", "odd")).await;
    raw.create("/api/v1", "secrets", named("Secret", "odd")).await;
    raw.create("/api/v1", "services", {
        let mut service = named("Service", "odd");
        service["spec"] = json!({ "ports": [{ "port": 80 }] });
        service
    })
    .await;
    let spec = shop(&[("", "ConfigMap"), ("", "Secret"), ("", "Service")], true);
    let mut application = named("Application", "odd");
    application["spec"] = spec.clone();
    raw.create(APPLICATIONS, "applications", application).await;
    let mut repository = named("AppRepository", "odd");
    repository["spec"] = json!({ "type": "helm", "url": "http://127.0.0.1:1/" });
    raw.create(REPOSITORIES, "apprepositories", repository).await;
    site.declare("neighbor", spec).await;

    let portolan = site.portolan(&[]).await;
    site.until_components("neighbor", "3/3").await;
    raw.until(
        APPLICATIONS,
        "applications/odd",
        "3/3 ready, without an error",
        |object| {
            let conditions = object["status"]["conditions"].as_array();
            let error = conditions
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == "Error");
            object["status"]["componentsReady"] == "3/3" && error.is_some_and(|error| error["status"] == "False")
        },
    )
    .await;
    for object in ["configmaps/odd", "secrets/odd", "services/odd"] {
        raw.until("/api/v1", object, "owned by both", |object| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.len() == 2)
        })
        .await;
    }
    raw.until(
        REPOSITORIES,
        "apprepositories/odd",
        "tried, and kept by a finalizer",
        |object| !object["status"]["conditions"].is_null() && !object["metadata"]["finalizers"].is_null(),
    )
    .await;
    assert_no_panic(&portolan);
    let bodies: Vec<_> = portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("9999"))
        .collect();
    assert!(bodies.is_empty(), "{bodies:#?}");
}
