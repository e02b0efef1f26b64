//! Files of versions, their differences, icons and the history of syncs; and names that try to reach other rows.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{SOON, Serving, database, declare, fill, fill_archives, sync};
use crate::catalog::On;
use crate::support::archives::{Archive, Chart};
use crate::support::portolan::{command, run};
use crate::support::world::World;

const STABLE: &str = "/charts/default/stable";
const VALUES: &str = "# -- Number of pods\nreplicas: 1 # per zone\nimage:\n  tag: \"1.0\"\nhosts: []\n";

fn web(version: &str, values: &str) -> Archive {
    Chart::new("web", version)
        .file("README.md", format!("# Web {version} <script>\n"))
        .file("values.yaml", values)
        .pack()
}

#[rstest]
#[tokio::test]
async fn files_are_served_with_their_media_types(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let full = Chart::new("full", "1.0.0")
        .file("README.md", "# Full\n")
        .file("values.yaml", VALUES)
        .file("values-production.yaml", "replicas: 3\n")
        .file("values.schema.json", "{\"type\": \"object\"}")
        .pack();
    let bare = Chart::new("bare", "1.0.0").pack();
    fill_archives(&world, &url, "stable", &[full, bare]).await;
    let serving = Serving::of(&world, &url).await;
    let version = format!("{STABLE}/full/versions/1.0.0");
    for (file, media_type, text) in [
        ("readme", "text/markdown; charset=utf-8", "# Full\n"),
        ("values", "application/yaml", VALUES),
        ("values-production", "application/yaml", "replicas: 3\n"),
        ("schema", "application/schema+json", "{\"type\": \"object\"}"),
    ] {
        let path = format!("{version}/{file}");
        let answer = serving.get(&path).await;
        assert_eq!(
            (answer.status, answer.header("content-type"), &*answer.text()),
            (200, media_type, text)
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.header("vary").contains("Accept,"), "{answer:?}");
        let known = [("if-none-match", answer.header("etag"))];
        let again = serving.request(&format!("/api/v1{path}"), &known).await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        let head = serving
            .client
            .head(format!("{}/api/v1{path}", serving.url))
            .send()
            .await;
        let head = head.unwrap();
        assert_eq!(head.headers()["content-type"], media_type);
        assert_eq!((head.status().as_u16(), head.bytes().await.unwrap().len()), (200, 0));
        let detail = serving.accept("image/png", &path).await.problem(406);
        assert!(detail.contains(media_type.split(';').next().unwrap()), "{detail}");
    }
    assert_eq!(
        serving.json(&version).await["files"],
        json!({ "state": "imported", "names": ["readme", "values", "schema", "values-production"] })
    );
    let missing = serving.get(&format!("{version}/values-other")).await.problem(404);
    assert!(missing.contains("values-production"), "{missing}");
    let bare = format!("{STABLE}/bare/versions/1.0.0");
    assert_eq!(
        serving.json(&bare).await["files"],
        json!({ "state": "none", "names": [] })
    );
    let missing = serving.get(&format!("{bare}/readme")).await.problem(404);
    assert!(missing.contains("has no README"), "{missing}");
    for unknown in ["templates", "Values.yaml", "keys/x"] {
        serving.get(&format!("{version}/{unknown}")).await.problem(404);
    }
}

