//! Malformed, endless, expanding and ambiguous indexes.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{World, peak_memory};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::{Fault, Page};

/// An index with one valid chart.
const GOOD: &str = "apiVersion: v1\nentries:\n  good:\n  - {name: good, version: 1.0.0, urls: [good-1.0.0.tgz]}\n";

/// Malformed entries that must not affect the valid chart.
const BROKEN_ENTRIES: [(&str, &str); 12] = [
    ("null-version", "  bad: [null]\n"),
    ("text-for-list", "  bad: text\n"),
    ("number-for-version", "  bad: [7]\n"),
    ("list-for-version", "  bad: [[[]]]\n"),
    ("map-for-list", "  bad: {name: bad, version: 1.0.0}\n"),
    ("nameless", "  bad: [{version: 1.0.0}]\n"),
    ("versionless", "  bad: [{name: bad}]\n"),
    ("map-for-name", "  bad: [{name: {a: b}, version: 1.0.0}]\n"),
    ("list-for-version-text", "  bad: [{name: bad, version: [1, 2]}]\n"),
    ("other-name", "  bad: [{name: '..', version: 1.0.0}]\n"),
    ("escape-in-version", "  bad: [{name: bad, version: \"1.0.0\\e[2J\"}]\n"),
    (
        "deprecated-text",
        "  bad: [{name: bad, version: 1.0.0, deprecated: [[]], urls: 5}]\n",
    ),
];

