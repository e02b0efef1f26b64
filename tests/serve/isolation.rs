//! No response has a row of a namespace outside the caller's. The routes are those of the OpenAPI document, [`MACHINE_ROUTES`] and
//! [`PAGES`].

use std::collections::BTreeSet;

use reqwest::header::{ETAG, HeaderName};
use rstest::rstest;
use serde_json::{Value, json};

use super::access::{reader, revoke};
use super::{Answer, Serving};
use crate::catalog::On;
use crate::cluster::World;
use crate::cluster::rows::{Rows, one_shot};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::postgres;
use crate::support::process::ScratchDir;

/// Routes that clients know without the document.
const MACHINE_ROUTES: [&str; 4] = [
    "/helm/{namespace}/{repository}/index.yaml",
    "/helm/{namespace}/{repository}/archives/{chart}/{version}/{chart}-{version}.tgz",
    "/api/chartsvc/v1/charts/search?q={chart}",
    "/charts/{namespace}.{repository}/{chart}",
];
const PAGES: [&str; 14] = [
    "/",
    "/?q={chart}",
    "/?namespace={namespace}",
    "/?repository={namespace}/{repository}",
    "/repositories",
    "/repositories/{namespace}/{repository}",
    "/charts/{namespace}/{repository}/{chart}",
    "/charts/{namespace}/{repository}/{chart}/{version}",
    "/charts/{namespace}/{repository}/{chart}/{version}?tab=values",
    "/charts/{namespace}/{repository}/{chart}/{version}?tab=versions",
    "/charts/{namespace}/{repository}/{chart}/{version}?tab=about",
    "/charts/{namespace}/{repository}/{chart}/diff?from={version}&to={version}",
    "/help",
    "/login",
];
/// Parameters of queries that select rows.
const SELECTING: [&str; 5] = ["namespace", "repository", "q", "keyword", "category"];
const DOCUMENT: &str = "/openapi.json";
/// The only path with a body, see [`outdated`].
const OUTDATED: &str = "/outdated";

#[derive(Clone)]
struct Tenant {
    namespace: String,
    repository: &'static str,
    chart: &'static str,
    version: &'static str,
    /// In texts, keywords and files.
    secret: &'static str,
}

impl Tenant {
    fn ours(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            repository: "jetsam",
            chart: "flotsam",
            version: "7.31.9",
            secret: "driftwood",
        }
    }

    fn theirs(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            repository: "vault",
            chart: "galleon",
            version: "6.66.6",
            secret: "buried-treasure",
        }
    }

    /// The name of [`reader`], which callers see in responses to themselves.
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:reader", self.namespace)
    }

    fn values(&self) -> [&str; 5] {
        [&self.namespace, self.repository, self.chart, self.version, self.secret]
    }

    /// Returns the value of a parameter. The test fails for a parameter that it does not know.
    fn value(&self, parameter: &str) -> &str {
        match parameter {
            "namespace" => &self.namespace,
            "repository" => self.repository,
            "chart" | "q" => self.chart,
            "version" | "from" | "to" => self.version,
            "keyword" | "category" => self.secret,
            "file" => "readme",
            other => panic!("add the parameter {other} of the document to this table"),
        }
    }

    fn fill(&self, template: &str) -> String {
        let mut parts = template.split(['{', '}']);
        let mut path = parts.next().unwrap().to_owned();
        while let (Some(parameter), Some(text)) = (parts.next(), parts.next()) {
            path += self.value(parameter);
            path += text;
        }
        path
    }

    fn index(&self) -> String {
        let Self {
            chart, version, secret, ..
        } = self;
        format!(
            "apiVersion: v1\nentries:\n  {chart}:\n  - name: {chart}\n    version: {version}\n    appVersion: {secret}\n    \
             description: {secret}\n    home: https://{secret}.example\n    keywords: [{secret}]\n    \
             annotations: {{category: {secret}}}\n    urls: [{chart}-{version}.tgz]\n"
        )
    }

    /// Writes the charts by `portolan sync`, and files as Kubeapps would.
    async fn store(&self, world: &World, database_url: &str, on: On) {
        let url = world.serve(self.repository, self.index());
        one_shot(&self.namespace, self.repository, &url, database_url).await;
        let Self {
            namespace,
            repository,
            chart,
            version,
            secret,
        } = self;
        let cast = match on {
            On::Sqlite => "",
            On::Postgres => "::jsonb",
        };
        let insert = format!(
            "DELETE FROM files WHERE repo_namespace = '{namespace}' AND repo_name = '{repository}';
            INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info) VALUES (
                '{repository}/{chart}', '{repository}', '{namespace}', '{repository}/{chart}-{version}',
                '{{\"ID\": \"{repository}/{chart}-{version}\", \"Readme\": \"{secret}\", \"DefaultValues\": \"key: {secret}\",
                  \"Schema\": \"{{}}\", \"Digest\": \"\"}}'{cast})"
        );
        Rows::of(database_url).await.execute(&insert).await;
    }
}

