//! From a push to the catalog: receivers and a controller with a real API server. And the cost of news in a commit.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use portolan::api::{NamespacedName, POLL_AT, RECEIVER};
use portolan::catalog::{
    Catalog, CatalogSettings, ChartInfo, ChartRow, ChartVersion, Database, Login, Record, SyncCommit,
};
use portolan::serve::hooks::Receiver;
use reqwest::Client;
use serde_json::json;
use sqlx::{Connection, Sqlite, SqliteConnection};

use crate::report::{Row, Times, Wall, milliseconds};
use crate::rig::measure::cpu;
use crate::rig::{ChartServer, ControlPlane, Namespaces, POSTGRES, Page, Running, SQLITE, Sample, patch, percentile};
use crate::support::portolan::{Portolan, command};
use crate::support::ports::free_port;
use crate::support::postgres;
use crate::support::process::ScratchDir;

const APP_REPOSITORY: &str = "kubeapps.com/v1alpha1 AppRepository";
const REPOSITORIES: usize = 20;
const ROUNDS: usize = 5;
const SECRET: &str = "receiver";
const SECRET_VALUES: [(&str, &str); 2] = [("type", "generic"), ("token", "0123456789abcdef0123456789abcdef")];
/// Between two reads of the catalog, so that a time is at most 5 ms too long.
const POLL: Duration = Duration::from_millis(3);
/// Longer than the second that a receiver keeps between two patches of a repository.
const PAUSE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(120);

/// Commits with a sink, and as many without.
const COMMITS: usize = 25;
const CHARTS: usize = 100;
const VERSIONS: usize = 20;

pub async fn run() -> Vec<Row> {
    let mut rows = pushes().await;
    for database in [SQLITE, POSTGRES] {
        rows.extend(news(database).await);
    }
    rows
}

/// Measures the time until the new version of each repository is read from the database.
async fn pushes() -> Vec<Row> {
    let site = Site::start().await;
    let catalog = SqliteConnection::connect(&site.portolan.database()).await;
    let mut catalog = catalog.expect("SQLite opens");
    committed(&mut catalog, 0).await;
    let (mut pushed, mut annotated) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let push = async |number| site.push(number).await;
        pushed.extend(site.publish(&mut catalog, 2 * round + 1, push).await);
        let annotate = async |number| site.annotate(number).await;
        annotated.extend(site.publish(&mut catalog, 2 * round + 2, annotate).await);
    }
    site.portolan.end().await;
    let baseline = format!("*{REPOSITORIES} repositories annotated at once, from the annotation");
    vec![
        latency(&baseline, "*", &annotated),
        latency(&format!("{REPOSITORIES} pushes at once, from the POST"), "", &pushed).limits(&[Wall(1.0)]),
    ]
}

fn latency(case: &str, end: &str, times: &[f64]) -> Row {
    let [median, slowest] = [50, 100].map(|percent| milliseconds(percentile(times, percent)));
    let case = format!("{case} to the commit, p99 (median {median} ms, slowest {slowest} ms){end}");
    Row::new(&case, &[Sample::of_wall(percentile(times, 99))]).on(SQLITE)
}

/// Synced repositories with receivers.
struct Site {
    _control_plane: ControlPlane,
    namespaces: Namespaces,
    server: ChartServer,
    portolan: Running,
    _receiving: Portolan,
    receivers: String,
    client: Client,
}

