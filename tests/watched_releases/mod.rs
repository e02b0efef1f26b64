//! `portolan run --releases`: releases of a real API server, as the API, the page and the metric show them.

pub(crate) mod access;
mod declared;
mod story;

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::catalog::On;
use crate::cluster::{SOON, World, index};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::ports::free_port;
use crate::support::postgres;
use crate::support::process::ScratchDir;

const HOME: &str = "https://web.example";

/// A process that serves the catalog and watches the releases of a namespace.
pub(crate) struct Watching {
    pub(crate) portolan: Portolan,
    pub(crate) url: String,
    pub(crate) world: World,
    client: reqwest::Client,
    _directory: ScratchDir,
}

impl Watching {
    pub(crate) async fn start(on: On, flags: &[&str]) -> Self {
        Self::start_at(&control_plane().await.url(), on, flags).await
    }

    /// Same with another address of the API server.
    async fn start_at(server: &str, on: On, flags: &[&str]) -> Self {
        let (world, directory) = (World::new().await, ScratchDir::new("releases"));
        let database_url = match on {
            On::Sqlite => format!("sqlite://{}", directory.join("portolan.db").display()),
            On::Postgres => postgres::database().await.url,
        };
        let address = format!("127.0.0.1:{}", free_port());
        let kubeconfig = control_plane().await.kubeconfig_for(server, ADMIN_TOKEN);
        let flags = [&["--serve", &address], flags].concat();
        let portolan = world.portolan_with(&kubeconfig, &database_url, &flags).await;
        portolan::http::install_crypto_provider();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
        Self {
            portolan,
            url: format!("http://{address}"),
            world,
            client: client.unwrap(),
            _directory: directory,
        }
    }

    fn namespace(&self) -> &str {
        &self.world.namespace
    }

    /// Requests a path with a token, and returns the status and the body.
    async fn get_as(&self, token: &str, path: &str, accept: &str) -> (u16, String) {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(token);
        let response = request.header("accept", accept).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn list_as(&self, token: &str, query: &str) -> Value {
        let (status, body) = self.get_as(token, &format!("/api/v1/releases{query}"), "*/*").await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn page_as(&self, token: &str, path: &str) -> (u16, String) {
        self.get_as(token, path, "text/html").await
    }

    /// Serves these versions of the chart `web` from the repository `stable`.
    pub(crate) fn list_versions(&self, versions: &[&str]) -> String {
        let index = index(&[("web", versions)]);
        let with_home = format!("description: A chart\n    home: {HOME}");
        self.world
            .serve("stable", index.replace("description: A chart", &with_home))
    }

    /// Declares the repository `stable` with these versions, and waits for its sync.
    pub(crate) async fn declare(&self, versions: &[&str]) {
        let url = self.list_versions(versions);
        self.world.declare("stable", &url).await;
        self.world.until_ready("stable").await;
    }

    /// Creates the Secret of a deployed revision of the chart `web`, as Helm does.
    pub(crate) async fn install(&self, release: &str, revision: u32, version: &str) {
        let payload = payload(self.namespace(), release, revision, version);
        self.write_secret(&object_name(release, revision), release, json!({ "release": payload }))
            .await;
    }

    /// Creates a Secret with the labels of a deployed release. Its data are texts.
    async fn write_secret(&self, name: &str, release: &str, data: Value) {
        let secret = json!({
            "metadata": metadata(name, release), "type": "helm.sh/release.v1", "stringData": data,
        });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.secrets().create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Same in a ConfigMap.
    async fn install_in_config_map(&self, release: &str, version: &str) {
        let payload = payload(self.namespace(), release, 1, version);
        let object = json!({ "metadata": metadata(&object_name(release, 1), release), "data": { "release": payload } });
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let config_maps: Api<ConfigMap> = Api::namespaced(self.world.client.clone(), self.namespace());
        config_maps.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Marks a revision as an earlier one.
    async fn supersede(&self, release: &str, revision: u32) {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "status": "superseded" } } }));
        let name = object_name(release, revision);
        self.secrets()
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.client.clone(), self.namespace())
    }

    /// Waits until the release has this status.
    pub(crate) async fn until_status(&self, release: &str, status: &str) -> Value {
        eventually(SOON, &format!("{release} to be {status}"), async || {
            let list = self.list_as(ADMIN_TOKEN, "").await;
            let items = list["items"].as_array().unwrap();
            let found = items.iter().find(|item| item["name"] == release);
            match found {
                Some(item) if item["verdict"]["status"] == status => Ok(item.clone()),
                _ => Err(list.to_string()),
            }
        })
        .await
    }

    /// Returns the value of the metric of a release.
    async fn metric(&self, release: &str, kind: &str) -> Option<f64> {
        let labels = [("namespace", self.namespace()), ("release", release), ("kind", kind)];
        self.portolan.metrics().await.sum("portolan_release_outdated", &labels)
    }
}

fn object_name(release: &str, revision: u32) -> String {
    format!("sh.helm.release.v1.{release}.v{revision}")
}

fn metadata(name: &str, release: &str) -> Value {
    json!({ "name": name, "labels": { "owner": "helm", "status": "deployed", "name": release } })
}

fn payload(namespace: &str, release: &str, revision: u32, version: &str) -> String {
    let metadata = json!({ "apiVersion": "v2", "name": "web", "version": version, "home": HOME });
    let content = json!({
        "name": release, "info": { "status": "deployed" }, "chart": { "metadata": metadata, "templates": [] },
        "manifest": "", "version": revision, "namespace": namespace,
    });
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Helm writes the fields in the order of its struct, as this text does.
    encoder.write_all(in_order_of_helm(&content).as_bytes()).unwrap();
    BASE64_STANDARD.encode(encoder.finish().unwrap())
}

fn in_order_of_helm(content: &Value) -> String {
    let fields = ["name", "info", "chart", "manifest", "version", "namespace"];
    let fields = fields.map(|field| format!("\"{field}\":{}", content[field]));
    format!("{{{}}}", fields.join(","))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap()).collect()
}
