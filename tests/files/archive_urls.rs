use serde_json::json;

use super::{ALL, World, chart, readme, readmes};
use crate::support::archives::{self, Chart};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::portolan::command;
use crate::support::registry::{Registry, Setup};
use crate::support::tls::Authority;
use crate::support::world::{manifest, succeeded};

#[tokio::test]
async fn an_archive_is_found_at_every_kind_of_url() {
    let world = World::new().await;
    let elsewhere = ChartServer::start().await;
    let versions = [
        "relative",
        "absolute",
        "from-the-root",
        "escaped",
        "plus",
        "blank",
        "up",
        "second-ignored",
    ];
    let archives = versions.map(|name| chart(name, "1.0.0+b.1"));
    let urls = [
        "charts/relative.tgz".to_owned(),
        elsewhere.url("/archives/absolute.tgz"),
        "/top/from.tgz".to_owned(),
        "charts/my%20chart.tgz".to_owned(),
        "charts/plus-1.0.0+b.1.tgz".to_owned(),
        "charts/a blank.tgz".to_owned(),
        "../up.tgz".to_owned(),
        "charts/first.tgz".to_owned(),
    ];
    for (path, archive) in [
        ("/stable/charts/relative.tgz", 0),
        ("/top/from.tgz", 2),
        ("/stable/charts/my%20chart.tgz", 3),
        ("/stable/charts/plus-1.0.0+b.1.tgz", 4),
        ("/stable/charts/a%20blank.tgz", 5),
        ("/up.tgz", 6),
        ("/stable/charts/first.tgz", 7),
    ] {
        world.server.serve(path, Page::new(archives[archive].bytes.clone()));
    }
    elsewhere.serve("/archives/absolute.tgz", Page::new(archives[1].bytes.clone()));
    let entries = archives.iter().zip(&urls).map(|(archive, url)| {
        let other = world.server.url("/never.tgz");
        archive.index_entry(&[url, &other])
    });
    let url = world.serve_entries("stable", entries);
    world.declare("stable", &url, "");
    world.once(&[ALL]).await;
    let files = world.files().await;
    for name in versions {
        assert_eq!(
            files[&format!("stable/{name}-1.0.0+b.1")]["Readme"],
            readme(name, "1.0.0+b.1")
        );
    }
    assert!(world.server.requests("/never.tgz").is_empty());
}

#[tokio::test]
async fn an_archive_may_be_served_with_content_encoding() {
    let world = World::new().await;
    let archive = chart("web", "1.0.0");
    let url = world.serve_index("stable", std::slice::from_ref(&archive));
    let page = Page::new(archive.bytes.clone()).content_type("application/gzip").gzip();
    world.server.serve("/stable/web-1.0.0.tgz", page);
    world.declare("stable", &url, "");
    world.once(&[ALL]).await;
    assert_eq!(
        readmes(&world.files().await)["stable/web-1.0.0"],
        readme("web", "1.0.0")
    );
}

