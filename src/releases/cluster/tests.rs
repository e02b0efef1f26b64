use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;

use axum::http::{Request, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::*;
use crate::releases::{ReleaseKind, ReleaseState};

/// An API server with Helm's objects. Other kinds are not installed.
#[derive(Default)]
struct Server {
    /// Plural, namespace, name, status.
    objects: BTreeSet<(&'static str, String, String, &'static str)>,
    /// Values that are no releases, by name of the object.
    broken: BTreeMap<String, String>,
    /// Plurals with this code in place of a list.
    refused: BTreeMap<&'static str, u16>,
    /// Lists of other kinds.
    lists: BTreeMap<&'static str, Value>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn with(mut self, plural: &'static str, namespace: &str, name: &str, status: &'static str) -> Self {
        self.objects.insert((
            plural,
            namespace.to_owned(),
            format!("sh.helm.release.v1.{name}"),
            status,
        ));
        self
    }

    fn client(self) -> Client {
        let server = Arc::new(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.respond(&request)) }
        });
        Client::new(service, "default")
    }

    fn respond(&self, request: &Request<Body>) -> Response<Body> {
        self.requests.lock().push(request.uri().to_string());
        let path: Vec<&str> = request.uri().path().trim_start_matches('/').split('/').collect();
        let (namespace, rest) = match path.as_slice() {
            ["api", "v1", "namespaces", namespace, rest @ ..] | ["apis", _, _, "namespaces", namespace, rest @ ..] => {
                (Some(*namespace), rest)
            }
            ["api", "v1", rest @ ..] | ["apis", _, _, rest @ ..] => (None, rest),
            _ => (None, &[][..]),
        };
        let (code, body) = match rest {
            [plural] if self.refused.contains_key(plural) => refusal(self.refused[plural]),
            [plural] if self.lists.contains_key(plural) => (200, json!({ "items": self.lists[plural] })),
            [plural @ ("secrets" | "configmaps")] => (200, self.page(plural, namespace, request)),
            [plural, name] => (200, self.object(plural, namespace.unwrap_or_default(), name)),
            _ => refusal(404),
        };
        let body = Body::from(body.to_string().into_bytes());
        Response::builder().status(code).body(body).unwrap()
    }

    fn page(&self, plural: &str, namespace: Option<&str>, request: &Request<Body>) -> Value {
        let accept = request.headers()["accept"].to_str().unwrap();
        assert!(accept.contains("as=PartialObjectMetadataList"), "{accept}");
        let query = request.uri().query().unwrap_or_default();
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let selector = &query["labelSelector"];
        assert!(selector.starts_with("owner=helm,"), "{selector}");
        let matching = self.objects.iter().filter(|(of, within, _, status)| {
            *of == plural && namespace.is_none_or(|namespace| namespace == within) && selector.contains(status)
        });
        let from: usize = query.get("continue").map_or(0, |token| token.parse().unwrap());
        let limit: usize = query["limit"].parse().unwrap();
        let metadata = |(_, namespace, name, _): &(_, String, String, _)| json!({ "metadata": { "namespace": namespace, "name": name, "managedFields": [{ "manager": "helm" }] } });
        let matching: Vec<_> = matching.collect();
        let page: Vec<Value> = matching.iter().copied().skip(from).take(limit).map(metadata).collect();
        let token = (from + limit < matching.len()).then(|| (from + limit).to_string());
        json!({ "metadata": { "continue": token.unwrap_or_default() }, "items": page })
    }

    fn object(&self, plural: &str, namespace: &str, name: &str) -> Value {
        let mut plurals = ["secrets", "configmaps"].into_iter();
        let plural = plurals.find(|known| *known == plural).unwrap();
        let first = (plural, namespace.to_owned(), name.to_owned(), "");
        let (_, _, _, status) = self.objects.range(first..).next().unwrap();
        let release = name
            .trim_start_matches("sh.helm.release.v1.")
            .rsplit_once(".v")
            .unwrap()
            .0;
        let chart = json!({ "metadata": { "name": "web", "version": "1.2.3" } });
        let release = format!(r#"{{"name":"{release}","info":{{"status":"{status}"}},"chart":{chart}}}"#);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(release.as_bytes()).unwrap();
        let value = BASE64_STANDARD.encode(gzip.finish().unwrap());
        let value = self.broken.get(name).cloned().unwrap_or(value);
        let value = if plural == "secrets" {
            BASE64_STANDARD.encode(value)
        } else {
            value
        };
        json!({ "metadata": { "name": name }, "data": { "a": "with \"escapes\"", "release": value } })
    }
}