/// Malformed indexes without a valid chart.
const BROKEN_INDEXES: [(&str, &[u8]); 8] = [
    ("empty", b""),
    ("null-index", b"null\n"),
    ("number-for-entries", b"apiVersion: v1\nentries: 5\n"),
    ("list-for-entries", b"apiVersion: v1\nentries: [[], {}]\n"),
    ("list-for-index", b"- apiVersion: v1\n"),
    ("unknown-alias", b"apiVersion: v1\nentries: *nothing\n"),
    ("bytes", b"\xff\xfe\x00\x01entries:\0\0"),
    ("cut-short", b"apiVersion: v1\nentries: {good: [{name: \"good"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_entries_are_skipped_and_malformed_indexes_fail() {
    let world = World::new().await;
    for (name, entry) in BROKEN_ENTRIES {
        world.attack(name, format!("{GOOD}{entry}"));
    }
    for (name, index) in BROKEN_INDEXES {
        world.attack(name, index);
    }
    let portolan = world.run(&[]).await;
    for (name, _) in BROKEN_ENTRIES {
        let status = world.until_ready(name).await;
        assert_eq!(status["charts"], 1, "{status}");
        let skipped = &status["lastSync"]["skipped"][0];
        assert_eq!(skipped["chart"], "bad", "{status}");
        assert!(!skipped["reason"].as_str().unwrap().is_empty(), "{status}");
    }
    for (name, _) in BROKEN_INDEXES {
        let status = world
            .until_status(name, "to fail", |status| status["ready"] == false)
            .await;
        assert_eq!(status["stalled"], true, "{status}");
        assert_eq!(status["charts"], 0, "{status}");
    }
    world.until_honest_is_served().await;
    let log = portolan.lines().join("\n");
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_index_is_aborted() {
    let world = World::new().await;
    // Endless responses to any request.
    world.declare("endless", &endless_server(b"# and so on without an end\n").await, "");
    world.declare("endless-line", &endless_server(b"[{[{[{[{[{[{[{[{").await, "");
    for (name, fault) in [
        ("gzip-bomb", Fault::EndlessGzip),
        ("drip", Fault::Drip(1, Duration::from_millis(100))),
        ("stall", Fault::StallAfter(20)),
        ("loop", Fault::redirect("/loop/index.yaml")),
    ] {
        world.attack(name, GOOD);
        world.attacker.break_path(&format!("/{name}/index.yaml"), fault);
    }
    let started = Instant::now();
    let portolan = world.run(&["--fetch-timeout=6s", "--stall-timeout=2s"]).await;
    // The downloads are running while the honest repository is synced.
    world.until_honest_is_served().await;
    for name in ["endless", "endless-line", "gzip-bomb"] {
        let message = world
            .until_status(name, "to fail", |status| status["ready"] == false)
            .await;
        // On a busy machine the timeout may come before the size limit.
        let text = message["message"].as_str().unwrap();
        let is_limit =
            message["reason"] == "TooLarge" && text.contains("104857600") && text.contains("size is at least");
        assert!(is_limit || message["reason"] == "Timeout", "{message}");
    }
    let drip = world.until_failed("drip", "DownloadStalled").await;
    assert!(
        drip["message"].as_str().unwrap().contains("less than 1 KiB/s for 2s"),
        "{drip}"
    );
    let stall = world.until_failed("stall", "DownloadStalled").await;
    assert!(stall["message"].as_str().unwrap().contains("after 20 bytes"), "{stall}");
    world.until_failed("loop", "TooManyRedirects").await;
    assert!(started.elapsed() < super::SOON, "{:?}", started.elapsed());
    let peak = peak_memory(&portolan);
    assert!(peak < 150, "{peak} MiB, for three indexes of up to 100 MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_for_a_large_index_states_the_limit_and_the_bytes_seen() {
    let world = World::new().await;
    world.declare("endless", &endless_server(b"# and so on without an end\n").await, "");
    world.attack("gzip-bomb", GOOD);
    world.attacker.break_path("/gzip-bomb/index.yaml", Fault::EndlessGzip);
    let portolan = world.run(&["--index-max-bytes=2Mi"]).await;
    for name in ["endless", "gzip-bomb"] {
        let status = world.until_failed(name, "TooLarge").await;
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("2097152 bytes ("), "{message}");
        assert!(message.contains("(size is at least "), "{message}");
        assert_eq!(status["stalled"], true, "{status}");
        portolan
            .line_with(&format!("namespace=default name={name}"), super::SOON)
            .await;
    }
    world.until_honest_is_served().await;
    assert!(
        world.temporary().read_dir().unwrap().next().is_none(),
        "the spool file is deleted"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yaml_bomb_is_refused_before_it_expands() {
    let world = World::new().await;
    let mut laughs = format!("{GOOD}x0: &x0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n");
    for level in 1..12 {
        let last = format!("*x{}", level - 1);
        let _ = writeln!(laughs, "x{level}: &x{level} [{}]", [last.as_str(); 9].join(", "));
    }
    let in_entries =
        format!("{laughs}entries:\n  bomb:\n  - {{name: bomb, version: 1.0.0, keywords: *x11, urls: [a.tgz]}}\n");
    let quadratic = format!(
        "{GOOD}long: &long {}\nbomb: [{}]\n",
        "x".repeat(500_000),
        "*long, ".repeat(5_000)
    );
    let merges: String = (1..40).fold(format!("{GOOD}m0: &m0 {{a: b}}\n"), |mut text, level| {
        let last = level - 1;
        let _ = writeln!(
            text,
            "m{level}: &m{level} {{<<: [*m{last}, *m{last}], k{level}: [*m{last}, *m{last}]}}"
        );
        text
    });
    let deep = format!("{GOOD}deep: {}\n", "[".repeat(200_000));
    let deep_json = format!("{{\"apiVersion\": \"v1\", \"entries\": {}", "{\"a\":".repeat(200_000));
    let keys = format!("{GOOD}? {}\n", "? ".repeat(100_000));
    let itself = format!("{GOOD}self: &self [*self, *self]\n");
    let bombs = [
        ("laughs", laughs.clone()),
        ("laughs-in-entries", in_entries),
        ("quadratic", quadratic),
        ("merges", merges),
        ("deep", deep),
        ("deep-json", deep_json),
        ("deep-keys", keys),
        ("itself", itself),
        (
            "long-text",
            format!(
                "{GOOD}  bad:\n  - {{name: bad, version: 1.0.0, description: {}}}\n",
                "x".repeat(20 << 20)
            ),
        ),
        (
            "many-versions",
            format!("{GOOD}  bad:\n{}", "  - {name: bad, version: 1.0.0}\n".repeat(60_000)),
        ),
    ];
    for (name, index) in &bombs {
        world.attack(name, index.clone());
    }
    let portolan = world.run(&[]).await;
    world.until_honest_is_served().await;
    for (name, ..) in &bombs {
        let reason = match *name {
            "itself" => "InvalidYAML",
            _ => "TooComplex",
        };
        let status = world.until_failed(name, reason).await;
        assert_eq!(status["stalled"], true, "{status}");
    }
    let peak = peak_memory(&portolan);
    assert!(peak < 150, "{peak} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_duplicate_versions_the_first_is_imported_and_the_status_counts_them() {
    let world = World::new().await;
    let genuine = Chart::new("boat", "1.0.0").file("README.md", "genuine\n").pack();
    let forged = Chart::new("boat", "1.0.0").file("README.md", "forged\n").pack();
    for (name, archive) in [("genuine", &genuine), ("forged", &forged)] {
        world
            .attacker
            .serve(&format!("/poisoned/{name}.tgz"), Page::archive(archive));
    }
    world.attack(
        "poisoned",
        index([
            genuine.index_entry(&["genuine.tgz"]),
            forged.index_entry(&["forged.tgz"]),
            forged.index_entry(&["forged.tgz"]),
        ]),
    );
    let _portolan = world.run(&["--chart-files=all"]).await;
    let status = world.until_ready("poisoned").await;
    assert_eq!(status["lastSync"]["duplicates"], 2, "{status}");
    let shown: serde_json::Value =
        serde_json::from_str(&world.output(&["show", "poisoned/boat", "-o", "json"]).await).unwrap();
    let digests: Vec<&str> = shown["chartVersions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["digest"].as_str().unwrap())
        .collect();
    assert_eq!(
        digests,
        [genuine.sha256(), forged.sha256(), forged.sha256()],
        "as Kubeapps lists them"
    );
    assert_eq!(world.until_files("poisoned", "boat").await["Readme"], "genuine\n");
    world.until_honest_files_are_served().await;
    assert_eq!(world.attacker.count("/poisoned/forged.tgz"), 0);
}

/// Starts a server that repeats these bytes endlessly. Returns the URL of a repository on it.
async fn endless_server(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/charts", listener.local_addr().unwrap());
    let piece = bytes.repeat((64 << 10) / bytes.len());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let piece = piece.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = client.read(&mut request).await;
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/yaml\r\nETag: \"same\"\r\n\r\n";
                let mut sent = client.write_all(head).await;
                while sent.is_ok() {
                    sent = client.write_all(&piece).await;
                }
            });
        }
    });
    url
}