/// Bitnami's index refers to a registry.
#[tokio::test]
async fn an_index_may_name_archives_in_a_registry() {
    let world = World::new().await;
    let authority = Authority::new();
    let registry = Registry::start(Setup::default().tls(&authority)).await;
    let by_archive = Chart::new("harbour", "1.2.3+b.1")
        .file("README.md", "by archive")
        .pack();
    let by_manifest = Chart::new("quay", "1.0.0").file("README.md", "by manifest").pack();
    let other = Chart::new("pier", "1.0.0")
        .file("README.md", "of another digest")
        .pack();
    registry.helm_push(&by_archive, "ports").await;
    registry.helm_push(&other, "ports").await;
    let pushed = registry.push_chart("ports/quay", "1.0.0", &by_manifest).await;
    let mut entries = vec![
        by_archive.index_entry(&[&registry.oci_url("ports/harbour:1.2.3_b.1")]),
        by_manifest.index_entry(&[&registry.oci_url("ports/quay:1.0.0")]),
        other.index_entry(&[&registry.oci_url("ports/pier:1.0.0")]),
        chart("absent", "1.0.0").index_entry(&[&registry.oci_url("ports/absent:1.0.0")]),
    ];
    // An index may contain the digest of the archive, or of the manifest.
    entries[1]["digest"] = pushed.digest.into();
    entries[2]["digest"] = "ab".repeat(32).into();
    let url = world.serve_entries("stable", entries);
    let ca_file = world.directory.write("ca.crt", &authority.ca_pem).display().to_string();
    let mut sync = command(["sync", "stable", &url, "helm", ALL, "--ca-file", &ca_file]);
    sync.args(["--database-url", &world.database_url()]);
    succeeded(sync).await;
    let files = world.files().await;
    let readmes = readmes(&files);
    assert_eq!(readmes["stable/harbour-1.2.3+b.1"], "by archive");
    assert_eq!(readmes["stable/quay-1.0.0"], "by manifest");
    assert_eq!(readmes["stable/pier-1.0.0"], "of another digest");
    assert_eq!(readmes["stable/absent-1.0.0"], "");
    let reasons = world
        .texts("SELECT message FROM portolan_files ORDER BY chart_files_id")
        .await;
    assert!(reasons[0].contains("404") || reasons[0].contains("not"), "{reasons:?}");
    assert!(reasons[1].contains("but the index contains"), "{reasons:?}");
}

/// The other charts are synced, so that their files are imported.
#[tokio::test]
async fn a_failing_tag_list_does_not_block_files_of_other_repositories() {
    let world = World::new().await;
    let archive = chart("harbour", "1.0.0");
    let config = json!({"name": "harbour", "version": "1.0.0", "apiVersion": "v2"}).to_string();
    let part = |kind: &str, bytes: &[u8]| {
        let digest = format!("sha256:{}", archives::sha256(bytes));
        world
            .server
            .serve(&format!("/v2/ports/harbour/blobs/{digest}"), Page::new(bytes.to_vec()));
        let media_type = format!("application/vnd.cncf.helm.{kind}");
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    };
    let document = json!({
        "schemaVersion": 2,
        "config": part("config.v1+json", config.as_bytes()),
        "layers": [part("chart.content.v1.tar+gzip", &archive.bytes)],
    });
    for (path, page) in [
        ("manifests/1.0.0", document),
        ("tags/list", json!({"name": "ports/harbour", "tags": ["1.0.0"]})),
    ] {
        let path = format!("/v2/ports/harbour/{path}");
        world.server.serve(&path, Page::new(page.to_string()));
    }
    world.server.break_path("/v2/ports/quay/tags/list", Fault::status(500));
    let declared = manifest(
        "ports",
        &world.server.url("/ports"),
        "  ociRepositories: [harbour, quay]\n",
    );
    world.write("ports.yaml", declared.replace("type: helm", "type: oci"));
    let _portolan = world.run(&[ALL]).await;
    let files = world.until_files("the files", |files| !files.is_empty()).await;
    assert_eq!(readmes(&files)["ports/harbour-1.0.0"], readme("harbour", "1.0.0"));
    let status = world.status("ports").await.unwrap();
    assert_eq!(status["reason"], "ServerError", "{status}");
}

