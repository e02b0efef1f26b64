//! `portolan serve`: the rights that it needs, and what it says without each of them.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::{Grant, compare_of, grants_of, roles_of};
use crate::cluster::{SOON, World};
use crate::packaging::release::{SERVE, container_of, install_in, objects, restricted_namespace};
use crate::support::archives::{self, Chart};
use crate::support::chart_server::Page;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;
use crate::support::ports::free_port;
use crate::support::postgres::{TestDatabase, database};
use crate::support::process::ScratchDir;

/// Longer than a request may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A release that serves a repository with credentials, which an administrator's controller has synced.
struct Site {
    world: World,
    release: String,
    database: TestDatabase,
}

impl Site {
    async fn new() -> Self {
        let (world, release, database) = (World::new().await, restricted_namespace().await, database().await);
        let settings = format!(
            "--set=serve.enabled=true,serve.archives=proxy,database.existingSecret=postgres,watchNamespace={}",
            world.namespace
        );
        install_in(&release, &[&settings]).await;
        let site = Self {
            world,
            release,
            database,
        };
        site.sync().await;
        site
    }

    async fn sync(&self) {
        let world = &self.world;
        let archive = Chart::new("beacon", "1.0.0").pack();
        world.server.demand("Bearer token");
        world.server.serve_archives("harbour", [&archive]);
        let index = archives::index([archive.index_entry(&[&archive.file_name()])]);
        world.server.serve("/harbour/index.yaml", Page::new(index));
        let login = json!({ "authorizationHeader": "Bearer token" });
        world.write_secret(&world.namespace, "login", login).await;
        let header = json!({ "secretKeyRef": { "name": "login", "key": "authorizationHeader" } });
        let spec = json!({ "type": "helm", "url": world.server.url("/harbour"), "auth": { "header": header } });
        let controller = world.portolan(&self.database.url, &["--crontab=@yearly"]).await;
        world.declare_with("harbour", json!({ "spec": spec })).await;
        world.until_ready("harbour").await;
        drop(controller);
    }

    /// Starts the container of the Deployment.
    async fn serve(&self, server: &str) -> Serving {
        portolan::http::install_crypto_provider();
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = container_of(SERVE, &self.release, server, &self.database.url).await;
        command.arg(format!("--serve={address}"));
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(PATIENCE);
        Serving {
            portolan: Portolan::start(command),
            url: format!("http://{address}"),
            client: client.build().unwrap(),
            archive: format!(
                "/helm/{}/harbour/archives/beacon/1.0.0/beacon-1.0.0.tgz",
                self.world.namespace
            ),
        }
    }

    /// Waits until the API server knows if the release has a right.
    async fn until_granted(&self, grant: &Grant, is_granted: bool) {
        let reviews: Api<SubjectAccessReview> = Api::all(control_plane().await.client().await);
        let (group, resource) = grant.resource.split_once('/').unwrap();
        let review = json!({ "metadata": {}, "spec": {
            "user": format!("system:serviceaccount:{}:{SERVE}", self.release),
            "resourceAttributes": {
                "verb": grant.verb, "group": group, "resource": resource,
                "name": grant.name.as_deref().unwrap_or("any"), "namespace": grant.namespace,
            },
        }});
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        eventually(SOON, "the API server to know the role", async || {
            let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
            (reviewed.status.unwrap().allowed == is_granted).then_some(())
        })
        .await;
    }
}

struct Serving {
    portolan: Portolan,
    url: String,
    client: reqwest::Client,
    archive: String,
}

impl Serving {
    /// Requests the charts and an archive, and returns the statuses and bodies of the responses.
    async fn ask(&self) -> Vec<(u16, String)> {
        let mut answers = Vec::new();
        for path in ["/api/v1/charts", &self.archive] {
            let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(ADMIN_TOKEN);
            if let Ok(response) = request.send().await {
                let status = response.status().as_u16();
                let body = response.bytes().await.unwrap_or_default();
                answers.push((status, String::from_utf8_lossy(&body).into_owned()));
            }
        }
        answers
    }

    /// Returns the log, and the bodies of errors.
    async fn said(&self) -> Vec<String> {
        let errors = self.ask().await.into_iter().filter(|(status, _)| *status >= 400);
        let errors: Vec<String> = errors.map(|(_, body)| body).collect();
        errors.into_iter().chain(self.portolan.lines()).collect()
    }
}

/// Returns true for a text that names a right as missing.
fn names(text: &str, grant: &Grant) -> bool {
    let (_, resource) = grant.resource.split_once('/').unwrap();
    let is_refusal = ["forbidden", "not allowed"].iter().any(|word| text.contains(word));
    is_refusal && text.contains(&grant.verb) && text.contains(resource)
}

/// Returns a role with these rights.
fn with_rights<'a>(role: &Value, grants: impl Iterator<Item = &'a Grant>) -> Value {
    let rule = |grant: &Grant| {
        let (group, resource) = grant.resource.split_once('/').unwrap();
        let names: Vec<&String> = grant.name.iter().collect();
        json!({ "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": [grant.verb] })
    };
    let mut changed = role.clone();
    changed["rules"] = grants.map(rule).collect();
    changed
}

async fn replace(role: &Value) {
    let directory = ScratchDir::new("role");
    let file = directory.write("role.json", role.to_string()).display().to_string();
    control_plane().await.kubectl(&["replace", "-f", &file]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serving_needs_exactly_the_granted_rights() {
    let site = Site::new().await;
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let serving = site.serve(&proxy.url()).await;
    serving.portolan.ready(SOON).await;
    let answers = serving.ask().await;
    assert!(
        matches!(answers[..], [(200, ref charts), (200, _)] if charts.contains("beacon")),
        "{answers:?}\n{:?}",
        serving.portolan.lines()
    );
    compare_of(SERVE, &site.release, &proxy, |_| false).await;
    let lines = serving.portolan.lines();
    assert!(!lines.iter().any(|line| line.contains("forbidden")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named() {
    let site = Site::new().await;
    let objects = objects(&site.release).await;
    let mut taken = Vec::new();
    for role in roles_of(SERVE, &objects) {
        let grants = grants_of(role);
        for grant in &grants {
            replace(&with_rights(role, grants.iter().filter(|other| *other != grant))).await;
            site.until_granted(grant, false).await;
            let serving = site.serve(&control_plane().await.url()).await;
            eventually(SOON, &format!("{grant:?} to be named"), async || {
                let said = serving.said().await;
                let is_named = said.iter().any(|text| names(text, grant));
                if is_named { Ok(()) } else { Err(said.join("\n")) }
            })
            .await;
            replace(role).await;
            site.until_granted(grant, true).await;
            taken.push(format!("{} {}", grant.verb, grant.resource));
        }
    }
    taken.sort();
    let all = [
        "create authentication.k8s.io/tokenreviews",
        "create authorization.k8s.io/subjectaccessreviews",
        "get /namespaces",
        "get /secrets",
        "get kubeapps.com/apprepositories",
    ];
    assert_eq!(taken, all);
}
