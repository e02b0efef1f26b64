//! `helm search hub`.

use rstest::rstest;
use serde_json::json;

use super::get;
use crate::serve::{Serving, fill};
use crate::support::helm;
use crate::support::process::ScratchDir;
use crate::support::world::World;

#[rstest]
#[tokio::test]
async fn helm_search_hub_finds_charts(#[values("helm", "helm4")] release: &str) {
    let world = World::new().await;
    let url = world.database_url();
    fill(
        &world,
        &url,
        "stable",
        &[("web", &["1.1.0", "1.0.0"]), ("redis", &["2.0.0"])],
    )
    .await;
    let serving = Serving::of(&world, &url).await;
    let home = ScratchDir::new("helm");
    let arguments = [
        "search",
        "hub",
        "web",
        "--endpoint",
        &serving.url,
        "--list-repo-url",
        "-o",
        "json",
    ];
    let found = helm::output(helm::command_of(release, home.path(), &arguments)).await;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found[0]["url"], format!("{}/charts/default.stable/web", serving.url));
    assert_eq!(found[0]["version"], "1.1.0");
    assert_eq!(
        found[0]["repository"],
        json!({ "name": "default.stable", "url": format!("{}/helm/default/stable", serving.url) })
    );
    // The link leads to the page of the chart.
    let chart = get(&serving, "/charts/default.stable/web").await;
    assert_eq!(
        (chart.status, chart.text().contains("<h1>web</h1>")),
        (200, true),
        "{chart:?}"
    );
    get(&serving, "/charts/stable/web").await.problem(404);
}
