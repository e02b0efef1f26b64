//! The page of a chart: its version, its files, and rows that try to be markup.

use rstest::rstest;
use serde_json::json;

use super::{Answer, Serving, database, declare, fill_archives};
use crate::catalog::On;
use crate::cluster::rows::Rows;
use crate::support::archives::{self, Archive, Chart};
use crate::support::portolan::{command, run};
use crate::support::world::World;

pub(super) const WEB: &str = "/charts/default/stable/web";
const VALUES: &str = "# -- Number of pods\nreplicas: 1 # per zone\nimage:\n  tag: \"1.0\"\nhosts: []\n";
const SCRIPT: &str = "<script>alert(1)</script>";

fn web(version: &str) -> Chart {
    Chart::new("web", version)
        .field("appVersion", "9.8")
        .file(
            "README.md",
            format!("# Web {version}\n\n[Values](#values) **bold**\n\n## Values\n"),
        )
        .file("values.yaml", VALUES)
        .file("values-production.yaml", "replicas: 3\n")
        .file("values.schema.json", "{\"type\": \"object\"}")
}

pub(super) async fn page(serving: &Serving, path: &str) -> Answer {
    serving.request(path, &[("accept", "text/html")]).await
}

pub(super) async fn shown(serving: &Serving, path: &str) -> String {
    let answer = page(serving, path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.text()
}

pub(super) fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[rstest]
#[tokio::test]
async fn a_page_shows_a_version_and_the_command_that_installs_it(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let old = web("1.0.0").field("deprecated", true);
    fill_archives(&world, &url, "stable", &[web("1.1.0").pack(), old.pack()]).await;
    let serving = Serving::of(&world, &url).await;

    let newest = shown(&serving, WEB).await;
    let install = format!(
        "<pre class=\"code\" id=\"install\">helm install web web --version 1.1.0 \\\n  --repo {}/helm/default/stable</pre>",
        serving.url
    );
    assert_has(
        &newest,
        &[
            "<h1>web</h1>",
            "app 9.8",
            "<a href=\"/repositories/default/stable\">default/stable</a><span class=\"badge ok\">Ready</span>",
            "<p>A web</p>",
            &install,
            "data-copy=\"install\"",
            "<option value=\"1.1.0\" selected>1.1.0</option>",
            "<option value=\"1.0.0\">1.0.0</option>",
            "<a href=\"/charts/default/stable/web/1.1.0?tab=readme\" aria-current=\"page\">README</a>",
            "<a href=\"/charts/default/stable/web/1.1.0?tab=versions\">Versions (2)</a>",
            "<h2 id=\"readme-web-110\">Web 1.1.0</h2>",
            "<a href=\"#readme-values\"",
            "<strong>bold</strong>",
        ],
    );
    assert!(!newest.contains("Deprecated"), "{newest}");

    // The form selects a version without a script.
    let old = shown(&serving, &format!("{WEB}?tab=readme&version=1.0.0")).await;
    assert_eq!(old, shown(&serving, &format!("{WEB}/1.0.0?tab=readme")).await);
    assert_has(
        &old,
        &[
            "Deprecated",
            "--version 1.0.0",
            "<option value=\"1.0.0\" selected>",
            "Web 1.0.0</h2>",
        ],
    );
    let schema = shown(&serving, &format!("{WEB}/1.0.0?tab=schema")).await;
    assert_has(
        &schema,
        &["<pre class=\"code\" id=\"schema\">{&#34;type&#34;: &#34;object&#34;}</pre>"],
    );
    // An unknown tab is the README.
    assert_eq!(newest, shown(&serving, &format!("{WEB}?tab=nothing")).await);
}

#[rstest]
#[tokio::test]
async fn values_are_shown_by_key_and_by_line(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let bare = Chart::new("bare", "1.0.0").pack();
    fill_archives(
        &world,
        &url,
        "stable",
        &[web("1.1.0").pack(), web("1.0.0").pack(), bare],
    )
    .await;
    let serving = Serving::of(&world, &url).await;
    let address = format!("{WEB}/1.1.0");

    let keys = shown(&serving, &format!("{address}?tab=values")).await;
    assert_has(
        &keys,
        &[
            "3 keys",
            "<code class=\"key\">replicas</code>",
            "<code class=\"default\">1</code>",
            "<td>Number of pods per zone</td>",
            "<code class=\"key\">image.<wbr>tag</code>",
            &format!("<a href=\"{address}?tab=values&#38;view=file#L4\">"),
            "<option value=\"values-production\">values-production.yaml</option>",
            // The version before is selected for a comparison.
            "action=\"/charts/default/stable/web/diff\"",
            "<option value=\"1.0.0\" selected>1.0.0</option>",
        ],
    );
    let filtered = shown(&serving, &format!("{address}?tab=values&q=PODS")).await;
    assert_has(
        &filtered,
        &[
            "1 key with all words",
            "value=\"PODS\"",
            "<code class=\"key\">replicas</code>",
        ],
    );
    assert!(!filtered.contains("image.<wbr>tag"), "{filtered}");
    let none = shown(&serving, &format!("{address}?tab=values&q=nothing")).await;
    assert_has(&none, &["0 keys", "No key has all words"]);

    let file = shown(&serving, &format!("{address}?tab=values&view=file")).await;
    assert_has(
        &file,
        &[
            "<span id=\"L1\">",
            "<span id=\"L5\">",
            "  tag: &#34;1.0&#34;",
            "/api/v1/charts/default/stable/web/",
        ],
    );
    let other = shown(&serving, &format!("{address}?tab=values&file=values-production")).await;
    assert_has(
        &other,
        &[
            "<code class=\"default\">3</code>",
            "<option value=\"values-production\" selected>",
        ],
    );
    let missing = shown(&serving, &format!("{address}?tab=values&file=values-other")).await;
    assert_has(&missing, &["no file values-other.yaml"]);

    for (tab, sentence) in [
        ("readme", "has no README"),
        ("values", "has no file values.yaml"),
        ("schema", "has no schema"),
    ] {
        let bare = shown(&serving, &format!("/charts/default/stable/bare?tab={tab}")).await;
        assert_has(&bare, &[sentence]);
    }
}

#[rstest]
#[tokio::test]
async fn a_page_says_why_files_are_missing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let archives = [web("1.1.0").pack(), web("1.0.0").pack()];
    let broken = Chart::new("broken", "1.0.0").pack();
    world.server.serve_archives("stable", &archives);
    let served: Vec<&Archive> = archives.iter().chain([&broken]).collect();
    let entries = served
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    declare(&world, "stable", archives::index(entries));
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
    for (path, sentences) in [
        (
            format!("{WEB}/1.0.0"),
            ["because --chart-files", "There is no README to show"],
        ),
        (
            "/charts/default/stable/broken".to_owned(),
            ["failed, and is repeated", "There is no README to show"],
        ),
    ] {
        assert_has(&shown(&serving, &path).await, &sentences);
    }
    assert_has(&shown(&serving, "/charts/default/stable/broken").await, &["404"]);
    Rows::of(&url)
        .await
        .execute("DELETE FROM files; DELETE FROM portolan_chart_metadata")
        .await;
    assert_has(&shown(&serving, WEB).await, &["are not imported yet"]);
}

