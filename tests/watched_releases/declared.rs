//! Releases that objects of Flux and Argo CD declare.

use serde_json::{Value, json};

use super::Watching;
use crate::catalog::On;
use crate::cluster::SOON;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::gitops::{self, APPLICATION, CHART_LAYER, HELM_RELEASE, HELM_REPOSITORY, Kind, OCI_REPOSITORY};

impl Watching {
    async fn create(&self, kind: Kind, name: &str, object: Value) {
        kind.create(&self.world.client, self.namespace(), name, object).await;
    }

    async fn report(&self, kind: Kind, name: &str, status: Value) {
        kind.report(&self.world.client, self.namespace(), name, status).await;
    }

    /// Waits until these are the names, kinds and matches of all releases.
    async fn until_releases(&self, expected: &[[&str; 3]]) {
        eventually(SOON, "the declared releases", async || {
            let list = self.list_as(ADMIN_TOKEN, "").await;
            let items = list["items"].as_array().unwrap().iter();
            let found: Vec<_> = items
                .map(|item| [&item["name"], &item["kind"], &item["matched"]])
                .collect();
            if found == expected {
                Ok(())
            } else {
                Err(list.to_string())
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_flux_and_argo_cd_are_compared_by_their_declared_url() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    gitops::install_crds(control_plane().await).await;
    watching.declare(&["2.0.0", "1.0.0"]).await;
    let url = watching.world.server.url("/stable");

    watching.install("web", 1, "1.0.0").await;
    let repository = json!({ "spec": { "url": url } });
    watching.create(HELM_REPOSITORY, "up", repository).await;
    let source = json!({ "kind": "HelmRepository", "name": "up" });
    let chart = json!({ "spec": { "chart": "web", "sourceRef": source } });
    let release = json!({ "spec": { "chart": chart } });
    watching.create(HELM_RELEASE, "web", release).await;
    let source = json!({ "repoURL": url, "chart": "web", "targetRevision": "*" });
    let sync = |revision: &str| json!({ "sync": { "status": "Synced", "revision": revision } });
    let application = json!({ "spec": { "source": source }, "status": sync("1.0.0") });
    watching.create(APPLICATION, "site", application).await;

    let expected = [["site", "application", "exact"], ["web", "helmRelease", "exact"]];
    watching.until_releases(&expected).await;
    watching.until_status("web", "major").await;
    watching.until_status("site", "major").await;

    watching.report(APPLICATION, "site", sync("2.0.0")).await;
    watching.until_status("site", "current").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_of_oci_repositories_are_compared_with_and_without_a_helm_release() {
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    gitops::install_crds(control_plane().await).await;
    watching.declare(&["2.0.0", "1.0.0"]).await;
    // A registry may be declared by https too, so that only host and path count.
    let url = format!("oci://{}/stable/web", watching.world.server.host());

    let digest = format!("sha256:{}", "ab".repeat(32));
    let artifact = |version: &str| json!({ "artifact": { "revision": format!("{version}@{digest}") } });
    let selector = json!({ "mediaType": CHART_LAYER });
    let alone = json!({ "spec": { "url": url, "layerSelector": selector }, "status": artifact("1.0.0") });
    watching.create(OCI_REPOSITORY, "alone", alone).await;
    let source = json!({ "spec": { "url": url }, "status": artifact("1.0.0") });
    watching.create(OCI_REPOSITORY, "source", source).await;
    // Flux appends the beginning of the digest. Helm's own record is in another cluster.
    let history = |version: &str| {
        let version = format!("{version}+{}", "ab".repeat(6));
        json!({ "history": [{ "name": "web", "version": 1, "status": "deployed", "chartName": "web", "chartVersion": version }] })
    };
    let reference = json!({ "kind": "OCIRepository", "name": "source" });
    let release = json!({ "spec": { "chartRef": reference }, "status": history("1.0.0") });
    watching.create(HELM_RELEASE, "web", release).await;

    let expected = [["alone", "ociRepository", "exact"], ["web", "helmRelease", "exact"]];
    watching.until_releases(&expected).await;
    for name in ["alone", "web"] {
        let item = watching.until_status(name, "major").await;
        assert_eq!(item["chart"]["version"], "1.0.0", "{item}");
    }

    watching.report(OCI_REPOSITORY, "alone", artifact("2.0.0")).await;
    watching.report(HELM_RELEASE, "web", history("2.0.0")).await;
    watching.until_status("alone", "current").await;
    watching.until_status("web", "current").await;
}
