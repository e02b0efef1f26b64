//! Helm repositories with credentials and private CAs: served charts, reported errors, and no leaked password.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use portolan::api::AppRepository;
use serde_json::{Value, json};

use super::registry::chart;
use super::rows::Postgres;
use super::{NEVER, SOON, World, condition, message};
use crate::support::archives::{Archive, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::proxy::Proxy;
use crate::support::registry::{PASSWORD, USER};
use crate::support::tls::Authority;
use crate::support::token_server::basic_authorization;

/// The password, in plain text and as sent.
const SECRETS: [&str; 2] = [PASSWORD, "bmF2aWdhdG9yOmZhaXItd2luZHM="];

/// Serves an index of these archives below `/name`, with the archive URLs from `locate`. Returns the repository's URL.
fn serve(server: &ChartServer, name: &str, archives: &[Archive], locate: impl Fn(&str) -> String) -> String {
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&locate(&archive.file_name())]));
    server.serve(&format!("/{name}/index.yaml"), Page::new(index(entries)));
    server.url(&format!("/{name}"))
}

/// A server with a password and a private CA, which serves `/private`.
async fn private_server() -> (ChartServer, String) {
    let server = ChartServer::start_tls().await;
    server.demand_basic(USER, PASSWORD);
    let archives = [chart("harbour", "1.1.0"), chart("harbour", "1.0.0")];
    server.serve_archives("private", &archives);
    let url = serve(&server, "private", &archives, str::to_owned);
    (server, url)
}

fn key(name: &str, key: &str) -> Value {
    json!({ "secretKeyRef": { "name": name, "key": key } })
}

/// A spec with credentials and CA from the Secret `login`.
fn private(url: &str) -> Value {
    let auth = json!({ "header": key("login", "authorizationHeader"), "customCA": key("login", "ca.crt") });
    json!({ "spec": { "type": "helm", "url": url, "auth": auth } })
}

fn login(server: &ChartServer, header: &str) -> Value {
    json!({ "authorizationHeader": header, "ca.crt": server.ca_pem() })
}

async fn until_stalled(world: &World, name: &str, reason: &str) -> AppRepository {
    let object = world.until_ready_is(name, "False", reason).await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", reason)));
    object
}