/// The paths of requests, as templates.
struct Routes {
    /// With a namespace in the path or in the query.
    of_namespace: BTreeSet<String>,
    of_all: BTreeSet<String>,
}

impl Routes {
    async fn of(serving: &Serving) -> Self {
        let document = serving.json(DOCUMENT).await;
        let prefix = document["servers"][0]["url"].as_str().unwrap();
        let known = MACHINE_ROUTES.iter().chain(&PAGES);
        let mut all: BTreeSet<String> = known.map(|route| (*route).to_owned()).collect();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let operations = operations.as_object().unwrap();
            if path == OUTDATED {
                continue;
            }
            assert_eq!(operations.keys().collect::<Vec<_>>(), ["get"], "{path}");
            all.extend(queries(&operations["get"]["parameters"]).map(|query| format!("{prefix}{path}{query}")));
        }
        assert!(all.len() > 15, "{all:?}");
        let (of_namespace, of_all) = all.into_iter().partition(|route| route.contains("{namespace}"));
        Self { of_namespace, of_all }
    }
}

/// Returns queries with the required parameters, and with each of those that select rows.
fn queries(parameters: &Value) -> impl Iterator<Item = String> {
    let of_query = |parameter: &&Value| parameter["in"] == "query";
    let parameters = parameters.as_array().into_iter().flatten().filter(of_query);
    let (mut required, mut optional) = (Vec::new(), Vec::new());
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap();
        let assignment = format!("{name}={{{name}}}");
        if parameter["required"] == true {
            required.push(assignment);
        } else if SELECTING.contains(&name) {
            optional.push(assignment);
        }
    }
    let with = move |more: Option<String>| {
        let assignments: Vec<String> = required.iter().cloned().chain(more).collect();
        if assignments.is_empty() {
            String::new()
        } else {
            format!("?{}", assignments.join("&"))
        }
    };
    std::iter::once(None).chain(optional.into_iter().map(Some)).map(with)
}

async fn get(serving: &Serving, token: Option<&str>, path: &str) -> Answer {
    let token = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", token.as_str())).collect();
    serving.request(path, &headers).await
}

/// Asks for the chart of a tenant, with all that identifies it.
async fn outdated(serving: &Serving, token: Option<&str>, of: &Tenant) -> Answer {
    let Tenant {
        namespace,
        repository,
        chart,
        version,
        secret,
    } = of;
    let charts = json!([{ "name": chart, "version": version, "home": format!("https://{secret}.example") }]);
    let body = json!({ "charts": charts, "prefer": [{ "namespace": namespace, "name": repository }] });
    let token = token.map(|token| format!("Bearer {token}"));
    let token = token.iter().map(|token| ("authorization", token.as_str()));
    let headers: Vec<(&str, &str)> = token.chain([("content-type", "application/json")]).collect();
    serving.post(OUTDATED, body.to_string(), &headers).await
}

/// Asserts that a response has nothing of a tenant that the request does not have.
fn assert_has_nothing_of(tenant: &Tenant, path: &str, answer: &Answer) {
    let text = format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body));
    let text = text.replace(&tenant.user(), "");
    for value in tenant.values() {
        assert!(
            path.contains(value) || !text.contains(value),
            "{path}: {value} in {answer:?}"
        );
    }
}

/// The parts of a response that must not tell whether the namespace of the request exists.
fn shown(answer: &Answer, (user, namespace): (&str, &str)) -> (u16, Vec<(HeaderName, String)>, String) {
    let without_names = |text: &str| text.replace(user, "USER").replace(namespace, "NAMESPACE");
    let headers = answer.headers.iter();
    // The tag is a digest of the body.
    let headers = headers.filter(|(name, _)| !["date", ETAG.as_str()].contains(&name.as_str()));
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.clone(), without_names(value.to_str().unwrap())))
        .collect();
    headers.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    let body = without_names(&String::from_utf8_lossy(&answer.body));
    (answer.status, headers, body)
}

