//! Releases that objects of Flux and Argo CD declare. Their CRDs have the fields that are read.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::Watching;
use crate::catalog::On;
use crate::cluster::SOON;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;

const KINDS: [(&str, &str, &str, &str); 3] = [
    ("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
    ("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"),
    ("argoproj.io", "v1alpha1", "Application", "applications"),
];

fn crd((group, version, kind, plural): (&str, &str, &str, &str)) -> CustomResourceDefinition {
    let part = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": part.clone(), "status": part } });
    let crd = json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{
                "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
            }],
        },
    });
    serde_json::from_value(crd).unwrap()
}

impl Watching {
    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, kind, _) = KINDS.into_iter().find(|known| known.2 == kind).unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.world.client.clone(), self.namespace(), &resource)
    }

    async fn create(&self, kind: &str, name: &str, spec: Value, status: Value) {
        let (group, version, ..) = KINDS.into_iter().find(|known| known.2 == kind).unwrap();
        let object = json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": { "name": name },
            "spec": spec, "status": status,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.objects(kind)
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_flux_and_argo_cd_are_compared_by_their_declared_url() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    for kind in KINDS {
        control_plane().await.install_crd(&crd(kind)).await;
    }
    watching.declare(&["2.0.0", "1.0.0"]).await;
    let url = watching.world.server.url("/stable");

    watching.install("web", 1, "1.0.0").await;
    let source = json!({ "kind": "HelmRepository", "name": "up" });
    let chart = json!({ "spec": { "chart": "web", "sourceRef": source } });
    watching
        .create("HelmRepository", "up", json!({ "url": url }), json!({}))
        .await;
    watching
        .create("HelmRelease", "web", json!({ "chart": chart }), json!({}))
        .await;
    let source = json!({ "repoURL": url, "chart": "web", "targetRevision": "*" });
    let sync = |revision: &str| json!({ "sync": { "status": "Synced", "revision": revision } });
    let spec = json!({ "source": source });
    watching.create("Application", "site", spec, sync("1.0.0")).await;

    eventually(SOON, "the declared releases", async || {
        let list = watching.list_as(ADMIN_TOKEN, "").await;
        let items = list["items"].as_array().unwrap().iter();
        let found: Vec<_> = items
            .map(|item| [&item["name"], &item["kind"], &item["matched"]])
            .collect();
        if found == [["site", "application", "exact"], ["web", "helmRelease", "exact"]] {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
    watching.until_status("web", "major").await;
    watching.until_status("site", "major").await;

    let patch = Patch::Merge(json!({ "status": sync("2.0.0") }));
    let applications = watching.objects("Application");
    applications
        .patch("site", &PatchParams::default(), &patch)
        .await
        .unwrap();
    watching.until_status("site", "current").await;
}