#[tokio::test]
async fn archives_next_to_a_file_index_are_read_but_none_outside() {
    let world = World::new().await;
    let names = ["beside", "below", "blank", "escaped", "outside", "linked", "allowed"];
    let archives = names.map(|name| chart(name, "1.0.0"));
    for directory in ["manifests/charts/sub", "outside", "allowed"] {
        std::fs::create_dir_all(world.directory.join(directory)).unwrap();
    }
    for (path, archive) in [
        ("manifests/charts/beside.tgz", 0),
        ("manifests/charts/sub/below.tgz", 1),
        ("manifests/charts/a blank.tgz", 2),
        ("manifests/charts/an escape.tgz", 3),
        ("outside/outside.tgz", 4),
        ("outside/linked.tgz", 5),
        ("allowed/allowed.tgz", 6),
    ] {
        std::fs::write(world.directory.join(path), &archives[archive].bytes).unwrap();
    }
    let link = world.directory.join("manifests/charts/linked.tgz");
    std::os::unix::fs::symlink(world.directory.join("outside/linked.tgz"), link).unwrap();
    let urls = [
        "beside.tgz",
        "sub/below.tgz",
        "a blank.tgz",
        "an%20escape.tgz",
        "../../outside/outside.tgz",
        "linked.tgz",
        "../../allowed/allowed.tgz",
    ];
    let entries = archives
        .iter()
        .zip(urls)
        .map(|(archive, url)| archive.index_entry(&[url]));
    let index = archives::index(entries);
    std::fs::write(world.directory.join("manifests/charts/index.yaml"), index).unwrap();
    world.declare("local", "file:./charts", "");
    let allowed = format!("--allow-file-root={}", world.directory.join("allowed").display());
    world.once(&[ALL, &allowed]).await;
    let files = world.files().await;
    let readmes = readmes(&files);
    for name in ["beside", "below", "blank", "escaped", "allowed"] {
        assert_eq!(
            readmes[format!("local/{name}-1.0.0").as_str()],
            readme(name, "1.0.0"),
            "{name}"
        );
    }
    for name in ["outside", "linked"] {
        assert_eq!(readmes[format!("local/{name}-1.0.0").as_str()], "", "{name}");
    }
}

/// A repository must not read local files, nor send credentials to another host.
#[tokio::test]
async fn local_files_and_foreign_hosts_get_no_access() {
    let world = World::new().await;
    let elsewhere = ChartServer::start().await;
    let archive = chart("away", "1.0.0");
    elsewhere.serve("/away.tgz", Page::new(archive.bytes.clone()));
    let own = chart("own", "1.0.0");
    world.server.serve("/stable/own.tgz", Page::new(own.bytes.clone()));
    let secret = world.directory.write("secret.tgz", &chart("secret", "1.0.0").bytes);
    let file = format!("file://{}", secret.display());
    let entries = [
        archive.index_entry(&[&elsewhere.url("/away.tgz")]),
        own.index_entry(&["own.tgz"]),
        chart("secret", "1.0.0").index_entry(&[&file]),
        chart("path", "1.0.0").index_entry(&[&secret.display().to_string()]),
        chart("ftp", "1.0.0").index_entry(&["ftp://127.0.0.1/a.tgz"]),
        chart("metadata", "1.0.0").index_entry(&["http://169.254.169.254/latest/meta-data"]),
    ];
    let url = world.serve_entries("stable", entries);
    let sync = async |more: &[&str]| {
        let mut sync = command(["sync", "stable", &url, "helm", ALL]);
        sync.args(["--database-url", &world.database_url()]).args(more);
        sync.env("AUTHORIZATION_HEADER", "Bearer hush");
        succeeded(sync).await;
    };
    sync(&[]).await;
    let files = world.files().await;
    let taken: Vec<&str> = readmes(&files)
        .into_iter()
        .filter(|(_, readme)| !readme.is_empty())
        .map(|(id, _)| id)
        .collect();
    assert_eq!(taken, ["stable/away-1.0.0", "stable/own-1.0.0"]);
    let authorization = |seen: &crate::support::chart_server::RecordedRequest| {
        seen.headers
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(
        authorization(&world.server.requests("/stable/own.tgz")[0]).as_deref(),
        Some("Bearer hush")
    );
    assert_eq!(authorization(&elsewhere.requests("/away.tgz")[0]), None);
    assert!(
        world
            .texts("SELECT message FROM portolan_files")
            .await
            .iter()
            .all(|message| !message.contains("hush"))
    );

    // Unless that is enabled.
    world.execute("DELETE FROM files").await;
    sync(&["--pass-credentials"]).await;
    assert_eq!(
        authorization(&elsewhere.requests("/away.tgz")[1]).as_deref(),
        Some("Bearer hush")
    );
}
