//! `portolan serve`: the catalog over HTTP.

pub(crate) mod access;
mod applications;
mod charts;
mod compare;
pub(crate) mod document;
mod faults;
mod files;
mod helm;
mod icons;
mod isolation;
mod limits;
mod lists;
mod login;
mod memory;
mod outdated;
mod pages;
mod process;
mod responses;
mod sizes;

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::catalog::On;
use crate::cluster::index;
use crate::support::archives::{self, Archive};
use crate::support::chart_server::Page;
use crate::support::portolan::{Portolan, command};
use crate::support::ports::free_port;
use crate::support::postgres;
use crate::support::world::{SOON, World, succeeded};

/// A running `portolan serve`.
pub(crate) struct Serving {
    portolan: Portolan,
    pub(crate) url: String,
    client: reqwest::Client,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Asserts a problem, and returns its detail.
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Serving {
    /// Starts it without waiting until it is ready.
    fn begin(database_url: &str, flags: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = command(["serve", "--serve", &address, "--database-url", database_url]);
        command.args(flags);
        Self {
            portolan: Portolan::start(command),
            url: format!("http://{address}"),
            client: client(),
        }
    }

    pub(crate) async fn start(database_url: &str, flags: &[&str]) -> Self {
        let serving = Self::begin(database_url, flags);
        serving.portolan.ready(SOON).await;
        serving
    }

    /// Starts it for the manifests of a world.
    pub(crate) async fn of(world: &World, database_url: &str) -> Self {
        Self::start(database_url, &["--manifests", &world.manifests()]).await
    }

    async fn request(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        send(self.client.get(format!("{}{path}", self.url)), headers).await
    }

    async fn post(&self, path: &str, body: String, headers: &[(&str, &str)]) -> Answer {
        let request = self.client.post(format!("{}/api/v1{path}", self.url)).body(body);
        send(request, headers).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.request(&format!("/api/v1{path}"), &[]).await
    }

    async fn accept(&self, media_type: &str, path: &str) -> Answer {
        self.request(&format!("/api/v1{path}"), &[("accept", media_type)]).await
    }

    async fn get_as(&self, token: &str, path: &str) -> Answer {
        let token = format!("Bearer {token}");
        self.request(&format!("/api/v1{path}"), &[("authorization", &token)])
            .await
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Returns the names in a list.
    async fn names(&self, path: &str) -> Vec<String> {
        names(&self.json(path).await)
    }
}

async fn send(request: reqwest::RequestBuilder, headers: &[(&str, &str)]) -> Answer {
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.unwrap();
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.bytes().await.unwrap().to_vec(),
    }
}

fn client() -> reqwest::Client {
    portolan::http::install_crypto_provider();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
    client.unwrap()
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// Declares a repository of these charts, and fills the database by `portolan run --once`.
async fn fill(world: &World, database_url: &str, repository: &str, charts: &[(&str, &[&str])]) {
    declare(world, repository, index(charts));
    sync(world, database_url).await;
}

pub(crate) fn declare(world: &World, repository: &str, index: String) {
    world
        .server
        .serve(&format!("/{repository}/index.yaml"), Page::new(index));
    world.declare(repository, &world.server.url(&format!("/{repository}")), "");
}

/// Same with archives, whose files are imported.
async fn fill_archives(world: &World, database_url: &str, repository: &str, archives: &[Archive]) {
    world.server.serve_archives(repository, archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    declare(world, repository, archives::index(entries));
    once(world, database_url, &["--chart-files=all"]).await;
}

async fn sync(world: &World, database_url: &str) {
    once(world, database_url, &[]).await;
}

async fn once(world: &World, database_url: &str, more: &[&str]) {
    let manifests = world.manifests();
    let arguments = [
        "run",
        "--once",
        "--manifests",
        &manifests,
        "--database-url",
        database_url,
    ];
    let mut run = command(arguments);
    run.args(more);
    succeeded(run).await;
}

async fn database(world: &World, on: On) -> String {
    match on {
        On::Sqlite => world.database_url(),
        On::Postgres => postgres::database().await.url,
    }
}
