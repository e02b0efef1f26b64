//! Secrets in logs, messages and the database.

use axum::http::{StatusCode, header};
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use super::credentials::basic;
use super::{SOON, World, repository, secret};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan;
use crate::support::proxy::Proxy;

/// Secrets in URLs, and secrets from Kubernetes Secrets or a token server.
const OF_URLS: [&str; 3] = ["hushuser", "hushword", "hushtoken"];
const SEALED: [&str; 3] = ["sealedword", "sealedbearer", "sealedtoken"];

fn assert_quiet(what: &str, text: &str, secrets: &[&str]) {
    let encoded = [("hushuser", "hushword"), ("navigator", "sealedword")].map(|(user, password)| basic(user, password));
    let encoded = encoded.iter().map(|header| header.trim_start_matches("Basic "));
    for secret in secrets.iter().copied().chain(encoded) {
        if let Some(at) = text.find(secret) {
            let from = text.floor_char_boundary(at.saturating_sub(300));
            panic!(
                "{what} contains {secret}: {}",
                &text[from..text.ceil_char_boundary(at + 100)]
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_failure_leaks_a_secret() {
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
        ("silent", Fault::NoResponse),
        ("cut", Fault::TruncateAfter(5)),
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
    // A separate server, since a backoff applies to all repositories of a host.
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
    // A token server with useless tokens, and one with an endless response.
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
    // A valid index whose archives and icons are unavailable.
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
        &["history", "tokens"],
        &["search"],
        &["resync", "well"],
    ] {
        let mut command = world.command(&[arguments, &["--log-level=trace"]].concat());
        if arguments[0] == "resync" {
            command = portolan::command([arguments, &["--log-level=trace", "--manifests"]].concat());
            command.arg(world.directory.join("manifests"));
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
        "trace logging is enabled"
    );
    for line in &log {
        assert_quiet("the log", line, &all);
    }
    for (column, text) in dump(&world).await {
        // These columns hold declared or published URLs, which Kubeapps' readers need.
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

/// Returns every value of the database with its column.
async fn dump(world: &World) -> Vec<(String, String)> {
    let options = SqliteConnectOptions::new()
        .filename(world.directory.join("portolan.db"))
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