/// Asserts that a namespace which the caller may not see is like one that does not exist.
async fn assert_refused(serving: &Serving, token: Option<&str>, routes: &Routes, theirs: &Tenant) {
    let missing = Tenant {
        // Of the same length, and no namespace of any test.
        namespace: "x".repeat(theirs.namespace.len()),
        ..theirs.clone()
    };
    let user = theirs.user();
    for route in &routes.of_namespace {
        let (path, missing_path) = (theirs.fill(route), missing.fill(route));
        let refused = get(serving, token, &path).await;
        let unknown = get(serving, token, &missing_path).await;
        assert!([401, 403, 404].contains(&refused.status), "{path}: {refused:?}");
        assert_has_nothing_of(theirs, &path, &refused);
        assert_eq!(
            shown(&refused, (&user, &theirs.namespace)),
            shown(&unknown, (&user, &missing.namespace)),
            "{route}"
        );
    }
    for route in &routes.of_all {
        let path = theirs.fill(route);
        let answer = get(serving, token, &path).await;
        assert_has_nothing_of(theirs, &path, &answer);
    }
    let answer = outdated(serving, token, theirs).await;
    assert_has_nothing_of(theirs, OUTDATED, &answer);
}

/// Asserts that a caller who sees only `ours` gets it, and nothing of `theirs`.
async fn assert_isolated(serving: &Serving, token: &str, routes: &Routes, (ours, theirs): (&Tenant, &Tenant)) {
    let mut found = 0;
    for route in routes.of_namespace.iter().chain(&routes.of_all) {
        let path = ours.fill(route);
        let answer = get(serving, Some(token), &path).await;
        assert!([200, 404].contains(&answer.status), "{path}: {answer:?}");
        assert_has_nothing_of(theirs, &path, &answer);
        found += usize::from(answer.status == 200);
    }
    assert!(found > 10, "only {found} routes have an answer");
    let outdated = outdated(serving, Some(token), ours).await;
    assert_eq!(
        outdated.json()["items"][0]["repositories"][0]["namespace"],
        ours.namespace
    );
    // Names of the others' in the own namespace.
    let mixed = Tenant {
        namespace: ours.namespace.clone(),
        ..theirs.clone()
    };
    for route in &routes.of_namespace {
        let path = mixed.fill(route);
        let answer = get(serving, Some(token), &path).await;
        let is_list = path.contains('?') || !route.contains("{repository}");
        assert!(answer.status == 404 || is_list, "{path}: {answer:?}");
        assert_has_nothing_of(theirs, &path, &answer);
    }
    assert_refused(serving, Some(token), routes, theirs).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_route_shows_a_row_of_a_namespace_outside_the_callers(#[values(On::Sqlite, On::Postgres)] on: On) {
    let (world, directory) = (World::new().await, ScratchDir::new("serve"));
    let database_url = match on {
        On::Sqlite => format!("sqlite://{}", directory.join("portolan.db").display()),
        On::Postgres => postgres::database().await.url,
    };
    let ours = Tenant::ours(&world.namespace);
    let theirs = Tenant::theirs(&control_plane().await.namespace().await);
    for tenant in [&ours, &theirs] {
        tenant.store(&world, &database_url, on).await;
    }
    let (our_token, their_token) = (reader(&ours.namespace).await, reader(&theirs.namespace).await);
    let kubeconfig = world.kubeconfig.display().to_string();
    let flags = ["--kubeconfig", &kubeconfig, "--serve-rate=10000", "--serve-burst=10000"];
    let serving = Serving::start(&database_url, &flags).await;
    let routes = Routes::of(&serving).await;

    // There is something to see.
    let all = get(&serving, Some(ADMIN_TOKEN), "/api/v1/charts").await;
    let all = String::from_utf8_lossy(&all.body).into_owned();
    assert!(all.contains(theirs.secret) && all.contains(ours.secret), "{all}");

    assert_isolated(&serving, &our_token, &routes, (&ours, &theirs)).await;
    assert_isolated(&serving, &their_token, &routes, (&theirs, &ours)).await;
    for tenant in [&ours, &theirs] {
        assert_refused(&serving, None, &routes, tenant).await;
    }

    // The first process keeps its reviews for a minute.
    revoke(&theirs.namespace).await;
    let replica = Serving::start(&database_url, &flags).await;
    for tenant in [&ours, &theirs] {
        assert_refused(&replica, Some(&their_token), &routes, tenant).await;
    }
    // The others notice nothing.
    assert_isolated(&replica, &our_token, &routes, (&ours, &theirs)).await;
}