#[rstest]
#[tokio::test]
async fn a_missing_file_says_why(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let archives = [web("1.1.0", VALUES), web("1.0.0", VALUES)];
    let broken = Chart::new("broken", "1.0.0").file("README.md", "x").pack();
    let served: Vec<Archive> = archives.iter().cloned().chain([broken]).collect();
    world.server.serve_archives("stable", &archives);
    let entries = served
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    declare(&world, "stable", crate::support::archives::index(entries));
    let manifests = world.manifests();
    let once = [
        "run",
        "--once",
        "--chart-files=latest",
        "--manifests",
        &manifests,
        "--database-url",
        &url,
    ];
    run(command(once)).await;
    let serving = Serving::of(&world, &url).await;
    let files = async |path: &str| serving.json(&format!("{STABLE}/{path}")).await["files"].clone();
    assert_eq!(files("web/versions/1.1.0").await["state"], "imported");
    assert_eq!(
        files("web/versions/1.0.0").await,
        json!({ "state": "skipped", "names": [] })
    );
    let failed = files("broken/versions/1.0.0").await;
    assert_eq!(failed["state"], "failed");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("404"), "{message}");
    for (path, reason) in [
        ("web/versions/1.0.0/values", "--chart-files"),
        ("broken/versions/1.0.0/readme", message),
        ("broken/versions/1.0.0/keys", message),
        ("web/versions/2.0.0/readme", "no version"),
        ("web/diff?from=1.0.0&to=1.1.0", "--chart-files"),
    ] {
        let detail = serving.get(&format!("{STABLE}/{path}")).await.problem(404);
        assert!(detail.contains(reason), "{path}: {detail}");
    }
}

#[tokio::test]
async fn files_that_were_never_imported_are_pending() {
    let world = World::new().await;
    let url = world.database_url();
    fill_archives(&world, &url, "stable", &[web("1.0.0", VALUES)]).await;
    assert_eq!(world.execute("DELETE FROM files").await, 1);
    let serving = Serving::of(&world, &url).await;
    let version = format!("{STABLE}/web/versions/1.0.0");
    assert_eq!(serving.json(&version).await["files"]["state"], "pending");
    let detail = serving.get(&format!("{version}/readme")).await.problem(404);
    assert!(detail.contains("not imported yet"), "{detail}");
}

#[tokio::test]
async fn files_that_only_kubeapps_has_written_are_served() {
    let world = World::new().await;
    let url = world.database_url();
    fill_archives(&world, &url, "stable", &[web("1.0.0", VALUES)]).await;
    let tables =
        "SELECT name FROM sqlite_master WHERE type = 'table' AND (name LIKE 'portolan%' OR name LIKE '%migrations')";
    for table in world.texts(tables).await {
        world.execute(&format!("DROP TABLE {table}")).await;
    }
    let serving = Serving::of(&world, &url).await;
    let version = format!("{STABLE}/web/versions/1.0.0");
    assert_eq!(serving.get(&format!("{version}/values")).await.text(), VALUES);
    assert_eq!(serving.json(&version).await["files"]["state"], "imported");
    let syncs = serving.json("/repositories/default/stable/syncs").await;
    assert_eq!(syncs, json!({ "items": [] }));
}

/// Both have the `chart_files_id` `stable/a-1.0.0-1`, of which a table has one.
#[rstest]
#[case::first("a", "1.0.0-1", "a-1.0.0", "1")]
#[case::second("a-1.0.0", "1", "a", "1.0.0-1")]
#[tokio::test]
async fn files_of_another_chart_with_the_same_id_are_not_served(
    #[case] name: &str,
    #[case] version: &str,
    #[case] other: &str,
    #[case] other_version: &str,
) {
    let world = World::new().await;
    let url = world.database_url();
    let mine = Chart::new(name, version).file("README.md", "mine").pack();
    fill_archives(&world, &url, "stable", std::slice::from_ref(&mine)).await;
    assert_eq!(
        world.texts("SELECT chart_files_id FROM files").await,
        ["stable/a-1.0.0-1"]
    );
    let theirs = Chart::new(other, other_version).file("README.md", "theirs").pack();
    fill_archives(&world, &url, "stable", &[mine, theirs]).await;
    let serving = Serving::of(&world, &url).await;
    let readme = |name: &str, version: &str| format!("{STABLE}/{name}/versions/{version}/readme");
    assert_eq!(serving.get(&readme(name, version)).await.text(), "mine");
    serving.get(&readme(other, other_version)).await.problem(404);
}

