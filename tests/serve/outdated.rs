//! `POST /api/v1/outdated`: installed charts are compared with what the caller sees.

use rstest::rstest;
use serde_json::{Value, json};

use super::access::{Site, reader};
use super::{Answer, SOON, Serving, database, declare, fill, sync};
use crate::catalog::On;
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::world::World;

const JSON: (&str, &str) = ("content-type", "application/json");

async fn ask(serving: &Serving, body: &Value) -> Answer {
    serving.post("/outdated", body.to_string(), &[JSON]).await
}

/// Returns the judgements of these names and versions.
async fn judged(serving: &Serving, charts: &[(&str, &str)]) -> Vec<Value> {
    let charts: Vec<Value> = charts
        .iter()
        .map(|(name, version)| json!({ "name": name, "version": version, "home": "https://example.com/home" }))
        .collect();
    let answer = ask(serving, &json!({ "charts": charts })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["stale"], false);
    answer.json()["items"].as_array().unwrap().clone()
}

/// Entries of an index, each with the versions of a chart.
fn index(charts: &[(&str, &[&str], bool)]) -> String {
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    for (name, versions, is_deprecated) in charts {
        index += &format!("  {name}:\n");
        for version in *versions {
            index += &format!(
                "  - name: {name}\n    version: {version}\n    home: https://example.com/home\n    digest: {name}{version}\n    \
                 deprecated: {is_deprecated}\n    urls: [{name}-{version}.tgz]\n"
            );
        }
    }
    index
}

#[rstest]
#[tokio::test]
async fn charts_are_judged_in_the_order_of_the_request(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    declare(
        &world,
        "stable",
        index(&[
            ("web", &["1.0.0", "1.0.1", "1.1.0", "2.0.0"], false),
            ("db", &["1.0.0"], false),
        ]),
    );
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let items = judged(
        &serving,
        &[("web", "1.0.0"), ("none", "1.0.0"), ("db", "1.0.0"), ("web", "2.0.0")],
    )
    .await;
    let statuses: Vec<&Value> = items.iter().map(|item| &item["verdict"]["status"]).collect();
    assert_eq!(
        statuses,
        [&json!("major"), &Value::Null, &json!("current"), &json!("current")]
    );
    assert_eq!(items[0]["matched"], "likely");
    assert_eq!(
        items[0]["repositories"],
        json!([{ "namespace": "default", "name": "stable" }])
    );
    let verdict = &items[0]["verdict"];
    assert_eq!(
        [
            &verdict["newestPatch"],
            &verdict["newestMinor"],
            &verdict["newestMajor"]
        ],
        ["1.0.1", "1.1.0", "2.0.0"]
    );
    assert_eq!(
        items[1],
        json!({ "matched": "unknown", "repositories": [], "verdict": null })
    );
    assert!(judged(&serving, &[]).await.is_empty());
}

/// An index of which one chart changes is decoded incrementally.
#[rstest]
#[tokio::test]
async fn a_deprecated_chart_is_told_and_forgotten_with_its_mark(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let publish = async |web: &[&str], is_deprecated: bool| {
        declare(
            &world,
            "stable",
            index(&[("old", &["1.1.0", "1.0.0"], is_deprecated), ("web", web, false)]),
        );
        sync(&world, &url).await;
    };
    publish(&["1.0.0"], true).await;
    let serving = Serving::of(&world, &url).await;
    assert_eq!(serving.names("/charts").await, ["web"]);
    for web in [&["1.0.0"][..], &["2.0.0", "1.0.0"]] {
        publish(web, true).await;
        let old = judged(&serving, &[("old", "1.0.0")]).await.remove(0);
        assert_eq!(
            (&old["matched"], &old["verdict"]["deprecated"]),
            (&json!("likely"), &json!(true))
        );
        assert_eq!(old["verdict"]["newestMinor"], "1.1.0");
    }
    publish(&["2.0.0", "1.0.0"], false).await;
    eventually(SOON, "the chart without its mark", async || {
        let old = judged(&serving, &[("old", "1.0.0")]).await.remove(0);
        if old["verdict"]["deprecated"] == false {
            Ok(())
        } else {
            Err(old.to_string())
        }
    })
    .await;
    assert_eq!(serving.names("/charts").await, ["old", "web"]);
}