fn refusal(code: u16) -> (u16, Value) {
    let message = format!("refused with {code}");
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "message": message, "reason": "x", "code": code }),
    )
}

async fn list_all(server: Server) -> Result<Listing, ReleaseError> {
    list(&server.client(), &Scope::default(), Limits::default()).await
}

fn names(listing: &Listing) -> Vec<String> {
    let name = |release: &Release| format!("{}/{} {}", release.namespace, release.name, release.state);
    listing.releases.iter().map(name).collect()
}

#[tokio::test]
async fn the_newest_deployed_revision_of_each_release_is_read() {
    let server = Server::default()
        .with("secrets", "team", "web.v9", "deployed")
        .with("secrets", "team", "web.v10", "deployed")
        .with("secrets", "team", "web.v11", "failed")
        .with("configmaps", "sea", "web.v1", "deployed");
    let requests = Arc::clone(&server.requests);
    let listing = list_all(server).await.unwrap();
    assert_eq!(names(&listing), ["sea/web deployed", "team/web deployed"]);
    assert_eq!(listing.releases[1].revision, Some(10));
    assert_eq!(
        listing.unreadable,
        Vec::<String>::new(),
        "kinds that are not installed are not missing"
    );
    let requests = requests.lock().clone();
    let read: Vec<_> = requests.iter().filter(|uri| uri.contains("sh.helm")).collect();
    assert_eq!(read.len(), 2, "{read:?}");
}

#[tokio::test]
async fn a_release_that_was_never_deployed_is_listed_with_its_state() {
    let server = Server::default()
        .with("secrets", "team", "a.v1", "failed")
        .with("secrets", "team", "b.v1", "failed")
        .with("secrets", "team", "b.v2", "pending-install");
    let listing = list_all(server).await.unwrap();
    assert_eq!(names(&listing), ["team/a failed", "team/b pending"]);
    assert!(listing.releases.iter().all(|release| !release.is_deployed()));
}

#[tokio::test]
async fn only_the_namespaces_of_the_scope_are_listed() {
    let server = Server::default()
        .with("secrets", "a", "web.v1", "deployed")
        .with("secrets", "b", "web.v1", "deployed")
        .with("secrets", "c", "web.v1", "deployed");
    let scope = Scope {
        namespaces: vec!["a".to_owned(), "c".to_owned()],
    };
    let listing = list(&server.client(), &scope, Limits::default()).await.unwrap();
    assert_eq!(names(&listing), ["a/web deployed", "c/web deployed"]);
}

#[tokio::test]
async fn an_object_that_is_no_release_is_named_and_others_are_listed() {
    let mut server = Server::default()
        .with("secrets", "team", "bad.v1", "deployed")
        .with("secrets", "team", "good.v1", "deployed")
        .with("secrets", "team", "no-revision", "deployed");
    server
        .broken
        .insert("sh.helm.release.v1.bad.v1".to_owned(), "no base64".to_owned());
    let listing = list_all(server).await.unwrap();
    assert_eq!(names(&listing), ["team/good deployed"]);
    let mut unreadable = listing.unreadable;
    unreadable.sort();
    assert_eq!(unreadable.len(), 2, "{unreadable:?}");
    assert!(unreadable[0].starts_with("secrets team/sh.helm.release.v1.bad.v1: it is no valid base64"));
    assert!(unreadable[1].starts_with("secrets team/sh.helm.release.v1.no-revision: its name"));
}

#[tokio::test]
async fn kinds_that_are_forbidden_are_named_unless_all_are() {
    let mut server = Server::default().with("configmaps", "team", "web.v1", "deployed");
    server.refused = BTreeMap::from([("secrets", 403), ("applications", 403)]);
    let listing = list_all(server).await.unwrap();
    assert_eq!(names(&listing), ["team/web deployed"]);
    let unreadable: BTreeSet<String> = listing.unreadable.into_iter().collect();
    let expected = ["applications: refused with 403", "secrets: refused with 403"];
    assert_eq!(unreadable, BTreeSet::from(expected.map(str::to_owned)));

    let server = Server {
        refused: BTreeMap::from([("secrets", 403), ("configmaps", 403)]),
        ..Server::default()
    };
    let error = list_all(server).await.unwrap_err();
    assert!(
        error.0.is_forbidden() && error.to_string().contains("list and get Secrets"),
        "{error}"
    );
}