impl Site {
    async fn start() -> Self {
        let control_plane = ControlPlane::start().await;
        for crd in portolan::api::crds() {
            control_plane.install_crd(&crd).await;
        }
        let (namespaces, server) = (Namespaces::new(&control_plane, 1).await, ChartServer::start().await);
        let secret = json!({ "metadata": { "name": SECRET }, "stringData": BTreeMap::from(SECRET_VALUES) });
        namespaces.create(0, "v1 Secret", secret).await;
        for number in 0..REPOSITORIES {
            server.serve(&path(number), Page::new(index(0)));
            let metadata = json!({ "name": name(number), "annotations": { RECEIVER: SECRET } });
            let spec = json!({ "type": "helm", "url": server.url(&format!("/{}", name(number))) });
            let object = json!({ "metadata": metadata, "spec": spec });
            namespaces.create(number, APP_REPOSITORY, object).await;
        }
        let (kubeconfig, address) = (control_plane.kubeconfig(), format!("127.0.0.1:{}", free_port()));
        let namespace = format!("--watch-namespace={}", namespaces.names[0]);
        let mut receiving = command(["serve", "--only=hooks", "--serve", &address, &namespace]);
        receiving.arg("--kubeconfig").arg(&kubeconfig);
        let receiving = Portolan::start(receiving);
        // Only requested syncs run.
        let portolan = Running::start(&kubeconfig, &[namespace, "--crontab=@yearly".to_owned()]);
        receiving.ready(PATIENCE).await;
        portolan.idle("portolan_sync_seconds_count", &[], REPOSITORIES).await;
        portolan::http::install_crypto_provider();
        let client = Client::builder().no_proxy().tls_certs_only([]).build();
        Self {
            _control_plane: control_plane,
            namespaces,
            server,
            portolan,
            _receiving: receiving,
            receivers: format!("http://{address}"),
            client: client.expect("a client"),
        }
    }

    /// Publishes a version in all repositories, and requests their syncs at once. Returns seconds from each request.
    async fn publish(&self, catalog: &mut SqliteConnection, newest: usize, request: impl AsyncFn(usize)) -> Vec<f64> {
        tokio::time::sleep(PAUSE).await;
        for number in 0..REPOSITORIES {
            self.server.serve(&path(number), Page::new(index(newest)));
        }
        let requests = (0..REPOSITORIES).map(async |number| {
            let sent = Instant::now();
            request(number).await;
            sent
        });
        let (sent, committed) = tokio::join!(join_all(requests), committed(catalog, newest));
        let times = sent.into_iter().enumerate();
        let times = times.map(|(number, sent)| committed[&name(number)].saturating_duration_since(sent));
        times.map(|time| time.as_secs_f64()).collect()
    }

    async fn push(&self, number: usize) {
        let name = NamespacedName::new(self.namespaces.names[0].as_str(), name(number));
        let data = SECRET_VALUES.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())));
        let secret = Secret {
            data: Some(BTreeMap::from(data)),
            ..Secret::default()
        };
        let path = Receiver::of(&name, &secret).expect("a valid Secret").path(&name);
        let sent = self.client.post(format!("{}{path}", self.receivers)).send().await;
        assert_eq!(sent.expect("a response").status(), 202, "the push is accepted");
    }

    async fn annotate(&self, number: usize) {
        let annotations = json!({ POLL_AT: Timestamp::now().to_string() });
        let repositories = self.namespaces.of(number, APP_REPOSITORY);
        let change = json!({ "metadata": { "annotations": annotations } });
        patch(&repositories, &name(number), change).await;
    }
}

fn name(number: usize) -> String {
    format!("repository-{number}")
}

fn path(number: usize) -> String {
    format!("/{}/index.yaml", name(number))
}

/// Returns an index with the versions 1.0.0 to 1.`newest`.0 of a chart.
fn index(newest: usize) -> String {
    let version = |minor: usize| {
        format!(
            "  - apiVersion: v2\n    name: web\n    version: 1.{minor}.0\n    created: \"2026-01-01T00:00:00Z\"\n    \
             digest: {minor:064x}\n    urls:\n    - web-1.{minor}.0.tgz\n"
        )
    };
    let versions: String = (0..=newest).rev().map(version).collect();
    format!("apiVersion: v1\nentries:\n  web:\n{versions}")
}

