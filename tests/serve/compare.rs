//! Two versions of a chart side by side, and what Chart.yaml says of one.

use rstest::rstest;
use serde_json::json;

use super::charts::{WEB, assert_has, page, shown};
use super::{Serving, database, fill_archives};
use crate::catalog::On;
use crate::support::archives::{Archive, Chart};
use crate::support::world::World;

const HOSTILE: &str = "<script>alert(1)</script>";

fn charts() -> Vec<Archive> {
    let old = Chart::new("web", "1.0.0")
        .file("values.yaml", "replicas: 1\nlegacy: true\nimage:\n  tag: old\n")
        .file("values-production.yaml", "replicas: 3\n");
    let annotations = json!({
        "artifacthub.io/changes": "- kind: added\n  description: Zones\n- Fewer pods\n",
        "artifacthub.io/license": "Apache-2.0",
        "artifacthub.io/links": format!("- name: Guide\n  url: https://docs.example/web\n- name: {HOSTILE}\n  url: javascript:alert(1)\n"),
        "artifacthub.io/images": "[not yaml",
        "artifacthub.io/operator": "true",
        "category": HOSTILE,
    });
    let dependencies = json!([
        { "name": "store", "version": "1.x.x", "repository": "https://elsewhere.example", "condition": "store.enabled" },
        { "name": "unknown", "version": "2.0.0", "repository": "https://elsewhere.example" },
    ]);
    let new = Chart::new("web", "1.1.0")
        .field("kubeVersion", ">=1.30.0")
        .field("annotations", annotations)
        .field("dependencies", dependencies)
        .field("sources", json!(["https://code.example/web", "javascript:alert(2)"]))
        .file(
            "values.yaml",
            format!("replicas: 2 # per zone\nzone: {HOSTILE}\nimage:\n  tag: old\n"),
        )
        .file("values-production.yaml", "replicas: 5\n");
    let store = Chart::new("store", "1.0.0").file("README.md", "# Store\n");
    vec![old.pack(), new.pack(), store.pack()]
}

#[rstest]
#[tokio::test]
async fn two_versions_are_compared_by_key_and_as_text(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill_archives(&world, &url, "stable", &charts()).await;
    let serving = Serving::of(&world, &url).await;

    let diff = shown(&serving, &format!("{WEB}/diff?from=1.0.0&to=1.1.0")).await;
    assert_has(
        &diff,
        &[
            "<h1>web: 1.0.0 to 1.1.0</h1>",
            "<p role=\"status\">1 key added, 1 key removed, 1 key changed.</p>",
            "<code class=\"removed\">1</code>",
            "<code class=\"added\">2</code>",
            "<span class=\"removed\">-legacy: true\n</span>",
            "<span class=\"added\">+replicas: 2 # per zone\n</span>",
        ],
    );
    assert!(!diff.contains("image.<wbr>tag") && !diff.contains("<script>"), "{diff}");
    let same = shown(&serving, &format!("{WEB}/diff?from=1.1.0&to=1.1.0")).await;
    assert_has(&same, &["No key differs.", "The files are equal."]);

    let changes = shown(&serving, &format!("{WEB}/1.1.0?tab=changes")).await;
    assert_has(
        &changes,
        &[
            "<span class=\"badge unknown\">added</span> Zones",
            "<li>Fewer pods</li>",
            "Values of 1.1.0 compared with 1.0.0.",
            "1 key added, 1 key removed, 1 key changed.",
            "diff?from=1.0.0&#38;to=1.1.0",
        ],
    );
    let oldest = shown(&serving, &format!("{WEB}/1.0.0?tab=changes")).await;
    assert_has(&oldest, &["There is no earlier version to compare with."]);
    let versions = shown(&serving, &format!("{WEB}/1.1.0?tab=versions")).await;
    assert_has(
        &versions,
        &["<a href=\"/charts/default/stable/web/diff?from=1.0.0&#38;to=1.1.0\">Compare"],
    );
}