#[tokio::test]
async fn objects_of_flux_and_argo_cd_are_listed_beside_those_of_helm() {
    let mut server = Server::default().with("secrets", "team", "web.v1", "deployed");
    let repository =
        json!({ "metadata": { "namespace": "team", "name": "up" }, "spec": { "url": "https://up.example" } });
    let source = json!({ "kind": "HelmRepository", "name": "up" });
    let release = json!({
        "metadata": { "namespace": "team", "name": "web" },
        "spec": { "chart": { "spec": { "chart": "web", "sourceRef": source } } },
    });
    let application = json!({
        "metadata": { "namespace": "argocd", "name": "site" },
        "spec": { "source": { "repoURL": "https://up.example", "chart": "web" } },
        "status": { "sync": { "status": "Synced", "revision": "1.0.0" } },
    });
    server.lists = BTreeMap::from([
        ("helmrepositories", json!([repository])),
        ("helmreleases", json!([release])),
        ("applications", json!([{ "metadata": { "name": 1 } }, application])),
    ]);
    let listing = list_all(server).await.unwrap();
    assert_eq!(names(&listing), ["argocd/site deployed", "team/web deployed"]);
    let kinds: Vec<_> = listing.releases.iter().map(|release| release.kind).collect();
    assert_eq!(kinds, [ReleaseKind::Application, ReleaseKind::HelmRelease]);
    let urls = listing.releases.iter().map(|release| release.chart.url.as_deref());
    assert!(urls.eq([Some("https://up.example/"), Some("https://up.example/")]));
    let broken = "an object of /apis/argoproj.io/v1alpha1/applications can't be decoded";
    assert_eq!(listing.unreadable, [broken]);
}

#[tokio::test]
async fn ten_thousand_releases_of_a_namespace_take_no_place_of_others() {
    let mut server = Server::default().with("secrets", "z", "web.v1", "deployed");
    for number in 0..10_000 {
        server = server.with("secrets", "hoard", &format!("r{number}.v1"), "deployed");
    }
    let requests = Arc::clone(&server.requests);
    let (client, scope) = (server.client(), Scope::default());
    let limits = Limits {
        releases: 100,
        ..Limits::default()
    };
    let few = list(&client, &scope, limits).await.unwrap();
    assert_eq!(few.releases.len(), 100);
    assert_eq!(few.releases.last().unwrap().namespace, "z");
    assert_eq!(
        few.unreadable,
        ["only 100 of 10001 releases are read; choose namespaces"]
    );
    let seen = std::mem::take(&mut *requests.lock()).len();
    assert!(seen < 150, "{seen} requests");

    let most = list(&client, &scope, Limits::default()).await.unwrap();
    assert_eq!(most.releases.len(), MAX_RELEASES);
    assert_eq!(most.releases.last().unwrap().namespace, "z");
    assert_eq!(
        most.unreadable,
        ["only 10000 of 10001 releases are read; choose namespaces"]
    );
    let requests = requests.lock();
    let count = |part: &str| requests.iter().filter(|uri| uri.contains(part)).count();
    // The first of 21 pages continues none.
    assert_eq!((count("continue="), count("sh.helm.release")), (20, MAX_RELEASES));
}

#[tokio::test]
async fn a_listing_ends_in_time_and_says_so() {
    let server = Server::default().with("secrets", "team", "web.v1", "deployed");
    let limits = Limits {
        time: Duration::ZERO,
        ..Limits::default()
    };
    let error = list(&server.client(), &Scope::default(), limits).await.unwrap_err();
    assert!(error.to_string().contains("not read in time"), "{error}");
}

#[tokio::test]
async fn a_limited_number_of_unreadable_objects_is_named() {
    let mut server = Server::default();
    for number in 0..2 * MAX_UNREADABLE {
        server = server.with("secrets", "team", &format!("no-revision-{number}"), "deployed");
    }
    let unreadable = list_all(server).await.unwrap().unreadable;
    assert_eq!(unreadable.len(), MAX_UNREADABLE);
    assert_eq!(unreadable.last().unwrap(), "and 51 more");
}

#[test]
fn states_have_the_words_of_helm() {
    for word in ["deployed", "failed", "superseded"] {
        assert_eq!(ReleaseState::from(word.to_owned()).to_string(), word);
    }
    assert_eq!(ReleaseState::from("pending-rollback".to_owned()), ReleaseState::Pending);
}