#[rstest]
#[tokio::test]
async fn charts_that_a_filter_removes_are_unknown_and_no_version_of_others_is_withdrawn(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let index = index(&[
        ("web", &["1.0.0", "1.2.0"], false),
        ("db", &["1.0.0"], false),
        ("old", &["1.0.0"], true),
    ]);
    let filter = "  filterRule:\n    jq: '.name == \"web\"'\n";
    world.server.serve("/stable/index.yaml", Page::new(index));
    world.declare("stable", &world.server.url("/stable"), filter);
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let items = judged(&serving, &[("web", "1.1.0"), ("db", "1.0.0"), ("old", "1.0.0")]).await;
    assert_eq!(items[0]["verdict"]["status"], "notListed", "{items:?}");
    assert_eq!([&items[1]["matched"], &items[2]["matched"]], ["unknown", "unknown"]);
}

#[tokio::test]
async fn a_preferred_repository_decides_an_ambiguous_match() {
    let world = World::new().await;
    let url = world.database_url();
    declare(&world, "one", index(&[("web", &["1.0.0", "2.0.0"], false)]));
    declare(&world, "two", index(&[("web", &["1.0.0", "3.0.0"], false)]));
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let chart = json!({ "name": "web", "version": "1.0.0" });
    let open = ask(&serving, &json!({ "charts": [chart] })).await.json();
    assert_eq!(
        (&open["items"][0]["matched"], &open["items"][0]["verdict"]),
        (&json!("ambiguous"), &Value::Null)
    );
    let prefer = json!([{ "namespace": "default", "name": "two" }]);
    let decided = ask(&serving, &json!({ "charts": [chart], "prefer": prefer }))
        .await
        .json();
    assert_eq!(decided["items"][0]["verdict"]["newestMajor"], "3.0.0", "{decided}");
}

#[tokio::test]
async fn bodies_that_are_not_valid_are_refused_with_the_reason() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let post = async |body: String, headers: &[(&str, &str)]| serving.post("/outdated", body, headers).await;
    let valid = json!({ "charts": [] }).to_string();
    assert_eq!(
        post(valid.clone(), &[("content-type", "Application/JSON; charset=utf-8")])
            .await
            .status,
        200
    );

    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let detail = post(valid.clone(), &[("content-type", media_type)]).await.problem(415);
        assert!(detail.contains("application/json"), "{detail}");
    }
    post(valid.clone(), &[]).await.problem(415);
    post(valid, &[JSON, ("accept", "text/html")]).await.problem(406);
    let large = format!("{}{{}}", " ".repeat(1024 * 1024));
    post(large, &[JSON]).await.problem(413);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        "{\"charts\": 1}",
        "{\"charts\": [{\"name\": \"web\"}]}",
    ] {
        post(body.to_owned(), &[JSON]).await.problem(422);
    }
    let many = vec![json!({ "name": "web", "version": "1.0.0" }); 1001];
    let detail = ask(&serving, &json!({ "charts": many })).await.problem(422);
    assert!(detail.contains("1000"), "{detail}");
    serving.get("/outdated").await.problem(405);

    let odd = json!({ "name": "web", "version": "not a version", "url": "::", "home": "\u{0}", "digest": "" });
    let answer = ask(&serving, &json!({ "charts": [odd] })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_compared_with_the_charts_that_they_see(#[values(On::Sqlite, On::Postgres)] on: On) {
    let site = Site::new(on).await;
    let serving = site.serve(&[]).await;
    let token = format!("Bearer {}", reader(&site.ours).await);
    let charts = ["web", "redis"].map(|name| json!({ "name": name, "version": "1.0.0" }));
    let body = json!({ "charts": charts }).to_string();
    let answer = serving
        .post("/outdated", body.clone(), &[JSON, ("authorization", &token)])
        .await;
    let items = answer.json()["items"].clone();
    assert_eq!(
        items[0]["repositories"],
        json!([{ "namespace": site.ours, "name": "ours" }])
    );
    assert_eq!(
        (&items[1]["matched"], &items[1]["repositories"]),
        (&json!("unknown"), &json!([]))
    );
    serving.post("/outdated", body, &[JSON]).await.problem(401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_counts_on_pages_of_the_same_site_only() {
    let site = Site::new(On::Sqlite).await;
    let serving = site.serve(&[]).await;
    let token = reader(&site.ours).await;
    let cookie = format!("portolan={}.{token}", jiff::Timestamp::now().as_second() + 600);
    let body = json!({ "charts": [{ "name": "web", "version": "1.0.0" }] }).to_string();
    let post = async |origin: &[(&str, &str)]| {
        let headers = [&[JSON, ("cookie", cookie.as_str())][..], origin].concat();
        serving.post("/outdated", body.clone(), &headers).await
    };
    let own = serving.url.clone();
    assert_eq!(post(&[("origin", own.as_str())]).await.status, 200);
    assert_eq!(post(&[("sec-fetch-site", "same-origin")]).await.status, 200);
    for origin in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[],
    ] {
        post(origin).await.problem(403);
    }
}
