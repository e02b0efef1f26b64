//! Single charts and versions, and what all responses have in common.

use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::json;

use super::{SOON, Serving, declare, fill, sync};
use crate::support::eventually::eventually;
use crate::support::world::World;

const STABLE: &str = "/charts/default/stable";

#[tokio::test]
async fn a_chart_its_versions_and_one_version_are_shown() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.1.0", "1.0.0", "0.9.0+build.1"])]).await;
    let serving = Serving::of(&world, &url).await;
    let chart = serving.json(&format!("{STABLE}/web")).await;
    assert_eq!(
        [&chart["version"], &chart["versions"], &chart["home"]],
        [&json!("1.1.0"), &json!(3), &json!("")]
    );
    let first = serving.json(&format!("{STABLE}/web/versions?limit=2")).await;
    assert_eq!(first["items"][1]["version"], "1.0.0");
    let next = first["next"].as_str().unwrap();
    let last = serving
        .json(&format!("{STABLE}/web/versions?limit=2&cursor={next}"))
        .await;
    assert_eq!(
        (&last["items"][0]["version"], last.get("next")),
        (&json!("0.9.0+build.1"), None)
    );
    for version in ["0.9.0+build.1", "0.9.0%2Bbuild.1"] {
        let one = serving.json(&format!("{STABLE}/web/versions/{version}")).await;
        assert_eq!(
            [&one["name"], &one["version"], &one["created"], &one["urls"]],
            [
                &json!("web"),
                &json!("0.9.0+build.1"),
                &json!("2026-01-01T00:00:00Z"),
                &json!(["web-0.9.0+build.1.tgz"])
            ]
        );
    }
    for missing in [
        "web/versions/9.9.9",
        "nothing",
        "nothing/versions",
        "..",
        "web%00",
        "%ff",
    ] {
        serving.get(&format!("{STABLE}/{missing}")).await.problem(404);
    }
    serving.get("/charts/default/other/web").await.problem(404);
}

#[tokio::test]
async fn a_slash_in_the_name_of_a_chart_is_encoded_in_its_path() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let renamed = world
        .execute(
            "UPDATE charts SET chart_id = 'stable/team%2Fweb', info = replace(info, '\"name\":\"web\"', '\"name\":\"team%2Fweb\"')",
        )
        .await;
    assert_eq!(renamed, 1);
    let serving = Serving::of(&world, &url).await;
    let listed = serving.names("/charts?q=team/web").await;
    assert_eq!(listed, ["team%2Fweb"]);
    let chart = serving.json(&format!("{STABLE}/{}", listed[0])).await;
    assert_eq!(chart["name"], "team%2Fweb");
    let version = serving.json(&format!("{STABLE}/team%2Fweb/versions/1.0.0")).await;
    assert_eq!(version["version"], "1.0.0");
}

#[tokio::test]
async fn urls_of_charts_are_shown_without_what_may_be_secret() {
    let world = World::new().await;
    let url = world.database_url();
    let index = "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    home: https://me:hush@web.example/?hush\n    \
                 sources: ['https://hush@git.example/web']\n    maintainers: [{name: Keeper, url: 'https://me:hush@keeper.example'}]\n    urls: ['https://me:hush@charts.example/web.tgz?sig=hush']\n";
    declare(&world, "stable", index.to_owned());
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    for path in ["web", "web/versions", "web/versions/1.0.0"] {
        let shown = serving.json(&format!("{STABLE}/{path}")).await.to_string();
        assert!(!shown.contains("hush"), "{shown}");
        assert!(
            shown.contains("https://charts.example/web.tgz") || path == "web",
            "{shown}"
        );
    }
}

#[tokio::test]
async fn unchanged_content_is_not_sent_again() {
    let world = World::new().await;
    let url = world.database_url();
    let names: Vec<String> = (0..50).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    fill(&world, &url, "stable", &charts).await;
    let serving = Serving::of(&world, &url).await;
    let first = serving.get("/charts").await;
    assert_eq!(first.header("cache-control"), "private, no-cache");
    assert!(first.header("vary").contains("Authorization"), "{first:?}");
    let known = [("if-none-match", first.header("etag"))];
    let again = serving.request("/api/v1/charts", &known).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    let packed = serving.request("/api/v1/charts", &[("accept-encoding", "gzip")]).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.body.as_slice())
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, first.body);
    // A sync that finds the same charts changes the record only.
    sync(&world, &url).await;
    let after = serving.request("/api/v1/charts", &known).await;
    assert_eq!(after.status, 304, "{after:?}");
    fill(&world, &url, "stable", &charts[1..]).await;
    eventually(SOON, "the change to be served", async || {
        match serving.request("/api/v1/charts", &known).await.status {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn other_paths_methods_and_hosts_are_problems() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    for path in ["/api/v1", "/api/v1/nothing", "/metrics"] {
        serving.request(path, &[]).await.problem(404);
    }
    let posted = serving
        .client
        .post(format!("{}/api/v1/charts", serving.url))
        .send()
        .await
        .unwrap();
    assert_eq!(posted.status(), 405);
    assert!(posted.headers()["allow"].to_str().unwrap().contains("GET"));
    let head = serving
        .client
        .head(format!("{}/api/v1/charts", serving.url))
        .send()
        .await
        .unwrap();
    assert_eq!(head.status(), 200);
    let long = format!("/api/v1/charts/default/stable/{}", "x".repeat(9000));
    serving.request(&long, &[]).await.problem(414);
    serving
        .request("/api/v1/charts", &[("host", "evil.example")])
        .await
        .problem(403);
    let metrics = serving.portolan.metrics().await;
    let requests = "portolan_catalog_request_duration_seconds_count";
    assert_eq!(metrics.sum(requests, &[("code", "414")]), Some(1.0));
    assert!(metrics.sum("portolan_catalog_checks_total", &[("result", "succeeded")]) >= Some(1.0));
}
