//! Credentials that are asked for by those who shall not have them, and that are told by those who have them.

use axum::http::{StatusCode, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::{SOON, World, chart_in_registry, repository, secret};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page, Seen};
use crate::support::eventually::eventually;
use crate::support::portolan;
use crate::support::proxy::Proxy;

const AUTH: &str = "  auth:\n    header:\n      secretKeyRef: {name: keys, key: header}\n";

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Everything that a server was asked for at these paths.
fn asked(server: &ChartServer, paths: &[&str]) -> Vec<Seen> {
    let asked = paths.iter().map(|path| (path, server.seen(path)));
    asked
        .inspect(|(path, seen)| assert!(!seen.is_empty(), "nobody has asked for {path}"))
        .flat_map(|(_, seen)| seen)
        .collect()
}

fn assert_nothing_leaked(seen: &[Seen]) {
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
async fn nothing_but_the_repositorys_own_server_gets_its_credentials() {
    let world = World::new().await;
    let private = ChartServer::start().await;
    let header = basic("hushuser", "hushword");
    private.demand(&header);
    world.manifest("secret", &secret("default", "keys", &[("header", &header)]));
    let (private_host, attacker) = (private.host().to_owned(), world.attacker.host().to_owned());
    let archive = |name: &str, icon: String| Chart::new(name, "1.0.0").field("icon", icon).pack();
    // Where the index sends us, by charts' names; and where the attacker sees it.
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
    // The index itself is elsewhere.
    private.break_path("/moved/index.yaml", Fault::redirect(&world.attacker.url("/moved.yaml")));
    world
        .attacker
        .serve("/moved.yaml", Page::new(index([own.index_entry(&[])])));
    world.declare("moved", &format!("{}?token=hushtoken", private.url("/moved")), AUTH);
    // The credentials stand in the URL.
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
    eventually(SOON, "all icons to be asked for", async || {
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
    // What is written into a URL of the index is its own, and no secret.
    let seen = asked(&world.attacker, &[&paths[..], &more].concat());
    let (userinfo, seen): (Vec<_>, Vec<_>) = seen.into_iter().partition(|request| request.path == "/userinfo.tgz");
    assert_nothing_leaked(&seen);
    for request in userinfo {
        let shown = request.authorization().unwrap_or_default().to_owned();
        assert!(shown != header && !shown.contains("hush"), "{request:?}");
        assert_eq!(request.query, None);
    }
    assert!(
        asked(&private, &["/charts/own.tgz"])
            .iter()
            .all(|seen| seen.authorization() == Some(&header))
    );

    // The same with leave to pass them on: what is asserted above could fail.
    private.serve("/passing/index.yaml", Page::new(all));
    let before = world.attacker.count("/absolute.tgz");
    world.declare(
        "passing",
        &private.url("/passing"),
        &format!("{AUTH}  passCredentials: true\n"),
    );
    world.until_files("passing", "absolute").await;
    let seen = world.attacker.seen("/absolute.tgz");
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
    // A registry that keeps its blobs elsewhere.
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
    // An index that names an archive in a registry, which sends whoever comes to its own token server.
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
        .until_status("registry", "to be judged", |status| !status["ready"].is_null())
        .await;
    assert!(status.to_string().contains("another host"), "{status}");
    assert_nothing_leaked(&asked(&world.attacker, &["/blob"]));
    assert_eq!(
        world.attacker.count("/blob-token"),
        0,
        "a blob's store is no registry, and names no token server"
    );
    assert_nothing_leaked(&asked(&attacker, &["/token"]));
    for request in asked(&attacker, &["/v2/x/boat/manifests/1.0.0"]) {
        let shown = request.authorization().unwrap_or("Bearer of-the-attacker");
        assert_eq!(shown, "Bearer of-the-attacker");
    }
    assert!(
        asked(&private, &[&blob])
            .iter()
            .any(|seen| seen.authorization() == Some(&header))
    );
    world.until_honest_files_are_served().await;
}

/// What stands in URLs, and what stands in Secrets or comes from a token server.
const OF_URLS: [&str; 3] = ["hushuser", "hushword", "hushtoken"];
const SEALED: [&str; 3] = ["sealedword", "sealedbearer", "sealedtoken"];

fn assert_quiet(what: &str, text: &str, secrets: &[&str]) {
    let encoded = [("hushuser", "hushword"), ("navigator", "sealedword")].map(|(user, password)| basic(user, password));
    let encoded = encoded.iter().map(|header| header.trim_start_matches("Basic "));
    for secret in secrets.iter().copied().chain(encoded) {
        if let Some(at) = text.find(secret) {
            let from = text.floor_char_boundary(at.saturating_sub(300));
            panic!(
                "{what} shows {secret}: {}",
                &text[from..text.ceil_char_boundary(at + 100)]
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_failure_of_any_kind_tells_a_secret() {
    let world = World::new().await;
    let (tls, proxy) = (ChartServer::start_tls().await, Proxy::start().await);
    proxy.demand("somebody", "else");
    let basic_header = basic("navigator", "sealedword");
    let docker = |user: &str| json!({"username": user, "password": "sealedword"});
    world.manifest(
        "secrets",
        &[
            secret(
                "default",
                "keys",
                &[
                    ("header", &basic_header),
                    ("bearer", "Bearer sealedbearer"),
                    ("line", "Bearer sealed\nsealedbearer"),
                    ("no-ca", "sealedword"),
                    (
                        ".dockerconfigjson",
                        &json!({"auths": {"a": docker("navigator"), "b": docker("x")}}).to_string(),
                    ),
                ],
            ),
            secret("default", "no-json", &[(".dockerconfigjson", "{\"auths\": sealedword")]),
            secret("default", "no-base64", &[]) + "data: {header: 'sealedword!'}\n",
        ]
        .concat(),
    );
    world.manifest(
        "unreadable",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: broken}\nstringData: {header: \"sealedword",
    );

    let with_secrets = |url: &str| format!("{}?token=hushtoken", url.replacen("://", "://hushuser:hushword@", 1));
    let auth =
        |name: &str, key: &str| format!("  auth:\n    header:\n      secretKeyRef: {{name: {name}, key: '{key}'}}\n");
    let leading = with_secrets(&world.attacker.url("/elsewhere"));
    let faults = [
        ("unauthorized", Fault::status(401)),
        ("forbidden", Fault::status(403)),
        ("missing", Fault::status(404)),
        ("broken", Fault::status(500)),
        ("silent", Fault::NoAnswer),
        ("cut", Fault::CutAfter(5)),
        ("stalled", Fault::StallAfter(5)),
        ("page", Fault::html()),
        ("redirected", Fault::redirect(&leading)),
        (
            "to-ftp",
            Fault::redirect("ftp://hushuser:hushword@127.0.0.1/?token=hushtoken"),
        ),
        (
            "to-metadata",
            Fault::redirect("http://hushuser:hushword@169.254.169.254/?token=hushtoken"),
        ),
        (
            "to-nowhere",
            Fault::redirect("http://hushuser:hushword@:x/?token=hushtoken"),
        ),
        ("large", Fault::EndlessGzip),
    ];
    let header_auth = auth("keys", "header");
    let mut names = Vec::new();
    let mut declare = |name: &str, url: &str, more: &str| {
        world.declare(name, url, more);
        names.push(name.to_owned());
    };
    for (name, fault) in faults {
        world.attack(name, "apiVersion: v1\nentries: {}\n");
        world.attacker.break_path(&format!("/{name}/index.yaml"), fault);
        declare(
            name,
            &with_secrets(&world.attacker.url(&format!("/{name}"))),
            &header_auth,
        );
    }
    // A server of its own, since all repositories of a busy one wait.
    let busy = ChartServer::start().await;
    busy.break_path("/x/index.yaml", Fault::retry_after(429, "1"));
    declare("busy", &with_secrets(&busy.url("/x")), &header_auth);
    declare("closed", &with_secrets("http://127.0.0.1:1/x"), &header_auth);
    declare("untrusted", &with_secrets(&tls.url("/x")), &header_auth);
    declare("unknown", &with_secrets("http://unknown.invalid/x"), &header_auth);
    declare(
        "scheme",
        "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken",
        &header_auth,
    );
    declare("no-url", "http://hushuser:hushword@:x/?token=hushtoken", &header_auth);
    let via = |url: &str| {
        let env = json!([{"name": "http_proxy", "value": url}]);
        format!(
            "  syncJobPodTemplate: {}\n",
            json!({"spec": {"containers": [{"env": env}]}})
        )
    };
    let through = format!("http://hushuser:hushword@{}", proxy.host);
    declare("refused-by-proxy", "http://charts.example.com/x", &via(&through));
    declare(
        "no-proxy",
        "http://charts.example.com/x",
        &via("http://hushuser:hushword@:x"),
    );
    declare(
        "proxy-away",
        "http://charts.example.com/x",
        &via("http://hushuser:hushword@127.0.0.1:1"),
    );
    let good = world.honest.url("/charts");
    for (name, more) in [
        ("bearer-refused", auth("keys", "bearer")),
        ("line-break", auth("keys", "line")),
        ("two-hosts", auth("keys", ".dockerconfigjson")),
        ("no-json", auth("no-json", ".dockerconfigjson")),
        ("no-base64", auth("no-base64", "header")),
        ("no-key", auth("keys", "absent")),
        ("no-secret", auth("broken", "header")),
        (
            "no-ca",
            "  auth:\n    customCA:\n      secretKeyRef: {name: keys, key: no-ca}\n".to_owned(),
        ),
    ] {
        let url = if name == "bearer-refused" {
            world.attacker.url("/unauthorized")
        } else {
            good.clone()
        };
        declare(name, &url, &more);
    }
    // A token server that gives a token which opens nothing, and one that does not end its answer.
    for (name, answer) in [
        ("tokens", r#"{"token": "sealedtoken"}"#),
        ("half-tokens", r#"{"token": "sealedtoken""#),
    ] {
        let challenge = format!(
            "Bearer realm=\"{}\"",
            world.attacker.url(&format!("/{name}?hint=hushtoken"))
        );
        let headers = vec![(header::WWW_AUTHENTICATE, challenge)];
        world.attacker.break_path(
            &format!("/v2/{name}/boat/tags/list"),
            Fault::Answer(StatusCode::UNAUTHORIZED, headers, "".into()),
        );
        world.attacker.serve(&format!("/{name}"), Page::new(answer));
        let url = with_secrets(&world.attacker.url(&format!("/{name}")));
        let more = format!("{header_auth}  ociRepositories: [boat]\n");
        world.manifest(name, &repository("default", name, "oci", &url, &more));
        names.push(name.to_owned());
    }
    // One that is read well, whose archives and icons can't be had.
    let bad = |name: &str, url: String| {
        Chart::new(name, "1.0.0")
            .field("icon", url.clone())
            .pack()
            .index_entry(&[&url])
    };
    let entries = [
        bad("gone", with_secrets(&world.attacker.url("/gone.tgz"))),
        bad("away", with_secrets("http://127.0.0.1:1/away.tgz")),
        bad("moved", with_secrets(&world.attacker.url("/redirected/index.yaml"))),
        bad("refused", with_secrets("http://169.254.169.254/x")),
        bad("no-archive", with_secrets(&world.attacker.url("/page/index.yaml"))),
        bad(
            "scheme",
            "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken".to_owned(),
        ),
        Archive::of_bytes("other", "1.0.0", "other")
            .index_entry(&[&with_secrets(&world.attacker.url("/unauthorized/index.yaml"))]),
    ];
    let charts = entries.len();
    world.attack("well", index(entries));
    world.declare("well", &with_secrets(&world.attacker.url("/well")), &header_auth);

    let flags = [
        "--chart-files=all",
        "--icons",
        "--log-level=trace",
        "--stall-timeout=2s",
        "--index-max-bytes=1Mi",
    ];
    let mut portolan = world.run(&flags).await;
    for name in &names {
        world
            .until_status(name, "to fail", |status| status["ready"] == false)
            .await;
    }
    world.until_ready("well").await;
    eventually(SOON, "all archives and icons to be tried", async || {
        let failed = world
            .select("SELECT 'file' FROM portolan_files WHERE tries > 0 AND name = 'well' UNION ALL SELECT 'icon' FROM portolan_icons")
            .await;
        if failed.len() >= 2 * charts - 1 { Ok(()) } else { Err(failed.len().to_string()) }
    })
    .await;
    world.until_honest_files_are_served().await;

    let all = [&OF_URLS[..], &SEALED].concat();
    assert_quiet("/metrics", &portolan.get("/metrics").await.unwrap().1, &all);
    for arguments in [
        &["status"][..],
        &["status", "-o", "json"],
        &["status", "tokens"],
        &["search"],
        &["resync", "well"],
    ] {
        let mut command = world.command(&[arguments, &["--log-level=trace"]].concat());
        if arguments[0] == "resync" {
            command = portolan::command([arguments, &["--log-level=trace", "--manifests"]].concat());
            command.arg(world.folder.join("manifests"));
        }
        let output = portolan::run(command).await;
        let text = [output.stdout, output.stderr].concat();
        assert_quiet(&format!("{arguments:?}"), &String::from_utf8_lossy(&text), &all);
    }
    portolan.signal("TERM");
    portolan.exit(SOON).await;
    let log = portolan.lines();
    assert!(
        log.len() > 200 && log.join("\n").contains("TRACE"),
        "it told all that it knows"
    );
    for line in &log {
        assert_quiet("the log", line, &all);
    }
    for (column, text) in dump(&world).await {
        // URLs as they are declared or published: what is synced by, and what readers of Kubeapps are owed.
        let is_url = [
            "portolan_repositories.url",
            "charts.info",
            "files.info",
            "portolan_icons.url",
        ]
        .contains(&column.as_str());
        assert_quiet(&column, &text, if is_url { &SEALED } else { &all });
    }
}

/// Every column of every row of the database, by its name.
async fn dump(world: &World) -> Vec<(String, String)> {
    let options = SqliteConnectOptions::new()
        .filename(world.folder.join("portolan.db"))
        .read_only(true);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut values = Vec::new();
    for (table, column) in columns {
        let statement = format!("SELECT CAST(coalesce(\"{column}\", '') AS BLOB) FROM \"{table}\"");
        let rows: Vec<Vec<u8>> = sqlx::query_scalar(AssertSqlSafe(statement))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        values.extend(
            rows.into_iter()
                .map(|row| (format!("{table}.{column}"), String::from_utf8_lossy(&row).into_owned())),
        );
    }
    assert!(
        values
            .iter()
            .any(|(column, text)| column == "portolan_syncs.message" && !text.is_empty())
    );
    values
}