/// Stores a chart whose texts are all markup, as Kubeapps' syncer would.
async fn insert_hostile(url: &str, on: On) {
    let cast = match on {
        On::Sqlite => "",
        On::Postgres => "::jsonb",
    };
    let hostile = format!("\"'>{SCRIPT}<img src=x onerror=alert(1)>\u{202e}");
    let info = json!({
        "name": hostile,
        "description": hostile,
        "home": "javascript:alert(1)",
        "sources": ["javascript:alert(1)", null],
        "maintainers": [{"name": hostile, "url": "javascript:alert(1)"}, null],
        "category": hostile,
        "keywords": [hostile],
        "chartVersions": [
            {"version": hostile, "app_version": hostile, "created": hostile, "digest": ""},
            {"version": "1.0.0", "app_version": hostile, "digest": ""},
            {"version": null},
        ],
    });
    let readme = format!("# {SCRIPT}\n\n{SCRIPT}\n\n<img src=x onerror=alert(1)>\n\n[a](javascript:alert(1))\n");
    let values = format!("# </pre>{SCRIPT}\n\"{SCRIPT}\": '<img src=x onerror=alert(1)>'\n");
    let files = json!({"Readme": readme, "DefaultValues": values, "Schema": SCRIPT, "Digest": "",
        "AdditionalDefaultValues": {(format!("values-{SCRIPT}")): values}});
    let insert = format!(
        "INSERT INTO charts (repo_namespace, repo_name, chart_id, info)
             VALUES ('default', 'stable', 'stable/hostile', '{}'{cast});
         INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
             VALUES ('stable/hostile', 'stable', 'default', 'stable/hostile-1.0.0', '{}'{cast})",
        info.to_string().replace('\'', "''"),
        files.to_string().replace('\'', "''"),
    );
    Rows::of(url).await.execute(&insert).await;
}

