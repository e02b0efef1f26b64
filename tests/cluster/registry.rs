//! OCI registries that want credentials: which charts are served of them, what a change costs, and what a bad tag spoils.

use std::collections::BTreeSet;
use std::time::Duration;

use portolan::api::AppRepository;
use reqwest::Method;
use serde_json::{Value, json};

use super::rows::Postgres;
use super::{SOON, World, condition, message};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::registry::{PASSWORD, Registry, Setup};
use crate::support::tls::Authority;
use crate::support::token_server::{TokenServer, basic_authorization};

/// Nothing is synced but what a test asks for.
const NEVER: &str = "--crontab=@yearly";

pub fn chart(name: &str, version: &str) -> Archive {
    Chart::new(name, version)
        .file("README.md", format!("# {name} {version}\n"))
        .file("values.yaml", "berths: 3\n")
        .file("values-production.yaml", "berths: 30\n")
        .file("values.schema.json", r#"{"type": "object"}"#)
        .pack()
}

/// A registry, and what stands before it: with TLS, and a record of all requests.
pub struct Port {
    registry: Registry,
    pub front: ChartServer,
    authority: Authority,
}

impl Port {
    async fn new(setup: Setup, authority: Authority) -> Self {
        let registry = Registry::start(setup).await;
        let front = ChartServer::before_tls_by(&authority, registry.upstream()).await;
        Self {
            registry,
            front,
            authority,
        }
    }

    /// One that wants a password.
    pub async fn with_password() -> Self {
        Self::new(Setup::default().password(), Authority::new()).await
    }

    /// The repository's URL: what is below `ports`.
    pub fn url(&self) -> String {
        format!("oci://{}/ports", self.front.host())
    }

    /// Pushes a chart into the repository `ports/…`, as helm does; its digest.
    pub async fn push(&self, path: &str, archive: &Archive) -> String {
        let tag = archive.version().replace('+', "_");
        self.registry
            .push_chart(&format!("ports/{path}"), &tag, archive)
            .await
            .digest
    }

    /// Declares it, with the credentials that it wants.
    async fn declare(&self, world: &World, name: &str, repositories: &[&str]) -> AppRepository {
        let login = json!({ "authorizationHeader": basic_authorization(), "ca.crt": self.authority.ca_pem });
        world.write_secret(&world.namespace, "login", login).await;
        let key = |key: &str| json!({ "secretKeyRef": { "name": "login", "key": key } });
        let auth = json!({ "header": key("authorizationHeader"), "customCA": key("ca.crt") });
        let spec = json!({ "type": "oci", "url": self.url(), "auth": auth, "ociRepositories": repositories });
        world.declare_with(name, json!({ "spec": spec })).await
    }

    /// The tags (or digests) whose manifests were pulled, one for each request, from the request with this number on.
    fn pulled_since(&self, first: usize) -> Vec<String> {
        let seen = self.front.all_seen();
        let pulls = seen[first..].iter().filter(|request| {
            request.method == Method::GET && request.status.is_some_and(|status| status.is_success())
        });
        pulls
            .filter_map(|request| Some(request.path.rsplit_once("/manifests/")?.1.to_owned()))
            .collect()
    }

    fn requests(&self) -> usize {
        self.front.all_seen().len()
    }
}

/// Asks for a resync by hand and waits until it was done.
async fn resynced(world: &World, name: &str, token: &str) -> AppRepository {
    world.resync(name, token).await;
    let object = world
        .until(name, "the resync to be done", |object| {
            let status = object.status.as_ref();
            status.and_then(|status| status.last_handled_reconcile_at.as_deref()) == Some(token)
        })
        .await;
    assert_eq!(condition(&object, "Ready").unwrap().0, "True", "{}", message(&object));
    object
}

/// The entries that were left out by the last sync: chart, version, reason.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_behind_a_password_is_served_with_the_files_of_its_charts() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    // As its users fill it.
    for version in ["1.0.0", "1.1.0+b.1"] {
        port.registry.helm_push(&chart("harbour", version), "ports").await;
    }
    port.registry.helm_push(&chart("pier", "v0.1.0"), "ports/deep").await;
    let flags = [NEVER, "--chart-files=all", "--log-level=debug"];
    let portolan = world.portolan(postgres.url(), &flags).await;
    port.declare(&world, "port", &["harbour", "deep/pier"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(message(&object), "3 versions in 2 charts.");

    let infos = postgres.rows.infos().await.unwrap();
    assert_eq!(infos.keys().collect::<Vec<_>>(), ["port/deep%2Fpier", "port/harbour"]);
    let host = port.front.host();
    let pier = &infos["port/deep%2Fpier"];
    assert_eq!(
        (pier["ID"].as_str(), pier["name"].as_str()),
        (Some("port/deep%2Fpier"), Some("pier"))
    );
    // The tag as it is, not as a version would be written.
    assert_eq!(pier["chartVersions"][0]["version"], "v0.1.0");
    assert_eq!(
        pier["chartVersions"][0]["urls"],
        json!([format!("oci://{host}/ports/deep/pier:v0.1.0")])
    );
    let harbour = &infos["port/harbour"];
    assert_eq!(harbour["repo"]["url"], port.url().as_str());
    let versions = harbour["chartVersions"].as_array().unwrap();
    let told: Vec<(&Value, &Value, &Value)> = versions
        .iter()
        .map(|version| (&version["version"], &version["urls"], &version["created"]))
        .collect();
    let zero = json!("0001-01-01T00:00:00Z");
    let (new, old) = (
        json!([format!("oci://{host}/ports/harbour:1.1.0_b.1")]),
        json!([format!("oci://{host}/ports/harbour:1.0.0")]),
    );
    assert_eq!(
        told,
        [(&json!("1.1.0+b.1"), &new, &zero), (&json!("1.0.0"), &old, &zero)]
    );

    world.until_files("port", 3).await;
    let files = postgres.rows.files().await;
    for (id, digest) in [
        ("port/deep%2Fpier-v0.1.0", &pier["chartVersions"][0]["digest"]),
        ("port/harbour-1.1.0+b.1", &versions[0]["digest"]),
    ] {
        let name = if id.contains("pier") {
            "pier v0.1.0"
        } else {
            "harbour 1.1.0+b.1"
        };
        let digest = digest.as_str().unwrap();
        assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
        let expected = json!({
            "ID": id,
            "Readme": format!("# {name}\n"),
            "DefaultValues": "berths: 3\n",
            "AdditionalDefaultValues": { "values-production": "berths: 30\n" },
            "Schema": r#"{"type": "object"}"#,
            "Repo": { "namespace": world.namespace, "name": "port", "url": port.url(), "type": "" },
            "Digest": digest,
        });
        assert_eq!(files[id], expected);
    }

    // A wrong password is told of as such, and told to nobody.
    let wrong = json!({ "authorizationHeader": "Basic bmF2aWdhdG9yOmNhbG0=", "ca.crt": port.authority.ca_pem });
    world.write_secret(&world.namespace, "login", wrong).await;
    world.resync("port", "one").await;
    let object = world.until_ready_is("port", "False", "Unauthorized").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "Unauthorized")));
    let refused = format!("https://{host}/v2/ports/");
    assert!(message(&object).starts_with(&refused), "{}", message(&object));
    assert_eq!(postgres.rows.infos().await.unwrap(), infos);
    // Also where it is the list of repositories that is not to be had.
    world.edit("port", json!({ "spec": { "ociRepositories": null } })).await;
    let object = world.until_ready_is("port", "False", "Unauthorized").await;
    assert!(message(&object).contains("credentials"), "{}", message(&object));
    let told = format!(
        "{:?}{:?}{:?}",
        object.status,
        world.events("port").await,
        portolan.lines()
    );
    for secret in [PASSWORD, "bmF2aWdhdG9yOm"] {
        assert!(!told.contains(secret), "{secret} is told: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_with_a_token_server_tells_by_itself_which_charts_it_has() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let authority = Authority::new();
    let tokens = TokenServer::start_tls(&authority).await;
    let port = Port::new(Setup::default().tokens(&tokens), authority).await;
    port.push("harbour", &chart("harbour", "1.0.0")).await;
    port.push("deep/pier", &chart("pier", "0.1.0")).await;
    port.push("closed", &chart("closed", "1.0.0")).await;
    port.registry.push_image("ports/crane", "1.0.0").await;
    port.registry
        .push_chart("elsewhere", "1.0.0", &chart("elsewhere", "1.0.0"))
        .await;
    port.push("barred", &chart("barred", "1.0.0")).await;
    tokens.deny("ports/closed");
    // Other registries say it in another way.
    port.front.break_path("/v2/ports/barred/tags/list", Fault::status(403));
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    port.declare(&world, "port", &[]).await;
    let object = world.until_ready("port").await;
    postgres
        .rows
        .until_charts(&["port/deep%2Fpier 0.1.0", "port/harbour 1.0.0"])
        .await;
    world.until_files("port", 2).await;

    // Those that give nothing are named, each with its reason.
    let skipped = skipped(&object);
    let named: BTreeSet<(&str, Option<&str>)> = skipped
        .iter()
        .map(|(chart, version, _)| (chart.as_str(), version.as_deref()))
        .collect();
    assert_eq!(
        named,
        BTreeSet::from([("barred", None), ("closed", None), ("crane", Some("1.0.0"))]),
        "{skipped:?}"
    );
    assert!(
        skipped
            .iter()
            .any(|(_, _, reason)| reason.contains("a container image")),
        "{skipped:?}"
    );
    // The password goes to the token server, and the registry sees tokens only.
    assert!(
        tokens
            .requests()
            .iter()
            .all(|request| request.authorization == Some(basic_authorization()))
    );
    assert!(
        port.front
            .all_seen()
            .iter()
            .all(|request| request.authorization().is_none_or(|value| value.starts_with("Bearer ")))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_closed_later_is_named_and_its_charts_stay() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    for name in ["harbour", "pier"] {
        port.push(name, &chart(name, "1.0.0")).await;
    }
    let _portolan = world.portolan(postgres.url(), &["--crontab=* * * * * *"]).await;
    port.declare(&world, "port", &["harbour", "pier"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(skipped(&object), []);
    let tags = "/v2/ports/pier/tags/list";
    port.front.break_path(tags, Fault::status(403));
    let object = world
        .until("port", "the closed one to be named", |object| {
            !skipped(object).is_empty()
        })
        .await;
    let skipped_now = skipped(&object);
    assert_eq!(
        (skipped_now.len(), skipped_now[0].0.as_str()),
        (1, "pier"),
        "{skipped_now:?}"
    );
    assert!(skipped_now[0].2.contains("403"), "{skipped_now:?}");
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    let both = ["port/harbour 1.0.0", "port/pier 1.0.0"];
    assert_eq!(postgres.rows.charts().await.unwrap(), both);
    // What is new in the other is not kept waiting.
    port.push("harbour", &chart("harbour", "1.1.0")).await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.1.0 1.0.0", "port/pier 1.0.0"])
        .await;
    port.front.repair(tags);
    world
        .until("port", "nothing to be left out any more", |object| {
            skipped(object).is_empty()
        })
        .await;
}

/// Waits until the repository was synced so many times more.
async fn until_synced(portolan: &Portolan, more: f64) -> f64 {
    let before = syncs(portolan).await;
    eventually(SOON, "more syncs", async || {
        let seen = syncs(portolan).await - before;
        if seen >= more { Ok(seen) } else { Err(seen.to_string()) }
    })
    .await
}

async fn syncs(portolan: &Portolan) -> f64 {
    portolan
        .metrics()
        .await
        .sum("portolan_syncs_total", &[])
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_costs_what_it_takes_and_no_change_one_request_for_each_chart() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        port.push("harbour", &chart("harbour", version)).await;
    }
    port.push("pier", &chart("pier", "0.1.0")).await;
    let portolan = world
        .portolan(postgres.url(), &[NEVER, "--chart-files=all", "--min-interval=1s"])
        .await;
    port.declare(&world, "port", &["harbour", "pier"]).await;
    world.until_ready("port").await;
    world.until_files("port", 4).await;

    // A new tag: its manifest for the chart, and once more for its archive.
    let before = port.requests();
    port.push("harbour", &chart("harbour", "1.3.0")).await;
    resynced(&world, "port", "one").await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.3.0 1.2.0 1.1.0 1.0.0", "port/pier 0.1.0"])
        .await;
    world.until_files("port", 5).await;
    let pulled = port.pulled_since(before);
    assert!(pulled.iter().all(|tag| tag == "1.3.0"), "{pulled:?}");
    assert_eq!(pulled.len(), 2, "{pulled:?}");

    // A tag that is published again, with other content.
    let again = Chart::new("harbour", "1.1.0").file("README.md", "# Again\n").pack();
    let digest = port.push("harbour", &again).await;
    let before = port.requests();
    resynced(&world, "port", "two").await;
    let infos = postgres.rows.infos().await.unwrap();
    assert_eq!(infos["port/harbour"]["chartVersions"][2]["digest"], digest.as_str());
    eventually(SOON, "the files of what was published again", async || {
        let files = postgres.rows.files().await;
        let found = &files["port/harbour-1.1.0"];
        let is_new = found["Readme"] == "# Again\n" && found["Digest"] == digest.as_str();
        if is_new { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    let pulled = port.pulled_since(before);
    assert!(pulled.iter().all(|tag| tag == "1.1.0"), "{pulled:?}");

    // A tag that is gone goes, with its files.
    port.registry.delete_tag("ports/harbour", "1.0.0").await;
    resynced(&world, "port", "three").await;
    postgres
        .rows
        .until_charts(&["port/harbour 1.3.0 1.2.0 1.1.0", "port/pier 0.1.0"])
        .await;
    assert!(!postgres.rows.files().await.contains_key("port/harbour-1.0.0"));

    // From here on nothing changes.
    world
        .edit("port", json!({ "spec": { "interval": "* * * * * *" } }))
        .await;
    world.until_ready("port").await;
    until_synced(&portolan, 1.0).await;
    let before = port.requests();
    let ticks = until_synced(&portolan, 4.0).await;
    let paths: Vec<String> = port.front.all_seen()[before..]
        .iter()
        .map(|request| request.path.clone())
        .collect();
    for chart in ["harbour", "pier"] {
        let path = format!("/v2/ports/{chart}/tags/list");
        let lists = paths.iter().filter(|seen| **seen == path).count() as f64;
        // The first and the last of the syncs that were counted may have asked on the other side of the counting.
        assert!(
            (lists - ticks).abs() <= 1.0,
            "{lists} lists of {chart} in {ticks} syncs: {paths:?}"
        );
    }
    let others: Vec<&String> = paths.iter().filter(|path| !path.ends_with("/tags/list")).collect();
    assert!(others.iter().all(|path| *path == "/v2/"), "{others:?}");
    assert!(
        others.len() as f64 <= ticks + 1.0,
        "{} questions for the way in, in {ticks} syncs",
        others.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_chart_spoils_nothing_and_is_named() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    let pushed = port
        .registry
        .push_chart("ports/harbour", "1.0.0", &chart("harbour", "1.0.0"))
        .await;
    let odd = chart("harbour", "1.0.0");
    port.registry.push_chart("ports/harbour", "latest", &odd).await;
    port.registry.push_signature("ports/harbour", &pushed).await;
    port.registry.push_image("ports/harbour", "2.0.0").await;
    port.registry.push_image_index("ports/harbour", "3.0.0").await;
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    port.declare(&world, "port", &["harbour", "sunk"]).await;
    let object = world.until_ready("port").await;
    assert_eq!(postgres.rows.charts().await.unwrap(), ["port/harbour 1.0.0"]);
    let skipped = skipped(&object);
    let reason = |chart: &str, version: Option<&str>| {
        let found = skipped
            .iter()
            .find(|(name, tag, _)| name == chart && tag.as_deref() == version);
        found
            .map(|(_, _, reason)| reason.as_str())
            .unwrap_or_else(|| panic!("{chart} {version:?} in {skipped:?}"))
    };
    assert!(
        reason("harbour", Some("2.0.0")).contains("a container image"),
        "{skipped:?}"
    );
    assert!(
        reason("harbour", Some("3.0.0")).contains("an index of images"),
        "{skipped:?}"
    );
    assert!(reason("sunk", None).contains("404"), "{skipped:?}");
    assert!(
        !skipped
            .iter()
            .any(|(_, version, _)| version.as_deref() == Some("latest")),
        "{skipped:?}"
    );

    // What is known to be no chart is not pulled at each sync.
    let before = port.requests();
    resynced(&world, "port", "one").await;
    assert_eq!(port.pulled_since(before), Vec::<String>::new());
    // Once it is a chart it is served.
    port.push("sunk", &chart("sunk", "0.1.0")).await;
    port.push("harbour", &chart("harbour", "2.0.0")).await;
    resynced(&world, "port", "two").await;
    assert_eq!(
        postgres.rows.charts().await.unwrap(),
        ["port/harbour 2.0.0 1.0.0", "port/sunk 0.1.0"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_sync_that_was_killed_goes_on_where_it_was() {
    const TAGS: usize = 300;
    /// What is pulled before it is remembered, and what is under way beside it.
    const LOST: usize = 64 + 8;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    let versions = (0..TAGS).map(|number| Chart::new("harbour", &format!("1.{number}.0")).pack());
    port.registry.push_charts("ports/harbour", versions).await;
    let flags = [NEVER, "--host-requests-per-second=200", "--host-burst=50"];
    let mut portolan = world.portolan(postgres.url(), &flags).await;
    port.declare(&world, "port", &["harbour"]).await;
    eventually(SOON, "half of the tags to be pulled", async || {
        let pulled = port.pulled_since(0).len();
        if pulled >= TAGS / 2 {
            Ok(())
        } else {
            Err(pulled.to_string())
        }
    })
    .await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    let before = port.pulled_since(0).len();
    assert!(before < TAGS, "it was killed too late");
    assert_eq!(
        postgres.rows.charts().await.unwrap(),
        Vec::<String>::new(),
        "half a chart was written"
    );

    let _portolan = world.portolan(postgres.url(), &flags).await;
    world
        .until_within(Duration::from_secs(60), "port", "all tags", |object| {
            condition(object, "Ready") == Some(("True", "Synced"))
                && message(object) == format!("{TAGS} versions in 1 chart.")
        })
        .await;
    let pulled = port.pulled_since(0);
    assert_eq!(pulled.iter().collect::<BTreeSet<_>>().len(), TAGS);
    assert!(pulled.len() <= TAGS + LOST, "{} pulls of {TAGS} tags", pulled.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_of_many_tags_is_had_in_several_goes_and_each_tag_is_pulled_once() {
    const TAGS: usize = 520;
    let (world, postgres) = (World::new().await, Postgres::new().await);
    // Open to everybody, and without TLS.
    let registry = Registry::start(Setup::default().pages_of(100)).await;
    let front = ChartServer::before(registry.upstream()).await;
    let versions = (0..TAGS).map(|number| Chart::new("harbour", &format!("1.{number}.0")).pack());
    registry.push_charts("ports/harbour", versions).await;
    registry
        .push_chart("ports/pier", "0.1.0", &chart("pier", "0.1.0"))
        .await;
    let flags = [
        NEVER,
        "--chart-files=latest",
        "--host-requests-per-second=1000",
        "--host-burst=1000",
    ];
    let _portolan = world.portolan(postgres.url(), &flags).await;
    let spec = json!({ "type": "oci", "url": front.url("/ports"), "ociRepositories": ["harbour", "pier"] });
    world.declare_with("port", json!({ "spec": spec })).await;
    world
        .until_within(Duration::from_secs(90), "port", "all tags", |object| {
            condition(object, "Ready") == Some(("True", "Synced"))
                && message(object) == format!("{} versions in 2 charts.", TAGS + 1)
        })
        .await;
    world.until_files("port", 2).await;
    let seen = front.all_seen();
    let configs: Vec<&str> = seen
        .iter()
        .filter(|request| request.method == Method::GET)
        .filter_map(|request| request.path.strip_prefix("/v2/ports/"))
        .filter(|path| path.contains("/manifests/"))
        .collect();
    // Two more for the archives of the newest.
    assert_eq!(configs.len(), TAGS + 1 + 2);
    let first = configs.iter().position(|path| *path == "pier/manifests/0.1.0").unwrap();
    assert!(first < 20, "the only version of a chart came as number {first}");
    let readme = &postgres.rows.files().await["port/pier-0.1.0"]["Readme"];
    assert_eq!(readme, "# pier 0.1.0\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tag_that_is_published_again_is_found_in_time_though_nobody_asks() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let port = Port::with_password().await;
    port.push("harbour", &chart("harbour", "1.0.0")).await;
    let flags = ["--crontab=* * * * * *", "--oci-check-digests=1s"];
    let _portolan = world.portolan(postgres.url(), &flags).await;
    port.declare(&world, "port", &["harbour"]).await;
    world.until_ready("port").await;
    let again = Chart::new("harbour", "1.0.0").field("description", "Another").pack();
    let digest = port.push("harbour", &again).await;
    eventually(SOON, "what was published again", async || {
        let infos = postgres.rows.infos().await.unwrap();
        let found = &infos["port/harbour"];
        let is_new = found["description"] == "Another" && found["chartVersions"][0]["digest"] == digest.as_str();
        if is_new { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_that_an_index_names_in_a_registry_are_pulled_there() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let authority = Authority::new();
    let server = ChartServer::start_tls_by(&authority).await;
    server.demand("Bearer of-the-index");
    let open = Port::new(Setup::default(), authority).await;
    let private = Registry::start(Setup::default().password()).await;
    let private = ChartServer::before_tls_by(&open.authority, private.upstream()).await;
    let archive = chart("harbour", "1.0.0+b.1");
    open.push("harbour", &archive).await;
    let url = |host: &str| format!("oci://{host}/ports/harbour:1.0.0_b.1");
    for (name, host) in [("open", open.front.host()), ("private", private.host())] {
        let path = format!("/{name}/index.yaml");
        server.serve(&path, Page::new(index([archive.index_entry(&[&url(host)])])));
    }
    let login = json!({ "authorizationHeader": "Bearer of-the-index", "ca.crt": open.authority.ca_pem });
    world.write_secret(&world.namespace, "login", login).await;
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    let key = |key: &str| json!({ "secretKeyRef": { "name": "login", "key": key } });
    let auth = json!({ "header": key("authorizationHeader"), "customCA": key("ca.crt") });
    for name in ["open", "private"] {
        let spec = json!({ "type": "helm", "url": server.url(&format!("/{name}")), "auth": auth });
        world.declare_with(name, json!({ "spec": spec })).await;
    }
    world.until_files("open", 1).await;
    let found = &postgres.rows.files().await["open/harbour-1.0.0+b.1"];
    assert_eq!(
        (&found["Readme"], &found["Digest"]),
        (&json!("# harbour 1.0.0+b.1\n"), &json!(archive.sha256()))
    );

    // What is not to be had is noted with its reason; until it comes, an empty row keeps the chart's page from failing.
    eventually(SOON, "the archive to be given up for now", async || {
        let failures = postgres
            .rows
            .pairs("SELECT chart_files_id, message FROM portolan_files")
            .await
            .unwrap();
        match &failures[..] {
            [(id, message)] if id == "private/harbour-1.0.0+b.1" && message.contains("credentials") => Ok(()),
            others => Err(format!("{others:?}")),
        }
    })
    .await;
    let found = &postgres.rows.files().await["private/harbour-1.0.0+b.1"];
    assert_eq!((&found["Readme"], &found["Digest"]), (&json!(""), &json!("")));
    world.until_ready("private").await;
    // The index' credentials are for its own host.
    for registry in [&open.front, &private] {
        let seen = registry.all_seen();
        assert!(!seen.is_empty() && seen.iter().all(|request| request.authorization().is_none()));
    }
}
