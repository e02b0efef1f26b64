//! Attempts to obtain credentials of another server.

use axum::http::{StatusCode, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{SOON, World, chart_in_registry, repository, secret};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page, RecordedRequest};
use crate::support::eventually::eventually;

const AUTH: &str = "  auth:\n    header:\n      secretKeyRef: {name: keys, key: header}\n";

pub fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Returns the requests for these paths.
fn requests_for(server: &ChartServer, paths: &[&str]) -> Vec<RecordedRequest> {
    let requests = paths.iter().map(|path| (path, server.requests(path)));
    requests
        .inspect(|(path, seen)| assert!(!seen.is_empty(), "no request for {path}"))
        .flat_map(|(_, seen)| seen)
        .collect()
}

fn assert_nothing_leaked(seen: &[RecordedRequest]) {
    for request in seen {
        assert_eq!(request.authorization(), None, "{request:?}");
        assert!(
            !request.query.as_deref().unwrap_or_default().contains("hushtoken"),
            "{request:?}"
        );
        let text = format!("{:?}", request.headers);
        assert!(!text.contains("hush"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_server_of_a_repository_gets_its_credentials() {
    let world = World::new().await;
    let private = ChartServer::start().await;
    let header = basic("hushuser", "hushword");
    private.demand(&header);
    world.manifest("secret", &secret("default", "keys", &[("header", &header)]));
    let (private_host, attacker) = (private.host().to_owned(), world.attacker.host().to_owned());
    let archive = |name: &str, icon: String| Chart::new(name, "1.0.0").field("icon", icon).pack();
    // Chart, its URL in the index, and the path on the attacker's server.
    let elsewhere = [
        ("absolute", world.attacker.url("/absolute.tgz"), "/absolute.tgz"),
        ("no-scheme", format!("//{attacker}/no-scheme.tgz"), "/no-scheme.tgz"),
        (
            "backslashes",
            format!("\\\\{attacker}\\backslashes.tgz"),
            "/backslashes.tgz",
        ),
        (
            "userinfo",
            format!("http://{private_host}@{attacker}/userinfo.tgz"),
            "/userinfo.tgz",
        ),
        ("redirected", "redirected.tgz".to_owned(), "/redirected-archive.tgz"),
        ("there-and-back", "there-and-back.tgz".to_owned(), "/there-and-back"),
    ];
    let mut entries = Vec::new();
    for (name, url, path) in &elsewhere {
        let archive = archive(name, world.attacker.url(&format!("/icon-{name}")));
        world.attacker.serve(path, Page::archive(&archive));
        entries.push(archive.index_entry(&[url]));
    }
    for repository in ["charts", "passing"] {
        private.break_path(
            &format!("/{repository}/redirected.tgz"),
            Fault::redirect(&world.attacker.url("/redirected-archive.tgz")),
        );
        private.break_path(
            &format!("/{repository}/there-and-back.tgz"),
            Fault::redirect(&world.attacker.url("/there-and-back")),
        );
    }
    world.attacker.break_path(
        "/there-and-back",
        Fault::redirect(&world.attacker.url("/there-and-back.tgz")),
    );
    world.attacker.serve(
        "/there-and-back.tgz",
        Page::archive(&archive("there-and-back", world.attacker.url("/icon-there-and-back"))),
    );
    let own = archive("own", private.url("/icon-own"));
    private.serve("/charts/own.tgz", Page::archive(&own));
    private.break_path("/icon-own", Fault::redirect(&world.attacker.url("/icon-redirected")));
    let all = index(entries.into_iter().chain([own.index_entry(&["own.tgz"])]));
    private.serve("/charts/index.yaml", Page::new(all.clone()));
    world.declare("private", &format!("{}?token=hushtoken", private.url("/charts")), AUTH);
    // The index itself is redirected.
    private.break_path("/moved/index.yaml", Fault::redirect(&world.attacker.url("/moved.yaml")));
    world
        .attacker
        .serve("/moved.yaml", Page::new(index([own.index_entry(&[])])));
    world.declare("moved", &format!("{}?token=hushtoken", private.url("/moved")), AUTH);
    // Credentials in the URL.
    let url = private
        .url("/charts")
        .replacen("http://", "http://hushuser:hushword@", 1);
    world.declare("by-url", &url, "");

    let _portolan = world.run(&["--chart-files=all", "--icons"]).await;
    for name in ["private", "moved", "by-url"] {
        world.until_ready(name).await;
    }
    for repository in ["private", "by-url"] {
        for name in elsewhere.iter().map(|(name, ..)| *name).chain(["own"]) {
            world.until_files(repository, name).await;
        }
        world.until_icon_failed(repository).await;
    }
    let icons: Vec<String> = elsewhere.iter().map(|(name, ..)| format!("/icon-{name}")).collect();
    let paths: Vec<&str> = elsewhere
        .iter()
        .map(|(_, _, path)| *path)
        .chain(icons.iter().map(String::as_str))
        .collect();
    let more = ["/icon-redirected", "/there-and-back.tgz", "/moved.yaml"];
    eventually(SOON, "all icons to be requested", async || {
        let missing: Vec<_> = paths
            .iter()
            .chain(&more)
            .filter(|path| world.attacker.count(path) == 0)
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?}"))
        }
    })
    .await;
    // User info in a URL of the index is not secret.
    let seen = requests_for(&world.attacker, &[&paths[..], &more].concat());
    let (userinfo, seen): (Vec<_>, Vec<_>) = seen.into_iter().partition(|request| request.path == "/userinfo.tgz");
    assert_nothing_leaked(&seen);
    for request in userinfo {
        let shown = request.authorization().unwrap_or_default().to_owned();
        assert!(shown != header && !shown.contains("hush"), "{request:?}");
        assert_eq!(request.query, None);
    }
    assert!(
        requests_for(&private, &["/charts/own.tgz"])
            .iter()
            .all(|seen| seen.authorization() == Some(&header))
    );

    // Counter-check with passCredentials: the assertions above can fail.
    private.serve("/passing/index.yaml", Page::new(all));
    let before = world.attacker.count("/absolute.tgz");
    world.declare(
        "passing",
        &private.url("/passing"),
        &format!("{AUTH}  passCredentials: true\n"),
    );
    world.until_files("passing", "absolute").await;
    let seen = world.attacker.requests("/absolute.tgz");
    assert!(
        seen[before..].iter().any(|seen| seen.authorization() == Some(&header)),
        "{seen:?}"
    );
    world.until_honest_files_are_served().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_registry_token_server_or_blob_store_gets_a_registrys_credentials() {
    let world = World::new().await;
    let (private, attacker) = (ChartServer::start().await, ChartServer::start_tls().await);
    let header = basic("hushuser", "hushword");
    private.demand(&header);
    world.manifest("secret", &secret("default", "keys", &[("header", &header)]));
    // A registry that redirects to a blob store.
    let blob = chart_in_registry(&private, "charts/boat");
    private.break_path(&blob, Fault::redirect_as(307, &world.attacker.url("/blob")));
    world.attacker.break_path(
        "/blob",
        Fault::Answer(
            StatusCode::UNAUTHORIZED,
            vec![(
                header::WWW_AUTHENTICATE,
                format!("Bearer realm=\"{}\"", world.attacker.url("/blob-token")),
            )],
            "".into(),
        ),
    );
    let list = format!("{AUTH}  ociRepositories: [boat]\n");
    world.manifest(
        "registry",
        &repository("default", "registry", "oci", &private.url("/charts"), &list),
    );
    // An index with an archive in a registry that names its own token server.
    let entry = Chart::new("boat", "1.0.0")
        .pack()
        .index_entry(&[&format!("oci://{}/x/boat:1.0.0", attacker.host())]);
    private.serve("/index/index.yaml", Page::new(index([entry])));
    for path in ["/v2/", "/v2/x/boat/manifests/1.0.0"] {
        let challenge = format!("Bearer realm=\"{}\",service=\"s\"", attacker.url("/token"));
        let headers = vec![
            (header::WWW_AUTHENTICATE, challenge),
            (header::WWW_AUTHENTICATE, "Basic realm=\"x\"".to_owned()),
        ];
        attacker.break_path(path, Fault::Answer(StatusCode::UNAUTHORIZED, headers, "".into()));
    }
    attacker.serve("/token", Page::new(r#"{"token": "of-the-attacker"}"#));
    world.declare(
        "index",
        &private.url("/index"),
        &format!("{AUTH}  tlsInsecureSkipVerify: true\n"),
    );

    let _portolan = world.run(&["--chart-files=all"]).await;
    world.until_ready("index").await;
    world.until_files_failed("index").await;
    let status = world
        .until_status("registry", "to have a status", |status| !status["ready"].is_null())
        .await;
    assert!(status.to_string().contains("another host"), "{status}");
    assert_nothing_leaked(&requests_for(&world.attacker, &["/blob"]));
    assert_eq!(
        world.attacker.count("/blob-token"),
        0,
        "a blob store is not a registry and must not name a token server"
    );
    assert_nothing_leaked(&requests_for(&attacker, &["/token"]));
    for request in requests_for(&attacker, &["/v2/x/boat/manifests/1.0.0"]) {
        let shown = request.authorization().unwrap_or("Bearer of-the-attacker");
        assert_eq!(shown, "Bearer of-the-attacker");
    }
    assert!(
        requests_for(&private, &[&blob])
            .iter()
            .any(|seen| seen.authorization() == Some(&header))
    );
    world.until_honest_files_are_served().await;
}