/// Checks that objects, events and logs contain no secret.
async fn assert_no_leak(world: &World, name: &str, portolan: &Portolan, secrets: &[&str]) {
    let object = world.repositories.get(name).await.unwrap();
    let reported = [
        serde_json::to_string(&object).unwrap(),
        format!("{:?}", world.events(name).await),
        portolan.lines().join("\n"),
    ];
    for secret in secrets {
        assert!(
            reported.iter().all(|text| !text.contains(secret)),
            "{secret} is leaked: {reported:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_with_a_password_and_a_private_ca_is_synced_with_files() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, url) = private_server().await;
    world
        .write_secret(&world.namespace, "login", login(&server, &basic_authorization()))
        .await;
    let flags = [NEVER, "--chart-files=all", "--log-level=debug"];
    let portolan = world.portolan(postgres.url(), &flags).await;
    world.declare_with("private", private(&url)).await;
    world.until_ready("private").await;
    world.until_files("private", 2).await;

    assert_eq!(postgres.rows.charts().await.unwrap(), ["private/harbour 1.1.0 1.0.0"]);
    let expected = |version: &str| {
        json!({
            "ID": format!("private/harbour-{version}"),
            "Readme": format!("# harbour {version}\n"),
            "DefaultValues": "berths: 3\n",
            "AdditionalDefaultValues": { "values-production": "berths: 30\n" },
            "Schema": r#"{"type": "object"}"#,
            "Repo": { "namespace": world.namespace, "name": "private", "url": url, "type": "" },
            "Digest": chart("harbour", version).sha256(),
        })
    };
    let files = postgres.rows.files().await;
    assert_eq!(files.len(), 2);
    for version in ["1.0.0", "1.1.0"] {
        assert_eq!(files[&format!("private/harbour-{version}")], expected(version));
    }

    // The password is changed on the server only.
    let wrong = format!("Basic {}", BASE64_STANDARD.encode("navigator:foul-winds"));
    world
        .write_secret(&world.namespace, "login", login(&server, &wrong))
        .await;
    world.resync("private", "one").await;
    let object = until_stalled(&world, "private", "Unauthorized").await;
    let text = message(&object);
    assert!(
        text.contains("401") && text.contains("set valid credentials in spec.auth"),
        "{text}"
    );
    assert!(text.contains("remain available"), "{text}");
    assert_eq!(postgres.rows.charts().await.unwrap(), ["private/harbour 1.1.0 1.0.0"]);
    let reported = world.event("private", "SyncStalled").await;
    assert!(reported.contains("401"), "{reported}");

    // In the form of Kubernetes' registry logins.
    let host = server.host();
    let docker = json!({ "auths": { host: { "username": USER, "password": PASSWORD } } }).to_string();
    let values = json!({ ".dockerconfigjson": docker, "ca.crt": server.ca_pem() });
    world.write_secret(&world.namespace, "login", values).await;
    let header = json!({ "spec": { "auth": { "header": key("login", ".dockerconfigjson") } } });
    world.edit("private", header).await;
    world.until_ready("private").await;

    let secrets = [&SECRETS[..], &["foul-winds", wrong.trim_start_matches("Basic ")]].concat();
    assert_no_leak(&world, "private", &portolan, &secrets).await;
    let kept = postgres
        .rows
        .pairs("SELECT name, to_jsonb(r)::text FROM portolan_repositories r")
        .await;
    for secret in secrets {
        assert!(!format!("{kept:?}").contains(secret), "{secret} is stored: {kept:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_is_reported_and_its_creation_is_detected() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, url) = private_server().await;
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--watch-secrets"]).await;
    let namespace = &world.namespace;
    world.declare_with("private", private(&url)).await;
    let object = until_stalled(&world, "private", "SecretNotFound").await;
    let text = message(&object);
    assert!(
        text.contains(&format!("Secret {namespace}/login referenced in spec.auth not found")),
        "{text}"
    );
    assert!(text.contains(&format!("create it in namespace {namespace}")), "{text}");

    // No sync is requested from here on.
    world
        .write_secret(namespace, "login", json!({ "ca.crt": server.ca_pem(), "token": "x" }))
        .await;
    let object = until_stalled(&world, "private", "SecretKeyNotFound").await;
    let text = message(&object);
    assert!(
        text.contains(&format!(
            "Key `authorizationHeader` referenced in spec.auth not found in Secret {namespace}/login"
        )) && text.contains("`token`"),
        "{text}"
    );
    world
        .write_secret(namespace, "login", login(&server, &basic_authorization()))
        .await;
    world.until_ready("private").await;
    postgres.rows.until_charts(&["private/harbour 1.1.0 1.0.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unwatched_secret_is_used_from_the_next_tick() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, url) = private_server().await;
    let _portolan = world.portolan(postgres.url(), &["--min-interval=1s"]).await;
    let mut object = private(&url);
    object["spec"]["interval"] = "* * * * * *".into();
    world.declare_with("private", object).await;
    until_stalled(&world, "private", "SecretNotFound").await;
    world
        .write_secret(&world.namespace, "login", login(&server, &basic_authorization()))
        .await;
    world.until_ready("private").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeapps_copy_of_a_secret_is_used_if_the_secret_is_missing() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, url) = private_server().await;
    let kubeapps = control_plane().await.namespace().await;
    let copy = format!("{}-apprepo-private", world.namespace);
    world
        .write_secret(&kubeapps, &copy, login(&server, &basic_authorization()))
        .await;
    let namespace = format!("--namespace={kubeapps}");
    let _portolan = world
        .portolan(postgres.url(), &[NEVER, "--watch-secrets", &namespace])
        .await;
    world.declare_with("private", private(&url)).await;
    world.until_ready("private").await;

    // Its own Secret takes precedence over the copy, even if it is wrong.
    let wrong = login(&server, "Bearer of-bad-news");
    world.write_secret(&world.namespace, "login", wrong).await;
    until_stalled(&world, "private", "Unauthorized").await;
    let secrets = kube::Api::<k8s_openapi::api::core::v1::Secret>::namespaced(world.client.clone(), &world.namespace);
    secrets.delete("login", &Default::default()).await.unwrap();
    world.until_ready("private").await;
    // Changes of the copy are detected too.
    world
        .write_secret(&kubeapps, &copy, login(&server, "Bearer of-bad-news"))
        .await;
    until_stalled(&world, "private", "Unauthorized").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_certificate_is_accepted_only_if_verification_is_disabled() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let server = ChartServer::start_tls().await;
    let url = serve(&server, "odd", &[chart("harbour", "1.0.0")], str::to_owned);
    let _portolan = world.portolan(postgres.url(), &[NEVER]).await;
    world.declare("odd", &url).await;
    let object = until_stalled(&world, "odd", "CertificateNotTrusted").await;
    assert!(
        message(&object).contains("set customCA for a private certificate authority"),
        "{}",
        message(&object)
    );
    world
        .edit("odd", json!({ "spec": { "tlsInsecureSkipVerify": true } }))
        .await;
    world.until_ready("odd").await;

    // Trust applies to one repository, even if another uses the same host.
    world.declare("strict", &url).await;
    until_stalled(&world, "strict", "CertificateNotTrusted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_is_sent_to_other_hosts_only_on_request() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, elsewhere) = (&world.server, ChartServer::start().await);
    server.demand_basic(USER, PASSWORD);
    let archives = [chart("harbour", "1.0.0")];
    let file = archives[0].file_name();
    for name in ["named", "led", "passed"] {
        elsewhere.serve_archives(name, &archives);
    }
    // One index contains archive URLs of another host, one server redirects there, and one repository may send
    // credentials.
    let named = serve(server, "named", &archives, |file| {
        elsewhere.url(&format!("/named/{file}"))
    });
    let led = serve(server, "led", &archives, str::to_owned);
    let to = Fault::redirect(&elsewhere.url(&format!("/led/{file}")));
    server.break_path(&format!("/led/{file}"), to);
    let passed = serve(server, "passed", &archives, |file| {
        elsewhere.url(&format!("/passed/{file}"))
    });
    // Here, the index itself is redirected.
    elsewhere.serve(
        "/moved/index.yaml",
        Page::new(index([archives[0].index_entry(&["x.tgz"])])),
    );
    server.break_path(
        "/moved/index.yaml",
        Fault::redirect(&elsewhere.url("/moved/index.yaml")),
    );

    let header = json!({ "authorizationHeader": basic_authorization() });
    world.write_secret(&world.namespace, "login", header).await;
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--chart-files=all"]).await;
    for (name, url) in [
        ("named", named),
        ("led", led),
        ("passed", passed),
        ("moved", server.url("/moved")),
    ] {
        let auth = json!({ "header": key("login", "authorizationHeader") });
        let spec = json!({ "type": "helm", "url": url, "auth": auth, "passCredentials": name == "passed" });
        world.declare_with(name, json!({ "spec": spec })).await;
    }
    for name in ["named", "led", "passed"] {
        world.until_files(name, 1).await;
    }
    world.until_ready("moved").await;

    let shown = |path: String| {
        let seen = elsewhere.requests(&path);
        assert!(!seen.is_empty(), "no request for {path}");
        seen.into_iter().any(|request| request.authorization().is_some())
    };
    assert!(!shown(format!("/named/{file}")));
    assert!(!shown(format!("/led/{file}")));
    assert!(!shown("/moved/index.yaml".to_owned()));
    assert!(shown(format!("/passed/{file}")));
    assert_eq!(
        server.requests(&format!("/led/{file}"))[0].authorization(),
        Some(basic_authorization().as_str())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_reached_through_its_own_proxy() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (proxy, authority) = (Proxy::start().await, Authority::new());
    let secure = ChartServer::start_tls_with(&authority).await;
    let archives = [chart("harbour", "1.0.0")];
    for server in [&world.server, &secure] {
        serve(server, "stable", &archives, str::to_owned);
        server.serve_archives("stable", &archives);
    }
    // Only the proxy can resolve these hosts.
    proxy.add_host("charts.example.com:80", world.server.host());
    proxy.add_host("kubernetes.default.svc:443", secure.host());
    proxy.demand("sailor", "ahoy-there");
    let address = proxy.url().replace("http://", "http://sailor:ahoy-there@");
    // In the form of Kubeapps' dashboard, and of its chart.
    let pod = |names: [&str; 3]| {
        let value = |name: &str| {
            if name.eq_ignore_ascii_case("no_proxy") {
                "localhost"
            } else {
                &address
            }
            .to_owned()
        };
        let variables = names.map(|name| json!({ "name": name, "value": value(name) }));
        json!({ "spec": { "containers": [{ "env": variables }] } })
    };
    let flags = [NEVER, "--chart-files=all", "--allow-tenant-proxies"];
    let portolan = world.portolan(postgres.url(), &flags).await;
    world
        .write_secret(&world.namespace, "trust", json!({ "ca.crt": authority.ca_pem }))
        .await;
    let plain = json!({ "type": "helm", "url": "http://charts.example.com/stable",
        "syncJobPodTemplate": pod(["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]) });
    let tunnelled = json!({ "type": "helm", "url": "https://kubernetes.default.svc/stable",
        "auth": { "customCA": key("trust", "ca.crt") },
        "syncJobPodTemplate": pod(["http_proxy", "https_proxy", "no_proxy"]) });
    world.declare_with("plain", json!({ "spec": plain })).await;
    world.declare_with("tunnelled", json!({ "spec": tunnelled })).await;
    world.declare("direct", &world.server.url("/stable")).await;
    for name in ["plain", "tunnelled", "direct"] {
        world.until_files(name, 1).await;
    }
    let requests: Vec<String> = proxy
        .requests()
        .into_iter()
        .map(|request| format!("{} {}", request.method, request.target))
        .collect();
    for expected in [
        "GET http://charts.example.com/stable/index.yaml",
        "GET http://charts.example.com/stable/harbour-1.0.0.tgz",
        "CONNECT kubernetes.default.svc:443",
    ] {
        assert!(
            requests.iter().any(|request| request == expected),
            "{expected} in {requests:?}"
        );
    }
    assert!(
        !requests.iter().any(|request| request.contains("127.0.0.1")),
        "{requests:?}"
    );
    // The proxy's password is in the spec, and sent nowhere else.
    for name in ["plain", "tunnelled"] {
        let object = world.repositories.get(name).await.unwrap();
        let reported = format!(
            "{:?}{:?}{:?}",
            object.status,
            world.events(name).await,
            portolan.lines()
        );
        assert!(!reported.contains("ahoy-there"), "{reported}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_changes_during_a_sync_causes_another_one() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (server, url) = private_server().await;
    let (namespace, wrong) = (&world.namespace, login(&server, "Bearer of-bad-news"));
    let _portolan = world.portolan(postgres.url(), &[NEVER, "--watch-secrets"]).await;
    // The first attempt reads a wrong password, and fails after it was corrected. The second one succeeds with a password
    // that was replaced meanwhile.
    world.write_secret(namespace, "login", wrong.clone()).await;
    for (number, (secret, status, reason)) in [
        (login(&server, &basic_authorization()), "True", "Synced"),
        (wrong, "False", "Unauthorized"),
    ]
    .into_iter()
    .enumerate()
    {
        server.break_path("/private/index.yaml", Fault::Delay(std::time::Duration::from_secs(3)));
        let before = server.requests("/private/index.yaml").len();
        if number == 0 {
            world.declare_with("private", private(&url)).await;
        } else {
            world.resync("private", "now").await;
        }
        eventually(SOON, "the request", async || {
            (server.requests("/private/index.yaml").len() > before).then_some(())
        })
        .await;
        world.write_secret(namespace, "login", secret).await;
        server.clear_faults("/private/index.yaml");
        world.until_ready_is("private", status, reason).await;
        assert!(server.requests("/private/index.yaml").len() > before + 1);
    }
}