#[tokio::test]
async fn other_files_of_values_are_compared_too() {
    let world = World::new().await;
    let url = world.database_url();
    fill_archives(&world, &url, "stable", &charts()).await;
    let serving = Serving::of(&world, &url).await;
    let values = shown(&serving, &format!("{WEB}/1.1.0?tab=values&file=values-production")).await;
    assert_has(
        &values,
        &["<input type=\"hidden\" name=\"file\" value=\"values-production\">"],
    );
    let diff = format!("{WEB}/diff?from=1.0.0&to=1.1.0");
    let production = shown(&serving, &format!("{diff}&file=values-production")).await;
    assert_has(
        &production,
        &[
            "<h2>Keys of values-production.yaml</h2>",
            "<p role=\"status\">1 key changed.</p>",
            "<code class=\"removed\">3</code>",
            "<span class=\"added\">+replicas: 5\n</span>",
            "<option value=\"values\">values.yaml</option>",
            "<option value=\"values-production\" selected>values-production.yaml</option>",
        ],
    );
    let unknown = shown(&serving, &format!("{diff}&file=values-other")).await;
    assert_has(&unknown, &["has no file", "/versions/1.1.0/values-other\""]);
}

#[rstest]
#[tokio::test]
async fn chart_yaml_is_shown_with_links_to_charts_of_the_catalog(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill_archives(&world, &url, "stable", &charts()).await;
    let serving = Serving::of(&world, &url).await;
    let about = shown(&serving, &format!("{WEB}?tab=about")).await;
    assert_has(
        &about,
        &[
            "<dt>Kubernetes</dt><dd>&#62;=1.30.0</dd>",
            "<dt>License</dt><dd>Apache-2.0</dd>",
            "<a href=\"/charts/default/stable/store\">store</a>",
            "<th scope=\"row\">unknown</th>",
            "<code>store.enabled</code>",
            "<a href=\"https://docs.example/web\" rel=\"nofollow noopener noreferrer\">Guide</a>",
            "<a href=\"https://code.example/web\"",
            "<pre class=\"code\">[not yaml</pre>",
            "<dt>artifacthub.io/operator</dt><dd>true</dd>",
            "&#60;script&#62;alert(1)&#60;/script&#62;",
        ],
    );
    for refused in ["<script>", "javascript:"] {
        assert!(!about.contains(refused), "{refused} in {about}");
    }
}

#[tokio::test]
async fn what_can_not_be_compared_is_said() {
    let world = World::new().await;
    let url = world.database_url();
    let long =
        |version: &str| Chart::new("long", version).file("values.yaml", format!("{version}: 1\n").repeat(200_000));
    let broken = Chart::new("broken", "1.0.0").file("values.yaml", "a: [1\n");
    let fine = Chart::new("broken", "1.1.0").file("values.yaml", "a: 1\n");
    let archives = [long("1.0.0").pack(), long("1.1.0").pack(), broken.pack(), fine.pack()];
    fill_archives(&world, &url, "stable", &archives).await;
    let serving = Serving::of(&world, &url).await;
    let path = |chart: &str| format!("/charts/default/stable/{chart}/diff");
    let long = shown(&serving, &format!("{}?from=1.0.0&to=1.1.0", path("long"))).await;
    assert_has(
        &long,
        &[
            "too long for a diff",
            "/versions/1.0.0/values",
            "/versions/1.1.0/values",
        ],
    );
    let broken = shown(&serving, &format!("{}?from=1.0.0&to=1.1.0", path("broken"))).await;
    assert_has(
        &broken,
        &["can&#39;t be read", "<span class=\"removed\">-a: [1\n</span>"],
    );
    for (query, status) in [
        ("from=1.0.0&to=9.9.9", 404),
        ("from=9.9.9&to=1.0.0", 404),
        ("from=1.0.0", 400),
        ("to=1.0.0", 400),
        ("from=1&from=2&to=1.0.0", 400),
    ] {
        let answer = page(&serving, &format!("{}?{query}", path("broken"))).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}
