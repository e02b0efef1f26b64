//! `portolan debug bundle`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::cluster::{World, index};
use crate::support::portolan::{command, run};
use crate::support::ports::free_port;
use crate::support::process::ScratchDir;

/// In all places that a user could put it.
const SECRET: &str = "hunter2";

/// Returns the files of an archive by name.
fn unpack(path: &Path) -> BTreeMap<String, String> {
    unpack_from(File::open(path).unwrap())
}

fn unpack_from(archive: impl Read) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let name = entry
            .path()
            .unwrap()
            .strip_prefix("portolan-debug")
            .unwrap()
            .display()
            .to_string();
        (name, text)
    });
    entries.collect()
}

fn json_of(files: &BTreeMap<String, String>, name: &str) -> Value {
    serde_json::from_str(&files[name]).unwrap_or_else(|error| panic!("{name}: {error}: {}", files[name]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_has_all_parts_and_no_secret() {
    let (world, directory) = (World::new().await, ScratchDir::new("bundle"));
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let url = url.replace("http://", &format!("http://me:{SECRET}@")) + &format!("?token={SECRET}");
    world
        .write_secret(&world.namespace, "login", json!({ "header": SECRET }))
        .await;
    let template = json!({ "spec": { "containers": [{ "env": [{ "name": "X", "value": SECRET }] }] } });
    let annotations = json!({ "example.com/note": SECRET });
    world
        .declare_with(
            "failing",
            json!({
                "metadata": { "annotations": annotations },
                "spec": { "type": "helm", "url": url, "syncJobPodTemplate": template,
                          "auth": { "header": { "secretKeyRef": { "name": "login", "key": "header" } } } }
            }),
        )
        .await;
    let served = world.serve("web", index(&[("web", &["1.0.0"])]));
    world.declare("web", &served).await;
    let database = format!("sqlite://{}", directory.path().join("portolan.db").display());
    let debug = format!("127.0.0.1:{}", free_port());
    let debug_flag = format!("--debug-addr={debug}");
    let portolan = world.portolan(&database, &[&debug_flag, "--index-max-bytes=1Mi"]).await;
    world.until_ready("web").await;
    world
        .until("failing", "a status", |object| object.status.is_some())
        .await;
    world.event("web", "SyncSucceeded").await;

    let (out, token) = (directory.path().join("bundle.tar.gz"), directory.path().join("token"));
    std::fs::write(&token, SECRET).unwrap();
    let mut bundle = command([
        "debug",
        "bundle",
        "--namespace",
        &world.namespace,
        "--database-url",
        &database,
    ]);
    bundle.args(["--metrics-url", &format!("http://{}", portolan.address())]);
    bundle.args(["--debug-url", &format!("http://{debug}")]);
    bundle
        .arg("--kubeconfig")
        .arg(&world.kubeconfig)
        .arg("--out")
        .arg(&out)
        .arg("--token-file")
        .arg(&token);
    bundle.env("DB_PASSWORD", SECRET).env("PORTOLAN_UNKNOWN", SECRET);
    // The flag takes precedence.
    bundle.env(
        "PORTOLAN_DATABASE_URL",
        format!("postgres://me:{SECRET}@db/x?password={SECRET}"),
    );
    let output = run(bundle).await;
    assert!(output.status.success(), "{output:?}");

    let files = unpack(&out);
    assert!(!files["index.txt"].contains("missing "), "{}", files["index.txt"]);
    for (name, text) in &files {
        assert!(!text.contains(SECRET), "{name} has a secret: {text}");
    }
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        files["settings.txt"].contains("PORTOLAN_DATABASE_URL=postgres://db/x\n"),
        "{}",
        files["settings.txt"]
    );
    assert!(
        files["arguments.txt"].contains("--index-max-bytes=1Mi"),
        "{}",
        files["arguments.txt"]
    );
    assert!(files["metrics.txt"].contains("portolan_syncs_total"));
    assert!(
        files["readyz.txt"].contains("[+]database ok"),
        "{}",
        files["readyz.txt"]
    );
    assert!(files["log-filter.txt"].contains("info"));
    let repositories = json_of(&files, "cluster/apprepositories.json");
    let conditions = repositories["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["status"]["conditions"]);
    assert!(
        conditions.filter(|conditions| conditions.is_array()).count() == 2,
        "{repositories:#}"
    );
    let events = json_of(&files, "cluster/events.json");
    assert!(
        events["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["reason"] == "SyncSucceeded"),
        "{events:#}"
    );
    let syncs = json_of(&files, "catalog/syncs.json");
    assert!(
        syncs
            .as_array()
            .unwrap()
            .iter()
            .any(|of| of["name"] == "web" && of["syncs"][0]["charts"] == 1),
        "{syncs:#}"
    );
    assert_eq!(json_of(&files, "catalog/repositories.json")["count"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_without_cluster_database_and_process_has_their_errors() {
    let directory = ScratchDir::new("bundle");
    let nowhere = format!("http://me:{SECRET}@127.0.0.1:{}", free_port());
    let mut bundle = command(["debug", "bundle", "--metrics-url", &nowhere, "--debug-url", &nowhere]);
    bundle.args(["--kubeconfig", "/nowhere/config"]);
    bundle.args([
        "--database-url",
        &format!("postgres://me:{SECRET}@127.0.0.1:{}/x", free_port()),
    ]);
    bundle.current_dir(directory.path());
    let output = run(bundle).await;
    assert!(output.status.success(), "{output:?}");
    let written: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [path] = written.as_slice() else {
        panic!("{written:?}")
    };
    let name = path.file_name().unwrap().to_string_lossy();
    assert!(
        name.starts_with("portolan-debug-2") && name.ends_with("Z.tar.gz"),
        "{name}"
    );
    let files = unpack(path);
    for name in [
        "metrics.txt",
        "readyz.txt",
        "arguments.txt",
        "catalog.txt",
        "cluster.txt",
    ] {
        assert!(files[name].starts_with("error: "), "{name}: {}", files[name]);
        assert!(
            files["index.txt"].contains(&format!("missing  {name}: ")),
            "{}",
            files["index.txt"]
        );
    }
    assert!(files["settings.txt"].contains("version="));
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let all = files.values().cloned().collect::<String>() + &printed;
    assert!(!all.contains(SECRET), "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standard_output_takes_the_archive_and_nothing_else() {
    let directory = ScratchDir::new("bundle");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let mut bundle = command(["debug", "bundle", "--out", "-", "--log-level", "debug"]);
    bundle.args(["--metrics-url", &nowhere, "--debug-url", &nowhere]);
    bundle.args(["--kubeconfig", "/nowhere/config"]);
    bundle.args([
        "--database-url",
        &format!("sqlite://{}", directory.path().join("no.db").display()),
    ]);
    bundle.current_dir(directory.path());
    let output = run(bundle).await;
    assert!(output.status.success(), "{output:?}");
    let files = unpack_from(output.stdout.as_slice());
    assert!(files["settings.txt"].contains("version="));
    let summary = String::from_utf8(output.stderr).unwrap();
    assert!(summary.contains("ok       settings.txt\n"), "{summary}");
    assert!(summary.contains(&files["index.txt"]), "{summary}");
    assert!(!directory.path().join("-").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_without_rights_names_the_right_that_is_missing() {
    let (world, directory) = (World::new().await, ScratchDir::new("bundle"));
    let control_plane = crate::support::control_plane::control_plane().await;
    let kubeconfig = control_plane.kubeconfig_for(&control_plane.url(), "unknown-token");
    let out = directory.path().join("bundle.tar.gz");
    let mut bundle = command(["debug", "bundle", "--namespace", &world.namespace]);
    bundle.arg("--kubeconfig").arg(kubeconfig).arg("--out").arg(&out);
    bundle.args([
        "--database-url",
        &format!("sqlite://{}", directory.path().join("no.db").display()),
    ]);
    assert!(run(bundle).await.status.success());
    let files = unpack(&out);
    let text = &files["cluster/apprepositories.json"];
    assert!(text.starts_with("error: failed to list apprepositories"), "{text}");
}
