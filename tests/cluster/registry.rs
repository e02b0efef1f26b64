//! OCI registries with credentials: served charts, cost of changes, and invalid tags.

mod access;
mod changes;
mod large;
mod odd;

use portolan::api::AppRepository;
use reqwest::Method;
use serde_json::json;

use super::{NEVER, World, condition, message};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::ChartServer;
use crate::support::registry::{Registry, Setup};
use crate::support::tls::Authority;
use crate::support::token_server::basic_authorization;

pub fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("README.md", format!("# {name} {version}\n"))
        .file("values.yaml", "berths: 3\n")
        .file("values-production.yaml", "berths: 30\n")
        .file("values.schema.json", r#"{"type": "object"}"#)
        .pack()
}

/// A registry behind a TLS server that records all requests.
pub struct RecordedRegistry {
    registry: Registry,
    pub front: ChartServer,
    authority: Authority,
}

impl RecordedRegistry {
    async fn new(setup: Setup, authority: Authority) -> Self {
        let registry = Registry::start(setup).await;
        let front = ChartServer::in_front_of_tls(&authority, registry.upstream()).await;
        Self {
            registry,
            front,
            authority,
        }
    }

    /// A registry with a password.
    pub async fn with_password() -> Self {
        Self::new(Setup::default().password(), Authority::new()).await
    }

    /// The repository's URL, ending in `ports`.
    pub fn url(&self) -> String {
        format!("oci://{}/ports", self.front.host())
    }

    /// Pushes a chart to the repository `ports/…` as helm does; returns its digest.
    pub async fn push(&self, path: &str, archive: &Archive) -> String {
        let tag = archive.version().replace('+', "_");
        self.registry
            .push_chart(&format!("ports/{path}"), &tag, archive)
            .await
            .digest
    }

    /// Declares it with the required credentials.
    async fn declare(&self, world: &World, name: &str, repositories: &[&str]) -> AppRepository {
        let login = json!({ "authorizationHeader": basic_authorization(), "ca.crt": self.authority.ca_pem });
        world.write_secret(&world.namespace, "login", login).await;
        let key = |key: &str| json!({ "secretKeyRef": { "name": "login", "key": key } });
        let auth = json!({ "header": key("authorizationHeader"), "customCA": key("ca.crt") });
        let spec = json!({ "type": "oci", "url": self.url(), "auth": auth, "ociRepositories": repositories });
        world.declare_with(name, json!({ "spec": spec })).await
    }

    /// Tags or digests of the pulled manifests, one per request, starting with this request.
    fn pulled_since(&self, first: usize) -> Vec<String> {
        let seen = self.front.all_requests();
        let pulls = seen[first..].iter().filter(|request| {
            request.method == Method::GET && request.status.is_some_and(|status| status.is_success())
        });
        pulls
            .filter_map(|request| Some(request.path.rsplit_once("/manifests/")?.1.to_owned()))
            .collect()
    }

    fn requests(&self) -> usize {
        self.front.request_count()
    }
}

/// Requests a sync, which must succeed.
async fn resynced(world: &World, name: &str, token: &str) {
    let object = world.resync_and_wait(name, token).await;
    assert_eq!(condition(&object, "Ready").unwrap().0, "True", "{}", message(&object));
}

/// Entries that the last sync skipped: chart, version, reason.
fn skipped(object: &AppRepository) -> Vec<(String, Option<String>, String)> {
    let last = object
        .status
        .as_ref()
        .and_then(|status| status.last_sync.clone())
        .unwrap();
    last.skipped
        .into_iter()
        .map(|entry| (entry.chart, entry.version, entry.reason))
        .collect()
}