#[rstest]
#[tokio::test]
async fn hostile_rows_and_parameters_are_text(#[values(On::Sqlite, On::Postgres)] on: On) {
    const ENCODED: &str = "%22'%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E%3Cimg%20src=x%20onerror=alert(1)%3E%E2%80%AE";
    let world = World::new().await;
    let url = database(&world, on).await;
    fill_archives(&world, &url, "stable", &[web("1.0.0").pack()]).await;
    insert_hostile(&url, on).await;
    let serving = Serving::of(&world, &url).await;
    let hostile = "/charts/default/stable/hostile";
    let mut paths = vec![
        hostile.to_owned(),
        format!("{hostile}/{ENCODED}"),
        format!("{hostile}?version={ENCODED}"),
        format!("{WEB}?tab={ENCODED}&q={ENCODED}&file={ENCODED}&view={ENCODED}"),
        format!("{WEB}?tab=values&q={ENCODED}"),
        format!("{WEB}?tab=values&file=values-{ENCODED}"),
        format!("{hostile}/1.0.0?tab=values&view=file"),
        format!("{hostile}/1.0.0?tab=values&file=values-%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
    ];
    let tabs = ["readme", "values", "schema", "changes", "versions", "about"];
    paths.extend(tabs.map(|tab| format!("{hostile}/1.0.0?tab={tab}")));
    for path in paths {
        let page = shown(&serving, &path).await;
        for markup in ["<script>", "<img src=x", "href=\"javascript:"] {
            assert!(!page.contains(markup), "{path}: {markup} in {page}");
        }
    }
    // No command repeats such a version.
    let page = shown(&serving, hostile).await;
    assert_has(&page, &["There is no command to copy"]);
    for path in [
        format!("{WEB}/{ENCODED}"),
        format!("{WEB}/diff/x"),
        format!("{hostile}{ENCODED}"),
    ] {
        let refused = self::page(&serving, &path).await;
        assert_eq!(refused.status, 404, "{path}: {refused:?}");
        assert!(!refused.text().contains("<script>"), "{refused:?}");
    }
    let twice = self::page(&serving, &format!("{WEB}?q=a&q=b")).await;
    assert_eq!(twice.status, 400, "{twice:?}");
}

#[tokio::test]
async fn long_files_are_cut_and_a_deep_readme_is_text() {
    let world = World::new().await;
    let url = world.database_url();
    let deep = format!("{} deep", ">".repeat(10_000));
    let keys: String = (0..6_000).map(|number| format!("key{number}: 1\n")).collect();
    let lines = "# line\n".repeat(20_000);
    let chart = Chart::new("web", "1.0.0")
        .file("README.md", deep)
        .file("values.yaml", keys)
        .file("values-lines.yaml", lines)
        .pack();
    fill_archives(&world, &url, "stable", &[chart]).await;
    let serving = Serving::of(&world, &url).await;
    let readme = shown(&serving, WEB).await;
    assert_has(&readme, &["too long or too complex", "&#62;&#62; deep</pre>"]);
    assert!(!readme.contains("<blockquote"), "{}", readme.len());
    let keys = shown(&serving, &format!("{WEB}?tab=values")).await;
    assert_has(
        &keys,
        &[
            "5,000 keys",
            "more keys than are listed",
            "<code class=\"key\">key4999</code>",
        ],
    );
    assert!(!keys.contains("key5000"), "{}", keys.len());
    let file = shown(&serving, &format!("{WEB}?tab=values&file=values-lines&view=file")).await;
    assert_has(&file, &["is cut here", "id=\"L10000\""]);
    assert!(!file.contains("id=\"L10001\""), "{}", file.len());
}
