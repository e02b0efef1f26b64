//! `portolan outdated` for releases of helm 3 and 4, Flux and Argo CD.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use rstest::rstest;
use serde_json::{Value, json};

use super::Site;
use crate::catalog::On;
use crate::support::archives::Chart;
use crate::support::control_plane::control_plane;
use crate::support::gitops::{self, APPLICATION, CHART_LAYER, HELM_RELEASE, HELM_REPOSITORY, Kind, OCI_REPOSITORY};
use crate::support::helm;

impl Site {
    /// Installs version 1.0.0 of the chart `web`.
    async fn install(&self, helm: &str, release: &str) {
        let template = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: \"{{ .Release.Name }}\"}\n";
        let archive = Chart::new("web", "1.0.0").file("templates/map.yaml", template).pack();
        let file = self.directory.write(&archive.file_name(), &archive.bytes);
        let (file, kubeconfig) = (file.display().to_string(), self.world.kubeconfig.display().to_string());
        let install = [
            "install",
            release,
            &file,
            "--namespace",
            self.namespace(),
            "--kubeconfig",
            &kubeconfig,
        ];
        helm::output(helm::command_of(helm, self.directory.path(), &install)).await;
    }

    async fn create_secret(&self, release: &str, status: &str, payload: &str) {
        let secret = json!({
            "metadata": {
                "name": format!("sh.helm.release.v1.{release}.v1"),
                "labels": { "owner": "helm", "status": status, "name": release, "version": "1" },
            },
            "type": "helm.sh/release.v1",
            "stringData": { "release": payload },
        });
        let secrets: Api<Secret> = Api::namespaced(self.world.client.clone(), self.namespace());
        let secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn create(&self, kind: Kind, name: &str, object: Value) {
        kind.create(&self.world.client, self.namespace(), name, object).await;
    }

    fn outdated<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["outdated", "-n", self.namespace()], more].concat()
    }

    fn expected(&self, release: &str, verdict: &Value) -> Value {
        json!({
            "kind": "helm", "namespace": self.namespace(), "name": release, "state": "deployed", "revision": 1,
            "chart": { "name": "web", "version": "1.0.0" }, "matched": "possible",
            "repositories": [{ "namespace": self.namespace(), "name": "stable" }], "verdict": verdict,
        })
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_helm_are_compared_with_the_catalog(#[values(On::Sqlite, On::Postgres)] on: On) {
    let site = Site::new(on).await;
    let versions: &[&str] = &["2.0.0", "1.1.0", "1.0.1", "1.0.0", "2.1.0-rc.1"];
    site.fill("stable", &[("web", versions), ("redis", &["1.0.0"])]).await;
    site.install("helm", "three").await;
    site.install("helm4", "four").await;
    let verdict = json!({
        "status": "major", "newestPatch": "1.0.1", "newestMinor": "1.1.0", "newestMajor": "2.0.0", "deprecated": false,
    });
    let expected = json!([site.expected("four", &verdict), site.expected("three", &verdict)]);
    let json = site.outdated(&["-o", "json"]);
    assert_eq!(site.read(&json).await.json(), expected);
    let yaml = site.read(&site.outdated(&["-o", "yaml"])).await.ok();
    assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), expected);

    let serving = site.serve().await;
    assert_eq!(site.ask(&serving, &json).await.json(), expected);
    let table = site.read(&site.outdated(&[])).await.ok();
    let repository = format!("{}/stable", site.namespace());
    let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        words,
        [site.namespace(), "four", "web", "1.0.0", "major", "2.0.0", &repository]
    );
    assert_eq!(site.ask(&serving, &site.outdated(&[])).await.ok(), table);

    let devel = site.read(&site.outdated(&["-o", "json", "--devel"])).await.json();
    assert_eq!(devel[0]["verdict"]["newestMajor"], "2.1.0-rc.1");
    let error = site.read(&site.outdated(&["--fail-on", "patch"])).await.failed(3);
    assert!(error.contains("2 releases are at level patch or higher"), "{error}");
    site.read(&site.outdated(&["--fail-on", "withdrawn"])).await.ok();
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_of_flux_and_argo_cd_are_compared_with_the_repositories_that_they_declare(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let site = Site::new(on).await;
    gitops::install_crds(control_plane().await).await;
    site.fill("stable", &[("web", &["2.0.0", "1.1.0", "1.0.0"])]).await;
    // Without the declared URL, the match is ambiguous.
    site.fill("copy", &[("web", &["3.0.0", "1.0.0"])]).await;
    let url = site.world.server.url("/stable");

    site.install("helm", "shop").await;
    let repository = json!({ "spec": { "url": format!("{url}/") } });
    site.create(HELM_REPOSITORY, "up", repository).await;
    let source = json!({ "kind": "HelmRepository", "name": "up" });
    let chart = json!({ "spec": { "chart": "web", "sourceRef": source } });
    site.create(HELM_RELEASE, "shop", json!({ "spec": { "chart": chart } }))
        .await;

    let registry = format!("oci://{}/stable/web", site.world.server.host());
    let spec = json!({ "url": registry, "layerSelector": { "mediaType": CHART_LAYER } });
    let artifact = json!({ "revision": format!("1.1.0@sha256:{}", "ab".repeat(32)) });
    let chart = json!({ "spec": spec, "status": { "artifact": artifact } });
    site.create(OCI_REPOSITORY, "chart", chart).await;

    let source = json!({ "repoURL": url, "chart": "web", "targetRevision": "*" });
    let sync = |revision: &str| json!({ "sync": { "status": "Synced", "revision": revision } });
    let current = json!({ "spec": { "source": source.clone() }, "status": sync("2.0.0") });
    site.create(APPLICATION, "current", current).await;
    let git = json!({ "repoURL": "https://git.example/team.git" });
    let pending = json!({ "spec": { "sources": [git, source] } });
    site.create(APPLICATION, "pending", pending).await;

    let json = site.outdated(&["-o", "json"]);
    let found = site.read(&json).await.json();
    let releases = found.as_array().unwrap().iter();
    let releases: Vec<_> = releases
        .map(|release| {
            let (version, verdict) = (&release["chart"]["version"], &release["verdict"]["status"]);
            [
                &release["name"],
                &release["kind"],
                version,
                &release["matched"],
                verdict,
            ]
        })
        .collect();
    let expected = [
        json!(["chart", "ociRepository", "1.1.0", "exact", "major"]),
        json!(["current", "application", "2.0.0", "exact", "current"]),
        json!(["pending", "application", "*", "unknown", null]),
        json!(["shop", "helmRelease", "1.0.0", "exact", "major"]),
    ];
    assert_eq!(json!(releases), json!(expected), "{found}");
    let stable = json!([{ "namespace": site.namespace(), "name": "stable" }]);
    assert_eq!(found[3]["repositories"], stable, "{found}");

    let serving = site.serve().await;
    assert_eq!(site.ask(&serving, &json).await.json(), found);
    site.read(&site.outdated(&["--fail-on=major"])).await.failed(3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_several_repositories_is_ambiguous_until_one_is_preferred() {
    let site = Site::new(On::Sqlite).await;
    site.fill("stable", &[("web", &["1.1.0", "1.0.0"])]).await;
    site.fill("copy", &[("web", &["3.0.0", "1.0.0"])]).await;
    site.install("helm", "shop").await;
    let found = site.read(&site.outdated(&["-o", "json"])).await;
    assert!(found.stderr.contains("--prefer NAMESPACE/REPOSITORY"), "{found:?}");
    let found = found.json();
    assert_eq!(
        (&found[0]["matched"], &found[0]["verdict"]),
        (&json!("ambiguous"), &Value::Null)
    );
    let wide = site.read(&site.outdated(&["-o", "wide"])).await.ok();
    let [stable, copy] = ["stable", "copy"].map(|name| format!("{}/{name}", site.namespace()));
    assert!(wide.contains(&stable) && wide.contains(&copy), "{wide}");
    // A pipeline does not fail by a guess.
    site.read(&site.outdated(&["--fail-on=patch"])).await.ok();

    let serving = site.serve().await;
    let preferred = site.outdated(&["-o", "json", "--prefer", &copy]);
    let from_database = site.read(&preferred).await.json();
    assert_eq!(from_database[0]["verdict"]["newestMajor"], "3.0.0", "{from_database}");
    assert_eq!(site.ask(&serving, &preferred).await.json(), from_database);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_no_release_is_named_and_hides_no_other() {
    let site = Site::new(On::Sqlite).await;
    site.fill("stable", &[("web", &["1.0.0"])]).await;
    site.create_secret("broken", "deployed", "no base64!").await;
    site.install("helm", "shop").await;
    let found = site.read(&site.outdated(&["-o", "json"])).await;
    assert!(
        found.stderr.contains("not read: ") && found.stderr.contains("broken"),
        "{found:?}"
    );
    let found = found.json();
    let names: Vec<&Value> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|release| &release["name"])
        .collect();
    assert!(names.contains(&&json!("shop")), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_rights_gets_an_error_instead_of_an_empty_list() {
    let site = Site::new(On::Sqlite).await;
    let token = control_plane().await.token_for(site.namespace(), "stranger").await;
    let stranger = site.kubeconfig_of("stranger", json!({ "token": token }));
    let arguments = site.outdated(&["--fail-on=patch"]);
    // No request is sent to the server.
    let failed = super::ask_with("http://127.0.0.1:1", &stranger, &arguments).await;
    let error = failed.failed(1);
    assert!(error.contains("Secrets") && !error.contains(&token), "{error}");
}