#[tokio::test]
async fn values_are_listed_by_key() {
    let world = World::new().await;
    let url = world.database_url();
    let unreadable = Chart::new("odd", "1.0.0").file("values.yaml", "a: [1\n").pack();
    fill_archives(&world, &url, "stable", &[web("1.0.0", VALUES), unreadable]).await;
    let serving = Serving::of(&world, &url).await;
    let keys = format!("{STABLE}/web/versions/1.0.0/keys");
    assert_eq!(
        serving.json(&keys).await,
        json!({ "items": [
            { "path": "replicas", "default": "1", "comment": "Number of pods per zone", "type": "integer", "line": 2 },
            { "path": "image.tag", "default": "1.0", "comment": "", "type": "string", "line": 4 },
            { "path": "hosts", "default": "[]", "comment": "", "type": "array", "line": 5 },
        ], "incomplete": false })
    );
    let paths = async |query: &str| {
        let list = serving.json(&format!("{keys}?q={query}")).await;
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["path"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(paths("PODS+replicas").await, ["replicas"]);
    assert_eq!(paths("nowhere").await, [""; 0]);
    let odd = format!("{STABLE}/odd/versions/1.0.0");
    let detail = serving.get(&format!("{odd}/keys")).await.problem(422);
    assert!(
        detail.contains("line ") && detail.contains("/odd/versions/1.0.0/values"),
        "{detail}"
    );
    assert_eq!(serving.get(&format!("{odd}/values")).await.text(), "a: [1\n");
    assert!(serving.get(&format!("{keys}?limit=1")).await.problem(400).contains('q'));
}

#[rstest]
#[tokio::test]
async fn two_versions_are_compared_by_key_and_as_text(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let newer = "# -- Number of pods\nreplicas: 2\nimage:\n  tag: \"1.0\"\n  pullPolicy: Always\n";
    fill_archives(&world, &url, "stable", &[web("1.1.0", newer), web("1.0.0", VALUES)]).await;
    let serving = Serving::of(&world, &url).await;
    let diff = format!("{STABLE}/web/diff?from=1.0.0&to=1.1.0");
    assert_eq!(
        serving.json(&diff).await,
        json!({
            "from": "1.0.0", "to": "1.1.0", "file": "values", "incomplete": false,
            "added": [{ "path": "image.pullPolicy", "default": "Always", "comment": "", "type": "string", "line": 5 }],
            "removed": [{ "path": "hosts", "default": "[]", "comment": "", "type": "array", "line": 5 }],
            "changed": [{ "path": "replicas", "from": "1", "to": "2", "type": "integer", "comment": "Number of pods", "line": 2 }],
        })
    );
    let text = serving.accept("text/x-diff", &diff).await;
    assert_eq!(text.header("content-type"), "text/x-diff; charset=utf-8");
    let text = text.text();
    assert!(
        text.starts_with("--- web-1.0.0/values\n+++ web-1.1.0/values\n@@ "),
        "{text}"
    );
    assert!(text.contains("-replicas: 1 # per zone\n+replicas: 2\n"), "{text}");
    let readme = serving.get(&format!("{diff}&file=readme")).await;
    assert!(
        readme.text().contains("-# Web 1.0.0 <script>\n+# Web 1.1.0 <script>\n"),
        "{readme:?}"
    );
    let detail = serving
        .accept("application/json", &format!("{diff}&file=readme"))
        .await
        .problem(406);
    assert!(detail.contains("text/x-diff"), "{detail}");
    serving.get(&format!("{diff}&file=schema")).await.problem(404);
    for (query, parameter) in [
        ("to=1.1.0", "from"),
        ("from=1.0.0", "to"),
        ("from=1.0.0&to=1.1.0&file=x", "file"),
    ] {
        let problem = serving.get(&format!("{STABLE}/web/diff?{query}")).await;
        problem.problem(400);
        assert_eq!(problem.json()["parameter"], parameter);
    }
}

#[tokio::test]
async fn a_file_that_only_one_version_has_is_compared_with_an_empty_one() {
    let world = World::new().await;
    let url = world.database_url();
    let bare = Chart::new("web", "0.9.0").pack();
    fill_archives(&world, &url, "stable", &[web("1.0.0", VALUES), bare]).await;
    let serving = Serving::of(&world, &url).await;
    let diff = serving.json(&format!("{STABLE}/web/diff?from=0.9.0&to=1.0.0")).await;
    assert_eq!(
        (diff["added"].as_array().unwrap().len(), &diff["removed"]),
        (3, &json!([]))
    );
    let removed = serving.json(&format!("{STABLE}/web/diff?from=1.0.0&to=0.9.0")).await;
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn icons_are_images_that_run_nothing() {
    let world = World::new().await;
    let url = world.database_url();
    fill(
        &world,
        &url,
        "stable",
        &[("web", &["1.0.0"]), ("redis", &["1.0.0"]), ("tide", &["1.0.0"])],
    )
    .await;
    for (chart, icon) in [("web", "iVBORw0KGgo="), ("tide", "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+")] {
        // The type that is stored does not count.
        let statement = format!(
            "UPDATE charts SET info = json_set(info, '$.raw_icon', '{icon}', '$.icon_content_type', 'text/html')
            WHERE chart_id = 'stable/{chart}'"
        );
        assert_eq!(world.execute(&statement).await, 1);
    }
    let serving = Serving::of(&world, &url).await;
    for (chart, media_type, content) in [
        ("web", "image/png", "PNG"),
        ("tide", "image/svg+xml", "<svg onload="),
        ("redis", "image/svg+xml", ">R</text>"),
    ] {
        let icon = serving.get(&format!("{STABLE}/{chart}/icon")).await;
        assert_eq!((icon.status, icon.header("content-type")), (200, media_type));
        assert!(String::from_utf8_lossy(&icon.body).contains(content), "{icon:?}");
        let policy = icon.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("sandbox"),
            "{policy}"
        );
        assert_eq!(icon.header("x-content-type-options"), "nosniff");
        assert_eq!(icon.header("cross-origin-resource-policy"), "same-origin");
    }
    serving.get(&format!("{STABLE}/nothing/icon")).await.problem(404);
}

#[rstest]
#[tokio::test]
async fn the_history_of_syncs_is_shown_newest_first(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    fill(&world, &url, "stable", &[("web", &["1.0.0"]), ("redis", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let syncs = serving.json("/repositories/default/stable/syncs").await;
    let shown: Vec<_> = syncs["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sync| [&sync["result"], &sync["charts"]])
        .collect();
    assert_eq!(
        shown,
        [[&json!("Succeeded"), &json!(2)], [&json!("Succeeded"), &json!(1)]]
    );
    serving.get("/repositories/default/other/syncs").await.problem(404);
    let repository = serving.json("/repositories/default/stable").await;
    assert_eq!(repository["helmUrl"], "/helm/default/stable");
}

#[rstest]
#[tokio::test]
async fn a_large_row_waits_for_memory_and_is_served(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let readme = "x".repeat(3 << 20);
    let large = Chart::new("web", "1.0.0")
        .file("README.md", &readme)
        .file("values.yaml", "a: 1\n")
        .pack();
    fill_archives(&world, &url, "stable", &[large]).await;
    let serving = Serving::of(&world, &url).await;
    let version = format!("{STABLE}/web/versions/1.0.0");
    let (readme_path, keys_path) = (format!("{version}/readme"), format!("{version}/keys"));
    let (one, two) = tokio::join!(serving.get(&readme_path), serving.get(&keys_path));
    assert_eq!((one.status, one.body.len()), (200, readme.len()));
    assert_eq!(two.json()["items"][0]["path"], "a");
    let metrics = serving.portolan.metrics().await;
    let waited = metrics.sum("portolan_budget_wait_seconds_count", &[("resource", "memory")]);
    assert!(waited >= Some(2.0), "{waited:?}");
    crate::support::eventually::eventually(SOON, "the memory to be returned", async || {
        match serving
            .portolan
            .metrics()
            .await
            .sum("portolan_budget_used", &[("resource", "memory")])
        {
            Some(used) if used > 0.0 => Err(used),
            _ => Ok(()),
        }
    })
    .await;
}

/// Requests a path as it is: a client would resolve `..`.
async fn raw(serving: &Serving, path: &str) -> (u16, String) {
    let address = serving.url.trim_start_matches("http://").to_owned();
    let request = format!("GET /api/v1{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let read = spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    });
    let answer = read.await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

#[rstest]
#[tokio::test]
async fn a_strange_name_in_a_path_never_reaches_another_row(#[values(On::Sqlite, On::Postgres)] on: On) {
    const NAMES: [&str; 16] = [
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fstable",
        "stable%2Fweb",
        "%00",
        "web%00",
        "%ff",
        "%",
        "%25",
        "_",
        "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "%0d%0aSet-Cookie:%20x",
        "%1b%5b2J",
        "%E2%80%AEbew",
        "web'%20OR%20'1'='1",
    ];
    const PATHS: [&str; 9] = [
        "/repositories/{0}/{1}",
        "/repositories/{0}/{1}/syncs",
        "/charts/{0}/{1}/{2}",
        "/charts/{0}/{1}/{2}/icon",
        "/charts/{0}/{1}/{2}/versions",
        "/charts/{0}/{1}/{2}/versions/{3}",
        "/charts/{0}/{1}/{2}/versions/{3}/keys",
        "/charts/{0}/{1}/{2}/versions/{3}/{4}",
        "/charts/{0}/{1}/{2}/diff?from=1.0.0&to={3}",
    ];
    const GOOD: [&str; 5] = ["default", "stable", "web", "1.0.0", "readme"];
    let world = World::new().await;
    let url = database(&world, on).await;
    fill_archives(&world, &url, "stable", &[web("1.0.0", VALUES)]).await;
    let serving = Serving::of(&world, &url).await;
    let path = |pattern: &str, names: &[&str]| {
        let places = names.iter().enumerate();
        places.fold(pattern.to_owned(), |path, (at, name)| {
            path.replace(&format!("{{{at}}}"), name)
        })
    };
    let mut names_to_try = NAMES.iter().cycle();
    for pattern in PATHS {
        let (status, body) = raw(&serving, &path(pattern, &GOOD)).await;
        assert_eq!(status, 200, "{pattern}: {body}");
        for (place, _) in GOOD
            .iter()
            .enumerate()
            .filter(|(at, _)| pattern.contains(&format!("{{{at}}}")))
        {
            // Each name in some places: all of them in all places would exceed the rate of one caller.
            for &name in names_to_try.by_ref().take(4) {
                let mut names = GOOD;
                names[place] = name;
                let path = path(pattern, &names);
                let (status, body) = raw(&serving, &path).await;
                assert!([400, 404].contains(&status), "{path}: {status} {body}");
                let is_raw = ['\u{202e}', '\u{1b}', '\0'].iter().any(|c| body.contains(*c));
                assert!(!is_raw && !body.contains("Number of pods"), "{path}: {body}");
            }
        }
    }
}

#[tokio::test]
async fn markup_in_stored_names_stays_text() {
    let world = World::new().await;
    let url = world.database_url();
    let entry = "apiVersion: v1\nentries:\n  x:\n  - name: x\n    version: 1.0.0\n    description: '<script>alert(1)</script>'\n    \
                 urls: [x.tgz]\n";
    declare(&world, "stable", entry.to_owned());
    sync(&world, &url).await;
    world.execute("DELETE FROM files").await;
    let renamed = "UPDATE charts SET chart_id = 'stable/<b>', info = json_set(info, '$.name', '<b>')";
    assert_eq!(world.execute(renamed).await, 1);
    let serving = Serving::of(&world, &url).await;
    let chart = serving.get(&format!("{STABLE}/%3Cb%3E")).await;
    assert_eq!(chart.header("content-type"), "application/json");
    assert_eq!(chart.header("x-content-type-options"), "nosniff");
    assert_eq!(chart.json()["name"], "<b>");
    let icon = serving.get(&format!("{STABLE}/%3Cb%3E/icon")).await.text();
    assert!(icon.contains(">B</text>") && !icon.contains("<b>"), "{icon}");
}