/// Waits until all repositories have a version, and returns the time at which each was read with it.
async fn committed(catalog: &mut SqliteConnection, newest: usize) -> HashMap<String, Instant> {
    const SELECT: &str = "SELECT repo_name FROM charts WHERE info LIKE $1";
    let (started, mut found) = (Instant::now(), HashMap::new());
    while found.len() < REPOSITORIES {
        assert!(started.elapsed() < PATIENCE, "all are synced within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
        let select = sqlx::query_scalar::<Sqlite, String>(SELECT).bind(format!("%\"1.{newest}.0\"%"));
        for name in select.fetch_all(&mut *catalog).await.expect("SQLite answers") {
            found.entry(name).or_insert_with(Instant::now);
        }
    }
    found
}

/// Measures commits of an index of 2,000 versions with 100 new ones, without a sink and with one in turns.
async fn news(database: &str) -> Vec<Row> {
    let (directory, mut postgres) = (ScratchDir::new("bench"), None);
    let mut url = format!("sqlite://{}", directory.join("portolan.db").display());
    if database != SQLITE {
        url.clone_from(&postgres.insert(postgres::database().await).url);
    }
    let settings = CatalogSettings::new(Database::parse(&url, &Login::default()).expect("a URL"));
    let catalog = Catalog::open(&settings).await.expect("the database opens");
    commit(&catalog, None, 0).await;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..COMMITS {
        let sample = commit(&catalog, Some(2 * number), 0).await;
        commit(&catalog, None, 0).await;
        without.push(sample);
        with.push(commit(&catalog, Some(2 * number + 1), 1).await.against(sample.cpu));
        commit(&catalog, None, 1).await;
    }
    let [wall, wall_without] = [&with, &without].map(|samples| Sample::combined(samples).wall);
    let case = format!("Commit of {CHARTS} new versions, {} others", CHARTS * VERSIONS);
    let row = Row::new(&format!("{case}, a sink of news"), &with).on(database);
    let row = row.against("without").limits(&[Times(1.05)]);
    vec![
        Row::baseline(&format!("{case}, no sink"), &without).on(database),
        row.limit("1.05× wall", wall <= 1.05 * wall_without),
    ]
}

async fn commit(catalog: &Catalog, newest: Option<usize>, sinks: usize) -> Sample {
    let name = NamespacedName::new("default", "measured");
    let stored = catalog.record(&name).await.expect("the database answers");
    let uid = stored.as_ref().map(|record| record.uid.clone());
    let record = stored.unwrap_or_else(|| Record::new(name, "uid"));
    let mut commit = SyncCommit::new(record, uid, "checksum");
    commit.sinks = vec!["default/hook".to_owned(); sinks];
    let rows: Vec<io::Result<ChartRow>> = (0..CHARTS).map(|number| Ok(chart(number, newest))).collect();
    let own = || cpu(std::process::id()).expect("this process runs");
    let (before, started) = (own(), Instant::now());
    let committed = catalog.commit(commit, rows.into_iter()).await;
    let (used, wall) = (own() - before, started.elapsed().as_secs_f64());
    let news = committed.expect("the database answers").news;
    assert_eq!(news, sinks as u64, "a row for each sink");
    Sample {
        cpu: used,
        ..Sample::of_wall(wall)
    }
}

/// Returns a chart that may have one more version, 2.`newest`.0.
fn chart(number: usize, newest: Option<usize>) -> ChartRow {
    let newest = newest.map(|minor| format!("2.{minor}.0"));
    let others = (0..VERSIONS).rev().map(|minor| format!("1.{minor}.0"));
    let versions = newest.into_iter().chain(others).map(|version| ChartVersion {
        digest: format!("{version:0>64}"),
        urls: Some(vec![format!("https://charts.example/web-{version}.tgz")]),
        version,
        ..ChartVersion::default()
    });
    let chart_id = format!("measured/web-{number}");
    let info = ChartInfo {
        id: chart_id.clone(),
        name: format!("web-{number}"),
        chart_versions: versions.collect(),
        ..ChartInfo::default()
    };
    ChartRow { chart_id, info }
}
